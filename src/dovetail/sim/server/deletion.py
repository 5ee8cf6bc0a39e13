"""Handles DELETE: finalizers and grace periods delay it, namespaces are emptied first, other objects go at once."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from dovetail.ports import PODS, Delete, Propagation
from dovetail.sim.server import errors
from dovetail.sim.server.kinds import NAMESPACES, kind_of
from dovetail.values.timestamp import format_time, parse_time

if TYPE_CHECKING:
    from dovetail.sim.server.kinds import Body
    from dovetail.sim.server.registry import Registry
    from dovetail.sim.server.store import StoredObject
    from dovetail.state.store import Key

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_KEPT_NAMESPACES = ("default", "kube-public", "kube-system")


def delete_object(registry: "Registry", write: Delete, stored: "StoredObject") -> None:
    """Delete the object, or mark it as being deleted. Raises Conflict if a precondition does not hold."""
    resource, meta = write.resource, stored.body["metadata"]
    key = (write.namespace or "", write.name)
    if resource.plural == NAMESPACES.plural and key[1] in _KEPT_NAMESPACES:
        raise errors.forbidden(resource, key[1], "this namespace may not be deleted")
    check_preconditions(write, meta)
    if resource.plural == NAMESPACES.plural:
        _terminate(registry, key, stored.body)
        return
    graceful = _pod_metadata(registry, stored.body, write.grace_seconds) if resource.plural == PODS.plural else None
    if graceful is _PENDING:
        return  # a longer or equal grace changes nothing
    finalizers = _finalizers(kind_of(resource).orphans, meta.get("finalizers") or [], write.propagation)
    if graceful is not None:
        changed = {**graceful, "finalizers": finalizers}
    elif finalizers:
        changed = {**_deleting(registry, meta), "finalizers": finalizers}
    else:
        registry.remove(resource, key)
        return
    if not finalizers:
        del changed["finalizers"]
    if changed != meta:
        registry.store.put(resource, key, {**stored.body, "metadata": changed}, "delete")
    if not finalizers and not changed["deletionGracePeriodSeconds"]:
        registry.remove(resource, key)


def _terminate(registry: "Registry", key: "Key", namespace: "Body") -> None:
    """Mark the namespace; the namespace controller does the rest (`namespaces`)."""
    meta = namespace["metadata"]
    if "deletionTimestamp" not in meta:
        changed = {"metadata": {**meta, "deletionTimestamp": registry.timestamp()}, "status": {"phase": "Terminating"}}
        registry.store.put(NAMESPACES, key, {**namespace, **changed}, "delete")


def check_preconditions(write: Delete, meta: "Body") -> None:
    """Raises Conflict if the UID or the version is another one."""
    if write.uid and write.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({write.uid}) does not match the UID in record ({meta['uid']}). The object "
            "might have been deleted and then recreated"
        )
        raise errors.conflict(write.resource, write.name, why)
    if write.resource_version and write.resource_version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({write.resource_version}) does not match the ResourceVersion "
            f"in record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise errors.conflict(write.resource, write.name, why)


def _deleting(registry: "Registry", meta: "Body") -> "Body":
    """The metadata of an object that only finalizers keep."""
    changed = {**meta, "deletionGracePeriodSeconds": 0}
    if "deletionTimestamp" not in meta:
        changed["deletionTimestamp"] = registry.timestamp()
        if "generation" in meta:
            changed["generation"] = meta["generation"] + 1
    return changed


_PENDING: "Body" = {"already": "deleting"}


def _pod_metadata(registry: "Registry", pod: "Body", asked: int | None) -> "Body | None":
    """The metadata with the pod's grace period set or shortened; None: as other objects; _PENDING: no change."""
    meta = pod["metadata"]
    if asked is not None and asked < 0:
        asked = 1
    now = registry.now()
    if "deletionTimestamp" in meta:
        before = meta.get("deletionGracePeriodSeconds") or 0
        if before == 0:
            return None
        if asked is None or asked >= before:
            return _PENDING
        due = parse_time(meta["deletionTimestamp"]) + timedelta(seconds=asked - before)
        if due < now:
            # The shorter grace period has passed; unless it is 0, the kubelet still has to confirm.
            due, asked = now, min(asked, 1)
        return {**meta, "deletionTimestamp": whole_seconds(due), "deletionGracePeriodSeconds": asked}
    grace = pod["spec"].get("terminationGracePeriodSeconds", 0) if asked is None else asked
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Failed", "Succeeded"):
        grace = 0
    grace = grace if grace >= 0 else 1
    changed = {
        **meta,
        "deletionTimestamp": whole_seconds(now + timedelta(seconds=grace)),
        "deletionGracePeriodSeconds": grace,
    }
    if "generation" in meta:
        changed["generation"] = meta["generation"] + 1
    return changed


def whole_seconds(at: datetime) -> str:
    """The instant as metadata has it."""
    return format_time(at.replace(microsecond=0))


def _finalizers(orphans: bool, present: list[str], propagation: Propagation | None) -> list[str]:
    """The finalizers, with the one that tells the garbage collector how to propagate the deletion."""
    others = [finalizer for finalizer in present if finalizer not in (ORPHAN, FOREGROUND)]
    if propagation is None and ORPHAN not in present and FOREGROUND in present:
        propagation = Propagation.FOREGROUND
    elif propagation is None and (ORPHAN in present or orphans):
        propagation = Propagation.ORPHAN
    added = {Propagation.ORPHAN: [ORPHAN], Propagation.FOREGROUND: [FOREGROUND]}
    return others if propagation is None else [*others, *added.get(propagation, [])]
