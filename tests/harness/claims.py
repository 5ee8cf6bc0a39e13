"""Short forms of the objects that tests of controllers put into the simulated cluster."""

from collections.abc import Mapping
from typing import Any

from dovetail.api import names
from dovetail.ports import NODECLAIMS, NODEPOOLS, Patch, Resource
from dovetail.sim.actors.cluster import SimCluster
from tests.harness import manifests

Manifest = dict[str, Any]

NODE_CLASS_REF = {"group": names.KWOK_GROUP, "kind": names.KWOK_NODECLASS_KIND, "name": "default"}


def node_class(name: str = "default", **fields: Any) -> Manifest:
    """A node class, which is ready by the CRD's default."""
    meta = {"name": name}
    return {"apiVersion": names.KWOK_API_VERSION, "kind": names.KWOK_NODECLASS_KIND, "metadata": meta, **fields}


def node_pool(
    name: str = "default",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    template: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Manifest:
    """A pool of kwok nodes: labels, annotations and spec of its template, and fields of its own spec."""
    meta = {"labels": labels, "annotations": annotations}
    spec = {"nodeClassRef": NODE_CLASS_REF, "requirements": [], "expireAfter": "Never", **(template or {})}
    template_meta = {key: dict(value) for key, value in meta.items() if value is not None}
    return {
        "apiVersion": NODEPOOLS.api_version,
        "kind": NODEPOOLS.kind,
        "metadata": {"name": name},
        "spec": {"template": {"metadata": template_meta, "spec": spec}, **fields},
    }


def node_claim(
    name: str,
    *,
    pool: str = "default",
    pool_uid: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    finalizers: bool = False,
    **spec: Any,
) -> Manifest:
    """A claim of a pool (empty: a standalone one) whose UID, if given, makes the pool its owner."""
    meta: Manifest = {
        "name": name,
        "labels": {**({names.NODEPOOL_LABEL: pool} if pool else {}), **(labels or {})},
        "annotations": dict(annotations or {}),
    }
    if finalizers:
        meta["finalizers"] = [names.TERMINATION_FINALIZER]
    if pool_uid:
        owner = {"apiVersion": names.API_VERSION, "kind": names.NODEPOOL_KIND, "name": pool, "uid": pool_uid}
        meta["ownerReferences"] = [{**owner, "blockOwnerDeletion": True}]
    return {
        "apiVersion": NODECLAIMS.api_version,
        "kind": NODECLAIMS.kind,
        "metadata": meta,
        "spec": {"nodeClassRef": NODE_CLASS_REF, "requirements": [], "expireAfter": "Never", **spec},
    }


def node(
    name: str,
    *,
    pool: str = "default",
    labels: Mapping[str, str] | None = None,
    initialized: bool = True,
    **fields: Any,
) -> Manifest:
    """A registered Node of ours, initialized unless told otherwise, whose provider ID is kwok://<name>."""
    ours = {names.KWOK_NODECLASS_LABEL: "default", names.REGISTERED_LABEL: "true"}
    if pool:
        ours[names.NODEPOOL_LABEL] = pool
    if initialized:
        ours[names.INITIALIZED_LABEL] = "true"
    made = manifests.node(name, labels={**ours, **(labels or {})}, **fields)
    made["spec"]["providerID"] = f"{names.KWOK_PROVIDER_ID_PREFIX}{name}"
    return made


def condition(type_: str, status: str = "True", *, reason: str = "", **fields: Any) -> Manifest:
    """A condition as the API takes it."""
    entry = {"type": type_, "status": status, "reason": reason or type_, "message": ""}
    return {**entry, "lastTransitionTime": "2026-03-02T00:00:00Z", **fields}


async def put_status(sim: SimCluster, kind: Resource[Any], name: str, status: Mapping[str, Any]) -> None:
    """Write the status of a cluster-wide object, as its owner would."""
    await sim.api.write(Patch(kind.read_as(dict[str, Any]), name, {"status": status}, subresource="status"))


async def launched(
    sim: SimCluster, name: str, *, node: str, true: tuple[str, ...] = ("Launched",), **status: Any
) -> None:
    """Let the claim have the instance of the node, with these conditions true."""
    body = {
        "providerID": f"{names.KWOK_PROVIDER_ID_PREFIX}{node}",
        "conditions": [condition(type_, observedGeneration=1) for type_ in true],
        **status,
    }
    await put_status(sim, NODECLAIMS, name, body)


def status_of(sim: SimCluster, kind: Resource[Any], name: str) -> Mapping[str, Any]:
    """The status that the server holds; empty if there is none."""
    found = sim.object(kind, name)
    return {} if found is None else found.get("status") or {}


def condition_of(sim: SimCluster, kind: Resource[Any], name: str, type_: str) -> Manifest:
    """One condition of an object; empty if there is none."""
    found = [entry for entry in status_of(sim, kind, name).get("conditions", ()) if entry["type"] == type_]
    return found[0] if found else {}
