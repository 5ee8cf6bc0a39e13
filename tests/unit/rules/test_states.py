"""The states S1–S6 of seed 003, read off objects (02 §1.1, R21)."""

from collections.abc import Mapping

import pytest

from dovetail.api.names import CANDIDATE_TAINT, DISRUPTED_TAINT
from dovetail.model.snapshot import ClusterNode
from dovetail.rules.states import IN_DISRUPTION, MEANING, NodeState, is_tainted_candidate, state_of
from tests.harness.builders import claim, member, node

DELETED = "2026-03-04T11:00:00Z"
DISRUPTED = (DISRUPTED_TAINT, "NoSchedule")
CANDIDATE = (CANDIDATE_TAINT, "PreferNoSchedule")
MARKED = claim(true=["DisruptionReason"])


@pytest.mark.parametrize(
    ("subject", "state"),
    [
        # S1
        pytest.param(member(claim(), node()), "S1", id="S1: nothing below"),
        pytest.param(member(claim(statuses={})), "S1", id="S1: a new claim"),
        pytest.param(member(claim(statuses={"Launched": "True"})), "S1", id="S1: launched, no Node"),
        pytest.param(member(claim(true=["Drifted"])), "S1", id="S1: drifted, but there is no Node"),
        pytest.param(
            member(claim(statuses={"Drifted": "True"}), node(registered=False)),
            "S1",
            id="S1: drifted, never registered",
        ),
        pytest.param(
            member(claim(statuses={"DisruptionReason": "True"}), node(registered=False, taints=[DISRUPTED])),
            "S1",
            id="S1: marked, never registered",
        ),
        pytest.param(member(None, node()), "S1", id="S1: a Node without claim"),
        pytest.param(member(None, node(taints=[CANDIDATE, DISRUPTED])), "S1", id="S1: a tainted Node without claim"),
        pytest.param(member(claim(), node(taints=[DISRUPTED])), "S1", id="S1: taint without condition"),
        pytest.param(member(MARKED, node()), "S1", id="S1: condition without taint"),
        pytest.param(
            member(MARKED, node(taints=[(DISRUPTED_TAINT, "NoExecute")])), "S1", id="S1: taint with another effect"
        ),
        pytest.param(
            member(claim(), node(taints=[(CANDIDATE_TAINT, "NoSchedule")])),
            "S1",
            id="S1: candidate taint with another effect",
        ),
        pytest.param(member(claim(true=["Consolidatable"]), node()), "S1", id="S1: merely consolidatable"),
        pytest.param(member(claim(true=["InstanceTerminating"])), "S1", id="S1: no Node, terminating, not deleted"),
        # S2
        pytest.param(member(claim(true=["Drifted"]), node()), "S2", id="S2: Drifted"),
        pytest.param(member(claim(true=["Expired"]), node()), "S2", id="S2: Expired"),
        pytest.param(member(claim(), node(taints=[CANDIDATE])), "S2", id="S2: candidate taint"),
        pytest.param(
            member(claim(true=["Drifted"]), node(taints=[DISRUPTED])), "S2", id="S2: drifted, taint without condition"
        ),
        pytest.param(
            member(claim(statuses={"Registered": "True", "Drifted": "True"}), node(registered=False)),
            "S2",
            id="S2: registered by the claim's condition",
        ),
        pytest.param(
            member(claim(statuses={"Drifted": "True"}), node(registered=True)),
            "S2",
            id="S2: registered by the Node's label",
        ),
        # S3
        pytest.param(member(MARKED, node(taints=[DISRUPTED])), "S3", id="S3: taint and condition"),
        pytest.param(
            member(claim(true=["DisruptionReason", "Drifted"]), node(taints=[CANDIDATE, DISRUPTED])),
            "S3",
            id="S3: over S2",
        ),
        # S4
        pytest.param(member(claim(deleted=DELETED), node()), "S4", id="S4: claim deleted"),
        pytest.param(member(claim(), node(deleted=DELETED)), "S4", id="S4: Node deleted"),
        pytest.param(member(claim(deleted=DELETED), node(deleted=DELETED)), "S4", id="S4: both"),
        pytest.param(member(None, node(deleted=DELETED)), "S4", id="S4: a Node without claim"),
        pytest.param(member(claim(deleted=DELETED)), "S4", id="S4: a claim without Node"),
        pytest.param(member(claim(deleted=DELETED, statuses={})), "S4", id="S4: never registered, deleted"),
        pytest.param(
            member(claim(deleted=DELETED, true=["DisruptionReason"]), node(taints=[DISRUPTED])), "S4", id="S4: over S3"
        ),
        pytest.param(
            member(claim(deleted=DELETED, true=["Drained", "VolumesDetached"]), node()), "S4", id="S4: drained"
        ),
        pytest.param(
            member(claim(deleted=DELETED, statuses={"InstanceTerminating": "False"})),
            "S4",
            id="S4: not terminating yet",
        ),
        # S5
        pytest.param(
            member(claim(deleted=DELETED, true=["InstanceTerminating"]), node(deleted=DELETED)), "S5", id="S5: over S4"
        ),
        pytest.param(member(claim(true=["InstanceTerminating"]), node()), "S5", id="S5: not even deleted"),
        pytest.param(
            member(claim(deleted=DELETED, statuses={"InstanceTerminating": "Unknown"}), node()), "S4", id="S4: unknown"
        ),
        # S6
        pytest.param(member(claim(deleted=DELETED, true=["InstanceTerminating"])), "S6", id="S6: the Node is gone"),
    ],
)
def test_state(subject: ClusterNode, state: str) -> None:
    assert state_of(subject) == state


@pytest.mark.parametrize("condition", ["Drifted", "Expired", "DisruptionReason", "InstanceTerminating"])
@pytest.mark.parametrize("status", ["False", "Unknown", "", "true"])
def test_only_a_true_condition_counts(condition: str, status: str) -> None:
    statuses: Mapping[str, str] = {"Registered": "True", condition: status}
    assert state_of(member(claim(statuses=statuses), node(taints=[DISRUPTED]))) is NodeState.STEADY


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_registration_counts_only_when_true(status: str) -> None:
    statuses = {"Registered": status, "Drifted": "True"}
    assert state_of(member(claim(statuses=statuses), node(registered=False))) is NodeState.STEADY


def test_candidate_taint() -> None:
    assert is_tainted_candidate(member(None, node(taints=[CANDIDATE])))
    assert not is_tainted_candidate(member(claim(), node(taints=[DISRUPTED])))
    assert not is_tainted_candidate(member(claim()))


def test_which_states_hold_a_budget_slot_and_what_they_are_called() -> None:
    assert sorted(IN_DISRUPTION) == ["S3", "S4", "S5", "S6"]
    assert list(MEANING) == list(NodeState)
    assert [state.value for state in NodeState] == ["S1", "S2", "S3", "S4", "S5", "S6"]
