"""The DaemonSet controller: one pod on each eligible node, and rolling updates."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from typing import Any, NamedTuple

from dovetail.api.names import NOT_READY_TAINT, UNREACHABLE_TAINT, UNSCHEDULABLE_TAINT, TaintEffect
from dovetail.rules.pdb import scaled
from dovetail.sim.actors import wire
from dovetail.sim.actors.actor import ActorContext
from dovetail.sim.actors.scheduling.demand import REQUIRED, Demand, untolerated
from dovetail.sim.actors.scheduling.fit import NodeUsage, wants
from dovetail.sim.actors.wire import DAEMONSETS, NODES, PODS, Raw
from dovetail.sim.actors.workload import REVISION_LABEL, WorkloadActor, count, is_available, pod_from_template

_PRESSURES = (
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    UNSCHEDULABLE_TAINT,
)
_NETWORK = "node.kubernetes.io/network-unavailable"


def daemon_tolerations(spec: Raw) -> list[dict[str, Any]]:
    """The template's tolerations and those that every daemon pod gets."""
    added = [(NOT_READY_TAINT, TaintEffect.NO_EXECUTE), (UNREACHABLE_TAINT, TaintEffect.NO_EXECUTE)]
    added += [
        (key, TaintEffect.NO_SCHEDULE) for key in (*_PRESSURES, *((_NETWORK,) if spec.get("hostNetwork") else ()))
    ]
    extra = [{"key": key, "operator": "Exists", "effect": str(effect)} for key, effect in added]
    own = [dict(toleration) for toleration in spec.get("tolerations") or ()]
    return own + [toleration for toleration in extra if toleration not in own]


def daemon_spec(spec: Raw, node: str) -> dict[str, Any]:
    """The template's pod spec, bound to one node by name as the real controller does it."""
    made: dict[str, Any] = {**deepcopy(dict(spec)), "tolerations": daemon_tolerations(spec)}
    affinity = made.setdefault("affinity", {})
    required = affinity.setdefault("nodeAffinity", {}).setdefault(REQUIRED, {})
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [{**term, "matchFields": [field]} for term in terms]
    return made


class DaemonEligibility(NamedTuple):
    run: bool  # a pod should be there
    stay: bool  # one that is there may stay


def daemon_demand(template: Raw) -> Demand:
    """What a daemon pod of the template asks of its node."""
    spec = template["spec"]
    return Demand({"metadata": {"labels": {}}, "spec": {**spec, "tolerations": daemon_tolerations(spec)}})


def eligible(demand: Demand, tied: str, node: NodeUsage) -> DaemonEligibility:
    """Whether a node should have a daemon pod, and whether it may keep one: NoSchedule taints evict none.

    `tied`: the node that the template names, if it does.
    """
    if (tied and tied != node.name) or not wants(demand, node):
        return DaemonEligibility(run=False, stay=False)
    stay = untolerated(demand.tolerations, node.taints, TaintEffect.NO_EXECUTE) is None
    run = stay and untolerated(demand.tolerations, node.taints, TaintEffect.NO_SCHEDULE) is None
    return DaemonEligibility(run, stay)


