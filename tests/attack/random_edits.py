"""Draws edits that somebody with kubectl could make, of any object, from a seed."""

from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from random import Random
from typing import Any, Final

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.ports import (
    CSI_NODES,
    DAEMONSETS,
    KWOK_NODECLASSES,
    LEASES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PDBS,
    PODS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    VOLUME_CLAIMS,
    VOLUMES,
    ApiError,
    Delete,
    Patch,
    Resource,
)
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import DEPLOYMENTS, STATEFULSETS, Raw
from dovetail.sim.server.kinds import PRIORITY_CLASSES
from dovetail.sim.server.kinds import kind_of as behaviour_of
from dovetail.values.timestamp import format_time
from tests.harness.claims import NODE_CLASS_REF, condition, node_class
from tests.harness.provisioning import OF_FOUR

OURS: Final = (NODES, NODECLAIMS, NODEPOOLS)
KINDS: Final[tuple[Resource[Any], ...]] = (
    *OURS,
    KWOK_NODECLASSES,
    PODS,
    PDBS,
    LEASES,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    VOLUME_ATTACHMENTS,
    CSI_NODES,
    DAEMONSETS,
    DEPLOYMENTS,
    STATEFULSETS,
    PRIORITY_CLASSES,
)
LABELS: Final = (
    names.REGISTERED_LABEL,
    names.INITIALIZED_LABEL,
    names.NODEPOOL_LABEL,
    names.INSTANCE_TYPE_LABEL,
    names.CAPACITY_TYPE_LABEL,
    names.ZONE_LABEL,
    names.HOSTNAME_LABEL,
    names.ARCH_LABEL,
    names.OS_LABEL,
    names.KWOK_NODECLASS_LABEL,
    names.DO_NOT_SYNC_TAINTS_LABEL,
    "app",
    "team",
)
LABEL_VALUES: Final = (None, None, "", "x", "true", "false", "default", "other", "static", "s-4x-amd64-linux", "spot")
ANNOTATIONS: Final = (
    names.DO_NOT_DISRUPT,
    names.DISRUPTION_SCHEDULE,
    names.DISRUPTION_SCHEDULE_DURATION,
    names.DISRUPTION_BLOCK_SCHEDULE,
    names.DISRUPTION_BLOCK_DURATION,
    names.POD_DELETION_COST,
    names.NODEPOOL_HASH,
    names.NODEPOOL_HASH_VERSION,
    names.TERMINATION_TIMESTAMP,
    names.DISRUPTION_COMMAND,
    names.REPLACEMENT_OF,
    names.KWOK_INTERRUPTED,
    names.PVC_BIND_COMPLETED,
)
ANNOTATION_VALUES: Final = (
    *(None, None, "", "x", "true", "false", "10m", "-5m", "* * * * *", "0 3 * * *;bad", "-2147483648", "1e999"),
    *("{}", "[]", "null", '{"id":"a"}', '{"id":"a","reason":"Drifted","claims":[],"replacements":[]}'),
    *("2026-03-02T01:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"),
)
TAINTS: Final = (
    {"key": names.DISRUPTED_TAINT, "effect": "NoSchedule"},
    {"key": names.CANDIDATE_TAINT, "effect": "PreferNoSchedule"},
    {"key": names.UNREGISTERED_TAINT, "effect": "NoExecute"},
    {"key": names.NOT_READY_TAINT, "effect": "NoExecute"},
    {"key": "team", "value": "a", "effect": "NoSchedule"},
)
EDITED: Final = "Edited"  # the reason of conditions that were written by hand
FOREIGN_FINALIZER: Final = "example.com/hold"
AMOUNTS: Final = ("0", "1", "4", "1e3", "100m", "16Gi")
POOLS: Final = ("default", "other", "static", "nowhere")


