"""Pods without spread constraints get those of the scheduler's profile, with a selector deduced for each pod."""

from random import Random
from typing import Any, Final

import pytest

from dovetail.api import names
from dovetail.api.pod_specs import TopologySpreadConstraint
from dovetail.scheduling.default_spread import SchedulerProfile, SchedulerProfiles
from dovetail.scheduling.placement import PodInfo, TopologyRule
from dovetail.state.store import Synced
from tests.unit.state.world import NOW, Put, World, a_claim, a_node, a_pod

ZONE: Final = TopologySpreadConstraint(topology_key=names.ZONE_LABEL, max_skew=1)
HOST: Final = TopologySpreadConstraint(
    topology_key=names.HOSTNAME_LABEL, max_skew=2, when_unsatisfiable="ScheduleAnyway"
)
PROFILES: Final = SchedulerProfiles(
    {
        "default-scheduler": SchedulerProfile((ZONE, HOST)),
        "hosts": SchedulerProfile((HOST,)),
        "system": SchedulerProfile(system=True),
    }
)
OF_WEB: Final = {"kind": "ReplicaSet", "apiVersion": "apps/v1", "name": "web-1", "uid": "u", "controller": True}
WEB: Final = {"app": "web", "hash": "1"}


def a_service(name: str, selector: dict[str, str] | None, namespace: str = "x") -> Put:
    return "services", {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}}


def an_owner(plural: str = "replicasets", name: str = "web-1", selector: Any = None) -> Put:
    selects = {"matchLabels": {"hash": "1"}} if selector is None else selector
    return plural, {"metadata": {"name": name, "namespace": "x"}, "spec": {"selector": selects}}


def machine(name: str) -> tuple[Put, Put]:
    labels = {names.NODEPOOL_LABEL: "a", names.INSTANCE_TYPE_LABEL: "t", "example.com/machine": "default"}
    return a_claim(f"claim-{name}", name), a_node(name, name, labels=labels)


def waiting(name: str = "p", *, owner: Any = OF_WEB, scheduler: str = "default-scheduler", **spec: Any) -> Put:
    owners = [] if owner is None else [owner]
    return a_pod(name, labels=WEB, ownerReferences=owners, spec={"schedulerName": scheduler, **spec})


def synced(profiles: SchedulerProfiles | None = PROFILES) -> World:
    world = World(profiles)
    world.state.loaded()
    return world


def pending(world: World) -> PodInfo:
    (pod,) = world.placing.pending().pods
    return pod


def selected(rules: tuple[TopologyRule, ...]) -> list[tuple[str, str]]:
    return [(rule.key, str(rule.selector)) for rule in rules]


def test_the_selectors_of_services_and_of_the_owner_are_merged() -> None:
    world = synced()
    world.feed(an_owner(), a_service("web", {"app": "web"}), a_service("db", {"app": "db"}), a_service("all", None))
    world.feed(a_service("elsewhere", {"app": "web", "hash": "1"}, "y"), waiting())
    pod = pending(world)
    assert selected(pod.rules) == [(names.ZONE_LABEL, "app=web,hash=1")]
    assert selected(pod.preferred_spread) == [(names.HOSTNAME_LABEL, "app=web,hash=1")]
    assert [(rule.max_skew, rule.namespaces) for rule in pod.rules] == [(1, frozenset({"x"}))]


@pytest.mark.parametrize(
    ("plural", "kind", "version", "selector", "found"),
    [
        ("replicasets", "ReplicaSet", "apps/v1", {"matchLabels": {"hash": "1"}}, "hash=1"),
        ("statefulsets", "StatefulSet", "apps/v1", {"matchExpressions": [{"key": "app", "operator": "Exists"}]}, "app"),
        ("replicationcontrollers", "ReplicationController", "v1", {"app": "web"}, "app=web"),
    ],
)
def test_the_selector_of_each_kind_of_owner(plural: str, kind: str, version: str, selector: Any, found: str) -> None:
    world = synced()
    owner = {**OF_WEB, "kind": kind, "apiVersion": version, "name": "own"}
    world.feed(an_owner(plural, "own", selector), waiting(owner=owner))
    assert selected(pending(world).rules) == [(names.ZONE_LABEL, found)]


