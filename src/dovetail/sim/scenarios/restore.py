"""Turns the objects of a scenario into a running cluster: fills in what a dump lacks, and reports each assumption."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final

import msgspec

from dovetail.api import names
from dovetail.api.documents import Document, InputError, decode
from dovetail.api.names import ConditionReason, ConditionType
from dovetail.api.objects import NodePool
from dovetail.model.decider import DecidingController
from dovetail.model.finding import Finding, Severity
from dovetail.model.instance_types import InstanceType
from dovetail.model.refs import Ref
from dovetail.planning.cleaning import Cleaning, clean_claim, clean_node, clean_pod
from dovetail.planning.nodepool.hash import pool_hash
from dovetail.ports import KWOK_NODECLASSES, ApiError, Resource
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import annotations_of, condition_of, condition_status, labels_of, status_of, timestamp
from dovetail.sim.cloud.machines import SimCloud
from dovetail.sim.scenarios.machines import Machines, machines_of
from dovetail.sim.scenarios.owners import with_owners, with_revisions, with_run_times
from dovetail.sim.scenarios.reading import Scenario, ScenarioObject, assumption, node_class_resource
from dovetail.sim.scenarios.wire_checks import InvalidValue, check_fields
from dovetail.sim.server.kinds import NAMESPACES, PRIORITY_CLASSES, SYSTEM_PRIORITIES, Body
from dovetail.sim.server.patching import merged
from dovetail.values.duration import DurationError
from dovetail.views.explain.problems import NO_PODS

EVERYWHERE: Final = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})
_UP: Final = (ConditionType.LAUNCHED, ConditionType.REGISTERED, ConditionType.INITIALIZED)
_FOUND_AGAIN: Final = frozenset(
    {
        ConditionReason.NODEPOOL_DRIFTED,
        ConditionReason.REQUIREMENTS_DRIFTED,
        ConditionReason.INSTANCE_TYPE_NOT_FOUND,
    }
)
_IMAGE: Final = "unknown"
_LONG_AGO: Final = "2000-01-01T00:00:00Z"
_OWNERS: Final = frozenset(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"))
_WORK: Final = ("Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")


class PreparedCluster(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The cluster at the start of a scenario, complete."""

    objects: tuple[ScenarioObject, ...]
    node_classes: Resource[Any]
    machines: Machines
    problems: tuple[Finding, ...]


def prepare(
    scenario: Scenario, catalogue: Sequence[InstanceType] | None = None, *, played: bool = True
) -> PreparedCluster:
    """Fill in what is missing; `played`: also what only actors read. Raises InputError."""
    problems = list(scenario.problems)
    given = list(_checked(scenario.objects, problems))
    if played and scenario.settings.decider.controller is DecidingController.KARPENTER:
        given = _without_marks(given, problems)
    objects = with_owners(given, problems)
    if played:
        objects = with_revisions([_with_images(placed) for placed in with_run_times(objects, problems)])
    whole = [placed for placed in objects if placed.pod is not None]  # nothing is filled in there, and they are many
    objects = [placed for placed in objects if placed.pod is None]
    objects = _with_known_claims(_with_hashes([_with_times(placed) for placed in objects], problems), problems)
    node_classes = _node_class_kind(objects, problems)
    objects = _with_node_classes(objects, node_classes, scenario.start, problems)
    objects = _with_priority_classes(objects, whole, problems)
    machines = machines_of(objects, catalogue, problems)
    return PreparedCluster(
        objects=(*_with_namespaces(objects, whole), *whole),
        node_classes=node_classes,
        machines=machines,
        problems=(*problems, *_missing(objects, whole)),
    )


def _checked(objects: Iterable[ScenarioObject], problems: list[Finding]) -> Iterator[ScenarioObject]:
    """Without workloads of a cluster that cannot be read: their pods have owners made up. Others are refused."""
    for placed in objects:
        try:
            if placed.pod is None:
                check_fields(placed.resource.kind, placed.body, whole=True)
        except InvalidValue as error:
            if placed.resource.kind not in _OWNERS or not placed.body["metadata"].get("uid"):
                raise placed.error(f"{error.message} ({placed.name})", error.field) from None
            problems.append(_left_out(placed, error))
            continue
        yield placed


