"""What is lived through: each flow brings claims to where they belong, and gives an account of how it ended.

The account must be the same whatever happened on the way: what is there at the end, how many machines each claim ever
had, and that no pod went before its time.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from dovetail.api import names
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, Delete, EventType, Resource
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.server.store import Change
from dovetail.values.timestamp import parse_time
from tests.harness import manifests
from tests.harness.claims import node_claim, node_class, node_pool
from tests.sim.crash.mortal import World

TYPE = {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["s-16x-amd64-linux"]}
REQUESTS = {"requests": {"cpu": "1"}}
Account = Mapping[str, Any]


async def bring_up(world: World, *claims: str, **spec: Any) -> None:
    """Claims, up to their initialization."""
    await world.sim.apply(node_class(), node_pool())
    for name in claims:
        await world.sim.apply(node_claim(name, requirements=[TYPE], resources=REQUESTS, **spec))
    await world.sim.wait_until(lambda: initialized(world.sim) >= set(claims), timeout="20m")


def initialized(sim: SimCluster) -> set[str]:
    return {
        claim["metadata"]["name"]
        for claim in sim.objects(NODECLAIMS)
        if any(
            c["type"] == "Initialized" and c["status"] == "True" for c in claim.get("status", {}).get("conditions", ())
        )
    }


async def gone(world: World, *, timeout: str) -> None:
    """Until neither claims nor Nodes are left."""
    sim = world.sim
    await sim.wait_until(lambda: not sim.objects(NODECLAIMS) and not sim.objects(NODES), timeout=timeout)
    await sim.run_for("5m")  # and nothing comes back


def account(world: World, **more: Any) -> Account:
    """What there is, without names and times that chance has drawn."""
    sim, now = world.sim, world.sim.clock.now()
    machines = world.cloud.machines.values()
    launched = Counter(machine.instance.claim_uid for machine in machines)
    claims = {
        claim["metadata"]["name"]: {
            "conditions": {c["type"]: (c["status"], c["reason"]) for c in claim["status"]["conditions"]},
            "finalizers": claim["metadata"].get("finalizers"),
        }
        for claim in sim.objects(NODECLAIMS)
    }
    nodes = sorted(
        (
            node["metadata"]["labels"].get("karpenter.sh/nodepool"),
            node["metadata"]["labels"].get("karpenter.sh/initialized"),
            tuple(sorted(taint["key"] for taint in node["spec"].get("taints", ()))),
            tuple(node["metadata"].get("finalizers", ())),
            len(node["metadata"].get("ownerReferences", ())),
        )
        for node in sim.objects(NODES)
    )
    return {
        "claims": claims,
        "nodes": nodes,
        "running machines": sum(not machine.gone(now) for machine in machines),
        "most machines of a claim": max(launched.values(), default=0),
        "pods": dict(
            Counter((pod["metadata"]["labels"].get("app"), bool(pod["spec"].get("nodeName"))) for pod in sim.pods())
        ),
        **more,
    }


class Watcher:
    """When each pod was first asked to go."""

    def __init__(self, sim: SimCluster) -> None:
        self.asked_at: dict[str, datetime] = {}
        sim.server.registry.store.observers.append(self._look)
        self._clock = sim.clock

    def _look(self, resource: Resource[Any], change: Change) -> None:
        meta = change.new.body["metadata"]
        if resource.plural == "pods" and (meta.get("deletionTimestamp") or change.type is EventType.DELETED):
            self.asked_at.setdefault(meta["name"], self._clock.now())


# -- the flows ---------------------------------------------------------------------------------------------------------


async def coming_up(world: World) -> Account:
    await world.sim.apply(node_class())  # a turn of the loop: the controllers are there
    world.begin()
    await bring_up(world, "a", "b")
    await world.sim.run_for("20m")
    return account(world)


async def draining_under_a_budget(world: World) -> Account:
    """Three pods, one at a time, then the node; nothing is forced."""
    await bring_up(world, "a")
    await world.sim.apply(manifests.deployment("web", replicas=3), manifests.pdb("web", maxUnavailable=1))
    await world.sim.wait_until(lambda: len(world.sim.pods(ready=True)) == 3)
    await bring_up(world, "b")
    world.begin()
    await world.sim.api.write(Delete(NODECLAIMS, "a"))
    await world.sim.wait_until(lambda: "a" not in initialized(world.sim), timeout="1h")
    await world.sim.run_for("10m")
    return account(world, ready=len(world.sim.pods(ready=True)))


async def forced_at_the_deadline(world: World) -> Account:
    """A protected pod goes at the deadline less its grace, and not a second before."""
    await bring_up(world, "a", terminationGracePeriod="15m")
    await world.sim.apply(bare_pod("kept", {names.DO_NOT_DISRUPT: "true"}, grace=60))
    await world.sim.wait_until(lambda: len(world.sim.pods(ready=True)) == 1)
    watcher = Watcher(world.sim)
    deleted_at = world.sim.clock.now().replace(microsecond=0)
    world.begin()
    await world.sim.api.write(Delete(NODECLAIMS, "a"))
    await gone(world, timeout="1h")
    due_at = deleted_at + timedelta(minutes=14)
    return account(world, early=watcher.asked_at["kept"] < due_at, late=watcher.asked_at["kept"] > due_at + SLACK)


async def waiting_for_a_duration(world: World) -> Account:
    """A pod protected for 4 h stays for 4 h."""
    await bring_up(world, "a")
    await world.sim.apply(bare_pod("kept", {names.DO_NOT_DISRUPT: "4h"}))
    await world.sim.wait_until(lambda: len(world.sim.pods(ready=True)) == 1)
    created_at = parse_time(world.sim.pods()[0]["metadata"]["creationTimestamp"])
    watcher = Watcher(world.sim)
    world.begin()
    await world.sim.api.write(Delete(NODECLAIMS, "a"))
    await gone(world, timeout="5h")
    due_at = created_at + timedelta(hours=4)
    return account(world, early=watcher.asked_at["kept"] < due_at, late=watcher.asked_at["kept"] > due_at + SLACK)


async def node_deleted_by_hand(world: World) -> Account:
    await bring_up(world, "a")
    await world.sim.apply(bare_pod("plain", {}))
    await world.sim.wait_until(lambda: len(world.sim.pods(ready=True)) == 1)
    world.begin()
    await world.sim.api.write(Delete(NODES, world.sim.objects(NODES)[0]["metadata"]["name"]))
    await gone(world, timeout="30m")
    return account(world)


async def expiring(world: World) -> Account:
    await bring_up(world, "a", expireAfter="1h", terminationGracePeriod="10m")
    await world.sim.apply(bare_pod("kept", {names.DO_NOT_DISRUPT: "true"}))
    world.begin()
    await gone(world, timeout="3h")
    return account(world)


async def expiring_gracefully(world: World) -> Account:
    await bring_up(world, "a")
    world.begin()
    await world.sim.apply(node_pool(disruption={"gracefulExpireAfter": "1h"}))
    await world.sim.run_for("2h")
    return account(world)


async def deleted_while_launching(world: World) -> Account:
    world.cloud.next_launches(Launch(seconds=60))
    await world.sim.apply(node_class(), node_pool())
    world.begin()
    await world.sim.apply(node_claim("a", requirements=[TYPE], resources=REQUESTS))
    await world.sim.run_for("30s")
    await world.sim.api.write(Delete(NODECLAIMS, "a"))
    await gone(world, timeout="30m")
    await world.sim.run_for("10m")
    return account(world)


async def never_registering(world: World) -> Account:
    world.cloud.next_launches(Launch(registers=False))
    await world.sim.apply(node_class(), node_pool())
    world.begin()
    await world.sim.apply(node_claim("a", requirements=[TYPE], resources=REQUESTS))
    await gone(world, timeout="40m")
    return account(world)


async def interrupted(world: World) -> Account:
    await bring_up(world, "a", terminationGracePeriod="1h")
    await world.sim.apply(bare_pod("kept", {names.DO_NOT_DISRUPT: "true"}))
    await world.sim.wait_until(lambda: len(world.sim.pods(ready=True)) == 1)
    machine = next(iter(world.cloud.machines))
    world.begin()
    world.cloud.interrupt(machine, deadline=world.sim.clock.now() + timedelta(minutes=2))
    await gone(world, timeout="30m")
    return account(world)


async def unhealthy(world: World) -> Account:
    await bring_up(world, "a", "b", "c", "d", "e", terminationGracePeriod="10m")
    machine = world.cloud.machines[min(world.cloud.machines)]
    world.begin()
    world.sim.set_node_ready(machine.node, ready=False)
    await world.sim.run_for("1h")
    return account(world, count=len(world.sim.objects(NODECLAIMS)))


async def vanished(world: World) -> Account:
    await bring_up(world, "a")
    world.begin()
    world.cloud.vanish(next(iter(world.cloud.machines)))
    await gone(world, timeout="30m")
    return account(world)


async def pool_deleted(world: World) -> Account:
    """The garbage collector deletes the claims, and they drain."""
    await world.sim.apply(node_class(), node_pool())
    pool = world.sim.object(NODEPOOLS, "default")
    assert pool is not None
    claims = [
        node_claim(name, pool_uid=pool["metadata"]["uid"], requirements=[TYPE], resources=REQUESTS) for name in "ab"
    ]
    await world.sim.apply(*claims)
    await world.sim.wait_until(lambda: initialized(world.sim) == {"a", "b"}, timeout="20m")
    world.begin()
    await world.sim.api.write(Delete(NODEPOOLS, "default"))
    await gone(world, timeout="1h")
    return account(world)


SLACK = timedelta(seconds=30)  # a crash and the wait for the next leader


def bare_pod(name: str, annotations: dict[str, str], *, grace: int = 30) -> dict[str, Any]:
    """A pod without an owner, so that nothing comes in its place."""
    pod: dict[str, Any] = manifests.pod(name, annotations=annotations, terminationGracePeriodSeconds=grace)
    pod["metadata"].setdefault("labels", {})["app"] = name
    return pod


FLOWS = (
    coming_up,
    draining_under_a_budget,
    forced_at_the_deadline,
    waiting_for_a_duration,
    node_deleted_by_hand,
    expiring,
    expiring_gracefully,
    deleted_while_launching,
    never_registering,
    interrupted,
    unhealthy,
    vanished,
    pool_deleted,
)
