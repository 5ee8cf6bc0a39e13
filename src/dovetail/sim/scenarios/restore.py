"""How does a cluster from files become a running one? What a dump leaves out is filled in, and told."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from dovetail.api import names
from dovetail.api.documents import Document, InputError, decode
from dovetail.api.names import ConditionType
from dovetail.api.objects import NodePool
from dovetail.model.finding import Finding, Severity
from dovetail.model.instance_types import InstanceType
from dovetail.planning.nodepool.hash import pool_hash
from dovetail.ports import KWOK_NODECLASSES, NODECLAIMS, ApiError, Resource
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import annotations_of, condition_status, labels_of, status_of
from dovetail.sim.cloud.machines import SimCloud
from dovetail.sim.scenarios.machines import Machines, machines_of
from dovetail.sim.scenarios.owners import with_owners, with_revisions, with_run_times
from dovetail.sim.scenarios.reading import Body, Scenario, ScenarioObject, assumption, node_class_resource
from dovetail.sim.scenarios.wire_checks import fault_of
from dovetail.sim.server.kinds import NAMESPACES, PRIORITY_CLASSES, SYSTEM_PRIORITIES
from dovetail.values.duration import DurationError
from dovetail.values.timestamp import format_time
from dovetail.views.explain.problems import NO_PODS

_UP: Final = (ConditionType.LAUNCHED, ConditionType.REGISTERED, ConditionType.INITIALIZED)
_IMAGE: Final = "unknown"
_LONG_AGO: Final = "2000-01-01T00:00:00Z"


class PreparedCluster(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Everything that is there at the start, ready to be put in."""

    objects: tuple[ScenarioObject, ...]
    node_classes: Resource[Any]
    machines: Machines
    problems: tuple[Finding, ...]


def prepare(scenario: Scenario, catalogue: Sequence[InstanceType] | None = None) -> PreparedCluster:
    """Fill in what is missing. Raises InputError."""
    objects: list[ScenarioObject] = list(scenario.objects)
    for each in objects:
        if fault := fault_of(each.resource.kind, each.body, whole=True):
            raise each.error(f"{fault[1]} ({each.name})", fault[0])
    problems = list(scenario.problems)
    for step in (with_owners, with_run_times, _with_hashes, _with_known_claims):
        objects, told = step(objects)
        problems += told
    objects = with_revisions([_with_times(_with_images(each)) for each in objects])
    node_classes, told = _node_class_kind(objects)
    problems += told
    objects, told = _with_node_classes(objects, node_classes, scenario.start)
    problems += told
    objects, told = _with_priority_classes(objects)
    problems += told
    machines = machines_of(objects, catalogue)
    return PreparedCluster(
        objects=tuple(_with_namespaces(objects)),
        node_classes=node_classes,
        machines=machines,
        problems=(*problems, *machines.problems, *_missing(objects)),
    )


def put_in(prepared: PreparedCluster, cluster: SimCluster, cloud: SimCloud) -> None:
    """Before anything runs: so that everybody finds it as it was. Raises InputError."""
    registry = cluster.server.registry
    for each in prepared.objects:
        if each.resource.plural == NAMESPACES.plural and each.key in EVERYWHERE:
            continue
        try:
            registry.restore(each.resource, each.body, namespace=each.namespace)
        except ApiError as error:
            raise each.error(f"{each.name}: {error.message}"[:380]) from None
    for machine in prepared.machines.standing:
        cloud.adopt(machine.instance, node=machine.node)
    for each in prepared.objects:
        if each.resource.kind == "Node":
            ready = condition_status(each.body, "Ready")
            if ready == "Unknown":
                cluster.kill_kubelet(each.key)
            elif ready == "False":
                cluster.set_node_ready(each.key, ready=False)


EVERYWHERE: Final = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})


# -- what is filled in -------------------------------------------------------------------------------------------------


def _changed(placed: ScenarioObject, body: Body) -> ScenarioObject:
    return ScenarioObject(placed.resource, body, placed.document)


