"""The StatefulSet controller: which pod it creates, replaces or deletes next."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from dovetail.sim.actors import wire, workload
from dovetail.sim.actors.actor import ActorContext
from dovetail.sim.actors.wire import CLAIMS, PODS, STATEFULSETS, Raw
from dovetail.sim.actors.workload import REVISION_LABEL, WorkloadActor, running_and_ready


class OrdinalAction(StrEnum):
    CREATE = "create"
    DELETE = "delete"


class OrdinalStep(NamedTuple):
    do: OrdinalAction
    ordinal: int


class StatefulSetTarget(NamedTuple):
    """The parsed spec of a StatefulSet."""

    replicas: int
    start: int
    ordered: bool
    rolling: bool
    partition: int
    min_ready_seconds: int

    @property
    def ordinals(self) -> range:
        return range(self.start, self.start + self.replicas)


def wanted(spec: Raw) -> StatefulSetTarget:
    update = spec.get("updateStrategy") or {}
    return StatefulSetTarget(
        replicas=wire.replicas_of(spec),
        start=(spec.get("ordinals") or {}).get("start", 0),
        ordered=spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady",
        rolling=update.get("type", "RollingUpdate") == "RollingUpdate",
        partition=(update.get("rollingUpdate") or {}).get("partition", 0),
        min_ready_seconds=spec.get("minReadySeconds", 0),
    )


def next_steps(want: StatefulSetTarget, pods: Mapping[int, Raw], revision: str, now: datetime) -> list[OrdinalStep]:
    """The steps that are possible now. `pods` by ordinal; a pod that blocks progress ends the list."""
    steps: list[OrdinalStep] = []
    for ordinal in want.ordinals:
        pod = pods.get(ordinal)
        if pod is None:
            steps.append(OrdinalStep(OrdinalAction.CREATE, ordinal))
        elif wire.finished(pod):
            return steps if wire.deleting(pod) else [*steps, OrdinalStep(OrdinalAction.DELETE, ordinal)]
        healthy = pod is not None and not wire.deleting(pod) and _healthy(pod, want, now)
        if want.ordered and not healthy:
            return steps
    condemned = sorted((ordinal for ordinal in pods if ordinal not in want.ordinals), reverse=True)
    unhealthy = [o for o in sorted(pods) if not running_and_ready(pods[o]) or wire.deleting(pods[o])]
    for ordinal in condemned:
        pod = pods[ordinal]
        if wire.deleting(pod):
            if want.ordered:
                return steps
        elif not want.ordered:
            steps.append(OrdinalStep(OrdinalAction.DELETE, ordinal))
        elif _healthy(pod, want, now) or unhealthy[:1] == [ordinal]:
            return [*steps, OrdinalStep(OrdinalAction.DELETE, ordinal)]
        else:
            return steps
    return [*steps, *_update(want, pods, revision, now)] if want.rolling else steps


def _healthy(pod: Raw, want: StatefulSetTarget, now: datetime) -> bool:
    return running_and_ready(pod) and workload.is_available(pod, want.min_ready_seconds, now)


def _update(want: StatefulSetTarget, pods: Mapping[int, Raw], revision: str, now: datetime) -> list[OrdinalStep]:
    """Replace outdated pods from the highest ordinal down, one at a time."""
    for ordinal in reversed(want.ordinals):
        pod = pods.get(ordinal)
        if ordinal < want.partition or pod is None:
            return []
        if wire.labels_of(pod).get(REVISION_LABEL) != revision and not wire.deleting(pod):
            return [OrdinalStep(OrdinalAction.DELETE, ordinal)]
        if wire.deleting(pod) or not _healthy(pod, want, now):
            return []
    return []


class StatefulSets(WorkloadActor):
    """The StatefulSet controller."""

    kind = STATEFULSETS

    def __init__(self, world: ActorContext) -> None:
        super().__init__(world)
        world.store(CLAIMS)
        # Templates of earlier revisions, for pods below the partition; the real controller has ControllerRevisions.
        self._templates: dict[tuple[str, str], Raw] = {}

    async def sync(self, obj: Raw) -> None:
        update = f"{wire.name_of(obj)}-{wire.short_hash(obj['spec']['template'])}"
        self._templates[wire.uid_of(obj), update] = obj["spec"]["template"]
        want = wanted(obj["spec"])
        if not wire.deleting(obj):
            pods = self._by_ordinal(obj)
            for step in next_steps(want, pods, update, self.world.now()):
                if step.do is OrdinalAction.DELETE:
                    await self.world.delete(PODS, pods[step.ordinal])
                else:
                    await self._create(obj, step.ordinal, self._revision(obj, want, step.ordinal, update))
        await self._write(obj, want, update)

    def adopts(self, owner: Raw, pod: Raw) -> bool:
        ordinal = wire.name_of(pod).removeprefix(f"{wire.name_of(owner)}-")
        return ordinal.isdigit() and super().adopts(owner, pod)

    def _by_ordinal(self, obj: Raw) -> dict[int, Raw]:
        prefix = f"{wire.name_of(obj)}-"
        pods = {wire.name_of(pod).removeprefix(prefix): pod for pod in self.pods_of(obj)}
        return {int(ordinal): pod for ordinal, pod in pods.items() if ordinal.isdigit()}

    def _revision(self, obj: Raw, want: StatefulSetTarget, ordinal: int, update: str) -> str:
        """The revision of a new pod: below the partition the current one, if its template is known."""
        current = wire.status_of(obj).get("currentRevision") or update
        keeps = want.rolling and ordinal < want.partition
        return current if keeps and (wire.uid_of(obj), current) in self._templates else update

    async def _create(self, obj: Raw, ordinal: int, revision: str) -> None:
        name, spec = f"{wire.name_of(obj)}-{ordinal}", obj["spec"]
        labels = {
            REVISION_LABEL: revision,
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(ordinal),
        }
        template = self._templates[wire.uid_of(obj), revision]
        pod = workload.pod_from_template(STATEFULSETS, obj, template, name=name, labels=labels)
        pod["spec"]["hostname"] = name
        if spec.get("serviceName"):
            pod["spec"]["subdomain"] = spec["serviceName"]
        claims = spec.get("volumeClaimTemplates") or ()
        await self._claim(obj, name, claims)
        own = {template["metadata"]["name"] for template in claims}
        volumes = [volume for volume in pod["spec"].get("volumes") or () if volume["name"] not in own]
        volumes += [{"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}"}} for claim in sorted(own)]
        if volumes:
            pod["spec"]["volumes"] = volumes
        await self.world.create(PODS, pod)

    async def _claim(self, obj: Raw, name: str, templates: Sequence[Raw]) -> None:
        labels = obj["spec"]["selector"].get("matchLabels") or {}
        for template in templates:
            meta = {
                "name": f"{template['metadata']['name']}-{name}",
                "namespace": wire.namespace_of(obj),
                "labels": labels,
            }
            body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": template["spec"]}
            await self.world.create(CLAIMS, body)

    async def _write(self, obj: Raw, want: StatefulSetTarget, update: str) -> None:
        pods = [pod for pod in self.pods_of(obj) if not wire.finished(pod)]
        counts = workload.count(pods, min_ready_seconds=want.min_ready_seconds, now=self.world.now())
        current = wire.status_of(obj).get("currentRevision") or update
        live = [wire.labels_of(pod).get(REVISION_LABEL) for pod in pods if not wire.deleting(pod)]
        updated = live.count(update)
        ready = sum(running_and_ready(pod) for pod in pods)
        if updated == len(live) == want.replicas and all(map(wire.pod_ready, pods)):
            current = update
        status: dict[str, Any] = {
            "observedGeneration": obj["metadata"].get("generation", 1),
            "replicas": len(pods),
            "readyReplicas": ready or None,
            "availableReplicas": counts.available,
            "currentReplicas": live.count(current) or None,
            "updatedReplicas": updated or None,
            "currentRevision": current,
            "updateRevision": update,
        }
        await self.write_status(obj, status, recheck_at=counts.recheck_at)