@pytest.mark.parametrize(
    "pod",
    [
        waiting(owner=None),
        waiting(owner={**OF_WEB, "name": "gone"}),
        waiting(owner={**OF_WEB, "controller": False}),
        waiting(owner={**OF_WEB, "kind": "Job", "apiVersion": "batch/v1"}),
        waiting(scheduler="other"),
        waiting(scheduler="system"),
    ],
)
def test_a_pod_without_a_profile_or_a_selector_gets_none(pod: Put) -> None:
    world = synced()
    world.feed(an_owner(), pod)
    assert pending(world).all_rules == ()


def test_own_constraints_replace_the_defaults() -> None:
    world = synced()
    own = {"topologyKey": "rack", "maxSkew": 3, "whenUnsatisfiable": "DoNotSchedule"}
    world.feed(
        a_service("web", {"app": "web"}),
        an_owner(),
        waiting(topologySpreadConstraints=[{**own, "labelSelector": {"matchLabels": {"app": "web"}}}]),
    )
    assert selected(pending(world).all_rules) == [("rack", "app=web")]


def test_each_profile_has_its_own_constraints() -> None:
    world = synced()
    world.feed(an_owner(), waiting(scheduler="hosts"))
    assert selected(pending(world).all_rules) == [(names.HOSTNAME_LABEL, "hash=1")]


@pytest.mark.parametrize("profiles", [None, SchedulerProfiles({"default-scheduler": SchedulerProfile(system=True)})])
def test_without_default_constraints_nothing_is_read_and_nothing_added(profiles: SchedulerProfiles | None) -> None:
    world = synced(profiles)
    assert world.state.stores.keys() & {"services", "replicasets", "statefulsets", "replicationcontrollers"} == set()
    world.feed(waiting())
    assert pending(world).all_rules == ()


def test_pods_on_nodes_follow_services_and_owners() -> None:
    world = synced()
    world.feed(*machine("n"), a_pod("p", "n", labels=WEB, ownerReferences=[OF_WEB]))
    found = []
    for put in (an_owner(), a_service("web", {"app": "web"}), a_service("web", {"app": "db"})):
        world.placing.snapshot(NOW)
        world.feed(put)
        world.check_equal()
        world.check_identity()
        ((read,),) = (each.read for each in world.placing.snapshot(NOW).movable.values())
        assert isinstance(read, PodInfo)
        found.append(selected(read.rules))
    assert found == [[(names.ZONE_LABEL, text)] for text in ("hash=1", "app=web,hash=1", "hash=1")]
    world.check_nothing_is_left()


def test_services_that_are_listed_after_the_pods_count() -> None:
    world = World(PROFILES)
    world.feed(waiting(), a_service("web", {"app": "web"}))
    world.placing.pending()
    world.state.apply("services", Synced())
    assert selected(pending(world).rules) == [(names.ZONE_LABEL, "app=web")]


@pytest.mark.parametrize("seed", range(20))
def test_random_changes_lead_to_what_a_new_state_reads(seed: int) -> None:
    random, world = Random(seed), synced()
    world.feed(*machine("n"), *machine("m"))
    for _ in range(60):
        put = random.choice(
            [
                a_service(random.choice("ab"), random.choice([None, {"app": "web"}, {"hash": "1"}])),
                an_owner(selector={"matchLabels": {"hash": random.choice("12")}}),
                waiting(random.choice("pq"), scheduler=random.choice(["default-scheduler", "hosts", "other"])),
                a_pod(random.choice("rs"), random.choice("nm"), labels=WEB, ownerReferences=[OF_WEB]),
            ]
        )
        plural, manifest = put
        key = (manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        changes = world.delete(plural, key) if random.random() < 0.3 else world.put(plural, manifest)
        world.state.apply(plural, *changes)
        if random.random() < 0.5:
            world.placing.snapshot(NOW)
    assert len(world.placing.snapshot(NOW).movable) == 2
    world.check_equal()
    world.check_nothing_is_left()