def _left_out(placed: ScenarioObject, error: InvalidValue) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        rule="LeftOut",
        object=Ref(placed.resource.kind, placed.namespace or "", placed.body["metadata"]["name"]),
        field=error.field,
        message=f"{error.message}; the object is left out, and its pods are treated as those of an unknown owner",
        remedy="correct the object, or dump it again",
        file=placed.document.file,
    )


def _without_marks(objects: Sequence[ScenarioObject], problems: list[Finding]) -> list[ScenarioObject]:
    """Karpenter is alone, so what Dovetail keeps it off, and has it replace, is undone as by `dovetail cleanup`."""
    claims = {status_of(claim.body).get("providerID"): claim.body for claim in _of_kind(objects, names.NODECLAIM_KIND)}
    cleaned, marked = [], 0
    for placed in objects:
        body: Body = placed.body
        cleaning = Cleaning()
        if placed.resource.kind == "Node":
            cleaning = clean_node(body, claims.get(_spec(placed).get("providerID")))
        elif placed.resource.kind == names.NODECLAIM_KIND:
            cleaning = clean_claim(body)
        elif placed.resource.kind == "Pod":
            cleaning = clean_pod(body)
        marked += bool(cleaning.patches)
        for patch in cleaning.patches:
            body = merged(body, patch.body)
        cleaned.append(placed.having(**body) if cleaning.patches else placed)
    if marked:
        message = f"Karpenter is alone here, so what Dovetail has written on {marked} objects is removed first"
        problems.append(assumption("MarksRemoved", "", message))
    return cleaned


def put_in(prepared: PreparedCluster, cluster: SimCluster, cloud: SimCloud) -> None:
    """Create the objects and machines before any controller runs. Raises InputError."""
    registry = cluster.server.registry
    for placed in prepared.objects:
        if placed.resource.plural == NAMESPACES.plural and placed.key in EVERYWHERE:
            continue
        try:
            registry.restore(placed.resource, placed.body, namespace=placed.namespace)
        except ApiError as error:
            raise placed.error(f"{placed.name}: {error.message}"[:380]) from None
    for machine in prepared.machines.standing:
        cloud.adopt(machine.instance, node=machine.node)
    cloud.drift |= _drifted_by_provider(prepared.objects)
    for node in _of_kind(prepared.objects, "Node"):
        ready = condition_status(node.body, "Ready")
        if ready == "Unknown":
            cluster.kill_kubelet(node.key)
        elif ready == "False":
            cluster.set_node_ready(node.key, ready=False)


def _drifted_by_provider(objects: Iterable[ScenarioObject]) -> dict[str, str]:
    """The reasons that only the provider of the dump knows, by provider ID. The controllers find the others again."""
    reasons = {}
    for claim in _of_kind(objects, names.NODECLAIM_KIND):
        condition = condition_of(claim.body, ConditionType.DRIFTED)
        reason = "" if condition is None else str(condition.get("reason") or ConditionType.DRIFTED)
        if condition is not None and condition.get("status") == "True" and reason not in _FOUND_AGAIN:
            reasons[str(status_of(claim.body).get("providerID") or "")] = reason
    return reasons


def _of_kind(objects: Iterable[ScenarioObject], kind: str) -> list[ScenarioObject]:
    return [placed for placed in objects if placed.resource.kind == kind]


def _spec(placed: ScenarioObject) -> Body:
    return placed.body.get("spec") or {}


# -- fields and conditions ---------------------------------------------------------------------------------------------


def _with_images(placed: ScenarioObject) -> ScenarioObject:
    """Add images to containers: dumps for others leave them out."""
    spec = _spec(placed)
    if placed.resource.kind == "Pod":
        return placed.having(spec=_imaged(placed, spec, "spec"))
    template = spec.get("template")
    if placed.resource.kind == names.NODEPOOL_KIND or not isinstance(template, dict):
        return placed
    if not isinstance(template.get("spec"), dict):
        raise placed.error("is required", "spec.template.spec")
    template = {**template, "spec": _imaged(placed, template["spec"], "spec.template.spec")}
    return placed.having(spec={**spec, "template": template})


def _imaged(placed: ScenarioObject, spec: Body, field: str) -> Body:
    imaged = dict(spec)
    for part in ("containers", "initContainers"):
        containers = spec.get(part)
        if containers is None:
            continue
        if not isinstance(containers, list) or not all(isinstance(container, dict) for container in containers):
            raise placed.error("must be a list of containers", f"{field}.{part}")
        imaged[part] = [{"image": _IMAGE, **container} for container in containers]
    return imaged


