"""What a NodeClaim for pods contains, and what people are told (06 §5, §6)."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api import names, objects
from dovetail.planning.nodepool.hash import pool_hash
from dovetail.planning.provisioning.claims import (
    claim_body,
    claim_name,
    effective_zones,
    failed_note,
    hinders_consolidation,
    nominated_note,
    nomination,
    over_limits,
    plan,
    starved,
    static_claim_body,
    usage_by_pool,
)
from dovetail.scheduling.fast import IncrementalWorld
from dovetail.scheduling.placement import NewClaim, PlacementRequest, SchedulingOptions, read_pool
from dovetail.scheduling.requirements import Requirement, Requirements, of_labels, one_of
from dovetail.scheduling.resources import Resources
from dovetail.values.duration import DurationError
from tests.harness.claims import node_pool
from tests.unit.scheduling.problems import (
    ZONE,
    affinity,
    app,
    at_one_of,
    machine,
    node,
    offer,
    pod,
    pool,
    preferring,
    spread,
    term,
)

TYPES = (machine("small", 2), machine("large", 8))
WELL_KNOWN = names.WELL_KNOWN_LABELS


def read(**fields: Any) -> objects.NodePool:
    """A pool as the API server has it."""
    body = node_pool(**fields)
    body["metadata"]["uid"] = "uid-of-pool"
    return msgspec.convert(body, objects.NodePool)


def new_claim(of: objects.NodePool, *more: Requirement, **fields: Any) -> NewClaim:
    given_ = {"pods": ("p",), "types": ("small", "large"), "requests": Resources({"cpu": 1500, "pods": 2})}
    return NewClaim(pool=of.metadata.name, requirements=read_pool(of).requirements.add(*more), **{**given_, **fields})


def body_of(of: objects.NodePool, *more: Requirement, **fields: Any) -> dict[str, Any]:
    return claim_body(of, new_claim(of, *more, **fields), TYPES, name="c", well_known=WELL_KNOWN)


def entry(body: dict[str, Any], key: str) -> dict[str, Any]:
    (found,) = (each for each in body["spec"]["requirements"] if each["key"] == key)
    return dict(found)


# -- the claim ---------------------------------------------------------------------------------------------------------


def test_the_owner_of_a_claim_is_its_pool_and_not_the_node_class() -> None:
    of = read(name="batch")
    assert of.spec.template.spec.node_class_ref.name == "default"
    (owner,) = body_of(of)["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("NodePool", "batch", "uid-of-pool")


def test_everything_of_the_template_is_on_the_claim() -> None:
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    start = {"key": "boot", "effect": "NoExecute"}
    of = read(
        labels={"tier": "gold"},
        annotations={"who": "us"},
        template={"taints": [taint], "startupTaints": [start], "expireAfter": "24h", "terminationGracePeriod": "1h"},
    )
    body = body_of(of)
    assert body["metadata"]["labels"] == {
        "tier": "gold",
        names.NODEPOOL_LABEL: "default",
        names.KWOK_NODECLASS_LABEL: "default",
    }
    assert body["metadata"]["annotations"] == {
        "who": "us",
        names.NODEPOOL_HASH: pool_hash(of.spec.template),
        names.NODEPOOL_HASH_VERSION: "v3",
        names.MIN_VALUES_RELAXED: "false",
    }
    assert body["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "name": "default",
            "uid": "uid-of-pool",
            "blockOwnerDeletion": True,
        }
    ]
    assert "finalizers" not in body["metadata"]
    spec = body["spec"]
    assert (spec["taints"], spec["startupTaints"]) == ([taint], [start])
    assert (spec["expireAfter"], spec["terminationGracePeriod"]) == ("24h", "1h")
    assert spec["nodeClassRef"] == {"group": names.KWOK_GROUP, "kind": "KWOKNodeClass", "name": "default"}


def test_what_the_template_does_not_say_the_claim_does_not_say() -> None:
    assert body_of(read())["spec"].keys() == {"nodeClassRef", "requirements", "expireAfter", "resources"}


def test_types_and_capacity_types_are_those_that_are_left() -> None:
    ways = (offer("a", 1), offer("b", 1, "spot"), offer("b", 1, "spot", available=False))
    types = (
        machine("one", offers=ways),
        machine("other", offers=(offer("a", 1, "reserved", reservation="r", left=1),)),
    )
    of = read()
    claim = new_claim(of, types=("one",))
    body = claim_body(of, claim, types, name="c", well_known=WELL_KNOWN)
    assert entry(body, names.INSTANCE_TYPE_LABEL)["values"] == ["one"]
    assert entry(body, names.CAPACITY_TYPE_LABEL)["values"] == ["on-demand", "spot"]
    in_a = new_claim(of, one_of(ZONE, ("a",)), types=("one",))
    body = claim_body(of, in_a, types, name="c", well_known=WELL_KNOWN)
    assert entry(body, names.CAPACITY_TYPE_LABEL)["values"] == ["on-demand"]


def test_min_values_stay() -> None:
    least = {"key": names.INSTANCE_TYPE_LABEL, "operator": "Exists", "minValues": 2}
    body = body_of(read(template={"requirements": [least]}), min_values_relaxed=True)
    assert entry(body, names.INSTANCE_TYPE_LABEL) == {
        "key": names.INSTANCE_TYPE_LABEL,
        "operator": "In",
        "values": ["large", "small"],
        "minValues": 2,
    }
    assert body["metadata"]["annotations"][names.MIN_VALUES_RELAXED] == "true"


def test_well_known_labels_are_no_labels_of_the_claim_and_custom_ones_are() -> None:
    """06 §12.9."""
    custom = [
        Requirement("team", complement=False, values=frozenset(("b", "a"))),
        Requirement("rank", gte=3),
        Requirement("none", complement=False, optional=True),
    ]
    body = body_of(read(), one_of(ZONE, ("a",)), one_of(names.ARCH_LABEL, ("amd64",)), *custom)
    labels = body["metadata"]["labels"]
    assert (labels["team"], labels["rank"]) == ("a", "3")
    assert labels.keys() == {"team", "rank", names.NODEPOOL_LABEL, names.KWOK_NODECLASS_LABEL}


def test_neither_host_nor_progress_is_required() -> None:
    asked = of_labels({names.HOSTNAME_LABEL: "h", names.REGISTERED_LABEL: "true", names.INITIALIZED_LABEL: "true"})
    body = body_of(read(), *asked)
    keys = {each["key"] for each in body["spec"]["requirements"]}
    assert keys.isdisjoint(asked.keys())
    assert body["metadata"]["labels"].keys().isdisjoint(asked.keys())


def test_requests_are_written_as_people_write_them() -> None:
    amounts = Resources({"cpu": 1500, "memory": 3 * 2**29, "pods": 3, "example.com/gpu": 2})
    requests = body_of(read(), requests=amounts)["spec"]["resources"]["requests"]
    assert requests == {"cpu": "1500m", "memory": "1536Mi", "pods": "3", "example.com/gpu": "2"}


def test_a_static_claim_says_only_what_its_pool_says() -> None:
    wanted = {"key": names.ARCH_LABEL, "operator": "In", "values": ["arm64"]}
    body = static_claim_body(
        read(labels={"tier": "gold"}, template={"requirements": [wanted]}), name="s", well_known=WELL_KNOWN
    )
    assert body["spec"]["requirements"] == [wanted, {"key": "tier", "operator": "In", "values": ["gold"]}]
    assert "resources" not in body["spec"]
    assert names.MIN_VALUES_RELAXED not in body["metadata"]["annotations"]
    assert body["metadata"]["labels"]["tier"] == "gold"


def test_a_template_that_cannot_be_hashed_is_told() -> None:
    with pytest.raises(DurationError):
        body_of(read(template={"expireAfter": "soon"}))


# -- names -------------------------------------------------------------------------------------------------------------


def test_the_same_reasons_give_the_same_name() -> None:
    assert claim_name("default", "a", "b") == claim_name("default", "a", "b")
    assert claim_name("default", "a", "b") != claim_name("default", "ab")
    assert claim_name("default", "a").startswith("default-")


def test_a_long_name_of_a_pool_is_cut() -> None:
    assert len(claim_name("p" * 100, "a")) == 63


@given(st.text("abc-.", min_size=1, max_size=80).map(lambda text: f"p{text}"), st.lists(st.text(), max_size=3))
def test_a_name_can_be_a_label_and_the_name_of_an_object(of: str, reasons: list[str]) -> None:
    name = claim_name(of, *reasons)
    assert len(name) <= 63
    assert name[-1].isalnum()
    assert "-" in name[-9:]
    assert not name[:-9].endswith(("-", "."))


# -- limits ------------------------------------------------------------------------------------------------------------


def test_usage_leaves_out_what_is_going_and_what_is_nobodys() -> None:
    nodes = [node("a", pool="p"), node("b", pool="p"), node("c", pool="p", open=False), node("d"), node("e", pool="q")]
    found = usage_by_pool(nodes)
    assert {name: (used["cpu"], used["nodes"]) for name, used in found.items()} == {"p": (16000, 2), "q": (8000, 1)}


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({}, ""),
        ({"cpu": "16"}, ""),
        ({"cpu": "15"}, "it uses 16 cpu of 15"),
        ({"nodes": "1"}, "it uses 2 nodes of 1"),
        ({"nodes": "2", "memory": "1Gi"}, ""),
        ({"cpu": "lots"}, "its limits cannot be read: "),
    ],
)
def test_limits_are_over_only_when_more_is_used(limits: dict[str, str], why: str) -> None:
    used = usage_by_pool([node("a", pool="default"), node("b", pool="default")])["default"]
    found = over_limits(read(limits=limits), used)
    assert found.startswith(why)
    assert bool(found) == bool(why)


# -- what people are told ----------------------------------------------------------------------------------------------


def test_notes() -> None:
    assert nominated_note("c-1") == "Pod should schedule on: nodeclaim/c-1"
    assert nominated_note("c-1", "n-1") == "Pod should schedule on: nodeclaim/c-1, node/n-1"
    assert nominated_note("", "n-1") == "Pod should schedule on: node/n-1"
    assert failed_note("why").startswith("Failed to schedule pod, ")


@pytest.mark.parametrize(("longest", "seconds"), [(10, 20), (60, 120), (1, 10)])
def test_a_nomination_outlasts_two_batches(longest: int, seconds: int) -> None:
    """06 §12.11."""
    assert nomination(timedelta(seconds=longest)) == timedelta(seconds=seconds)


def test_a_pool_that_nothing_can_be_launched_for_is_told() -> None:
    other = pool("other", requirements=of_labels({names.ARCH_LABEL: "arm64"}))
    amd = machine("m", labels={names.ARCH_LABEL: "amd64"})
    sold_out = machine("m", offers=(offer("a", 1, available=False),))
    many = pool("many", requirements=Requirements([Requirement(names.INSTANCE_TYPE_LABEL, min_values=3)]))
    problem = PlacementRequest(
        pods=(),
        pools=(pool("fine"), other, pool("empty"), pool("sold-out"), many),
        types={"fine": TYPES, "other": (amd,), "sold-out": (sold_out,), "many": TYPES},
    )
    found = starved(problem)
    assert found.keys() == {"other", "empty", "sold-out", "many"}
    text = "NodePool requirements filtered out all compatible available instance types"
    assert (found["other"], found["empty"], found["sold-out"]) == (text, text, text)
    assert found["many"].startswith(f"{text} due to minValues incompatibility: ")
    relaxed = msgspec.structs.replace(problem, options=SchedulingOptions(strict_min_values=False))
    assert "many" not in starved(relaxed)


def test_pods_by_the_zone_that_they_can_go_to() -> None:
    pods = (
        pod("free"),
        pod("pinned", nodeSelector={ZONE: "a"}),
        pod("volume", volumes=at_one_of("b")),
        pod("either", volumes=at_one_of("a", "b")),
        pod("lost", nodeSelector={ZONE: "moon"}),
        pod("torn", nodeSelector={ZONE: "a"}, volumes=at_one_of("b")),
    )
    problem = PlacementRequest(pods=pods, nodes=(node("n", "z"),), types={"default": TYPES})
    assert effective_zones(problem) == {"flexible": 2, "a": 1, "b": 1, "none": 2}


def test_wishes_that_hold_nodes_apart_are_noticed() -> None:
    apart = preferring("podAntiAffinity", term(ZONE, "x"))
    assert hinders_consolidation(pod("a", affinity=apart))
    assert hinders_consolidation(pod("b", topologySpreadConstraints=[spread(ZONE, "x", anyway=True)]))
    assert not hinders_consolidation(pod("c", topologySpreadConstraints=[spread(ZONE, "x")]))
    assert not hinders_consolidation(pod("d", app("x"), affinity=affinity(apart=[term(ZONE, "x")])))


def test_a_plan_is_all_of_it() -> None:
    problem = PlacementRequest(pods=(pod("p"), pod("q", cpu="99")), pools=(pool(),), types={"default": TYPES})
    made = plan(problem, None, IncrementalWorld(problem.options), lambda: True)
    assert [claim.pods for claim in made.solution.new_claims] == [("p",)]
    assert made.solution.errors.keys() == {"q"}
    assert (made.starved, made.zones) == ({}, {"flexible": 2})
