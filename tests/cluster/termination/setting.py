"""A corner of a real control plane for one timeline: its namespace, node class, pool, claims and pods.

Several timelines run beside each other under one program. Nothing of one can reach another: pods are bound to its own
Nodes or select them by a label.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.ports import NODECLAIMS, NODES, PODS, Create, Delete, KubeApi, Patch, Resource
from dovetail.sim.actors.cluster import kind_of
from dovetail.sim.server.kinds import NAMESPACES
from dovetail.values.timestamp import format_time
from tests.cluster.termination.history import SERVICE_ACCOUNTS, Asked, History, Thing
from tests.harness import manifests
from tests.harness.claims import NODE_CLASS_REF, node_claim, node_class, node_pool
from tests.harness.manifests import Manifest

TIMELINE: Final = "dovetail.dev/timeline"
ENDS_AFTER: Final = "pod-delete.stage.kwok.x-k8s.io/delay"
READY_AFTER: Final = "pod-ready.stage.kwok.x-k8s.io/delay"
GUARDED: Final = {names.DO_NOT_DISRUPT: "true"}
# What is due at an instant is done within a second of it; a busy machine is granted two more, but never a moment less.
LATE: Final = timedelta(seconds=3)
# From a deleted claim to what is done at once: half a dozen requests, one after the other, each seen before the next.
AT_ONCE: Final = timedelta(seconds=15)


def quick(**annotations: str) -> dict[str, str]:
    """The annotations of a pod whose process ends at once when it is asked to."""
    return {ENDS_AFTER: "100ms", **annotations}


def of_app(app: str, pod: Manifest) -> Manifest:
    return {**pod, "metadata": {**pod["metadata"], "labels": {"app": app}}}


class Setting:
    """What timelines do and ask again and again. `name` is its alone."""

    def __init__(self, api: KubeApi, history: History, name: str) -> None:
        self.api = api
        self.history = history
        self.name = name
        self.selector = {TIMELINE: name}

    # -- making -------------------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Before anything else."""
        await self.apply({"apiVersion": "v1", "kind": NAMESPACES.kind, "metadata": {"name": self.name}})
        await self.apply(node_class(self.name), node_pool(self.name, template={"nodeClassRef": self._class_ref}))
        account = f"the service account of {self.name}"  # without it no pod is admitted
        await self.history.until(lambda: self.history.get(SERVICE_ACCOUNTS, "default", self.name), account)

    @property
    def _class_ref(self) -> Mapping[str, str]:
        return {**NODE_CLASS_REF, "name": self.name}

    async def apply(self, *bodies: Manifest) -> None:
        for body in bodies:
            kind = kind_of(body)
            await self.api.write(Create(kind, body, namespace=self.name if kind.namespaced else None))

    def claim_name(self, claim: str) -> str:
        return f"{self.name}-{claim}"

    async def want(self, claim: str = "c1", **spec: Any) -> datetime:
        """Put a claim there, in whose spec is what is given; when it was created."""
        type_ = {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["c-4x-amd64-linux"]}
        fields = {"nodeClassRef": self._class_ref, "requirements": [type_], **spec}
        body = node_claim(self.claim_name(claim), pool=self.name, labels=self.selector, **fields)
        created_at = (await self.api.write(Create(NODECLAIMS, body))).metadata.creation_timestamp
        assert created_at is not None
        return created_at

    async def node_of(self, claim: str = "c1") -> str:
        """The name of the claim's Node, once it is initialized."""
        await self.history.until(lambda: self._initialized(claim), f"{self.claim_name(claim)} is initialized")
        return str(self.claim(claim).status["nodeName"])

    def _initialized(self, claim: str) -> bool:
        found = self.history.get(NODECLAIMS, self.claim_name(claim))
        return found is not None and found.condition("Initialized") == "True"

    async def launch(self, claim: str = "c1", *, pods: tuple[Manifest, ...] = (), **spec: Any) -> str:
        """Have a claim up, with pods running there; the name of its Node."""
        await self.want(claim, **spec)
        node = await self.node_of(claim)
        await self.bind(node, *pods)
        return node

    async def bind(self, node: str, *pods: Manifest) -> None:
        """Have pods run on the node, as if the scheduler had put them there."""
        await self.apply(*({**pod, "spec": {**pod["spec"], "nodeName": node}} for pod in pods))
        for pod in pods:
            await self.ready(pod["metadata"]["name"])

    async def ready(self, pod: str) -> None:
        await self.history.until(lambda: self.runs(pod), f"{self.name}/{pod} is ready")

    async def spare_node(self) -> str:
        """A Node that is nobody's but the test's, for replicas that are to be elsewhere."""
        node = manifests.node(f"{self.name}-spare")
        node["metadata"]["annotations"] = {names.KWOK_NODE: "fake"}
        await self.apply(node)
        return str(node["metadata"]["name"])

    # -- changing -----------------------------------------------------------------------------------------------------

    async def delete_claim(self, claim: str = "c1") -> datetime:
        """When its end began."""
        await self.api.write(Delete(NODECLAIMS, self.claim_name(claim)))
        return await self.deleted_at(claim)

    async def deleted_at(self, claim: str = "c1") -> datetime:
        """When the claim was deleted, by whomever, once that is so."""
        name = self.claim_name(claim)

        def found() -> datetime | None:
            versions = self.history.versions(NODECLAIMS, name)
            stamps = [version.thing.metadata.deletion_timestamp for version in versions if version.thing is not None]
            return next((stamp for stamp in stamps if stamp is not None), None)

        await self.history.until(found, f"{name} is deleted")
        at = found()
        assert at is not None
        return at

    async def annotate(self, kind: Resource[Any], name: str, annotations: Mapping[str, str | None]) -> datetime:
        """Set annotations, or remove those that are None; when, in whole seconds."""
        at = self.history.now().replace(microsecond=0)
        where = self.name if kind.namespaced else None
        raw = kind.read_as(dict[str, Any])
        await self.api.write(Patch(raw, name, {"metadata": {"annotations": dict(annotations)}}, namespace=where))
        return at

    # -- looking ------------------------------------------------------------------------------------------------------

    def claim(self, claim: str = "c1") -> Thing:
        found = self.history.get(NODECLAIMS, self.claim_name(claim))
        assert found is not None
        return found

    def pod(self, name: str) -> Thing | None:
        return self.history.get(PODS, name, self.name)

    def pods(self, app: str) -> list[Thing]:
        """Those that run or end; not those that wait for a node."""
        found = self.history.all(PODS, self.name)
        return [pod for pod in found if pod.metadata.labels.get("app") == app and pod.spec.get("nodeName")]

    def runs(self, pod: str) -> bool:
        """Whether the pod is ready and nobody has asked it to go."""
        found = self.pod(pod)
        return found is not None and found.condition("Ready") == "True" and found.metadata.deletion_timestamp is None

    async def asked(self, pod: str) -> Asked:
        """How the pod was asked to go, once it has been."""
        await self.history.until(lambda: self.history.asked(pod, self.name), f"{self.name}/{pod} is asked to go")
        return self.history.asked(pod, self.name)[0]

    async def event(self, reason: EventReason, about: str, namespace: str = "default") -> Thing:
        """The first such event about the object, once it is there."""
        what = f"event {reason} on {about}"
        await self.history.until(lambda: self.history.events(reason, about, namespace), what)
        event = self.history.events(reason, about, namespace)[0]
        assert event.reporting_controller == names.COMPONENT
        return event

    # -- judging ------------------------------------------------------------------------------------------------------

    async def evicted(
        self, pod: str, *, due: datetime, own: int = 30, late: timedelta = LATE, reason: str = "Forceful Termination"
    ) -> Asked:
        """At this instant, never before it, with all of its grace; by eviction."""
        asked = await self.asked(pod)
        assert due <= asked.at <= due + late, (pod, due, asked)
        assert asked.grace_seconds == own
        event = await self.event(EventReason.EVICTED, pod, self.name)
        assert event.note == f"Evicted pod: {reason}"
        assert self.history.events(EventReason.DISRUPTED, pod, self.name) == []
        return asked

    async def forced(
        self, pod: str, *, due: datetime, deadline: datetime, own: int = 30, late: timedelta = LATE
    ) -> Asked:
        """R17: at this instant, never before it, by deletion, with what is left; and the event does the sum."""
        asked = await self.asked(pod)
        assert due <= asked.at <= due + late, (pod, due, asked)
        note = (await self.event(EventReason.DISRUPTED, pod, self.name)).note
        assert note.startswith("Deleted by dovetail")
        assert f"terminated by {format_time(deadline)}" in note
        granted = re.search(r"granted (\d+) seconds of grace-period \(its own (\d+) s", note)
        assert granted is not None, note
        assert [int(number) for number in granted.groups()] == [asked.grace_seconds, own]
        left = int((deadline - asked.at).total_seconds())  # at most: the server's clock tells whole seconds
        assert max(1, min(left - 1, own)) <= asked.grace_seconds <= own, (pod, asked, deadline)
        ends_at = asked.at + timedelta(seconds=asked.grace_seconds)
        assert ends_at <= max(deadline, asked.at + timedelta(seconds=1)) + LATE, (pod, asked, deadline)
        assert self.history.events(EventReason.EVICTED, pod, self.name) == []
        return asked

    async def all_gone(self, *nodes: str, claims: tuple[str, ...] = ("c1",)) -> None:
        """In the end there is no Node, no claim, and no pod that ran there."""
        for claim in claims:
            name = self.claim_name(claim)
            await self.history.until(partial(self.history.gone, NODECLAIMS, name), f"{name} is gone")
        for node in nodes:
            await self.history.until(partial(self.history.gone, NODES, node), f"{node} is gone")
            await self.history.until(partial(self._empty, node), f"no pod is on {node}")

    def _empty(self, node: str) -> bool:
        return all(pod.spec.get("nodeName") != node for pod in self.history.all(PODS, self.name))
