"""Feeds the state with documents. Reports the objects that no rule reads, and everything odd."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from dovetail.api import names, objects
from dovetail.api.conversion import REMOVED_KINDS
from dovetail.api.documents import Document, InputError, decode, group_of, plain_value
from dovetail.api.misnamed import MisnamedKey, may_be_misnamed, misnamed_keys
from dovetail.api.schema import SchemaViolation, crd_schema, violations
from dovetail.api.yaml_events import shorten
from dovetail.model.finding import Finding, Severity
from dovetail.model.pod_records import PodRecord
from dovetail.model.refs import Ref
from dovetail.model.rule_settings import DEFAULT_SETTINGS, RuleSettings
from dovetail.model.snapshot import Snapshot
from dovetail.state.cluster import ClusterState
from dovetail.state.store import Added, Key, StoredValue

# The fields that rules read, by kind.
_CHECKED = {
    names.NODEPOOL_KIND: (
        "spec.disruption",
        "spec.replicas",
        "spec.template.spec.expireAfter",
        "spec.template.spec.terminationGracePeriod",
    ),
    names.NODECLAIM_KIND: ("spec.expireAfter", "spec.terminationGracePeriod"),
}


class _KindIntake(NamedTuple):
    """How the objects of one kind are read."""

    api_version: str
    plural: str
    namespaced: bool = False


_PDB = "PodDisruptionBudget"
_READ = {
    "Pod": _KindIntake("v1", "pods", namespaced=True),
    "Node": _KindIntake("v1", "nodes"),
    _PDB: _KindIntake("policy/v1", "poddisruptionbudgets", namespaced=True),
    names.NODEPOOL_KIND: _KindIntake(names.API_VERSION, names.NODEPOOL_PLURAL),
    names.NODECLAIM_KIND: _KindIntake(names.API_VERSION, names.NODECLAIM_PLURAL),
}


class Intake(NamedTuple):
    """The cluster that documents describe, what is odd about them, and those that cannot be read and do not count."""

    snapshot: Snapshot
    problems: list[Finding]
    unreadable: list[Document]


# What to write instead of a field that the API refuses: of the kind, the object and the violation.
FieldRemedy = Callable[[str, Mapping[str, Any], SchemaViolation], str]
ReadPod = Callable[[Document], tuple[objects.Pod, PodRecord] | None]


def take_in(
    documents: Iterable[Document],
    field_remedy: FieldRemedy = lambda _kind, _value, _violation: "correct it",
    settings: RuleSettings = DEFAULT_SETTINGS,
    read_pod: ReadPod = lambda _document: None,
) -> Intake:
    """Read the documents. One that cannot be read is a problem of its own; the others count.

    `read_pod`: makes the records of pods of which more than the rules will read; None: the pod is read here.
    """
    state = ClusterState(settings=settings)
    ignored: Counter[str] = Counter()
    problems: list[Finding] = []
    unreadable: list[Document] = []
    pods: dict[Key, StoredValue[PodRecord]] = {}  # stored together, which takes less time
    for document in documents:
        kind, version = document.kind, document.api_version
        read = _READ.get(kind)
        if read is None or (version != read.api_version and group_of(version) != group_of(read.api_version)):
            if (group_of(version), kind) in REMOVED_KINDS:
                problems.append(_removed(document))
            else:
                ignored[f"{version} {kind}"] += 1
            continue
        made = read_pod(document) if kind == "Pod" else None
        try:
            wire: Any = decode(document, state.reading(read.plural).struct) if made is None else made[0]
            if not wire.metadata.name:
                raise document.error("is required", "metadata.name")
        except InputError as error:
            problems.append(_unreadable(document, error))
            unreadable.append(document)
            continue
        meta = wire.metadata
        key = (meta.namespace or "default" if read.namespaced else "", meta.name)
        if kind == "Pod":
            record = state.reading(read.plural).keep(wire) if made is None else made[1]
            repeated = key in pods
            pods[key] = StoredValue(meta.uid, meta.resource_version, record)
        else:
            repeated = state.load(read.plural, wire, key)
        problems += _oddities(document, read.api_version, Ref(kind, *key), repeated=repeated)
        if kind != _PDB and may_be_misnamed(kind, meta.annotations, meta.labels):
            problems += _misnamed(Ref(kind, *key), document, misnamed_keys(kind, meta.annotations, meta.labels))
        if isinstance(wire, objects.NodePool) and (given := wire.spec.template.metadata.annotations):
            found = misnamed_keys("Node", given, {})
            problems += _misnamed(Ref(kind, *key), document, found, "spec.template.metadata")
        if kind in _CHECKED:
            problems += _bad_fields(Ref(kind, *key), document, wire, field_remedy)
    state.pods.apply(*(Added(key, kept) for key, kept in pods.items()))
    for kind, count in sorted(ignored.items()):
        message = f"{count} {'object' if count == 1 else 'objects'} of a kind that no rule reads"
        problems.append(_problem(Severity.INFO, "NotRead", Ref(kind), "kind", message=message, remedy="nothing to do"))
    return Intake(state.snapshot(), problems, unreadable)


def _oddities(document: Document, version: str, object_: Ref, *, repeated: bool) -> Iterable[Finding]:
    file = document.file
    if document.converted_from or document.api_version != version:
        message, remedy = f"{document.api_version} is read as if it were {version}", f"write {version}"
        if document.converted_from:
            message = f"{document.converted_from} is read as the {version} that it is converted to"
            remedy = f"nothing in a dump; in a manifest, write {version}: `dovetail lint` says how"
        if document.converted_from and document.kind == names.NODEPOOL_KIND:
            message += "; Karpenter before 1.0 lets expired nodes wait for budgets and protected pods, v1 does not"
        yield _problem(
            Severity.WARNING, "OldApiVersion", object_, "apiVersion", message=message, remedy=remedy, file=file
        )
    for field, _ in document.coerced:
        message = "the value is not a string, which the API refuses; its text is used here"
        remedy = "put the value in quotes"
        yield _problem(Severity.ERROR, "NotAString", object_, field, message=message, remedy=remedy, file=file)
    if repeated:
        message, remedy = "the input holds this object more than once; the last one counts", "remove all but one"
        yield _problem(
            Severity.WARNING, "DuplicateObject", object_, "metadata.name", message=message, remedy=remedy, file=file
        )


def _removed(document: Document) -> Finding:
    successor = REMOVED_KINDS[document.group, document.kind]
    return _problem(
        Severity.ERROR,
        "RemovedKind",
        _ref(document),
        "kind",
        message=f"{shorten(document.api_version, 100)} {document.kind} was removed and is not read: what it says of "
        "its nodes or pods is unknown here",
        remedy=f"write a {successor}, and make a new dump",
        file=document.file,
    )


def _misnamed(
    object_: Ref, document: Document, found: Iterable[MisnamedKey], path: str = "metadata"
) -> Iterable[Finding]:
    """Keys that nothing reads. `lint` finds them in templates of pods too."""
    for misnamed in found:
        yield _problem(
            Severity.WARNING if misnamed.evident else Severity.INFO,
            misnamed.rule,
            object_,
            f"{path}.{misnamed.holder}[{shorten(misnamed.key, 320)}]",
            message=misnamed.message,
            remedy=misnamed.remedy,
            file=document.file,
        )


def _bad_fields(
    name: Ref, document: Document, wire: objects.NodePool | objects.NodeClaim, field_remedy: FieldRemedy
) -> Iterable[Finding]:
    """Fields that the rules read and the API refuses, without fields that our CRDs do not know."""
    if isinstance(wire, objects.NodeClaim):  # there may be thousands, with few different texts
        bad = _bad_texts(wire.spec.expire_after, wire.spec.termination_grace_period)
    else:
        bad = _violations(document.kind, plain_value(document).get("spec") or {})
    for violation in bad:
        message = f"{violation.message}; the API refuses it, and here it counts as not set or not to be read"
        remedy = field_remedy(document.kind, plain_value(document), violation)
        yield _problem(
            Severity.ERROR, "InvalidField", name, violation.field, message=message, remedy=remedy, file=document.file
        )


@lru_cache(maxsize=1024)
def _bad_texts(expire_after: str, grace_period: str | None) -> tuple[SchemaViolation, ...]:
    spec = {"expireAfter": expire_after, "terminationGracePeriod": grace_period}
    return _violations(names.NODECLAIM_KIND, spec)


def _violations(kind: str, spec: object) -> tuple[SchemaViolation, ...]:
    all_violations = violations({"spec": spec}, crd_schema(kind) or {})
    return tuple(one for one in all_violations if not one.unknown and one.field.startswith(_CHECKED[kind]))


def _unreadable(document: Document, error: InputError) -> Finding:
    field = document.field_of(error)
    return Finding(
        severity=Severity.ERROR,
        rule="InvalidObject",
        object=_ref(document),
        field=field,
        message=f"{shorten(error.message, 300)}; the object is left out",
        remedy=f"correct {field}; `dovetail lint` says how" if field else "correct the object",
        file=document.where,
    )


def _ref(document: Document) -> Ref:
    """The name of an object that cannot be read, as far as it has one."""
    try:
        meta = plain_value(document).get("metadata")
    except InputError:
        meta = None
    name, namespace = (meta.get(key) if isinstance(meta, dict) else None for key in ("name", "namespace"))
    return Ref(document.kind, shorten(str(namespace or ""), 300), shorten(str(name or "?"), 300))


def _problem(
    severity: Severity, rule: str, object_: Ref, field: str, *, message: str, remedy: str, file: str = ""
) -> Finding:
    return Finding(severity=severity, rule=rule, object=object_, field=field, message=message, remedy=remedy, file=file)
