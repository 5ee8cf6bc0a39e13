"""Who makes room for whom, in simulations too large or too contrived for a real cluster."""

import hashlib
from typing import Any

import pytest

from dovetail.ports import OutcomeUnknown
from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.actors.scheduling.fit import FITS
from dovetail.sim.actors.scheduling.placement import Answers, SchedulerCache, Supposition, answer, place
from dovetail.sim.actors.wire import PODS, condition_of, deleting, name_of, node_of, status_of
from dovetail.sim.server.faults import Fault
from tests.harness import manifests
from tests.harness.soak import examples
from tests.harness.stage import stage

pytestmark = stage(run, gives=("cluster",))

LOW, HIGH = 10, 1000


def placed(name: str, node: str = "", **spec: Any) -> dict[str, Any]:
    made = manifests.pod(name, **spec)
    made["metadata"]["namespace"] = "default"
    if node:
        made["spec"]["nodeName"] = node
    return made


def test_what_is_supposed_is_undone() -> None:
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "new"}}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    where = SchedulerCache()
    where.node_changed(None, manifests.node("n1", cpu="4"))
    where.pod_changed(None, placed("a", "n1", cpu="3", affinity=rule))
    where.nominate("default/b", "n1", where.demand(placed("b", cpu="2", priority=HIGH)))
    demand, node = where.demand(placed("new", cpu="1")), where.nodes["n1"]
    assert answer(demand, where, node, ()) is not FITS
    used, alone = dict(node.used), set(node.demands)
    with Supposition(where, "n1") as what_if:
        what_if.others_come("default/new", 0)
        assert set(node.demands) == {"default/a", "default/b"}
        what_if.goes("default/a")
        assert answer(demand, where, node, ()) is FITS
        what_if.stays("default/a")
        assert answer(demand, where, node, ()) is not FITS
        what_if.goes("default/a")
    assert (node.used, set(node.demands)) == (used, alone)
    assert place(demand, where, Answers(demand))[0] is None
    where.pod_changed(placed("a", "n1", cpu="3", affinity=rule), None)
    assert place(demand, where, Answers(demand))[0] == "n1"


def test_a_nomination_that_ends_gives_its_room_back() -> None:
    where = SchedulerCache()
    where.node_changed(None, manifests.node("n1", cpu="4"))
    demand, other = where.demand(placed("new", cpu="3")), where.demand(placed("b", cpu="2", priority=HIGH))
    assert where.nominate("default/b", "n1", other)
    assert not where.nominate("default/b", "n1", other)
    assert place(demand, where, Answers(demand))[0] is None
    assert place(other, where, Answers(other), key="default/b")[0] == "n1"
    chances = where.chances
    assert where.nominate("default/b", "", other)
    assert where.chances == chances + 1
    assert place(demand, where, Answers(demand))[0] == "n1"


async def crowded(cluster: SimCluster) -> None:
    """A full cluster in which as much again of a higher priority is wanted."""
    await cluster.apply(manifests.priority_class("low", LOW), manifests.priority_class("high", HIGH))
    await cluster.apply(*(manifests.node(f"n{number}", cpu="4", zone="ab"[number % 2]) for number in range(6)))
    low = manifests.deployment("low", replicas=24, cpu="1", memory="1Mi", priorityClassName="low")
    await cluster.apply(low, manifests.pdb("low", minAvailable="50%"))
    await cluster.wait_until(lambda: len(cluster.pods(app="low", ready=True)) == 24)
    await cluster.apply(manifests.deployment("high", replicas=9, cpu="2", memory="1Mi", priorityClassName="high"))
    await cluster.run_for("5m")


async def crowded_and_at_rest(cluster: SimCluster) -> str:
    """A digest of all that was written, after what must be so."""
    preempted: dict[str, str] = {}

    def note_preempted(_resource: Any, change: Any) -> None:
        target = condition_of(change.new.body, "DisruptionTarget") if "spec" in change.new.body else None
        if target is not None and target["reason"] == "PreemptionByScheduler":
            preempted[name_of(change.new.body)] = change.new.body["metadata"]["labels"]["app"]

    cluster.server.registry.store.observers.append(note_preempted)
    await crowded(cluster)
    assert list(preempted.values()) == ["low"] * 18
    assert len(cluster.pods(app="high", ready=True)) == 9
    assert len(cluster.pods(app="low", ready=True)) == 24 - 2 * 9
    assert not any(status_of(pod).get("nominatedNodeName") or deleting(pod) for pod in cluster.pods())
    before = len(cluster.trace)
    await cluster.run_for("1h")
    assert len(cluster.trace) == before, "a cluster at rest writes nothing"
    return hashlib.sha256("\n".join(cluster.trace).encode()).hexdigest()


@pytest.mark.parametrize("latency_seconds", [0.0, 0.005])
@pytest.mark.parametrize("seed", range(examples(3, quick=1)))
def test_the_important_run_and_nobody_else_is_driven_away_for_them(seed: int, latency_seconds: float) -> None:
    first, again = (
        run(crowded_and_at_rest, seed=seed, shuffle=True, latency_seconds=latency_seconds) for _ in range(2)
    )
    assert first == again


async def test_it_is_tried_again_if_an_answer_is_lost(cluster: SimCluster) -> None:
    await cluster.apply(manifests.priority_class("high", HIGH), manifests.node("n1", cpu="4"))
    await cluster.apply(manifests.pod("a", cpu="3"))
    await cluster.wait_until(lambda: len(cluster.pods(ready=True)) == 1)
    for verb in ("patch", "delete"):
        for after in (False, True):
            fault = Fault(error=OutcomeUnknown("lost"), after=after)
            cluster.server.faults.add(fault, verb=verb, resource=PODS, client="kube-scheduler")
    await cluster.apply(manifests.pod("b", cpu="3", priorityClassName="high"))
    await cluster.wait_until(lambda: bool(cluster.pods(app="b", ready=True)), timeout="2m")
    assert [node_of(pod) for pod in cluster.pods()] == ["n1"]


async def test_the_default_class_is_for_those_that_have_none(cluster: SimCluster) -> None:
    await cluster.apply(
        manifests.priority_class("b", 20, globalDefault=True, preemptionPolicy="Never"),
        manifests.priority_class("a", 30, globalDefault=True),
        manifests.priority_class("c", 10),
    )
    await cluster.apply(manifests.pod("p"), manifests.pod("q", priorityClassName="system-node-critical"))
    found = {
        name_of(pod): (pod["spec"]["priorityClassName"], pod["spec"]["priority"], pod["spec"]["preemptionPolicy"])
        for pod in cluster.pods()
    }
    assert found["p"] == ("b", 20, "Never")
    assert found["q"] == ("system-node-critical", 2_000_001_000, "PreemptLowerPriority")