def _with_times(placed: ScenarioObject) -> ScenarioObject:
    """Add transition times to conditions: some writers leave them out, and controllers that scale down read them."""
    if placed.resource.kind not in ("Pod", "Job"):
        return placed
    status = status_of(placed.body)
    conditions = status.get("conditions") or ()
    if all("lastTransitionTime" in entry for entry in conditions):
        return placed
    since = {"lastTransitionTime": placed.body["metadata"].get("creationTimestamp") or _LONG_AGO}
    return placed.having(status={**status, "conditions": [{**since, **condition} for condition in conditions]})


def _with_true(placed: ScenarioObject, types: Iterable[str], since: str | None) -> ScenarioObject:
    """Add conditions of these types, with status True."""
    status = status_of(placed.body)
    added = [
        {"type": str(type_), "status": "True", "reason": str(type_), "message": "", "lastTransitionTime": since}
        for type_ in types
    ]
    return placed.having(status={**status, "conditions": [*(status.get("conditions") or ()), *added]})


def _with_hashes(objects: Sequence[ScenarioObject], problems: list[Finding]) -> list[ScenarioObject]:
    """Replace the hashes of pools and of their undrifted claims by those that this version computes."""
    hashes: dict[str, tuple[str, str]] = {}  # old and new hash by pool
    for pool in _of_kind(objects, names.NODEPOOL_KIND):
        old, new = annotations_of(pool.body).get(names.NODEPOOL_HASH), _hash(pool)
        if old is not None and new is not None and old != new:
            hashes[pool.key] = (old, new)
    if hashes:
        problems.append(
            assumption(
                "HashDiffers",
                ", ".join(f"{names.NODEPOOL_KIND}/{name}" for name in sorted(hashes)),
                "its hash is not that of its template; NodeClaims with the same hash are taken not to have drifted",
                field=f"metadata.annotations[{names.NODEPOOL_HASH}]",
            )
        )
    return [_with_hash(placed, hashes) for placed in objects]


def _with_hash(placed: ScenarioObject, hashes: Mapping[str, tuple[str, str]]) -> ScenarioObject:
    if placed.resource.kind not in (names.NODEPOOL_KIND, names.NODECLAIM_KIND):
        return placed
    is_pool, annotations = placed.resource.kind == names.NODEPOOL_KIND, annotations_of(placed.body)
    pool = placed.key if is_pool else labels_of(placed.body).get(names.NODEPOOL_LABEL, "")
    old, new = hashes.get(pool, ("", ""))
    if not old or annotations.get(names.NODEPOOL_HASH) != old:
        return placed
    hashed = {names.NODEPOOL_HASH: new, names.NODEPOOL_HASH_VERSION: names.HASH_VERSION}
    return placed.having_metadata(annotations={**annotations, **hashed})


def _hash(placed: ScenarioObject) -> str | None:
    try:
        pool = decode(Document(placed.document.file, 1, None, None, "", "", value=placed.body), NodePool)
        return pool_hash(pool.spec.template)
    except InputError as error:
        raise placed.error(error.message, error.field or "") from None
    except DurationError:
        return None


def _with_known_claims(objects: Sequence[ScenarioObject], problems: list[Finding]) -> list[ScenarioObject]:
    """Give every NodeClaim a UID, and the conditions of a running one if it has none and its Node exists."""
    nodes = {str(_spec(node).get("providerID") or ""): node for node in _of_kind(objects, "Node")}
    complete, assumed = [], 0
    for number, placed in enumerate(objects):
        if placed.resource.kind == names.NODECLAIM_KIND:
            meta = placed.body["metadata"]
            node = nodes.get(str(status_of(placed.body).get("providerID") or ""))
            missing = [type_ for type_ in _UP if condition_status(placed.body, type_) is None]
            placed = placed.having(metadata={"uid": f"00000000-0000-4000-8000-{number:012x}", **meta})  # noqa: PLW2901
            if node is not None and missing:
                assumed += 1
                since = node.body["metadata"].get("creationTimestamp") or meta.get("creationTimestamp") or _LONG_AGO
                placed = _with_true(placed, missing, since)  # noqa: PLW2901
        complete.append(placed)
    if assumed:
        message = (
            f"{assumed} NodeClaims do not say whether they are launched, registered and initialized; their Nodes are "
            "there, so they are taken to be"
        )
        problems.append(assumption("ClaimsAssumedUp", "", message))
    return complete


