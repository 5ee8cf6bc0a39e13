"""The operations of the API server, each atomic and without waiting.

`api_server` offers them through the KubeApi port, where requests take time and can fail on the way.
"""

import asyncio
import base64
import random
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from dovetail.ports import PODS, Conflict, Create, Delete, InternalError, Patch, PatchType, Resource
from dovetail.sim.server import errors
from dovetail.sim.server.admission import before_create, before_update, prioritised
from dovetail.sim.server.deletion import delete_object, whole_seconds
from dovetail.sim.server.eviction import with_condition
from dovetail.sim.server.kinds import BINDINGS, NAMESPACES, Body, kind_of
from dovetail.sim.server.patching import merged, strategically_merged
from dovetail.sim.server.selectors import wanted
from dovetail.sim.server.store import StoredObject, VersionedStore
from dovetail.sim.server.validation import check, pruned
from dovetail.state.store import Key

_SAFE = "bcdfghjklmnpqrstvwxz2456789"  # the alphabet of generated names: no vowels, nothing easily mistaken
_MAX_GENERATED = 58
# Fields that a server sets, and that a restored object keeps.
_KEPT = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
_FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class Registry:
    """The store, and the requests that change it."""

    def __init__(self, now: Callable[[], datetime], seed: int = 0) -> None:
        self.now = now
        self.store = VersionedStore(now)
        self._random = random.Random(seed)
        # Updates objects before a client reads them; see `node_leases`.
        self.before_reading: Callable[[Resource[Any], str | None, str], None] = lambda _kind, _namespace, _name: None
        for name in _FIRST_NAMESPACES:
            self.create(Create(NAMESPACES, {"metadata": {"name": name}}))

    def timestamp(self) -> str:
        """The current time as metadata has it."""
        return whole_seconds(self.now())

    # -- reading ------------------------------------------------------------------------------------------------------

    def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> StoredObject:
        """Raises NotFound."""
        key = self.key(resource, name, namespace)
        self.before_reading(resource, namespace, name)
        stored = self.store.collection(resource).objects.get(key)
        if stored is None:
            raise errors.not_found(resource, name)
        return stored

    def key(self, resource: Resource[Any], name: str, namespace: str | None) -> Key:
        if resource.namespaced != (namespace is not None):
            which = "needs" if resource.namespaced else "has no"
            raise errors.not_allowed(f"{errors.group_resource(resource)} {which} namespace")
        return (namespace or "", name)

    def list(
        self,
        resource: Resource[Any],
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continue_: str = "",
    ) -> tuple[list[StoredObject], int, str]:
        """The objects of a page, the version of the list, and the token for the next page."""
        wants = wanted(resource, namespace, labels, fields)
        after, version = last, _ = _read_token(continue_)
        if not continue_:
            self.before_reading(resource, namespace, "")
        items = self.store.snapshot(resource, version) if continue_ else self.store.collection(resource).sorted()
        if not continue_:
            version = self.store.version
        page: list[StoredObject] = []
        for key, stored in items:
            if key <= after or (namespace is not None and key[0] != namespace):
                continue
            if limit > 0 and len(page) == limit:
                # Objects follow; the next page finds out whether the request selects any of them.
                if not continue_:
                    self.store.keep_snapshot(resource, items)
                return page, version, _token(last, version)
            last = key
            if wants is None or wants(stored.body):
                page.append(stored)
        return page, version, ""

    # -- creating -----------------------------------------------------------------------------------------------------

    def create(self, write: Create[Any]) -> StoredObject:
        """Raises AlreadyExists, Invalid, and what `check_namespace` raises."""
        resource, namespace = write.resource, write.namespace
        if resource.plural == BINDINGS.plural:
            return self._bind(write.body, namespace)
        body = self._with_defaults(resource, self._identified(resource, write.body, namespace))
        return self._add(resource, body, namespace, "create")

    def _add(self, resource: Resource[Any], body: Body, namespace: str | None, verb: str) -> StoredObject:
        check(resource, kind_of(resource), body, None)
        key = (namespace or "", body["metadata"]["name"])
        existing = self.store.collection(resource).objects.get(key)
        if existing is not None:
            raise errors.already_exists(resource, key[1], deleting="deletionTimestamp" in existing.body["metadata"])
        return self.store.put(resource, key, body, verb)

    def restore(self, resource: Resource[Any], body: Body, *, namespace: str | None = None) -> StoredObject:
        """Create an object of another cluster, with the fields that the server there has set.

        Raises AlreadyExists, Invalid, and what `check_namespace` raises.
        """
        kind = kind_of(resource)
        given = body.get("metadata") or {}
        asked = {**body, "metadata": {key: value for key, value in given.items() if key != "resourceVersion"}}
        body = self._identified(resource, asked, namespace)
        status, defaults = body.get("status"), self._with_defaults(resource, body)
        defaults["metadata"] |= {key: given[key] for key in _KEPT if given.get(key) is not None}
        if status is not None and resource.plural == "nodes":  # only a new Node is tainted until it is Ready
            defaults["spec"] = {**defaults["spec"], "taints": (body.get("spec") or {}).get("taints") or []}
        if kind.has_status and status is not None:
            defaults["status"] = status if kind.schema is None else pruned({"status": status}, kind.schema)["status"]
        return self._add(resource, defaults, namespace, "restore")

    def _with_defaults(self, resource: Resource[Any], body: Body) -> Body:
        if resource.plural == PODS.plural and not resource.group:
            body = prioritised(self.store, body)
        body = before_create(resource, kind_of(resource), body, self.timestamp())
        self._set_system_fields(body["metadata"], resource)
        return body

    def _identified(self, resource: Resource[Any], body: Mapping[str, Any], namespace: str | None) -> Body:
        """A copy of the body with its kind, version and namespace."""
        result: Body = msgspec.json.decode(msgspec.json.encode(body))
        meta = dict(result.get("metadata") or {})
        self.key(resource, "", namespace)  # raises if a namespace is missing or superfluous
        for field, value in (("apiVersion", resource.api_version), ("kind", resource.kind)):
            if result.setdefault(field, value) != value:
                raise errors.wrong_type(resource, field, str(result[field]), value)
        if meta.setdefault("namespace", namespace) != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if namespace is None:
            del meta["namespace"]
        else:
            self.check_namespace(resource, meta.get("name") or meta.get("generateName", ""), namespace)
        if meta.get("resourceVersion"):
            raise InternalError("resourceVersion should not be set on objects to be created", code=500)
        return {**result, "metadata": meta}

    def check_namespace(self, resource: Resource[Any], name: str, namespace: str) -> None:
        """Check that the namespace accepts new objects. Raises NotFound, or Forbidden while it is being deleted."""
        stored = self.store.collection(NAMESPACES).objects.get(("", namespace))
        if stored is None:
            raise errors.not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in stored.body["metadata"]:
            raise errors.terminating(resource, name, namespace)

    def _set_system_fields(self, meta: Body, resource: Resource[Any]) -> None:
        if not meta.get("name") and meta.get("generateName"):
            taken = self.store.collection(resource).objects
            while not meta.get("name") or (meta.get("namespace", ""), meta["name"]) in taken:
                suffix = "".join(self._random.choices(_SAFE, k=5))
                meta["name"] = meta["generateName"][:_MAX_GENERATED] + suffix
        meta["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        meta["creationTimestamp"] = self.timestamp()

    # -- changing -----------------------------------------------------------------------------------------------------

    def patch(self, write: Patch[Any]) -> StoredObject:
        """Raises NotFound, Conflict, Invalid. A patch that changes nothing writes nothing."""
        resource, name, namespace, subresource = write.resource, write.name, write.namespace, write.subresource
        kind = kind_of(resource)
        if not {"": True, "status": kind.has_status, "scale": kind.has_scale}.get(subresource):
            raise errors.no_such_resource(resource, subresource)
        patch = msgspec.json.decode(msgspec.json.encode(write.body))
        key = self.key(resource, name, namespace)
        asked = (patch.get("metadata") or {}).get("name", name)
        if asked != name:
            raise errors.bad_request(f"the name of the object ({asked}) does not match the name on the URL ({name})")
        old = self.get(resource, name, namespace)
        if subresource == "scale":
            patch, subresource = _scale_patch(patch), ""
        if write.type_ is PatchType.STRATEGIC and kind.custom:
            raise errors.unsupported_patch()
        merge = strategically_merged if write.type_ is PatchType.STRATEGIC else merged
        return self._update(resource, key, old, merge(old.body, patch), subresource)

    def _update(
        self, resource: Resource[Any], key: Key, old: StoredObject, body: Body, subresource: str
    ) -> StoredObject:
        """Store the new body of an object, or delete the object if the last finalizer is removed."""
        kind = kind_of(resource)
        meta = body.get("metadata")
        if not isinstance(meta, dict):
            raise errors.bad_request("metadata must be an object")
        if meta.setdefault("resourceVersion", str(old.version)) != str(old.version):
            raise errors.conflict(resource, key[1], errors.OPTIMISTIC_LOCK)
        body = before_update(resource, kind, body, old.body, subresource)
        if body["metadata"]["uid"] != old.body["metadata"]["uid"]:
            # The server answers 422, as for any immutable field; the port reports a failed precondition.
            message = f'metadata.uid: Invalid value: "{body["metadata"]["uid"]}": field is immutable'
            raise Conflict(errors.invalid(resource, key[1], [message]).message, code=422, reason="Invalid")
        if body == old.body:
            return old
        check(resource, kind, body, old.body)
        before = old.body["metadata"]
        if (
            not body["metadata"].get("finalizers")
            and before.get("deletionTimestamp") is not None
            and not before.get("deletionGracePeriodSeconds")
            and not (resource.plural == NAMESPACES.plural and body["spec"].get("finalizers"))
        ):
            self.remove(resource, key)
            return StoredObject(body, old.version)  # the patched object, though it is gone
        return self.store.put(resource, key, body, f"patch/{subresource}" if subresource else "patch")

    def remove(self, resource: Resource[Any], key: Key) -> StoredObject:
        """Remove the object."""
        return self.store.remove(resource, key, "delete")

    # -- deleting, binding --------------------------------------------------------------------------------------------

    def delete(self, write: Delete) -> None:
        """Raises NotFound, Conflict, and Forbidden for namespaces that every cluster has."""
        delete_object(self, write, self.get(write.resource, write.name, write.namespace))

    def _bind(self, body: Mapping[str, Any], namespace: str | None) -> StoredObject:
        meta = body.get("metadata") or {}
        name, node = str(meta.get("name", "")), str((body.get("target") or {}).get("name", ""))
        self.check_namespace(BINDINGS, name, namespace or "")
        pod = self.get(PODS, name, namespace).body
        if pod["metadata"].get("deletionTimestamp"):
            raise errors.conflict(BINDINGS, name, f"pod {name} is being deleted, cannot be assigned to a host")
        if pod["spec"].get("nodeName"):
            why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
            raise errors.conflict(BINDINGS, name, why)
        if pod["spec"].get("schedulingGates"):
            raise errors.conflict(BINDINGS, name, f"pod {name} has non-empty .spec.schedulingGates")
        status = {key: value for key, value in pod["status"].items() if key != "nominatedNodeName"}
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        status = with_condition(status, {**scheduled, "lastTransitionTime": self.timestamp()})
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}
        return self.store.put(PODS, (namespace or "", name), bound, "bind")


