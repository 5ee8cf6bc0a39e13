"""On which nodes does a DaemonSet want a pod, and which of its pods are superfluous or outdated?"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from typing import Any, NamedTuple

from dovetail.api.names import NOT_READY_TAINT, UNREACHABLE_TAINT, UNSCHEDULABLE_TAINT, TaintEffect
from dovetail.rules.pdb import scaled
from dovetail.sim.actors.actor import ActorContext
from dovetail.sim.actors.demand import Demand, untolerated
from dovetail.sim.actors.fit import NodeUsage, wants
from dovetail.sim.actors.wire import (
    DAEMONSETS,
    NODES,
    PODS,
    Raw,
    deleting,
    finished,
    labels_of,
    name_of,
    node_of,
    oldest_first,
    short_hash,
)
from dovetail.sim.actors.workload import (
    WorkloadActor,
    count,
    is_available,
    or_none,
    pod_from_template,
)

REVISION_LABEL = "controller-revision-hash"
_PRESSURES = (
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    UNSCHEDULABLE_TAINT,
)
_NETWORK = "node.kubernetes.io/network-unavailable"


def daemon_tolerations(spec: Raw) -> list[dict[str, Any]]:
    """The template's tolerations and those that every daemon gets."""
    added = [(NOT_READY_TAINT, TaintEffect.NO_EXECUTE), (UNREACHABLE_TAINT, TaintEffect.NO_EXECUTE)]
    added += [
        (key, TaintEffect.NO_SCHEDULE) for key in (*_PRESSURES, *((_NETWORK,) if spec.get("hostNetwork") else ()))
    ]
    extra = [{"key": key, "operator": "Exists", "effect": str(effect)} for key, effect in added]
    own = [dict(toleration) for toleration in spec.get("tolerations") or ()]
    return own + [toleration for toleration in extra if toleration not in own]


def daemon_spec(spec: Raw, node: str) -> dict[str, Any]:
    """The template's pod spec, tied to one node by name as the real controller ties it."""
    made: dict[str, Any] = {**deepcopy(dict(spec)), "tolerations": daemon_tolerations(spec)}
    affinity = made.setdefault("affinity", {})
    required = affinity.setdefault("nodeAffinity", {}).setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [{**term, "matchFields": [field]} for term in terms]
    return made


class DaemonEligibility(NamedTuple):
    run: bool  # a pod should be there
    stay: bool  # one that is there may stay


def eligible(template: Raw, node: NodeUsage) -> DaemonEligibility:
    """Taints that only keep from scheduling leave running daemons alone."""
    spec = template["spec"]
    tied = spec.get("nodeName")
    demand = Demand({"metadata": {"labels": {}}, "spec": {**spec, "tolerations": daemon_tolerations(spec)}})
    if (tied and tied != node.name) or not wants(demand, node):
        return DaemonEligibility(run=False, stay=False)
    stay = untolerated(demand.tolerations, node.taints, TaintEffect.NO_EXECUTE) is None
    run = stay and untolerated(demand.tolerations, node.taints, TaintEffect.NO_SCHEDULE) is None
    return DaemonEligibility(run, stay)


def target_of(pod: Raw) -> str:
    """The node that a daemon pod is on, or waits for."""
    if node_of(pod):
        return node_of(pod)
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            return str(field["values"][0])
    return ""


class DaemonPodChanges(NamedTuple):
    create: list[str]  # nodes
    delete: list[Raw]  # pods


def plan(where: Mapping[str, DaemonEligibility], pods: Sequence[Raw]) -> DaemonPodChanges:
    """Which nodes lack a pod and which pods have to go. A pod on its way out still holds its place."""
    by_node: dict[str, list[Raw]] = {}
    for pod in sorted(pods, key=oldest_first):
        by_node.setdefault(target_of(pod), []).append(pod)
    create = [node for node, answer in where.items() if answer.run and node not in by_node]
    delete: list[Raw] = []
    for node, there in by_node.items():
        answer = where.get(node)
        if answer is None:
            continue  # the node is gone: its pods are the garbage collector's
        live = [pod for pod in there if not deleting(pod)]
        kept = [pod for pod in live if not finished(pod)][:1] if answer.stay else []
        delete += [pod for pod in live if pod not in kept]
    return DaemonPodChanges(create, delete)