# -- node classes ------------------------------------------------------------------------------------------------------


def _references(objects: Iterable[ScenarioObject]) -> Iterable[tuple[ScenarioObject, Mapping[str, str]]]:
    """NodePools and NodeClaims with the node class that they reference."""
    for placed in objects:
        if placed.resource.kind not in (names.NODEPOOL_KIND, names.NODECLAIM_KIND):
            continue
        spec = _spec(placed)
        if placed.resource.kind == names.NODEPOOL_KIND:
            spec = (spec.get("template") or {}).get("spec") or {}
        if reference := spec.get("nodeClassRef"):
            yield placed, reference


def _node_class_kind(objects: Sequence[ScenarioObject], problems: list[Finding]) -> Resource[Any]:
    """The kind that most pools and claims reference: the simulated cloud serves one kind."""
    counts = Counter((str(ref.get("group")), str(ref.get("kind"))) for _, ref in _references(objects))
    if not counts:
        return KWOK_NODECLASSES
    (group, kind), _ = max(counts.items(), key=lambda item: (item[1], item[0]))
    problems += [
        assumption(
            "NotSimulated",
            "",
            f"{number} NodePools and NodeClaims with a {other[1]} of {other[0]} stay as they are: only one kind of "
            f"node class is simulated at a time, here {kind}",
            severity=Severity.WARNING,
        )
        for other, number in sorted(counts.items())
        if other != (group, kind)
    ]
    if (group, kind) == (KWOK_NODECLASSES.group, KWOK_NODECLASSES.kind):
        return KWOK_NODECLASSES
    message = (
        f"machines of {kind} are launched and ended by the simulated cloud, in half a minute and without errors; "
        "nodes that have drifted from their node class stay so until they are replaced, and no other drifts from it"
    )
    problems.append(assumption("CloudAssumed", "", message))
    version = next((placed.resource.version for placed in _of_kind(objects, kind)), "v1")
    return node_class_resource(group, version, kind)


def _with_node_classes(
    objects: Sequence[ScenarioObject], kind: Resource[Any], start: datetime, problems: list[Finding]
) -> list[ScenarioObject]:
    """Add node classes that are referenced and missing, and the Ready condition where there is none.

    A class of which a NodePool says that it is not there is not added.
    """
    users = [
        (str(ref.get("name")), placed)
        for placed, ref in _references(objects)
        if (ref.get("group"), ref.get("kind")) == (kind.group, kind.kind)
    ]
    missing, known_missing = dict(users), {name for name, placed in users if _misses_its_class(placed)}
    since = timestamp(start)
    complete = []
    for placed in objects:
        if placed.resource.kind == kind.kind and placed.resource.group == kind.group:
            missing.pop(placed.key, None)
            if condition_status(placed.body, ConditionType.READY) is None:
                placed = _with_true(placed, [ConditionType.READY], since)  # noqa: PLW2901
        complete.append(placed)
    if gone := known_missing & missing.keys():
        message = "does not exist, as its NodePool says, which makes no new nodes"
        listed = _listed(kind, gone)
        problems.append(assumption("NodeClassMissing", listed, message, "create it", severity=Severity.WARNING))
    if assumed := sorted(missing.keys() - gone):
        complete[:0] = [
            _with_true(_made(kind, name, missing[name], spec={}), [ConditionType.READY], since) for name in assumed
        ]
        message = "is not in the input; taken to be there and ready"
        problems.append(assumption("NodeClassAssumed", _listed(kind, assumed), message))
    return complete


def _misses_its_class(placed: ScenarioObject) -> bool:
    condition = condition_of(placed.body, ConditionType.NODECLASS_READY) or {}
    return (condition.get("status"), condition.get("reason")) == ("False", ConditionReason.NODECLASS_NOT_FOUND)


def _listed(kind: Resource[Any], named: Iterable[str]) -> str:
    return ", ".join(f"{kind.kind}/{name}" for name in sorted(named))