def _with_images(placed: ScenarioObject) -> ScenarioObject:
    """Dumps for others leave images out."""
    spec = placed.body.get("spec")
    if not isinstance(spec, dict):
        return placed
    if placed.resource.kind == "Pod":
        return _changed(placed, {**placed.body, "spec": _imaged(placed, spec, "spec")})
    template = spec.get("template")
    if placed.resource.kind == names.NODEPOOL_KIND or not isinstance(template, dict):
        return placed
    inner = template.get("spec")
    if not isinstance(inner, dict):
        raise placed.error("is required", "spec.template.spec")
    template = {**template, "spec": _imaged(placed, inner, "spec.template.spec")}
    return _changed(placed, {**placed.body, "spec": {**spec, "template": template}})


def _imaged(placed: ScenarioObject, spec: Body, field: str) -> Body:
    found = dict(spec)
    for part in ("containers", "initContainers"):
        containers = spec.get(part)
        if containers is None:
            continue
        if not isinstance(containers, list) or not all(isinstance(each, dict) for each in containers):
            raise placed.error("must be a list of containers", f"{field}.{part}")
        found[part] = [{"image": _IMAGE, **each} for each in containers]
    return found


def _with_times(placed: ScenarioObject) -> ScenarioObject:
    """Some writers of conditions leave out since when they hold, and who scales pods down asks for it."""
    status = status_of(placed.body)
    conditions = status.get("conditions") or ()
    if placed.resource.kind not in ("Pod", "Job") or all("lastTransitionTime" in each for each in conditions):
        return placed
    since = {"lastTransitionTime": placed.body["metadata"].get("creationTimestamp") or _LONG_AGO}
    return _changed(placed, {**placed.body, "status": {**status, "conditions": [{**since, **c} for c in conditions]}})


def _with_hashes(objects: Sequence[ScenarioObject]) -> tuple[list[ScenarioObject], list[Finding]]:
    """A claim that had its pool's hash has the hash that the pool has here; only what had drifted has."""
    renamed: dict[str, tuple[str, str]] = {}
    for each in objects:
        if each.resource.kind == names.NODEPOOL_KIND:
            had, has = annotations_of(each.body).get(names.NODEPOOL_HASH), _hash(each)
            if had is not None and has is not None and had != has:
                renamed[each.key] = (had, has)
    if not renamed:
        return list(objects), []
    found = []
    for each in objects:
        pool = each.key if each.resource.kind == names.NODEPOOL_KIND else labels_of(each.body).get(names.NODEPOOL_LABEL)
        had, has = renamed.get(pool or "", ("", ""))
        if had and annotations_of(each.body).get(names.NODEPOOL_HASH) == had:
            meta = each.body["metadata"]
            hashed = {names.NODEPOOL_HASH: has, names.NODEPOOL_HASH_VERSION: names.HASH_VERSION}
            annotations = {**annotations_of(each.body), **hashed}
            each = _changed(each, {**each.body, "metadata": {**meta, "annotations": annotations}})  # noqa: PLW2901
        found.append(each)
    told = assumption(
        "HashDiffers",
        ", ".join(f"{names.NODEPOOL_KIND}/{name}" for name in sorted(renamed)),
        "its hash is not that of its template; NodeClaims with the same hash are taken not to have drifted",
        field=f"metadata.annotations[{names.NODEPOOL_HASH}]",
    )
    return found, [told]


def _hash(placed: ScenarioObject) -> str | None:
    try:
        pool = decode(Document(placed.document.file, 1, None, None, "", "", value=placed.body), NodePool)
        return pool_hash(pool.spec.template)
    except InputError as error:
        raise placed.error(error.message, error.field or "") from None
    except DurationError:
        return None