def outdated(
    where: Mapping[str, DaemonEligibility], pods: Iterable[Raw], revision: str, spec: Raw, now: datetime
) -> list[Raw]:
    """Which pods of an old revision a rolling update deletes now."""
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return []
    by_node = {target_of(pod): pod for pod in pods if not deleting(pod)}
    nodes = [node for node, answer in where.items() if answer.run]
    limit = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
    allowed = max(1, scaled(limit, len(nodes)) or 0)
    useless: list[Raw] = []
    useful: list[Raw] = []
    for node in nodes:
        pod = by_node.get(node)
        available = pod is not None and is_available(pod, spec.get("minReadySeconds", 0), now)
        old = pod is not None and labels_of(pod).get(REVISION_LABEL) != revision
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
            assert old is not None
            del self._nodes[name_of(old)]
        else:
            # Heartbeats and conditions do not matter to daemons.
            if old is not None and labels_of(old) == labels_of(new) and old.get("spec") == new.get("spec"):
                return
            self._nodes[name_of(new)] = NodeUsage(new)
        for key in self.objects.items:
            self.enqueue(key)

    async def sync(self, obj: Raw) -> None:
        template, revision = obj["spec"]["template"], short_hash(obj["spec"]["template"])
        where = {name: eligible(template, node) for name, node in sorted(self._nodes.items())}
        if not deleting(obj):
            todo = plan(where, self.pods_of(obj))
            for pod in todo.delete:
                await self.world.delete(PODS, pod)
            for node in todo.create:
                await self._create(obj, node, revision)
            for pod in outdated(where, self.pods_of(obj), revision, obj["spec"], self.world.now()):
                await self.world.delete(PODS, pod)
        await self._write(obj, where, revision)

    async def _create(self, obj: Raw, node: str, revision: str) -> None:
        generation = str(obj["metadata"].get("generation", 1))
        labels = {REVISION_LABEL: revision, "pod-template-generation": generation}
        pod = pod_from_template(DAEMONSETS, obj, obj["spec"]["template"], labels=labels)
        pod["spec"] = daemon_spec(obj["spec"]["template"]["spec"], node)
        await self.world.create(PODS, pod)

    async def _write(self, obj: Raw, where: Mapping[str, DaemonEligibility], revision: str) -> None:
        min_ready = obj["spec"].get("minReadySeconds", 0)
        pods = self.pods_of(obj)
        wanted = [pod for pod in pods if where.get(target_of(pod), DaemonEligibility(run=False, stay=False)).run]
        counts = count(wanted, min_ready_seconds=min_ready, now=self.world.now())
        desired = sum(answer.run for answer in where.values())
        updated = sum(labels_of(pod).get(REVISION_LABEL) == revision for pod in wanted if not deleting(pod))
        status = {
            "desiredNumberScheduled": desired,
            "currentNumberScheduled": len({target_of(pod) for pod in wanted}),
            "numberMisscheduled": len({target_of(pod) for pod in pods if node_of(pod) in where} - _names(wanted)),
            "numberReady": counts.ready,
            "numberAvailable": or_none(counts.available),
            "numberUnavailable": or_none(desired - counts.available),
            "updatedNumberScheduled": or_none(updated),
            "observedGeneration": obj["metadata"].get("generation", 1),
        }
        await self.write_status(obj, status, recheck_at=counts.recheck_at)


def _names(pods: Iterable[Raw]) -> set[str]:
    return {target_of(pod) for pod in pods}
