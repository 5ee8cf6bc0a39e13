"""Does the checker let the reference pass, and does it see each kind of mistake?"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dovetail.api import names
from dovetail.model.refs import Ref
from dovetail.scheduling import reference
from dovetail.scheduling.daemons import Daemon
from dovetail.scheduling.host_ports import HostPort
from dovetail.scheduling.placement import (
    NewClaim,
    Origin,
    PlacementRequest,
    PodError,
    PodInfo,
    SchedulingOptions,
    Solution,
)
from dovetail.scheduling.requirements import NO_REQUIREMENTS, Requirement, Requirements, of_labels, one_of
from dovetail.scheduling.resources import Resources
from dovetail.scheduling.volumes import Attachment, PodVolumes
from tests.scheduling.checker import violations
from tests.scheduling.generator import random_problem
from tests.unit.scheduling.problems import (
    HOST,
    ZONE,
    affinity,
    app,
    bound,
    expressing,
    machine,
    node,
    nodes_like,
    offer,
    pod,
    pool,
    spread,
    term,
)

_SEEDS = 250
_AT_ONCE = 25


@pytest.mark.parametrize("first", range(0, _SEEDS, _AT_ONCE))
def test_the_reference_keeps_the_rules(first: int) -> None:
    for seed in range(first, first + _AT_ONCE):
        problem = random_problem(seed)
        found = violations(problem, reference.solve(problem))
        assert not found, f"seed {seed}: {found}"


def test_seeds_reach_every_kind_of_answer() -> None:
    seen = Counter[str]()
    for seed in range(250):
        problem = random_problem(seed)
        solution = reference.solve(problem)
        seen.update(
            existing=len(solution.existing),
            claims=len(solution.new_claims),
            shared=sum(len(claim.pods) > 1 for claim in solution.new_claims),
            reserved=sum(bool(claim.reservations) for claim in solution.new_claims),
            lowered=sum(claim.min_values_relaxed for claim in solution.new_claims),
            waiting=sum(error.waiting for error in solution.errors.values()),
            uninitialized=sum("is not initialized" in error.reason for error in solution.errors.values()),
            unsolved=not solution.existing and not solution.new_claims,
            solved=not solution.errors,
            large=len(problem.pods) > 100,
            runs=_longest_run(problem) > 50,
        )
    assert min(seen.values()) > 0, seen
    assert seen["unsolved"] < 100, "most problems have to be worth solving"


def _longest_run(problem: PlacementRequest) -> int:
    kinds = Counter(
        (each.namespace, each.request, each.affinity, each.tolerations, each.ports, each.volumes, each.all_rules)
        for each in problem.pods
    )
    return max(kinds.values())


# -- planted mistakes --------------------------------------------------------------------------------------------------


def on(node_name: str, *uids: str) -> Solution:
    return Solution(existing={node_name: uids})


def claim(*uids: str, **fields: Any) -> Solution:
    """All on one new node of the default pool, a cpu each."""
    requests = Resources({"cpu": 1000 * len(uids), "pods": len(uids)})
    own = of_labels({names.NODEPOOL_LABEL: "default"})
    made = NewClaim(
        **{"pool": "default", "pods": uids, "requirements": own, "types": ("small",), "requests": requests, **fields}
    )
    return Solution(new_claims=(made,))


def with_ports(uid: str) -> PodInfo:
    return msgspec.structs.replace(pod(uid), ports=frozenset((HostPort(80, "TCP", "0.0.0.0"),)))


def with_claim(uid: str, name: str) -> PodInfo:
    return msgspec.structs.replace(
        pod(uid), volumes=PodVolumes(attachments=frozenset((Attachment("disk", "shop", name),)))
    )


APART_HERE = affinity(apart=[term(HOST, "web")])
APART_ZONES = affinity(apart=[term(ZONE, "web")])
IN_B = nodes_like(expressing(ZONE, "b"))
SMALL = {"default": (machine("small", 4),)}
OWN = of_labels({names.NODEPOOL_LABEL: "default"})
AGENT = Daemon("agent", (NO_REQUIREMENTS,), frozenset(), Resources({"cpu": 500, "pods": 1}))
RESERVED = (offer("a", 1, "reserved", reservation="r", left=1),)
TWO_TYPES = {"default": (machine("dear", 4, price=9), machine("small", 4, price=1))}
AT_LEAST_TWO = pool(requirements=Requirements((Requirement(names.INSTANCE_TYPE_LABEL, min_values=2),)))

MISTAKES: Mapping[str, tuple[dict[str, Any], Solution]] = {
    "is answered for 0 times": ({}, Solution()),
    "is answered for 2 times": ({"nodes": (node("n"),)}, on("n", "p", "p")),
    "was not asked for": ({"nodes": (node("n"),)}, on("n", "p", "q")),
    "there is no node m": ({}, on("m", "p")),
    "is about another": ({}, Solution(errors={"p": PodError(Ref("Pod", "shop", "q"), Origin.PENDING, "")})),
    "has resource claims": (
        {"pods": (msgspec.structs.replace(pod("p"), resource_claims=True),), "nodes": (node("n"),)},
        on("n", "p"),
    ),
    "is closed": ({"nodes": (node("n", open=False),)}, on("n", "p")),
    "too little cpu": ({"nodes": (node("n", cpu=1),), "daemons": (AGENT,)}, on("n", "p")),
    "too little memory": ({"nodes": (node("n", requested=Resources({"memory": 1})),)}, on("n", "p")),
    "is taken": ({"pods": (with_ports("p"),), "nodes": (node("n", ports=with_ports("").ports),)}, on("n", "p")),
    "want the same host port": ({"pods": (with_ports("p"), with_ports("q")), "nodes": (node("n"),)}, on("n", "p", "q")),
    "does not tolerate": ({"nodes": (node("n", taints=("a=b:NoExecute",)),)}, on("n", "p")),
    "asks for another": ({"pods": (pod("p", affinity=IN_B),), "nodes": (node("n", "a"),)}, on("n", "p")),
    "are elsewhere": (
        {"pods": (pod("p", volumes=PodVolumes(alternatives=(of_labels({ZONE: "b"}),))),), "nodes": (node("n", "a"),)},
        on("n", "p"),
    ),
    "is not initialized": (
        {"nodes": (node("n", initialized=False),), "options": SchedulingOptions(refuse_uninitialized=True)},
        on("n", "p"),
    ),
    "more than 1 volumes": (
        {"pods": (with_claim("p", "x"), with_claim("q", "y")), "nodes": (node("n", attach_limits={"disk": 1}),)},
        on("n", "p", "q"),
    ),
    "node n would do": (
        {"nodes": (node("n"),)},
        Solution(errors={"p": PodError(Ref("Pod", "shop", "p"), Origin.PENDING, "")}),
    ),
    "are not apart (kubernetes.io/hostname)": (
        {"pods": (pod("p", app("web"), affinity=APART_HERE), pod("q", app("web"))), "nodes": (node("n"),)},
        on("n", "p", "q"),
    ),
    "pods n-1 and p are not apart": (
        {
            "pods": (pod("p", app("web")),),
            "nodes": (node("n", "a"), node("m", "a", bound("n-1", affinity=APART_ZONES))),
        },
        on("n", "p"),
    ),
    "in no domain of": ({"pods": (pod("p", app("web"), affinity=APART_ZONES),), "nodes": (node("n"),)}, on("n", "p")),
    "are not apart (topology.kubernetes.io/zone)": (
        {"pods": (pod("p", app("web"), affinity=APART_ZONES),), "nodes": (node("n", "a", bound("b", app("web"))),)},
        claim("p", requirements=OWN.add(one_of(ZONE, ("a", "b")))),
    ),
    "is with nobody": (
        {"pods": (pod("p", affinity=affinity(together=[term(HOST, "web")])),), "nodes": (node("n"),)},
        on("n", "p"),
    ),
    "where the spread wants 1": (
        {
            "pods": tuple(pod(uid, app("web"), topologySpreadConstraints=[spread(HOST, "web")]) for uid in "pq"),
            "nodes": (node("n"),),
        },
        on("n", "p", "q"),
    ),
    "of no type of it": ({}, claim("p", types=("large",))),
    "does not say what its pool does": ({}, claim("p", requirements=NO_REQUIREMENTS)),
    "is not as its pool wants it": (
        {"pools": (pool(requirements=of_labels({ZONE: "a"})),)},
        claim("p", requirements=OWN.add(one_of(ZONE, ("a", "b")))),
    ),
    "claim 0: pod p asks for another": (
        {"pods": (pod("p", affinity=IN_B),)},
        claim("p", requirements=OWN.add(one_of(ZONE, ("a", "b")))),
    ),
    "claim 0: pod p does not tolerate": ({"pools": (pool(taints=("a=b:NoSchedule",)),)}, claim("p")),
    "may be elsewhere": (
        {"pods": (pod("p", volumes=PodVolumes(alternatives=(of_labels({ZONE: "b"}),))),)},
        claim("p"),
    ),
    "has too little cpu": ({"pods": tuple(pod(uid) for uid in "pqrst")}, claim(*"pqrst")),
    "has a daemon on a host port": (
        {"pods": (with_ports("p"),), "daemons": (msgspec.structs.replace(AGENT, ports=with_ports("").ports),)},
        claim("p", requests=Resources({"cpu": 1500, "pods": 2})),
    ),
    "is not as wanted": ({}, claim("p", requirements=OWN.add(one_of(ZONE, ("z",))))),
    "cannot be bought": (
        {"types": {"default": (machine("small", offers=(offer("a", 1, available=False),)),)}},
        claim("p"),
    ),
    "in the order of their prices": ({"types": TWO_TYPES}, claim("p", types=("dear", "small"))),
    "has too many types": (
        {"types": TWO_TYPES, "options": SchedulingOptions(max_types=1)},
        claim("p", types=("small", "dear")),
    ),
    "fewer than it says": ({"pools": (AT_LEAST_TWO,)}, claim("p", requirements=AT_LEAST_TWO.requirements)),
    "does not say so": (
        {"pools": (AT_LEAST_TWO,)},
        claim("p", requirements=OWN.add(Requirement(names.INSTANCE_TYPE_LABEL))),
    ),
    "which it must not": ({}, claim("p", min_values_relaxed=True)),
    "may be launched without": (
        {"types": {"default": (machine("small", offers=RESERVED),)}},
        claim("p", reservations=("r",)),
    ),
    "requests 1000 of cpu, not 1500": ({"daemons": (AGENT,)}, claim("p")),
    "4000 of cpu, more than 3000": ({"pools": (pool(limits={"cpu": 3000}),)}, claim("p")),
    "1 of nodes, more than 0": ({"pools": (pool(limits={"nodes": 0}),)}, claim("p")),
    "is held 1 times, and has 0 left": (
        {"types": {"default": (machine("small", offers=(offer("a", 1, "reserved", reservation="r"),)),)}},
        claim("p", reservations=("r",), requirements=OWN.add(one_of(names.CAPACITY_TYPE_LABEL, ("reserved",)))),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_seen(mistake: str) -> None:
    fields, answer = MISTAKES[mistake]
    problem = PlacementRequest(**{"pods": (pod("p"),), "pools": (pool(),), "types": SMALL, **fields})
    assert any(mistake in each for each in violations(problem, answer)), violations(problem, answer)


def test_what_is_right_passes() -> None:
    problem = PlacementRequest(pods=(pod("p"), pod("q")), nodes=(node("n", cpu=1),), pools=(pool(),), types=SMALL)
    answer = msgspec.structs.replace(claim("q"), existing={"n": ("p",)})
    assert violations(problem, answer) == []
    assert reference.solve(problem) == answer