def scale_of(resource: Resource[Any], body: Body) -> Body:
    """The scale subresource of an object."""
    kind = kind_of(resource)
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {
            key: body["metadata"][key]
            for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
            if key in body["metadata"]
        },
        "spec": {"replicas": body.get("spec", {}).get("replicas", 0)},
        "status": {"replicas": (body.get("status") or {}).get(kind.replicas_status, 0)},
    }


def call_soon(act: Callable[..., None], *args: str) -> None:
    """Let a controller of the server act a moment after the current write."""
    asyncio.get_running_loop().call_soon(act, *args)


def call_later(seconds: float, act: Callable[..., None], *args: str) -> None:
    asyncio.get_running_loop().call_later(seconds, act, *args)


def _scale_patch(patch: Body) -> Body:
    meta = {key: value for key, value in (patch.get("metadata") or {}).items() if key in ("resourceVersion", "uid")}
    replicas = (patch.get("spec") or {}).get("replicas")
    return {"metadata": meta, "spec": {} if replicas is None else {"replicas": replicas}}


def _token(last: Key, version: int) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([*last, version])).decode()


def _read_token(text: str) -> tuple[Key, int]:
    if not text:
        return ("", ""), 0
    try:
        namespace, name, version = msgspec.json.decode(base64.urlsafe_b64decode(text), type=tuple[str, str, int])
    except ValueError:
        raise errors.bad_request(f"continue key is not valid: {text}") from None
    return (namespace, name), version
