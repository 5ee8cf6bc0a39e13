"""After any sequence of changes and looks, the state equals a new one that was fed with the final objects."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api import names
from dovetail.model.node_records import claim_record, node_record
from dovetail.state.cluster import ClusterState
from dovetail.state.nodes import NodeKey, NodeKeyKind
from dovetail.state.store import Added, Change, Key, StoredValue, Updated
from tests.harness.snapshots import take_snapshot
from tests.unit.state.world import (
    CLAIMS,
    CLASS,
    CREATED,
    POOLS,
    VOLUME_CLAIMS,
    WITH_VOLUME,
    Manifest,
    Put,
    World,
    a_claim,
    a_node,
    a_pod,
    a_volume,
    a_volume_claim,
    by_claim,
)

NODE_NAMES: Final = ("n0", "n1", "n2")
CLAIM_NAMES: Final = ("c0", "c1", "n0")  # a claim may be called like a Node
RULE_KINDS: Final = ("nodes", CLAIMS, "pods")
POD_NAMES: Final = ("p0", "p1", "p2")
INSTANCES: Final = ("i0", "i1", "")
LABELS: Final = (
    (names.NODEPOOL_LABEL, "a"),
    ("example.com/machine", "default"),
    (names.REGISTERED_LABEL, "true"),
    (names.INITIALIZED_LABEL, "true"),
    (names.INSTANCE_TYPE_LABEL, "small"),
)
TAINTS: Final = (
    {"key": names.DISRUPTED_TAINT, "effect": "NoSchedule"},
    {"key": names.CANDIDATE_TAINT, "effect": "PreferNoSchedule"},
)
CONDITIONS: Final = ("Registered", "DisruptionReason", "InstanceTerminating", "Drifted")
AMONG: Final = st.sampled_from


@st.composite
def metas(draw: st.DrawFn) -> Manifest:
    return {"deletionTimestamp": CREATED} if draw(st.integers(0, 4)) == 4 else {}


@st.composite
def nodes(draw: st.DrawFn) -> Put:
    labels = dict(draw(st.sets(AMONG(LABELS))))
    taints = [TAINTS[one] for one in sorted(draw(st.sets(AMONG(range(2)))))]
    return a_node(draw(AMONG(NODE_NAMES)), draw(AMONG(INSTANCES)), labels=labels, taints=taints, **draw(metas()))


@st.composite
def claims(draw: st.DrawFn) -> Put:
    kind = "Other" if draw(st.integers(0, 3)) == 3 else CLASS.kind
    true = sorted(draw(st.sets(AMONG(CONDITIONS))))
    name, instance, pool = draw(AMONG(CLAIM_NAMES)), draw(AMONG(INSTANCES)), draw(AMONG(POOLS))
    return a_claim(name, instance, kind=kind, pool=pool, true=true, **draw(metas()))


@st.composite
def pods(draw: st.DrawFn) -> Put:
    meta: Manifest = {"labels": {"app": draw(AMONG("ab"))}, **draw(metas())}
    if owner := draw(AMONG(("", "", "DaemonSet", "StatefulSet"))):
        meta["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o"}]
    spec: Manifest = dict(WITH_VOLUME) if draw(st.booleans()) else {}
    if draw(st.booleans()):
        selector = {"matchLabels": {"app": "a"}}
        term = {"topologyKey": "zone", "labelSelector": selector, "namespaceSelector": {"matchLabels": {"tier": "db"}}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    name, node, cpu = draw(AMONG(POD_NAMES)), draw(AMONG((*NODE_NAMES, "gone", ""))), draw(AMONG(("1", "2", "much")))
    return a_pod(name, node, cpu=cpu, phase=draw(AMONG(("Running", "Running", "Succeeded"))), spec=spec, **meta)


@st.composite
def others(draw: st.DrawFn) -> Put:
    """What nodes and pods depend on besides."""
    namespace = {"metadata": {"name": draw(AMONG("xy")), "labels": {"tier": draw(AMONG(("db", "web")))}}}
    drivers = [{"name": "disks", "allocatable": {"count": draw(st.integers(1, 2))}}]
    csi_node = {"metadata": {"name": draw(AMONG(NODE_NAMES))}, "spec": {"drivers": drivers}}
    volume = a_volume(draw(AMONG(("disks", "files"))))
    return draw(AMONG((a_volume_claim(), volume, ("namespaces", namespace), ("csinodes", csi_node))))


Step = Callable[[World], object]
PUT: Final = st.one_of(nodes(), nodes(), claims(), claims(), pods(), pods(), others())
KEYS: Final = st.one_of(
    st.tuples(st.just("nodes"), AMONG(NODE_NAMES).map(lambda name: ("", name))),
    st.tuples(st.just(CLAIMS), AMONG(CLAIM_NAMES).map(lambda name: ("", name))),
    st.tuples(st.just("pods"), AMONG(POD_NAMES).map(lambda name: ("x", name))),
    AMONG([(VOLUME_CLAIMS, ("x", "v0")), ("persistentvolumes", ("", "pv0")), ("namespaces", ("", "y"))]),
)


def putting(put: Put, *, anew: bool) -> Step:
    return lambda world: world.state.apply(put[0], *world.put(*put, anew=anew))


def keeping_the_rest(put: Put) -> Step:
    return lambda world: world.check_identity(putting(put, anew=False))


def putting_several(puts: list[Put]) -> Step:
    def step(world: World) -> None:
        """All are in the store before the first is told."""
        found: dict[str, list[Change[Any]]] = {}
        for plural, manifest in puts:
            found.setdefault(plural, []).extend(world.put(plural, manifest))
        for plural, changes in found.items():
            world.state.apply(plural, *changes)

    return step


def putting_again(plural: str, key: Key) -> Step:
    """The same contents in another object, as after a change of a field that nobody reads."""

    def step(world: World) -> None:
        old = world.objects[plural].get(key)
        if old is not None:
            new = world.objects[plural][key] = StoredValue(old.uid, "2", msgspec.structs.replace(old.value))
            world.state.apply(plural, Updated(key, old, new))

    return step


def deleting(at: tuple[str, Key]) -> Step:
    return lambda world: world.state.apply(at[0], *world.delete(*at))


def settling(at_most: int) -> Step:
    return lambda world: world.state.settle(at_most)


def getting(key: NodeKey) -> Step:
    return lambda world: world.state.managed.get(key)


def marking(claim: str, *, marked: bool) -> Step:
    return lambda world: world.mark(claim, marked=marked)


KEY: Final = st.builds(NodeKey, AMONG(NodeKeyKind), AMONG(sorted({*NODE_NAMES, *CLAIM_NAMES})))
STEPS: Final[st.SearchStrategy[Step]] = st.one_of(
    st.builds(putting, PUT, anew=st.integers(0, 7).map(lambda drawn: drawn == 7)),
    st.builds(putting, PUT, anew=st.just(False)),
    st.builds(putting_several, st.lists(PUT, min_size=2, max_size=4)),
    st.builds(putting_again, st.just("pods"), AMONG(POD_NAMES).map(lambda name: ("x", name))),
    st.builds(deleting, KEYS),
    st.builds(settling, st.integers(1, 3)),
    st.builds(getting, KEY),
    st.builds(marking, AMONG(CLAIM_NAMES), marked=st.booleans()),
    st.builds(keeping_the_rest, PUT),
    AMONG([World.check_equal, lambda world: by_claim(world.state)]),
)


@given(nodes(), claims(), st.lists(STEPS, min_size=8, max_size=30))
def test_the_state_is_what_it_would_be_had_it_begun_now(node: Put, claim: Put, steps: list[Step]) -> None:
    world = World()
    world.feed(node, claim)
    for step in steps:
        step(world)
    world.check_identity()
    world.check_equal()
    check_join(world)
    world.check_nothing_is_left()


def check_join(world: World) -> None:
    """Where all nodes count, the join is that of the second implementation."""
    state = ClusterState()
    for plural in RULE_KINDS:
        state.apply(plural, *(Added(key, kept) for key, kept in world.objects[plural].items()))
    nodes, claims, pods = ([kept.value for kept in world.objects[plural].values()] for plural in RULE_KINDS)
    assert state.snapshot() == take_snapshot(nodes=map(node_record, nodes), claims=map(claim_record, claims), pods=pods)
