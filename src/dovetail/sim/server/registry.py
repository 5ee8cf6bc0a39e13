"""What does each request do? The API server inside: every operation at once and whole, without waiting.

`api_server` puts this behind the KubeApi port, where requests take their time and can fail on the way.
"""

import base64
import random
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from dovetail.ports import PODS, Conflict, Create, Delete, InternalError, Patch, PatchType, Resource
from dovetail.sim.server import errors
from dovetail.sim.server.admission import before_create, before_update
from dovetail.sim.server.deletion import delete_object
from dovetail.sim.server.kinds import BINDINGS, NAMESPACES, KindBehavior, kind_of
from dovetail.sim.server.patching import merged, strategically_merged
from dovetail.sim.server.priorities import prioritised
from dovetail.sim.server.selectors import wanted
from dovetail.sim.server.store import Body, Key, StoredObject, VersionedStore
from dovetail.sim.server.validation import check, pruned
from dovetail.values.timestamp import format_time

_SAFE = "bcdfghjklmnpqrstvwxz2456789"  # the alphabet of generated names: no vowels, nothing easily mistaken
_MAX_GENERATED = 58
# What a server sets on objects, and a restored one keeps.
_KEPT = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
_FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class Registry:
    """All objects, and the rules by which requests change them."""

    def __init__(self, now: Callable[[], datetime], seed: int = 0) -> None:
        self.now = now
        self.store = VersionedStore(now)
        self._random = random.Random(seed)
        self.before_reading: Callable[[Resource[Any], str | None, str], None] = _no_news
        for name in _FIRST_NAMESPACES:
            self.create(Create(NAMESPACES, {"metadata": {"name": name}}))

    def timestamp(self) -> str:
        """Now, as metadata has it: whole seconds."""
        return format_time(self.now().replace(microsecond=0))

    # -- reading ------------------------------------------------------------------------------------------------------

    def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> StoredObject:
        """Raises NotFound."""
        key = self.key(resource, name, namespace)
        self.before_reading(resource, namespace, name)
        found = self.store.collection(resource).objects.get(key)
        if found is None:
            raise errors.not_found(resource, name)
        return found

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
        found: list[StoredObject] = []
        for key, stored in items:
            if key <= after or (namespace is not None and key[0] != namespace):
                continue
            if limit > 0 and len(found) == limit:
                # Something comes after the page; whether it is wanted is for the next page to find out.
                if not continue_:
                    self.store.keep_snapshot(resource, items)
                return found, version, _token(last, version)
            last = key
            if wants is None or wants(stored.body):
                found.append(stored)
        return found, version, ""

    # -- creating -----------------------------------------------------------------------------------------------------

    def create(self, write: Create[Any]) -> StoredObject:
        """Raises AlreadyExists, Invalid, and what `check_namespace` raises."""
        resource, namespace = write.resource, write.namespace
        if resource.plural == BINDINGS.plural:
            return self._bind(write.body, namespace)
        kind = kind_of(resource)
        body = self._with_defaults(resource, kind, self._identified(resource, write.body, namespace))
        self._set_system_fields(body["metadata"], resource)
        check(resource, kind, body, None)
        key = (namespace or "", body["metadata"]["name"])
        there = self.store.collection(resource).objects.get(key)
        if there is not None:
            raise errors.already_exists(resource, key[1], deleting="deletionTimestamp" in there.body["metadata"])
        return self.store.put(resource, key, body, "create")

    def restore(self, resource: Resource[Any], body: Body, *, namespace: str | None = None) -> StoredObject:
        """Put in an object as it was in another cluster: what that server has set stays, as far as it is given.

        Raises AlreadyExists, Invalid, and what `check_namespace` raises.
        """
        kind = kind_of(resource)
        given = body.get("metadata") or {}
        asked = {**body, "metadata": {key: value for key, value in given.items() if key != "resourceVersion"}}
        body = self._identified(resource, asked, namespace)
        status, defaults = body.get("status"), self._with_defaults(resource, kind, body)
        meta = defaults["metadata"]
        self._set_system_fields(meta, resource)
        meta |= {key: given[key] for key in _KEPT if given.get(key) is not None}
        if status is not None and resource.plural == "nodes":  # only a new Node is tainted until it is Ready
            defaults["spec"] = {**defaults["spec"], "taints": (body.get("spec") or {}).get("taints") or []}
        if kind.has_status and status is not None:
            defaults["status"] = status if kind.schema is None else pruned({"status": status}, kind.schema)["status"]
        check(resource, kind, defaults, None)
        key = (namespace or "", meta["name"])
        if key in self.store.collection(resource).objects:
            raise errors.already_exists(resource, key[1], deleting=False)
        return self.store.put(resource, key, defaults, "restore")

    def _with_defaults(self, resource: Resource[Any], kind: KindBehavior, body: Body) -> Body:
        if resource.plural == PODS.plural and not resource.group:
            body = prioritised(self, body)
        return before_create(resource, kind, body, self.timestamp())

    def _identified(self, resource: Resource[Any], body: Mapping[str, Any], namespace: str | None) -> Body:
        """A copy of the body that says what and where it is."""
        result: Body = msgspec.json.decode(msgspec.json.encode(body))
        meta = dict(result.get("metadata") or {})
        self.key(resource, "", namespace)  # raises if there is a namespace too many or too few
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
        """Whether something can be created there. Raises NotFound; and Forbidden while the namespace goes away."""
        found = self.store.collection(NAMESPACES).objects.get(("", namespace))
        if found is None:
            raise errors.not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in found.body["metadata"]:
            raise errors.terminating(resource, name, namespace)

    def _set_system_fields(self, meta: Body, resource: Resource[Any]) -> None:
        if not meta.get("name") and meta.get("generateName"):
            base = meta["generateName"][:_MAX_GENERATED]
            objects = self.store.collection(resource).objects
            name = base + self._suffix()
            while (meta.get("namespace", ""), name) in objects:
                name = base + self._suffix()
            meta["name"] = name
        meta["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        meta["creationTimestamp"] = self.timestamp()

    def _suffix(self) -> str:
        return "".join(self._random.choices(_SAFE, k=5))

    # -- changing -----------------------------------------------------------------------------------------------------

    def patch(self, write: Patch[Any]) -> StoredObject:
        """Raises NotFound, Conflict, Invalid. A patch that changes nothing writes nothing."""
        resource, name, namespace, subresource = write.resource, write.name, write.namespace, write.subresource
        kind = kind_of(resource)
        _check_subresource(kind, resource, subresource)
        patch = msgspec.json.decode(msgspec.json.encode(write.body))
        key = self.key(resource, name, namespace)
        asked = (patch.get("metadata") or {}).get("name", name)
        if asked != name:
            raise errors.bad_request(f"the name of the object ({asked}) does not match the name on the URL ({name})")
        self.before_reading(resource, namespace, name)
        old = self.store.collection(resource).objects.get(key)
        if old is None:
            raise errors.not_found(resource, name)
        if subresource == "scale":
            patch, subresource = _scale_patch(patch), ""
        if write.type_ is PatchType.STRATEGIC and kind.custom:
            raise errors.unsupported_patch()
        if write.type_ is PatchType.STRATEGIC:
            body = strategically_merged(resource, old.body, patch)
        else:
            body = merged(old.body, patch)
        return self.update(resource, key, body, subresource=subresource, verb="patch")

    def update(
        self, resource: Resource[Any], key: Key, body: Body, *, subresource: str = "", verb: str = "update"
    ) -> StoredObject:
        """Store what has become of an object; the last finalizer's removal deletes it."""
        kind = kind_of(resource)
        old = self.store.collection(resource).objects[key]
        meta = body.get("metadata")
        if not isinstance(meta, dict):
            raise errors.bad_request("metadata must be an object")
        if meta.setdefault("resourceVersion", str(old.version)) != str(old.version):
            raise errors.conflict(resource, key[1], errors.OPTIMISTIC_LOCK)
        body = before_update(resource, kind, body, old.body, subresource)
        if body["metadata"]["uid"] != old.body["metadata"]["uid"]:
            # The server answers 422 here, as for any immutable field; for the ports it is a precondition that fails.
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
            return StoredObject(body, old.version)  # what the patch made of it, though it is gone
        return self.store.put(resource, key, body, f"{verb}/{subresource}" if subresource else verb)

    def remove(self, resource: Resource[Any], key: Key) -> StoredObject:
        """Take the object away for good."""
        return self.store.remove(resource, key, "delete")

    # -- deleting, binding --------------------------------------------------------------------------------------------

    def delete(self, write: Delete) -> None:
        """Raises NotFound, Conflict, and Forbidden for namespaces that every cluster has."""
        delete_object(self, write, self.get(write.resource, write.name, write.namespace))

    def _bind(self, body: Mapping[str, Any], namespace: str | None) -> StoredObject:
        meta = body.get("metadata") or {}
        name, node = str(meta.get("name", "")), str((body.get("target") or {}).get("name", ""))
        self.check_namespace(BINDINGS, name, namespace or "")
        old = self.get(PODS, name, namespace)
        pod = old.body
        if pod["metadata"].get("deletionTimestamp"):
            raise errors.conflict(BINDINGS, name, f"pod {name} is being deleted, cannot be assigned to a host")
        if pod["spec"].get("nodeName"):
            why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
            raise errors.conflict(BINDINGS, name, why)
        if pod["spec"].get("schedulingGates"):
            raise errors.conflict(BINDINGS, name, f"pod {name} has non-empty .spec.schedulingGates")
        status = {key: value for key, value in pod["status"].items() if key != "nominatedNodeName"}
        conditions = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        status["conditions"] = [*conditions, {**scheduled, "lastTransitionTime": self.timestamp()}]
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}
        return self.store.put(PODS, (namespace or "", name), bound, "bind")


def scale_of(resource: Resource[Any], body: Body) -> Body:
    """What the scale subresource shows of an object."""
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


def _no_news(_resource: Resource[Any], _namespace: str | None, _name: str) -> None:
    """What somebody is about to read, of one or all namespaces and names, is up to date. See `node_leases`."""


def _scale_patch(patch: Body) -> Body:
    meta = {key: value for key, value in (patch.get("metadata") or {}).items() if key in ("resourceVersion", "uid")}
    replicas = (patch.get("spec") or {}).get("replicas")
    return {"metadata": meta, "spec": {} if replicas is None else {"replicas": replicas}}


def _check_subresource(kind: KindBehavior, resource: Resource[Any], subresource: str) -> None:
    known = {"": True, "status": kind.has_status, "scale": kind.has_scale}
    if not known.get(subresource, False):
        raise errors.no_such_resource(resource, subresource)


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
