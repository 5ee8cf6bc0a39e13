"""Reads scenario files: the objects at the start, the instant of the start, and the events that follow."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import msgspec

from dovetail.api import names
from dovetail.api.conversion import REMOVED_KINDS
from dovetail.api.documents import Document, InputError, decode, plain_value
from dovetail.model.finding import Finding, Severity
from dovetail.model.refs import Ref
from dovetail.model.rule_settings import DEFAULT_SETTINGS, RuleSettings
from dovetail.ports import Resource
from dovetail.sim.actors import wire
from dovetail.sim.actors.cluster import KINDS
from dovetail.sim.scenarios.whole_pods import WholePod, WholePods
from dovetail.sim.scenarios.wire_checks import InvalidValue, check_fields, sound
from dovetail.sim.server.kinds import Body
from dovetail.values.duration import DurationError, parse_span, shown
from dovetail.values.timestamp import TimeError, format_time, parse_time

API_GROUP: Final = names.OWN_GROUP
API_VERSION: Final = "dovetail.dev/v1alpha1"
KIND: Final = "Scenario"
DEFAULT_SPAN: Final = timedelta(days=7)
LONGEST: Final = timedelta(days=366)
# The server creates these, and nothing that is simulated reads them.
_SILENT: Final = frozenset({"Event", "Lease", "EndpointSlice", "Endpoints", "ControllerRevision"})


class ScenarioObject(msgspec.Struct, frozen=True, eq=False):
    """An object of the start, and the document that it comes from."""

    resource: Resource[Any]
    made: Body | None
    document: Document
    pod: WholePod | None = None
    """Then `made` is None: 100,000 such objects take more time and memory than everything else."""

    @property
    def body(self) -> Body:
        return _body(self.resource, self.document) if self.made is None else self.made

    @property
    def name(self) -> str:
        """`NodePool/default`, `Pod/shop/cart-0`."""
        return f"{self.resource.kind}/{self.key}"

    @property
    def namespace(self) -> str | None:
        if self.pod is not None:
            return self.pod.record.namespace
        return self.body["metadata"]["namespace"] if self.resource.namespaced else None

    @property
    def key(self) -> str:
        if self.pod is not None:
            return f"{self.pod.record.namespace}/{self.pod.record.name}"
        meta = self.body["metadata"]
        return f"{self.namespace}/{meta['name']}" if self.resource.namespaced else str(meta["name"])

    @property
    def uid(self) -> str:
        """Empty if it has none."""
        return self.pod.record.uid if self.pod is not None else str(self.body["metadata"].get("uid") or "")

    @property
    def controller_uid(self) -> str:
        if self.pod is not None:
            return self.pod.controller_uid
        return wire.controller_uid(self.body)

    @property
    def owner_uids(self) -> Sequence[Any]:
        if self.pod is not None:
            return self.pod.owner_uids
        return [reference.get("uid") for reference in self.body["metadata"].get("ownerReferences") or ()]

    @property
    def active(self) -> bool:
        """Of a pod: neither finished nor terminating."""
        return self.pod.record.active if self.pod is not None else wire.active(self.body)

    @property
    def created_at(self) -> datetime | None:
        if self.pod is not None:
            return self.pod.record.created_at
        text = self.body["metadata"].get("creationTimestamp")
        return None if text is None else parse_time(text)

    def error(self, message: str, field: str = "") -> InputError:
        return error_in(self.document, message, field)

    def having(self, **fields: Any) -> "ScenarioObject":
        """A copy with these top-level fields."""
        return ScenarioObject(self.resource, {**self.body, **fields}, self.document)

    def having_metadata(self, **fields: Any) -> "ScenarioObject":
        return self.having(metadata={**self.body["metadata"], **fields})


class FaultSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A fault. It hits `count` random nodes of those that match the patterns `node` and `nodepool`."""

    kind: Literal[
        "instance-lost", "interruption", "kubelet-silent", "node-not-ready", "insufficient-capacity", "launch-fails"
    ]
    node: str = "*"
    nodepool: str = "*"
    count: int = 1
    for_: str = msgspec.field(name="for", default="")  # kubelet-silent, node-not-ready, insufficient-capacity
    notice: str = "2m"  # interruption: from the notice to the end of the machine
    instance_type: str = ""  # insufficient-capacity; an empty text matches all
    zone: str = ""
    capacity_type: str = ""

    def hits(self, node: str, pool: str) -> bool:
        return fnmatchcase(node, self.node) and fnmatchcase(pool, self.nodepool)


