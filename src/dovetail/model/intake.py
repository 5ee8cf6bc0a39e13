"""Makes a snapshot from documents. Reports the objects that no rule reads, and everything odd."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from dovetail.api import names, objects
from dovetail.api.documents import Document, InputError, decode, plain_value
from dovetail.api.misnamed import may_be_misnamed, misnamed_annotations
from dovetail.api.schema import SchemaViolation, crd_schema, violations
from dovetail.api.yaml_events import shorten
from dovetail.model.finding import Finding, Severity
from dovetail.model.records import PodInterner, Record, claim_record, node_record, pdb_record, pool_record
from dovetail.model.refs import Ref
from dovetail.model.snapshot import Snapshot, take_snapshot

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
    """How the objects of one kind are read, and their records."""

    api_version: str
    type_: type[Any]
    record_of: Callable[[Any], Record]
    records: dict[tuple[str, str], Any]
    namespaced: bool = False


def _shelves() -> dict[str, _KindIntake]:
    return {
        "Pod": _KindIntake("v1", objects.Pod, PodInterner().pod, {}, namespaced=True),
        "Node": _KindIntake("v1", objects.Node, node_record, {}),
        "PodDisruptionBudget": _KindIntake("policy/v1", objects.PodDisruptionBudget, pdb_record, {}, namespaced=True),
        names.NODEPOOL_KIND: _KindIntake(names.API_VERSION, objects.NodePool, pool_record, {}),
        names.NODECLAIM_KIND: _KindIntake(names.API_VERSION, objects.NodeClaim, claim_record, {}),
    }


class Intake(NamedTuple):
    """The cluster that documents describe, what is odd about them, and those that cannot be read and do not count."""

    snapshot: Snapshot
    problems: list[Finding]
    unreadable: list[Document]


# What to write instead of a field that the API refuses: of the kind, the object and the violation.
FieldRemedy = Callable[[str, Mapping[str, Any], SchemaViolation], str]


def take_in(
    documents: Iterable[Document], field_remedy: FieldRemedy = lambda _kind, _value, _violation: "correct it"
) -> Intake:
    """Read the documents. One that cannot be read is a problem of its own; the others count."""
    shelves = _shelves()
    ignored: Counter[str] = Counter()
    problems: list[Finding] = []
    unreadable: list[Document] = []
    for document in documents:
        kind, version = document.kind, document.api_version
        shelf = shelves.get(kind)
        if shelf is None or (version != shelf.api_version and _group(version) != _group(shelf.api_version)):
            ignored[f"{version} {kind}"] += 1
            continue
        try:
            wire = decode(document, shelf.type_)
            if not wire.metadata.name:
                raise document.error("is required", "metadata.name")
        except InputError as error:
            problems.append(_unreadable(document, error))
            unreadable.append(document)
            continue
        meta = wire.metadata
        key = (meta.namespace or "default" if shelf.namespaced else "", meta.name)
        problems += _oddities(document, shelf, key)
        if kind == "Pod" and may_be_misnamed(meta.annotations, meta.labels):
            problems += _misnamed(Ref(kind, *key), document, meta)
        if kind in _CHECKED:
            problems += _bad_fields(Ref(kind, *key), document, wire, field_remedy)
        shelf.records[key] = shelf.record_of(wire)
    for kind, count in sorted(ignored.items()):
        message = f"{count} {'object' if count == 1 else 'objects'} of a kind that no rule reads"
        problems.append(_problem(Severity.INFO, "NotRead", Ref(kind), "kind", message=message, remedy="nothing to do"))
    records = {kind: shelf.records.values() for kind, shelf in shelves.items()}
    snapshot = take_snapshot(
        pods=records["Pod"],
        nodes=records["Node"],
        claims=records[names.NODECLAIM_KIND],
        pools=records[names.NODEPOOL_KIND],
        pdbs=records["PodDisruptionBudget"],
    )
    return Intake(snapshot, problems, unreadable)


def _oddities(document: Document, shelf: _KindIntake, key: tuple[str, str]) -> Iterable[Finding]:
    object_, version, file = Ref(document.kind, *key), shelf.api_version, document.file
    if document.api_version != version:
        message, remedy = f"{document.api_version} is read as if it were {version}", f"write {version}"
        yield _problem(
            Severity.WARNING, "OldApiVersion", object_, "apiVersion", message=message, remedy=remedy, file=file
        )
    for field, _ in document.coerced:
        message = "the value is not a string, which the API refuses; its text is used here"
        remedy = "put the value in quotes"
        yield _problem(Severity.ERROR, "NotAString", object_, field, message=message, remedy=remedy, file=file)
    if key in shelf.records:
        message, remedy = "the input holds this object more than once; the last one counts", "remove all but one"
        yield _problem(
            Severity.WARNING, "DuplicateObject", object_, "metadata.name", message=message, remedy=remedy, file=file
        )


def _misnamed(object_: Ref, document: Document, meta: objects.ObjectMeta) -> Iterable[Finding]:
    """Annotations that look like ours but that nothing reads. `lint` finds them in templates too."""
    for found in misnamed_annotations(meta.annotations, meta.labels):
        yield _problem(
            Severity.WARNING,
            found.rule,
            object_,
            f"metadata.{found.holder}[{shorten(found.key, 320)}]",
            message=found.message,
            remedy=found.remedy,
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


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]


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