def _with_known_claims(objects: Sequence[ScenarioObject]) -> tuple[list[ScenarioObject], list[Finding]]:
    """Every claim that has an instance has a UID, and says that it is up if its Node does."""
    nodes = {
        str((each.body.get("spec") or {}).get("providerID") or ""): each
        for each in objects
        if each.resource.kind == "Node"
    }
    found, assumed = [], 0
    for number, each in enumerate(objects):
        if each.resource.kind != names.NODECLAIM_KIND:
            found.append(each)
            continue
        meta, status = each.body["metadata"], status_of(each.body)
        body = {**each.body, "metadata": {"uid": f"00000000-0000-4000-8000-{number:012x}", **meta}}
        node = nodes.get(str(status.get("providerID") or ""))
        silent = [type_ for type_ in _UP if condition_status(each.body, type_) is None]
        if node is not None and silent:
            assumed += 1
            since = node.body["metadata"].get("creationTimestamp") or meta.get("creationTimestamp")
            body["status"] = {**status, "conditions": [*(status.get("conditions") or ()), *_true(silent, since)]}
        found.append(_changed(each, body))
    if not assumed:
        return found, []
    told = assumption(
        "ClaimsAssumedUp",
        "",
        f"{assumed} NodeClaims do not say whether they are launched, registered and initialized; their Nodes are "
        "there, so they are taken to be",
    )
    return found, [told]


def _true(types: Iterable[str], since: str | None) -> list[Body]:
    at = since or _LONG_AGO
    return [
        {"type": str(type_), "status": "True", "reason": str(type_), "message": "", "lastTransitionTime": at}
        for type_ in types
    ]


# -- node classes ------------------------------------------------------------------------------------------------------


def _references(objects: Iterable[ScenarioObject]) -> Iterable[tuple[ScenarioObject, Mapping[str, str]]]:
    for each in objects:
        spec = each.body.get("spec") or {}
        if each.resource.kind == names.NODEPOOL_KIND:
            spec = (spec.get("template") or {}).get("spec") or {}
        elif each.resource.kind != names.NODECLAIM_KIND:
            continue
        if reference := spec.get("nodeClassRef"):
            yield each, reference


def _node_class_kind(objects: Sequence[ScenarioObject]) -> tuple[Resource[Any], list[Finding]]:
    """The kind that most pools and claims name: the simulated cloud acts for that one."""
    counts = Counter((str(ref.get("group")), str(ref.get("kind"))) for _, ref in _references(objects))
    if not counts:
        return KWOK_NODECLASSES, []
    (group, kind), _ = max(counts.items(), key=lambda item: (item[1], item[0]))
    problems = [
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
        return KWOK_NODECLASSES, problems
    version = next((each.resource.version for each in objects if each.resource.kind == kind), "v1")
    problems.append(
        assumption(
            "CloudAssumed",
            "",
            f"machines of {kind} are launched and ended by the simulated cloud, in {_SECONDS} and without errors; "
            "whether a node has drifted from its node class is not known",
        )
    )
    return node_class_resource(group, version, kind), problems


_SECONDS: Final = "half a minute"


def _with_node_classes(
    objects: Sequence[ScenarioObject], kind: Resource[Any], start: datetime
) -> tuple[list[ScenarioObject], list[Finding]]:
    """Node classes that are named and not there, and Ready where they do not say."""
    wanted = {
        str(ref.get("name")): each
        for each, ref in _references(objects)
        if (ref.get("group"), ref.get("kind")) == (kind.group, kind.kind)
    }
    ready = _true([ConditionType.READY], format_time(start.replace(microsecond=0)))
    found, silent = [], []
    for each in objects:
        if each.resource.kind == kind.kind and each.resource.group == kind.group:
            wanted.pop(each.key, None)
            if condition_status(each.body, ConditionType.READY) is None:
                silent.append(each.key)
                status = status_of(each.body)
                ready_status = {**status, "conditions": [*(status.get("conditions") or ()), *ready]}
                each = _changed(each, {**each.body, "status": ready_status})  # noqa: PLW2901
        found.append(each)
    for name, user in sorted(wanted.items()):
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name},
            "spec": {},
            "status": {"conditions": ready},
        }
        found.insert(0, ScenarioObject(kind, body, user.document))
    if not wanted:
        return found, []
    told = ", ".join(f"{kind.kind}/{name}" for name in sorted(wanted))
    return found, [assumption("NodeClassAssumed", told, "is not in the input; taken to be there and ready")]


# -- what the server asks for ------------------------------------------------------------------------------------------


