"""Where a claim stands between wanted and initialized, and what is written next (03 §7)."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from dovetail.api import names, objects
from dovetail.api.names import ConditionReason, ConditionType
from dovetail.planning.conditions import Conditions
from dovetail.planning.nodeclaim.lifecycle import (
    LivenessTimeout,
    is_new,
    is_ready,
    lacks_guard,
    launched_metadata,
    liveness,
    note_launch_failure,
    note_lost_node,
    note_nodes,
    registration_patch,
    why_not_initialized,
)
from dovetail.planning.timings import Timings
from dovetail.scheduling.taints import is_ephemeral
from tests.harness.builders import at

CREATED = at("2026-03-02T12:00:00Z")
MINUTE = timedelta(minutes=1)
TICK = timedelta(microseconds=1)
LATER = CREATED + 7 * MINUTE
UID = "uid-1"
LABEL = names.KWOK_NODECLASS_LABEL
Pair = tuple[str, str]  # key and effect of a taint
UNREGISTERED = (names.UNREGISTERED_TAINT, "NoExecute")
OWN = ("example.com/own", "NoSchedule")
STARTUP = ("example.com/startup", "NoExecute")


def taints(pairs: Sequence[Pair]) -> list[objects.Taint]:
    return [objects.Taint(key=key, effect=effect) for key, effect in pairs]


def claim(
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    own: Sequence[Pair] = (),
    startup: Sequence[Pair] = (),
    requests: objects.Quantities | None = None,
    statuses: Mapping[str, tuple[str, datetime]] | None = None,
) -> objects.NodeClaim:
    found = [
        objects.Condition(type=type_, status=status, last_transition_time=since, observed_generation=1)
        for type_, (status, since) in (statuses or {}).items()
    ]
    return objects.NodeClaim(
        metadata=objects.ObjectMeta(
            name="c1",
            uid=UID,
            generation=1,
            creation_timestamp=CREATED,
            labels=dict(labels or {}),
            annotations=dict(annotations or {}),
        ),
        spec=objects.NodeClaimSpec(
            node_class_ref=objects.NodeClassReference(names.KWOK_GROUP, names.KWOK_NODECLASS_KIND, "default"),
            taints=taints(own),
            startup_taints=taints(startup),
            resources=objects.ResourceRequirements(requests or {}),
        ),
        status=objects.NodeClaimStatus(conditions=found),
    )


def node(
    *pairs: Pair,
    labels: Mapping[str, str] | None = None,
    ready: str | None = "True",
    allocatable: objects.Quantities | None = None,
    finalizers: Sequence[str] = (),
    owners: Sequence[objects.OwnerReference] = (),
) -> objects.Node:
    conditions = [] if ready is None else [objects.Condition(type="Ready", status=ready)]
    return objects.Node(
        metadata=objects.ObjectMeta(
            name="n1",
            resource_version="7",
            labels=dict(labels or {}),
            finalizers=list(finalizers),
            owner_references=list(owners),
        ),
        spec=objects.NodeSpec(taints=taints(pairs)),
        status=objects.NodeStatus(conditions=conditions, allocatable=allocatable or {}),
    )


# -- registration ------------------------------------------------------------------------------------------------------


def patch(claim: objects.NodeClaim, node: objects.Node) -> dict[str, Any]:
    return registration_patch(claim, node, LABEL)


def patched_taints(claim: objects.NodeClaim, node: objects.Node) -> list[Pair]:
    return [(taint["key"], taint["effect"]) for taint in patch(claim, node)["spec"]["taints"]]


def test_registration_is_one_patch_on_what_was_read() -> None:
    subject = claim(labels={names.NODEPOOL_LABEL: "p", "team": "a"}, annotations={"note": "x"}, own=[OWN])
    assert patch(subject, node(UNREGISTERED)) == {
        "metadata": {
            "resourceVersion": "7",
            "finalizers": ["karpenter.sh/termination"],
            "ownerReferences": [
                {
                    "apiVersion": "karpenter.sh/v1",
                    "kind": "NodeClaim",
                    "name": "c1",
                    "uid": UID,
                    "blockOwnerDeletion": True,
                }
            ],
            "labels": {
                "karpenter.sh/nodepool": "p",
                "team": "a",
                "karpenter.kwok.sh/kwoknodeclass": "default",
                "karpenter.sh/registered": "true",
            },
            "annotations": {"note": "x"},
        },
        "spec": {"taints": [{"key": "example.com/own", "effect": "NoSchedule"}]},
    }


def test_finalizers_and_owners_of_others_stay_and_ours_is_there_once() -> None:
    other = objects.OwnerReference("v1", "Machine", "m1", "uid-m", controller=True)
    first = patch(claim(), node(UNREGISTERED, finalizers=["example.com/hold"], owners=[other]))["metadata"]
    assert first["finalizers"] == ["example.com/hold", "karpenter.sh/termination"]
    assert [owner["uid"] for owner in first["ownerReferences"]] == ["uid-m", UID]
    assert first["ownerReferences"][0]["controller"] is True
    again = patch(claim(), node(finalizers=first["finalizers"], owners=[other, known_owner()]))["metadata"]
    assert again["finalizers"] == first["finalizers"]
    assert [owner["uid"] for owner in again["ownerReferences"]] == ["uid-m", UID]


def known_owner(uid: str = UID) -> objects.OwnerReference:
    """As another program may have written it: without `blockOwnerDeletion`, but it is the same owner."""
    return objects.OwnerReference("karpenter.sh/v1", "NodeClaim", "c1", uid)


def test_an_owner_of_the_same_name_but_another_uid_is_another() -> None:
    owners = patch(claim(), node(UNREGISTERED, owners=[known_owner("uid-0")]))["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in owners] == ["uid-0", UID]


CLOUD = ("cloud.example.com/booting", "NoSchedule")


@pytest.mark.parametrize(
    ("on_node", "expected"),
    [
        pytest.param([UNREGISTERED], [OWN, STARTUP], id="the claim's, then its startup taints"),
        pytest.param([CLOUD, UNREGISTERED], [CLOUD, OWN, STARTUP], id="others' stay, and come first"),
        pytest.param([UNREGISTERED, STARTUP], [STARTUP, OWN], id="what is there is not added"),
        pytest.param(
            [(OWN[0], "NoExecute"), UNREGISTERED],
            [(OWN[0], "NoExecute"), OWN, STARTUP],
            id="another effect is another taint",
        ),
        pytest.param(
            [(UNREGISTERED[0], "NoSchedule")],
            [(UNREGISTERED[0], "NoSchedule"), OWN, STARTUP],
            id="only the guard's own effect is removed",
        ),
    ],
)
def test_taints_after_registration(on_node: list[Pair], expected: list[Pair]) -> None:
    assert patched_taints(claim(own=[OWN], startup=[STARTUP]), node(*on_node)) == expected


def test_a_taint_that_is_there_keeps_its_value_and_time() -> None:
    there = objects.Taint(key=OWN[0], effect=OWN[1], value="nodes", time_added=CREATED)
    found = objects.Node(spec=objects.NodeSpec(taints=[there]))
    assert patch(claim(own=[OWN]), found)["spec"]["taints"] == [
        {"key": OWN[0], "effect": OWN[1], "value": "nodes", "timeAdded": "2026-03-02T12:00:00Z"}
    ]


@pytest.mark.parametrize(("value", "synced"), [("true", False), ("false", True), ("True", True), ("", True)])
def test_only_true_keeps_the_taints_from_the_node(value: str, synced: bool) -> None:
    labels = {names.DO_NOT_SYNC_TAINTS_LABEL: value}
    found = patched_taints(claim(own=[OWN], startup=[STARTUP]), node(UNREGISTERED, labels=labels))
    assert found == ([OWN, STARTUP] if synced else [])  # the guard goes either way


def test_startup_taints_that_were_removed_after_registration_do_not_come_back() -> None:
    registered = node(OWN, labels={names.REGISTERED_LABEL: "true"})
    assert patched_taints(claim(own=[OWN], startup=[STARTUP]), registered) == [OWN]


@pytest.mark.parametrize(
    ("subject", "lacks"),
    [
        pytest.param(node(UNREGISTERED), False, id="with the guard"),
        pytest.param(node(), True, id="without"),
        pytest.param(node((UNREGISTERED[0], "NoSchedule")), True, id="with another effect"),
        pytest.param(node(labels={names.REGISTERED_LABEL: "true"}), False, id="registered before"),
        pytest.param(node(labels={names.REGISTERED_LABEL: "false"}), True, id="not really"),
    ],
)
def test_who_lacks_the_guard(subject: objects.Node, lacks: bool) -> None:
    assert lacks_guard(subject) is lacks


def test_what_a_launch_leaves_on_the_claim() -> None:
    subject = claim(labels={"both": "claim", "mine": "1"}, annotations={"both": "claim", "mine": "1"})
    theirs = {"both": "provider", "theirs": "2"}
    assert launched_metadata(subject, theirs, theirs) == {
        "labels": {"both": "claim", "theirs": "2", "mine": "1"},
        "annotations": {"both": "provider", "theirs": "2", "mine": "1"},
    }


# -- initialization ----------------------------------------------------------------------------------------------------

NOT_READY = (names.NOT_READY_TAINT, "NoExecute")


def test_initialization_checks_one_by_one_in_order() -> None:
    subject = claim(startup=[STARTUP], requests={"cpu": "1", "example.com/gpu": "2"})
    bad: dict[str, Any] = {"ready": "False", "allocatable": {"cpu": "4"}}
    found = []
    for pairs, mended in (
        ([STARTUP, NOT_READY], {}),
        ([STARTUP, NOT_READY], {"ready": "True"}),
        ([NOT_READY], {}),
        ([], {}),
        ([], {"allocatable": {"cpu": "4", "example.com/gpu": "2"}}),
    ):
        bad |= mended
        unmet = why_not_initialized(subject, node(*pairs, **bad))
        found.append(None if unmet is None else unmet.reason)
    assert found == [
        ConditionReason.NODE_NOT_READY,
        ConditionReason.STARTUP_TAINTS_EXIST,
        ConditionReason.KNOWN_EPHEMERAL_TAINTS_EXIST,
        ConditionReason.RESOURCE_NOT_REGISTERED,
        None,
    ]


@pytest.mark.parametrize(("ready", "expected"), [("True", True), ("False", False), ("Unknown", False), (None, False)])
def test_ready_is_only_what_says_so(ready: str | None, expected: bool) -> None:
    assert is_ready(node(ready=ready)) is expected
    assert (why_not_initialized(claim(), node(ready=ready)) is None) is expected


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "PreferNoSchedule"])
def test_a_startup_taint_of_any_effect_is_waited_for(effect: str) -> None:
    subject = claim(startup=[("example.com/startup", effect)])
    unmet = why_not_initialized(subject, node(("example.com/startup", effect)))
    assert unmet is not None
    assert unmet.reason == ConditionReason.STARTUP_TAINTS_EXIST
    assert f"example.com/startup:{effect}" in unmet.message


def test_a_taint_with_the_key_of_a_startup_taint_and_another_effect_is_none() -> None:
    subject = claim(startup=[("example.com/startup", "NoExecute")])
    assert why_not_initialized(subject, node(("example.com/startup", "NoSchedule"))) is None


def test_taints_of_its_own_do_not_hold_it_back() -> None:
    assert why_not_initialized(claim(own=[OWN]), node(OWN, ("example.com/other", "NoExecute"))) is None


@pytest.mark.parametrize(
    ("pair", "ephemeral"),
    [
        (("node.kubernetes.io/not-ready", "NoSchedule"), True),
        (("node.kubernetes.io/not-ready", "NoExecute"), True),
        (("node.kubernetes.io/not-ready", "PreferNoSchedule"), False),
        (("node.kubernetes.io/unreachable", "NoSchedule"), True),
        (("node.kubernetes.io/unreachable", "NoExecute"), False),
        (("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"), True),
        (("node.cloudprovider.kubernetes.io/uninitialized", "NoExecute"), False),
        (("karpenter.sh/unregistered", "NoExecute"), True),
        (("karpenter.sh/unregistered", "NoSchedule"), False),
        (("readiness.k8s.io/network", "NoSchedule"), True),
        (("readiness.k8s.io/network", "NoExecute"), True),
        (("readiness.k8s.io", "NoSchedule"), False),
        (("example.com/readiness.k8s.io/", "NoSchedule"), False),
        (("node.kubernetes.io/unschedulable", "NoSchedule"), False),
    ],
)
def test_ephemeral_taints(pair: Pair, ephemeral: bool) -> None:
    (taint,) = taints([pair])
    assert is_ephemeral(taint) is ephemeral
    unmet = why_not_initialized(claim(), node(pair))
    assert (unmet is not None and unmet.reason == ConditionReason.KNOWN_EPHEMERAL_TAINTS_EXIST) is ephemeral


@pytest.mark.parametrize(
    ("requests", "allocatable", "missing"),
    [
        pytest.param({"cpu": "1"}, {"cpu": "1m"}, None, id="any amount will do"),
        pytest.param({"cpu": "1"}, {}, "cpu", id="not there"),
        pytest.param({"cpu": "1"}, {"cpu": "0"}, "cpu", id="there, but nothing of it"),
        pytest.param({"cpu": "1"}, {"cpu": "0m"}, "cpu", id="nothing in other words"),
        pytest.param({"cpu": "0"}, {}, None, id="nothing is asked for"),
        pytest.param({"cpu": 0, "gpu": 1}, {"gpu": 1}, None, id="numbers"),
        pytest.param({"b": "1", "a": "1"}, {}, "a", id="the first by name is told"),
        pytest.param({"cpu": "a lot"}, {}, None, id="what cannot be read is not asked for"),
        pytest.param({"cpu": "1"}, {"cpu": "a lot"}, "cpu", id="nor offered"),
    ],
)
def test_requested_resources(
    requests: objects.Quantities, allocatable: objects.Quantities, missing: str | None
) -> None:
    unmet = why_not_initialized(claim(requests=requests), node(allocatable=allocatable))
    if missing is None:
        assert unmet is None
    else:
        assert unmet is not None
        assert unmet.reason == ConditionReason.RESOURCE_NOT_REGISTERED
        assert f" {missing} " in unmet.message


@pytest.mark.parametrize(
    ("created", "fields", "new"),
    [
        (LATER, {}, True),
        (LATER, {"labels": {names.REGISTERED_LABEL: "true"}}, True),
        (LATER, {"finalizers": [names.TERMINATION_FINALIZER]}, False),
        (LATER, {"deletion_timestamp": LATER}, False),
        (CREATED, {}, False),
        (None, {}, False),
    ],
)
def test_a_node_is_new_if_it_was_created_after_its_claim_was_registered(
    created: datetime | None, fields: dict[str, Any], new: bool
) -> None:
    found = objects.Node(metadata=objects.ObjectMeta(name="n", creation_timestamp=created, **fields))
    conditions = Conditions(claim(statuses={"Registered": ("True", CREATED + MINUTE)}), LATER)
    assert is_new(found, conditions) is new


# -- liveness ----------------------------------------------------------------------------------------------------------


def alive(now: datetime, **statuses: tuple[str, datetime]) -> LivenessTimeout | datetime | None:
    return liveness(Conditions(claim(statuses=statuses), now), now, Timings())


def test_nothing_launched_within_five_minutes_of_its_creation() -> None:
    end = CREATED + 5 * MINUTE
    assert alive(CREATED) == end
    assert alive(end - TICK) == end
    assert alive(end) == LivenessTimeout("launch_timeout", "not launched within 300 s")


def test_nothing_registered_within_fifteen_minutes() -> None:
    end = CREATED + 15 * MINUTE
    launched = ("True", CREATED + 4 * MINUTE)
    assert alive(end - TICK, Launched=launched) == end
    assert alive(end, Launched=launched) == LivenessTimeout("registration_timeout", "not registered within 900 s")


@pytest.mark.parametrize("status", ["Unknown", "False"])
def test_the_transition_counts_and_not_the_creation(status: str) -> None:
    launched, registered = ("True", CREATED), (status, LATER)
    end = LATER + 15 * MINUTE
    assert alive(end - TICK, Launched=launched, Registered=registered) == end
    assert alive(end, Launched=launched, Registered=registered) == LivenessTimeout(
        "registration_timeout", "not registered within 900 s"
    )
    unlaunched = (status, LATER)
    assert alive(LATER + 5 * MINUTE - TICK, Launched=unlaunched) == LATER + 5 * MINUTE
    assert alive(LATER + 5 * MINUTE, Launched=unlaunched) == LivenessTimeout(
        "launch_timeout", "not launched within 300 s"
    )


def test_the_earlier_of_both_ends_counts() -> None:
    launch_end = CREATED + 20 * MINUTE
    late = ("Unknown", launch_end - 5 * MINUTE)
    assert alive(CREATED + 10 * MINUTE, Launched=late) == CREATED + 15 * MINUTE
    assert alive(CREATED + 15 * MINUTE, Launched=late) == LivenessTimeout(
        "registration_timeout", "not registered within 900 s"
    )


def test_once_registered_it_lives() -> None:
    year = CREATED + timedelta(days=365)
    assert alive(year, Launched=("True", CREATED), Registered=("True", LATER)) is None
    assert alive(year, Launched=("Unknown", CREATED), Registered=("True", LATER)) is None


def test_a_registered_claim_without_a_node_lives_for_ten_minutes() -> None:
    end = LATER + 10 * MINUTE
    there = {"Launched": ("True", CREATED), "Registered": ("True", CREATED), "NodeLost": ("True", LATER)}
    assert alive(end - TICK, **there) == end
    assert alive(end, **there) == LivenessTimeout("node_lost", "without a Node for 600 s")


@pytest.mark.parametrize(
    ("registered", "nodes", "lost"), [("True", 0, True), ("True", 1, False), ("True", 2, False), ("Unknown", 0, False)]
)
def test_only_a_registered_claim_without_a_node_is_lost(registered: str, nodes: int, lost: bool) -> None:
    for before in ({}, {"NodeLost": ("True", CREATED)}):
        conditions = Conditions(claim(statuses={"Registered": (registered, CREATED), **before}), LATER)
        note_lost_node(conditions, nodes)
        assert conditions.is_true(ConditionType.NODE_LOST) is lost
        if lost:
            assert conditions.since(ConditionType.NODE_LOST) == (CREATED if before else LATER)


def test_other_timings() -> None:
    timings = Timings(launch_timeout_seconds=1.5, registration_timeout_seconds=2.0)
    conditions = Conditions(claim(), CREATED)
    assert liveness(conditions, CREATED, timings) == CREATED + timedelta(seconds=1.5)
    given_up = liveness(conditions, CREATED + timedelta(seconds=1.5), timings)
    assert given_up == LivenessTimeout("launch_timeout", "not launched within 1.5 s")


# -- conditions --------------------------------------------------------------------------------------------------------


def test_a_failed_launch_says_why_in_at_most_300_characters_and_is_no_transition() -> None:
    conditions = Conditions(claim(), LATER)
    note_launch_failure(conditions, "LaunchFailed", "x" * 400)
    found = conditions.get(ConditionType.LAUNCHED)
    assert found is not None
    assert (found.status, found.reason, found.message) == ("Unknown", "LaunchFailed", "x" * 300)
    assert found.last_transition_time == CREATED


@pytest.mark.parametrize(
    ("count", "status", "reason"),
    [(0, "Unknown", "NodeNotFound"), (2, "False", "MultipleNodesFound"), (3, "False", "MultipleNodesFound")],
)
def test_not_exactly_one_node(count: int, status: str, reason: str) -> None:
    conditions = Conditions(claim(), LATER)
    note_nodes(conditions, count)
    found = conditions.get(ConditionType.REGISTERED)
    assert found is not None
    assert (found.status, found.reason) == (status, reason)