def _made(resource: Resource[Any], name: str, user: ScenarioObject, **fields: Any) -> ScenarioObject:
    """An object that `user` refers to and the input lacks."""
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **fields}
    return ScenarioObject(resource, body, user.document)


# -- objects that the server requires ----------------------------------------------------------------------------------


def _with_priority_classes(
    objects: Sequence[ScenarioObject], whole: Sequence[ScenarioObject], problems: list[Finding]
) -> list[ScenarioObject]:
    present = {placed.key for placed in _of_kind(objects, PRIORITY_CLASSES.kind)} | set(SYSTEM_PRIORITIES)
    missing: dict[str, tuple[int, ScenarioObject]] = {}
    for placed in chain(objects, whole):
        name, priority = _priority(placed)
        if name and name not in present and (name not in missing or priority is not None):
            missing[name] = (int(priority or 0), placed)
    made = [_made(PRIORITY_CLASSES, name, user, value=value) for name, (value, user) in sorted(missing.items())]
    problems += [
        assumption("PriorityAssumed", placed.name, f"is not in the input; taken to be {placed.body['value']}")
        for placed in made
    ]
    return [*made, *map(_without_priority, objects)]


def _priority(placed: ScenarioObject) -> tuple[str | None, Any]:
    """The name of the PriorityClass of a pod or template, and its value if there is one."""
    if placed.pod is not None:
        return placed.pod.priority_class, placed.pod.priority
    spec = _spec(placed)
    spec = spec if placed.resource.kind == "Pod" else (spec.get("template") or {}).get("spec") or {}
    return spec.get("priorityClassName"), spec.get("priority")


def _without_priority(placed: ScenarioObject) -> ScenarioObject:
    """Drop the priority of a pod: its class sets it, and the server refuses a pod whose priority differs."""
    if placed.resource.kind != "Pod":
        return placed
    dropped = ("priority", "preemptionPolicy")
    return placed.having(spec={key: value for key, value in _spec(placed).items() if key not in dropped})


def _with_namespaces(objects: Sequence[ScenarioObject], whole: Sequence[ScenarioObject]) -> list[ScenarioObject]:
    """Put namespaces first, including those that no document declares, and then the classes that pods need."""
    present = {placed.key for placed in _of_kind(objects, NAMESPACES.kind)} | EVERYWHERE
    missing: dict[str, ScenarioObject] = {}
    for placed in chain(objects, whole):
        namespace = placed.namespace
        if namespace is not None and namespace not in present:
            missing.setdefault(namespace, placed)
    made = [_made(NAMESPACES, name, user) for name, user in sorted(missing.items())]
    first = (NAMESPACES.kind, PRIORITY_CLASSES.kind)
    return [*made, *sorted(objects, key=lambda placed: placed.resource.kind not in first)]


def _missing(objects: Sequence[ScenarioObject], whole: Sequence[ScenarioObject]) -> Iterable[Finding]:
    """Warn of kinds that every cluster has and the input lacks: without them the simulation differs."""
    kinds = Counter(placed.resource.kind for placed in objects)
    if not kinds[names.NODEPOOL_KIND] and not kinds[names.NODECLAIM_KIND]:
        yield assumption(
            "NoNodePools",
            names.NODEPOOL_KIND,
            "the input holds no NodePool and no NodeClaim: there is nothing for the controller to do",
            "put them into the dump too: kubectl get nodepools,nodeclaims -o yaml",
            field="kind",
            severity=Severity.WARNING,
        )
    if kinds["Node"] and not (whole or any(kinds[kind] for kind in _WORK)):
        yield NO_PODS
    launched = {status_of(claim.body).get("providerID") for claim in _of_kind(objects, names.NODECLAIM_KIND)}
    stray = sum(
        bool(labels_of(node.body).get(names.NODEPOOL_LABEL)) and _spec(node).get("providerID") not in launched
        for node in _of_kind(objects, "Node")
    )
    if stray:
        yield assumption(
            "NodeClaimMissing",
            names.NODECLAIM_KIND,
            f"{stray} {'node of a NodePool has' if stray == 1 else 'nodes of NodePools have'} no NodeClaim "
            "in the input: what has none is not the controller's, costs nothing here, and stays",
            "put them into the dump too: kubectl get nodeclaims -o yaml",
            field="status.providerID",
            severity=Severity.WARNING,
        )