def _with_priority_classes(objects: Sequence[ScenarioObject]) -> tuple[list[ScenarioObject], list[Finding]]:
    have = {each.key for each in objects if each.resource.kind == PRIORITY_CLASSES.kind} | set(SYSTEM_PRIORITIES)
    wanted: dict[str, tuple[int, ScenarioObject]] = {}
    for each in objects:
        spec = each.body.get("spec") or {}
        spec = spec if each.resource.kind == "Pod" else (spec.get("template") or {}).get("spec") or {}
        name = spec.get("priorityClassName")
        if name and name not in have and (name not in wanted or spec.get("priority") is not None):
            wanted[name] = (int(spec.get("priority") or 0), each)
    made = [
        ScenarioObject(
            PRIORITY_CLASSES,
            {
                "apiVersion": PRIORITY_CLASSES.api_version,
                "kind": PRIORITY_CLASSES.kind,
                "metadata": {"name": name},
                "value": value,
            },
            user.document,
        )
        for name, (value, user) in sorted(wanted.items())
    ]
    problems = [
        assumption("PriorityAssumed", each.name, f"is not in the input; taken to be {each.body['value']}")
        for each in made
    ]
    return [*made, *(_by_class(each) for each in objects)], problems


def _by_class(placed: ScenarioObject) -> ScenarioObject:
    """The class says what the priority is; that both are given and differ would be refused."""
    spec = placed.body.get("spec")
    if placed.resource.kind != "Pod" or not isinstance(spec, dict):
        return placed
    left = {key: value for key, value in spec.items() if key not in ("priority", "preemptionPolicy")}
    return _changed(placed, {**placed.body, "spec": left})


def _with_namespaces(objects: Sequence[ScenarioObject]) -> list[ScenarioObject]:
    """Namespaces first, also those that nobody wrote down; then what pods need."""
    have = {each.key for each in objects if each.resource.kind == NAMESPACES.kind} | EVERYWHERE
    missing: dict[str, ScenarioObject] = {}
    for each in objects:
        if each.namespace is not None and each.namespace not in have:
            missing.setdefault(each.namespace, each)
    made = [
        ScenarioObject(
            NAMESPACES,
            {"apiVersion": "v1", "kind": NAMESPACES.kind, "metadata": {"name": name}},
            user.document,
        )
        for name, user in sorted(missing.items())
    ]
    first: Callable[[ScenarioObject], bool] = lambda each: (  # noqa: E731
        each.resource.kind in (NAMESPACES.kind, PRIORITY_CLASSES.kind)
    )
    return [*made, *filter(first, objects), *(each for each in objects if not first(each))]


def _missing(objects: Sequence[ScenarioObject]) -> Iterable[Finding]:
    """What a cluster has and the input has not, so that less happens than would, or more."""
    kinds = Counter(each.resource.kind for each in objects)
    if not kinds[names.NODEPOOL_KIND] and not kinds[names.NODECLAIM_KIND]:
        yield assumption(
            "NoNodePools",
            names.NODEPOOL_KIND,
            "the input holds no NodePool and no NodeClaim: there is nothing for the controller to do",
            f"{_DUMP_TOO}: kubectl get nodepools,nodeclaims -o yaml",
            field="kind",
            severity=Severity.WARNING,
        )
    if kinds["Node"] and not any(kinds[kind] for kind in _WORK):
        yield NO_PODS
    launched = {status_of(each.body).get("providerID") for each in objects if each.resource.kind == NODECLAIMS.kind}
    stray = [each for each in objects if each.resource.kind == "Node" and _is_of_a_pool(each)]
    stray = [each for each in stray if (each.body.get("spec") or {}).get("providerID") not in launched]
    if stray:
        yield assumption(
            "NodeClaimMissing",
            names.NODECLAIM_KIND,
            f"{len(stray)} {'node of a NodePool has' if len(stray) == 1 else 'nodes of NodePools have'} no NodeClaim "
            "in the input: what has none is not the controller's, costs nothing here, and stays",
            f"{_DUMP_TOO}: kubectl get nodeclaims -o yaml",
            field="status.providerID",
            severity=Severity.WARNING,
        )


_DUMP_TOO: Final = "put them into the dump too"
_WORK: Final = ("Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")


def _is_of_a_pool(placed: ScenarioObject) -> bool:
    return bool(labels_of(placed.body).get(names.NODEPOOL_LABEL))