def target_of(pod: Raw) -> str:
    """The node that a daemon pod runs on, or is bound to."""
    if wire.node_of(pod):
        return wire.node_of(pod)
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    for term in (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            return str(field["values"][0])
    return ""


class DaemonPodChanges(NamedTuple):
    create: list[str]  # nodes
    delete: list[Raw]  # pods


def plan(where: Mapping[str, DaemonEligibility], pods: Sequence[Raw]) -> DaemonPodChanges:
    """Which nodes lack a pod, and which pods are superfluous. A terminating pod still occupies its node."""
    by_node: dict[str, list[Raw]] = {}
    for pod in sorted(pods, key=wire.oldest_first):
        by_node.setdefault(target_of(pod), []).append(pod)
    create = [node for node, answer in where.items() if answer.run and node not in by_node]
    delete: list[Raw] = []
    for node, there in by_node.items():
        answer = where.get(node)
        if answer is None:
            continue  # the node is gone: the pod garbage collector deletes its pods
        live = [pod for pod in there if not wire.deleting(pod)]
        kept = [pod for pod in live if not wire.finished(pod)][:1] if answer.stay else []
        delete += [pod for pod in live if pod not in kept]
    return DaemonPodChanges(create, delete)


def outdated(
    where: Mapping[str, DaemonEligibility], pods: Iterable[Raw], revision: str, spec: Raw, now: datetime
) -> list[Raw]:
    """The pods of old revisions that a rolling update deletes now."""
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return []
    by_node = {target_of(pod): pod for pod in pods if not wire.deleting(pod)}
    nodes = [node for node, answer in where.items() if answer.run]
    limit = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
    allowed = max(1, scaled(limit, len(nodes)) or 0)
    useless: list[Raw] = []
    useful: list[Raw] = []
    for node in nodes:
        pod = by_node.get(node)
        available = pod is not None and is_available(pod, spec.get("minReadySeconds", 0), now)
        old = pod is not None and wire.labels_of(pod).get(REVISION_LABEL) != revision
        if not available and not old:
            allowed -= 1
        elif pod is not None and old:
            (useful if available else useless).append(pod)
    return useless + useful[: max(0, allowed - len(useless))]


class DaemonSets(WorkloadActor):
    """The DaemonSet controller."""

    kind = DAEMONSETS

    def __init__(self, world: ActorContext) -> None:
        super().__init__(world)
        self._nodes: dict[str, NodeUsage] = {}
        world.store(NODES).on_change(self._node_changed)

    def _node_changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is None:
            del self._nodes[wire.name_of(old or {})]
        elif old is None or wire.labels_of(old) != wire.labels_of(new) or old.get("spec") != new.get("spec"):
            self._nodes[wire.name_of(new)] = NodeUsage(new)
        else:
            return  # daemons do not depend on heartbeats and conditions
        for key in self.objects.items:
            self.enqueue(key)

    async def sync(self, obj: Raw) -> None:
        template, revision = obj["spec"]["template"], wire.short_hash(obj["spec"]["template"])
        demand, tied = daemon_demand(template), template["spec"].get("nodeName") or ""
        where = {name: eligible(demand, tied, node) for name, node in sorted(self._nodes.items())}
        if not wire.deleting(obj):
            todo = plan(where, self.pods_of(obj))
            for pod in todo.delete:
                await self.world.delete(PODS, pod)
            for node in todo.create:
                await self._create(obj, node, revision)
            for pod in outdated(where, self.pods_of(obj), revision, obj["spec"], self.world.now()):
                await self.world.delete(PODS, pod)
        await self._write(obj, where, revision)

    async def _create(self, obj: Raw, node: str, revision: str) -> None:
        pod = pod_from_template(DAEMONSETS, obj, obj["spec"]["template"], labels={REVISION_LABEL: revision})
        pod["spec"] = daemon_spec(obj["spec"]["template"]["spec"], node)
        await self.world.create(PODS, pod)

    async def _write(self, obj: Raw, where: Mapping[str, DaemonEligibility], revision: str) -> None:
        pods = self.pods_of(obj)
        wanted = [pod for pod in pods if (node := target_of(pod)) in where and where[node].run]
        current = {target_of(pod) for pod in wanted}
        counts = count(wanted, min_ready_seconds=obj["spec"].get("minReadySeconds", 0), now=self.world.now())
        desired = sum(answer.run for answer in where.values())
        updated = sum(wire.labels_of(pod).get(REVISION_LABEL) == revision for pod in wanted if not wire.deleting(pod))
        status = {
            "desiredNumberScheduled": desired,
            "currentNumberScheduled": len(current),
            "numberMisscheduled": len({target_of(pod) for pod in pods if wire.node_of(pod) in where} - current),
            "numberReady": counts.ready,
            "numberAvailable": counts.available or None,
            "numberUnavailable": desired - counts.available or None,
            "updatedNumberScheduled": updated or None,
            "observedGeneration": obj["metadata"].get("generation", 1),
        }
        await self.write_status(obj, status, recheck_at=counts.recheck_at)
