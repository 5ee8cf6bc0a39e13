"""What goes from objects when we go, and what stays."""

from typing import Any

import pytest

from dovetail.planning.cleaning import Cleaning, JsonObject, clean_claim, clean_node, clean_pool, is_ours

CANDIDATE = {"key": "karpenter.sh/candidate", "effect": "PreferNoSchedule"}
DISRUPTED = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
THEIRS = {"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule", "timeAdded": "2026-03-06T16:20:00Z"}
COMMAND = "karpenter.sh/disruption-command"
REPLACEMENT_OF = "karpenter.sh/disruption-replacement-of"
DELETED = {"deletionTimestamp": "2026-03-06T16:20:00Z"}


def node(*taints: JsonObject, **metadata: Any) -> JsonObject:
    return {"metadata": {"name": "n1", **metadata}, "spec": {"providerID": "kwok://n1", "taints": list(taints)}}


def claim(*conditions: str, **metadata: Any) -> JsonObject:
    entries = [{"type": type_, "status": "True", "unheard-of": 1} for type_ in conditions]
    return {"metadata": {"name": "c1", **metadata}, "status": {"providerID": "kwok://n1", "conditions": entries}}


def bodies(cleaning: Cleaning) -> list[tuple[str, JsonObject]]:
    return [(patch.subresource, patch.body) for patch in cleaning.patches]


OURS = claim("Ready", "DisruptionState")


def test_what_has_nothing_of_ours_is_left_alone() -> None:
    assert clean_node(node(THEIRS), None) == Cleaning()
    assert clean_node({"metadata": {"name": "bare"}}, None) == Cleaning()
    assert clean_claim(claim("Ready", "Drifted", "Consolidatable", annotations={"a": "b"})) == Cleaning()
    assert clean_claim({"metadata": {"name": "new", "annotations": None}, "status": None}) == Cleaning()
    assert clean_pool({"metadata": {"name": "p"}, "status": {"nodes": 3}}) == Cleaning()
    assert clean_pool({"metadata": {"name": "p"}}) == Cleaning()


def test_the_candidate_taint_goes_and_others_stay_as_they_are() -> None:
    cleaning = clean_node(node(CANDIDATE, THEIRS), None)
    assert cleaning.changes == ("taint karpenter.sh/candidate:PreferNoSchedule",)
    assert bodies(cleaning) == [("", {"spec": {"taints": [THEIRS]}})]


def test_the_last_taint_and_the_last_annotation_take_their_fields_with_them() -> None:
    cleaning = clean_node(node(CANDIDATE, annotations={REPLACEMENT_OF: "x"}), None)
    assert bodies(cleaning) == [("", {"metadata": {"annotations": None}, "spec": {"taints": None}})]


def test_while_karpenter_runs_its_own_marks_stay() -> None:
    assert clean_node(node(DISRUPTED, THEIRS), OURS, karpenter=True) == Cleaning()
    going = claim("Ready", "DisruptionState", "DisruptionReason")
    assert clean_claim(going, karpenter=True).changes == ("condition DisruptionState",)


def test_the_taint_of_drive_goes() -> None:
    drives = {"key": "dovetail.dev/disrupted", "effect": "NoSchedule"}
    assert bodies(clean_node(node(drives, THEIRS), None, karpenter=True)) == [("", {"spec": {"taints": [THEIRS]}})]


def test_a_node_that_was_to_be_replaced_takes_pods_again() -> None:
    cleaning = clean_node(node(DISRUPTED, THEIRS), OURS)
    assert bodies(cleaning) == [("", {"spec": {"taints": [THEIRS]}})]


@pytest.mark.parametrize(
    ("tainted", "owner"),
    [
        (node(DISRUPTED), None),
        (node(DISRUPTED), claim("Ready", "DisruptionReason")),  # another program's command
        (node(DISRUPTED), claim("Ready", "DisruptionState", **DELETED)),
        (node(DISRUPTED, **DELETED), OURS),
        (node({**DISRUPTED, "effect": "NoExecute"}), OURS),
    ],
)
def test_a_node_that_goes_or_is_not_ours_stays_closed(tainted: JsonObject, owner: JsonObject | None) -> None:
    assert clean_node(tainted, owner) == Cleaning()


def test_a_claim_in_a_command() -> None:
    cleaning = clean_claim(
        claim(
            "Initialized",
            "DisruptionState",
            "Expired",
            "NodeLost",
            "DisruptionReason",
            "Ready",
            annotations={COMMAND: "{}", "a": "b"},
        )
    )
    assert cleaning.changes == (
        "condition DisruptionState",
        "condition Expired",
        "condition NodeLost",
        "condition DisruptionReason",
        f"annotation {COMMAND}",
    )
    kept = claim("Initialized", "Ready")["status"]["conditions"]
    assert bodies(cleaning) == [
        ("status", {"status": {"conditions": kept}}),
        ("", {"metadata": {"annotations": {COMMAND: None}}}),
    ]


@pytest.mark.parametrize(
    ("going", "nodes"),
    [
        (claim("DisruptionState", "DisruptionReason", **DELETED), []),
        (claim("DisruptionState", "DisruptionReason"), [node(DISRUPTED, **DELETED)]),
    ],
)
def test_a_claim_that_goes_keeps_its_reason(going: JsonObject, nodes: list[JsonObject]) -> None:
    assert clean_claim(going, nodes).changes == ("condition DisruptionState",)


def test_the_reason_of_another_programs_command_stays() -> None:
    assert clean_claim(claim("Ready", "DisruptionReason")) == Cleaning()


def test_what_a_pool_tells_of_its_budgets_goes() -> None:
    cleaning = clean_pool({"metadata": {"name": "p"}, "status": {"nodes": 3, "disruptions": []}})
    assert bodies(cleaning) == [("status", {"status": {"disruptions": None}})]


def test_whose_a_claim_is() -> None:
    assert is_ours(OURS)
    assert is_ours(claim(annotations={REPLACEMENT_OF: "x"}))
    assert not is_ours(claim("Ready", "Drifted", "DisruptionReason", annotations={"karpenter.sh/nodepool-hash": "1"}))