class RandomEdits:
    """Makes one edit after the other. `told`: what was done, for the message of a test that fails."""

    def __init__(self, sim: SimCluster, seed: int) -> None:
        self._sim = sim
        self._chance = Random(f"edits {seed}")
        self.told: list[str] = []
        self.accepted = 0

    async def next(self) -> None:
        """What the server refuses is no edit."""
        kinds: list[Resource[Any]] = [*OURS, *OURS, *KINDS]
        kinds = [kind for kind in kinds if self._sim.objects(kind)]
        if not kinds:  # all of it has been deleted
            return
        kind: Resource[Any] = self._one(*kinds)
        body = self._one(*self._sim.objects(kind))
        meta = body["metadata"]
        edit = self._one(*self._edits(kind))
        now = f"{self._sim.clock.now():%H:%M:%S}"
        self.told.append(f"{now} {edit.__name__.strip('_')} {kind.kind} {meta['name']}")
        try:
            await edit(kind, body)
        except ApiError as error:
            self.told[-1] += f": refused, {error}"
        else:
            self.accepted += 1

    def pause(self, seconds: float) -> float:
        """Until the next edit: now and then none, so that edits meet."""
        return self._chance.choice((0.0, 0.1, 1.0, seconds, seconds, 3 * seconds))

    async def end(self) -> None:
        """Undo what would go on for ever: finalizers that hold what is deleted, PodDisruptionBudgets that never allow a
        drain to end, a claim that is said to lose its instance and does not, a node class that is gone or not ready,
        and NodePools that never come to rest.

        The last are NodePools whose nodes expire all the time, whose new nodes never come up, which only a window lets
        replace nodes, or whose limits are exceeded by what somebody has written into the status of a Node.
        """
        template = {
            "expireAfter": "Never",
            "taints": None,
            "startupTaints": None,
            "requirements": [OF_FOUR],
            "nodeClassRef": NODE_CLASS_REF,
        }
        disruption = {"gracefulExpireAfter": "Never", "budgets": [{"nodes": "100%"}]}
        for pool in self._sim.objects(NODEPOOLS):
            spec = {"template": {"spec": template}, "disruption": disruption, "limits": None}
            await self._patch(NODEPOOLS, pool, {"spec": spec})
        for pdb in self._sim.objects(PDBS):
            await self._patch(PDBS, pdb, {"spec": {"maxUnavailable": 1, "minAvailable": None}})
        for claim in self._sim.objects(NODECLAIMS):
            there = (claim.get("status") or {}).get("conditions") or ()
            kept = [
                each for each in there if (each["type"], each["reason"]) != (ConditionType.INSTANCE_TERMINATING, EDITED)
            ]
            if len(kept) < len(there):
                await self._status(NODECLAIMS, claim, {"conditions": kept})
        await self._sim.apply(node_class())
        for class_ in self._sim.objects(KWOK_NODECLASSES):
            await self._status(KWOK_NODECLASSES, class_, {"conditions": [condition("Ready")]})
        for kind in KINDS:
            for body in self._sim.objects(kind):
                kept = [each for each in body["metadata"].get("finalizers") or () if each != FOREIGN_FINALIZER]
                if len(kept) != len(body["metadata"].get("finalizers") or ()):
                    await self._patch(kind, body, {"metadata": {"finalizers": kept}})

    def _edits(self, kind: Resource[Any]) -> list["Edit"]:
        found: list[Edit] = [
            self._label,
            self._label,
            self._annotate,
            self._annotate,
            self._finalizers,
            self._delete,
            self._own,
        ]
        if behaviour_of(kind).has_status:
            found += [self._condition, self._condition]
        if kind in (NODES, NODECLAIMS):
            found += [self._provider_id, self._capacity]
        if kind in (NODES, NODEPOOLS):
            found.append(self._taint)
        if kind is NODES:
            found += [self._progress, self._progress]
        spec = {
            NODES: self._node_spec,
            NODEPOOLS: self._pool_spec,
            PDBS: self._pdb_spec,
            DEPLOYMENTS: self._scale,
            STATEFULSETS: self._scale,
            KWOK_NODECLASSES: self._node_class_spec,
            PODS: self._pod_spec,
            CSI_NODES: self._csi_node_spec,
            LEASES: self._lease_spec,
        }.get(kind)
        return [*found, spec, spec] if spec is not None else found

    # -- metadata ------------------------------------------------------------------------------------------------------

    async def _label(self, kind: Resource[Any], body: Raw) -> None:
        value = self._one(*LABEL_VALUES)
        await self._patch(kind, body, {"metadata": {"labels": {self._one(*LABELS): value}}})

    async def _progress(self, kind: Resource[Any], body: Raw) -> None:
        """The labels that say how far a Node has come."""
        key = self._one(names.REGISTERED_LABEL, names.INITIALIZED_LABEL)
        await self._patch(kind, body, {"metadata": {"labels": {key: self._one(None, "x")}}})

    async def _annotate(self, kind: Resource[Any], body: Raw) -> None:
        value = self._one(*ANNOTATION_VALUES)
        if self._chance.random() < 0.2:
            value = self._copied_annotation() or value
        await self._patch(kind, body, {"metadata": {"annotations": {self._one(*ANNOTATIONS): value}}})

    def _copied_annotation(self) -> str | None:
        """The record of a command that runs, or a hash, of some claim."""
        found = [
            value
            for claim in self._sim.objects(NODECLAIMS)
            for value in (claim["metadata"].get("annotations") or {}).values()
        ]
        return str(self._one(*found)) if found else None

    async def _finalizers(self, kind: Resource[Any], body: Raw) -> None:
        there = list(body["metadata"].get("finalizers") or ())
        wanted = self._one([], there[1:], [*there, FOREIGN_FINALIZER], [names.TERMINATION_FINALIZER])
        await self._patch(kind, body, {"metadata": {"finalizers": sorted(set(wanted))}})

    async def _own(self, kind: Resource[Any], body: Raw) -> None:
        """Nobody owns it any more."""
        await self._patch(kind, body, {"metadata": {"ownerReferences": None}})

    async def _delete(self, kind: Resource[Any], body: Raw) -> None:
        """With its finalizers taken off, now and then."""
        if self._chance.random() < 0.5:
            await self._patch(kind, body, {"metadata": {"finalizers": None}})
        grace = self._one(None, 0, 1) if kind is PODS else None
        meta = body["metadata"]
        await self._sim.api.write(Delete(kind, meta["name"], namespace=meta.get("namespace"), grace_seconds=grace))

    # -- status --------------------------------------------------------------------------------------------------------

    async def _condition(self, kind: Resource[Any], body: Raw) -> None:
        there = list((body.get("status") or {}).get("conditions") or ())
        types = [*ConditionType, *(each["type"] for each in there)]
        if kind is NODES:
            types = ["Ready", "Ready", "DiskPressure", "MemoryPressure"]
        elif kind is PODS:
            types = ["Ready", "PodScheduled", "Initialized"]
        changed = self._one(*types)
        kept = [each for each in there if each["type"] != changed]
        since = self._sim.clock.now() + timedelta(seconds=self._one(-86_400, -60, 0, 3600))
        made = {"type": changed, "status": self._one("True", "False", "Unknown"), "reason": EDITED, "message": ""}
        made["lastTransitionTime"] = format_time(since.replace(microsecond=0))
        wanted = self._one(kept, [*kept, made], [*kept, made], [])
        await self._status(kind, body, {"conditions": wanted})

    async def _provider_id(self, kind: Resource[Any], body: Raw) -> None:
        nodes = [each.get("spec", {}).get("providerID", "") for each in self._sim.objects(NODES)]
        claims = [(each.get("status") or {}).get("providerID", "") for each in self._sim.objects(NODECLAIMS)]
        wanted = self._one("", None, "kwok://nowhere", *nodes, *claims)
        if kind is NODES:
            await self._patch(kind, body, {"spec": {"providerID": wanted}})
        else:
            await self._status(kind, body, {"providerID": wanted})

    async def _capacity(self, kind: Resource[Any], body: Raw) -> None:
        amounts = self._one(None, {}, {"cpu": self._one(*AMOUNTS)}, {"cpu": None}, {"example.com/gpu": "1"})
        await self._status(kind, body, {self._one("capacity", "allocatable"): amounts})

    # -- spec ----------------------------------------------------------------------------------------------------------

    async def _taint(self, kind: Resource[Any], body: Raw) -> None:
        wanted = self._chance.sample(TAINTS, self._chance.randrange(3))
        spec = {"taints": wanted}
        await self._patch(kind, body, {"spec": spec if kind is NODES else {"template": {"spec": spec}}})

    async def _node_spec(self, kind: Resource[Any], body: Raw) -> None:
        await self._patch(kind, body, {"spec": {"unschedulable": self._one(True, False, None)}})

    async def _pool_spec(self, kind: Resource[Any], body: Raw) -> None:
        budget = self._one(
            {"nodes": "0"}, {"nodes": "100%"}, {"nodes": "1", "schedule": "0 * * * *", "duration": "30m"}
        )
        type_ = {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["s-4x-amd64-linux"]}
        nobody = {"key": "team", "operator": "In", "values": ["a"]}
        classes = {"group": names.KWOK_GROUP, "kind": names.KWOK_NODECLASS_KIND, "name": self._one("default", "gone")}
        spec: Mapping[str, Any] = self._one(
            {"disruption": {"budgets": self._one([], [budget])}},
            {"disruption": {"consolidateAfter": self._one("0s", "1m", "Never")}},
            {"disruption": {"consolidationPolicy": self._one("WhenEmpty", "WhenEmptyOrUnderutilized")}},
            {"disruption": {"gracefulExpireAfter": self._one("10m", "Never")}},
            {"template": {"metadata": {"labels": {"team": self._one("a", "b", None)}}}},
            {"template": {"spec": {"expireAfter": self._one("20m", "Never")}}},
            {"template": {"spec": {"terminationGracePeriod": self._one("0s", "1m", None)}}},
            {"template": {"spec": {"requirements": self._one([], [type_], [type_, nobody])}}},
            {"template": {"spec": {"startupTaints": self._one([], [TAINTS[-1]])}}},
            {"template": {"spec": {"nodeClassRef": classes}}},
            {"limits": self._one(None, {"cpu": "8"}, {"nodes": "2"}, {"cpu": "0"})},
            {"weight": self._one(1, 50, None)},
            {"replicas": self._one(0, 2, None)},
        )
        await self._patch(kind, body, {"spec": spec})

    async def _pdb_spec(self, kind: Resource[Any], body: Raw) -> None:
        spec = self._one(
            {"maxUnavailable": self._one(0, 1, "50%", "0%"), "minAvailable": None},
            {"minAvailable": self._one(0, 1, 100, "100%"), "maxUnavailable": None},
            {"selector": self._one(None, {}, {"matchLabels": {"app": self._one("web", "db")}})},
        )
        await self._patch(kind, body, {"spec": spec})

    async def _scale(self, kind: Resource[Any], body: Raw) -> None:
        await self._patch(kind, body, {"spec": {"replicas": self._one(0, 1, 2, 4)}})

    async def _node_class_spec(self, kind: Resource[Any], body: Raw) -> None:
        await self._patch(kind, body, {"spec": {"nodeRegistrationDelay": self._one("0s", "1m", None)}})

    async def _pod_spec(self, kind: Resource[Any], body: Raw) -> None:
        await self._status(kind, body, {"phase": self._one("Pending", "Running", "Succeeded", "Failed", "Unknown")})

    async def _csi_node_spec(self, kind: Resource[Any], body: Raw) -> None:
        drivers = [{"name": "disks", "nodeID": "n", "allocatable": {"count": self._one(0, 1, 5)}}]
        await self._patch(kind, body, {"spec": {"drivers": self._one([], drivers)}})

    async def _lease_spec(self, kind: Resource[Any], body: Raw) -> None:
        await self._patch(kind, body, {"spec": {"holderIdentity": self._one("", "somebody", None)}})

    # -- inside --------------------------------------------------------------------------------------------------------

    def _one(self, *things: Any) -> Any:
        return self._chance.choice(things)

    async def _patch(self, kind: Resource[Any], body: Raw, patch: Mapping[str, Any], subresource: str = "") -> None:
        meta, raw = body["metadata"], kind.read_as(dict[str, Any])
        namespace = meta.get("namespace")
        self.told[-1:] = [f"{each} {dict(patch)}" for each in self.told[-1:]]
        await self._sim.api.write(Patch(raw, meta["name"], dict(patch), namespace=namespace, subresource=subresource))

    async def _status(self, kind: Resource[Any], body: Raw, status: Mapping[str, Any]) -> None:
        await self._patch(kind, body, {"status": status}, subresource="status")


Edit = Callable[[Resource[Any], Raw], Coroutine[Any, Any, None]]