class ScenarioEvent(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An event: objects to apply, an object to delete, or a fault."""

    after: timedelta
    field: str  # `events[2]`
    apply: tuple[Body, ...] = ()
    delete: tuple[Resource[Any], str | None, str] | None = None
    fault: FaultSpec | None = None
    spans: Mapping[str, timedelta] = {}  # durations of the fault, by field


class Scenario(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A scenario as the files describe it."""

    objects: tuple[ScenarioObject, ...]
    start: datetime
    span: timedelta
    seed: int = 0
    happenings: tuple[ScenarioEvent, ...] = ()
    document: Document | None = None  # the Scenario object, if there is one
    problems: tuple[Finding, ...] = ()
    settings: RuleSettings = DEFAULT_SETTINGS

    @property
    def end(self) -> datetime:
        return self.start + self.span


class _EventWire(msgspec.Struct, forbid_unknown_fields=True):
    at: str
    apply: dict[str, Any] | list[dict[str, Any]] | None = None
    delete: str | None = None
    fault: FaultSpec | None = None


class _ScenarioWire(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    api_version: str
    kind: str
    metadata: dict[str, Any] = {}
    start: str | None = None
    for_: str = msgspec.field(name="for", default="")
    seed: int = 0
    events: list[_EventWire] = []


def error_in(document: Document, message: str, field: str = "") -> InputError:
    """An error of one line that names file, document and field."""
    path = ".".join(filter(None, (document.path, field)))
    return InputError(document.file, message, document=document.number, line=document.line, field=path or None)


def read_span(text: str) -> timedelta:
    """Parse `36h`, `7d` or `1d12h`. Raises ValueError."""
    try:
        span_ns = parse_span(text)
    except DurationError:
        span_ns = None
    if span_ns is None:
        raise ValueError(f"{shown(text)} is not a span of time, such as 36h, 7d or 1d12h")
    return timedelta(microseconds=span_ns // 1000)


# -- the files ---------------------------------------------------------------------------------------------------------


def read_scenario(
    documents: Iterable[Document],
    *,
    now: datetime,
    start: datetime | None = None,
    span: timedelta | None = None,
    seed: int | None = None,
    live: bool = False,
    settings: RuleSettings = DEFAULT_SETTINGS,
    pods: WholePods | None = None,
) -> Scenario:
    """Read the files; `start`, `span` and `seed` override them. Raises InputError.

    The default start is the current hour, or the creation of the youngest object if that is later. `live`: the objects
    are those of a cluster as it is now, so the default start is now. `pods`: nothing will be played, and they read the
    pods that lack nothing.
    """
    objects: dict[tuple[str, str], ScenarioObject] = {}
    problems: list[Finding] = []
    left_out: Counter[str] = Counter()
    own: list[Document] = []
    for document in documents:
        if document.kind == KIND and document.group == API_GROUP:
            own.append(document)
            continue
        resource = KINDS.get((document.api_version, document.kind))
        if resource is None and document.kind.endswith("NodeClass"):
            resource = node_class_resource(*document.api_version.rpartition("/")[::2], document.kind)
        if resource is None or document.kind in _SILENT:
            if (document.group, document.kind) in REMOVED_KINDS:
                continue  # the rules report it
            left_out[f"{document.api_version} {document.kind}"] += document.kind not in _SILENT
            continue
        placed = _placed(resource, document, pods)
        key = resource.kind, placed.key
        if key in objects:
            problems.append(_twice(placed))
        objects[key] = placed
    problems += [_not_simulated(kind, count) for kind, count in sorted(left_out.items()) if count]
    if len(own) > 1:
        raise error_in(own[1], f"there is another {KIND} at {own[0].where}; there can be one at most")
    wire = _read_wire(own[0]) if own else _ScenarioWire(api_version=API_VERSION, kind=KIND)
    all_objects = tuple(objects.values())
    begins = start or (
        _time_at(own[0], "start", wire.start)
        if wire.start is not None
        else _first_hour(now, all_objects)
        if not live
        else now
    )
    return Scenario(
        objects=all_objects,
        start=begins,
        span=span or _length(wire, own) or DEFAULT_SPAN,
        settings=settings,
        seed=wire.seed if seed is None else seed,
        happenings=_happenings(wire, own[0], {placed.name for placed in all_objects}) if own else (),
        document=own[0] if own else None,
        problems=(*problems, *_early(all_objects, begins)),
    )


def node_class_resource(group: str, version: str, kind: str) -> Resource[Any]:
    """The resource of a node class that a NodePool names."""
    return Resource(group, version, f"{kind.lower()}es", kind, dict[str, Any])


def _placed(resource: Resource[Any], document: Document, pods: WholePods | None) -> ScenarioObject:
    whole = pods.of(document) if pods is not None and resource.kind == "Pod" else None
    return ScenarioObject(resource, _body(resource, document) if whole is None else None, document, whole)


def _body(resource: Resource[Any], document: Document) -> Body:
    try:
        body = sound(plain_value(document))
    except InvalidValue as error:
        raise error_in(document, error.message, error.field) from None
    meta = body.get("metadata")
    if not isinstance(meta, dict):
        raise error_in(document, "is required" if meta is None else "must be a mapping", "metadata")
    if not isinstance(meta.get("name"), str) or not meta["name"]:
        raise error_in(document, "is required", "metadata.name")
    meta = {key: value for key, value in meta.items() if key not in ("managedFields", "selfLink")}
    for field in ("labels", "annotations"):
        if not isinstance(meta.get(field, {}), dict):
            raise error_in(document, "must be a mapping", f"metadata.{field}")
        if field in meta:
            meta[field] = {key: value if isinstance(value, str) else _text(value) for key, value in meta[field].items()}
    for field in ("creationTimestamp", "deletionTimestamp"):
        if field in meta:
            meta[field] = _text(meta[field])
            _time_at(document, f"metadata.{field}", meta[field])
    namespace = meta.pop("namespace", None)
    if resource.namespaced:
        meta["namespace"] = namespace or "default"
    body = {**body, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
    for part in ("spec", "status"):
        if not isinstance(body.get(part, {}), dict):
            raise error_in(document, "must be a mapping", part)
    if resource.kind in _NEED_SPEC and not body.get("spec"):
        raise error_in(document, "is required", "spec")
    return body


_NEED_SPEC: Final = frozenset(
    {
        names.NODEPOOL_KIND,
        names.NODECLAIM_KIND,
        *("Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "PodDisruptionBudget"),
    }
)


def _text(value: object) -> str:
    return "" if value is None else str(value)


# -- the Scenario itself -----------------------------------------------------------------------------------------------


def _read_wire(document: Document) -> _ScenarioWire:
    if document.api_version != API_VERSION:
        raise error_in(document, f"{shown(document.api_version)} is not known; want {API_VERSION}", "apiVersion")
    value = plain_value(document)
    stray = sorted(set(value.get("spec") or ()) if isinstance(value.get("spec"), dict) else ())
    if stray:
        raise error_in(document, f"a {KIND} has no spec: {', '.join(stray)} stand beside kind", "spec")
    return decode(document, _ScenarioWire)


def _time_at(document: Document, field: str, text: str) -> datetime:
    try:
        return parse_time(text)
    except TimeError as error:
        raise error_in(document, str(error), field) from None


def _length(wire: _ScenarioWire, own: list[Document]) -> timedelta | None:
    if not wire.for_:
        return None
    span = _span_at(own[0], "for", wire.for_)
    if not timedelta() < span <= LONGEST:
        raise error_in(own[0], f"{shown(wire.for_)} is not between a second and {LONGEST.days}d", "for")
    return span


def _span_at(document: Document, field: str, text: str) -> timedelta:
    try:
        return read_span(text)
    except ValueError as error:
        raise error_in(document, str(error), field) from None


def _happenings(wire: _ScenarioWire, document: Document, existing: set[str]) -> tuple[ScenarioEvent, ...]:
    """Read the events in the order of time. `existing`: names of objects at the start; applied objects are added."""
    spans = [_span_at(document, f"events[{index}].at", event.at) for index, event in enumerate(wire.events)]
    in_time = sorted(range(len(spans)), key=spans.__getitem__)
    happenings = {index: _happening(index, wire.events[index], document, existing) for index in in_time}
    return tuple(happenings[index] for index in range(len(spans)))


def _happening(index: int, event: _EventWire, document: Document, existing: set[str]) -> ScenarioEvent:
    field = f"events[{index}]"
    given = [name for name in ("apply", "delete", "fault") if getattr(event, name) is not None]
    if len(given) != 1:
        raise error_in(document, f"wants one of apply, delete and fault, and has {len(given)}", field)
    after = _span_at(document, f"{field}.at", event.at)
    if event.fault is not None:
        if event.fault.count < 1:
            raise error_in(document, "must be at least 1", f"{field}.fault.count")
        texts = {"for": event.fault.for_, "notice": event.fault.notice}
        spans = {name: _span_at(document, f"{field}.fault.{name}", text) for name, text in texts.items() if text}
        return ScenarioEvent(after=after, field=field, fault=event.fault, spans=spans)
    if event.delete is not None:
        return ScenarioEvent(after=after, field=field, delete=_target(event.delete, document, f"{field}.delete"))
    bodies = event.apply if isinstance(event.apply, list) else [event.apply or {}]
    applied = tuple(_applied(body, document, f"{field}.apply", existing) for body in bodies)
    return ScenarioEvent(after=after, field=field, apply=applied)


# Controllers create objects of these kinds, so an object that is not in the files may exist by then.
_MADE: Final = frozenset({"Pod", "Node", names.NODECLAIM_KIND, "ReplicaSet", "PersistentVolumeClaim"})


def _applied(body: Body, document: Document, field: str, existing: set[str]) -> Body:
    """Check an applied object. A new one must be whole; a change need not be, and its nulls remove fields."""
    kind = KINDS.get((str(body.get("apiVersion")), str(body.get("kind"))))
    if kind is None:
        what = f"{body.get('apiVersion')} {body.get('kind')}"
        raise error_in(document, f"{shown(what)} is not simulated", f"{field}.kind")
    meta = body.get("metadata")
    if not isinstance(meta, dict) or not meta.get("name"):
        raise error_in(document, "is required", f"{field}.metadata.name")
    namespaces = [str(meta.get("namespace") or "default")] if kind.namespaced else []
    name = "/".join([kind.kind, *namespaces, str(meta["name"])])
    new = name not in existing and kind.kind not in _MADE
    try:
        body = sound(body, patch=not new)
        check_fields(kind.kind, body, whole=new)
    except InvalidValue as error:
        raise error_in(document, error.message, f"{field}.{error.field}") from None
    existing.add(name)
    return body


def _target(text: str, document: Document, field: str) -> tuple[Resource[Any], str | None, str]:
    parts = text.split("/")
    kind = next((kind for kind in KINDS.values() if kind.kind.lower() == parts[0].lower()), None)
    if kind is None or not 2 <= len(parts) <= (3 if kind.namespaced else 2) or not all(parts):
        want = "want Kind/name or Kind/namespace/name of a kind that is simulated, such as Deployment/shop/cart"
        raise error_in(document, f"{shown(text)} names no object: {want}", field)
    namespace = (parts[1] if len(parts) == 3 else "default") if kind.namespaced else None
    return kind, namespace, parts[-1]


# -- when it starts ----------------------------------------------------------------------------------------------------


def _first_hour(now: datetime, objects: Iterable[ScenarioObject]) -> datetime:
    hour = now.replace(minute=0, second=0, microsecond=0)
    return max([hour, *(at for placed in objects if (at := placed.created_at) is not None)])


def _early(objects: Iterable[ScenarioObject], start: datetime) -> Iterable[Finding]:
    """Warn of a start before pods or nodes were made."""
    created = [placed.created_at or start for placed in objects if placed.resource.kind in ("Pod", "Node")]
    early = sum(at > start for at in created)
    if early:
        yield assumption(
            "FromTheFuture",
            "",
            f"{early} pods and nodes were made after the start; they are there from the start all the same",
            f"start later: --at {format_time(max(created))}",
            severity=Severity.WARNING,
        )


# -- problems ----------------------------------------------------------------------------------------------------------


def assumption(
    rule: str, object_: str, message: str, remedy: str = "", *, field: str = "", severity: Severity = Severity.INFO
) -> Finding:
    """A finding that says what is assumed where the files say nothing. `object_`: a kind, or names of objects."""
    return Finding(severity=severity, rule=rule, object=Ref(object_), field=field, message=message, remedy=remedy)


def _twice(placed: ScenarioObject) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        rule="DuplicateObject",
        object=Ref(placed.resource.kind, placed.namespace or "", placed.body["metadata"]["name"]),
        field="metadata.name",
        message="the input holds this object more than once; the last one counts",
        remedy="remove all but one",
        file=placed.document.file,
    )


def _not_simulated(kind: str, count: int) -> Finding:
    many = f"{count} objects" if count > 1 else "1 object"
    return assumption("NotSimulated", kind, f"{many} of a kind that is not simulated", "nothing to do", field="kind")
