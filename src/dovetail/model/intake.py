"""From documents to a snapshot: reads what the rules need, counts what they do not, and loses nothing silently."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from dovetail.api import names, objects
from dovetail.api.documents import Document, InputError, decode, plain_value
from dovetail.api.schema import SchemaViolation, crd_schema, violations
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
    """How the objects of one kind are read, and those that were."""

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


def take_in(documents: Iterable[Document]) -> tuple[Snapshot, list[Finding]]:
    """The cluster that the documents describe, and what was odd about them. Raises InputError on the unreadable."""
    shelves = _shelves()
    ignored: Counter[str] = Counter()
    problems: list[Finding] = []
    for document in documents:
        kind, version = document.kind, document.api_version
        shelf = shelves.get(kind)
        if shelf is None or (version != shelf.api_version and _group(version) != _group(shelf.api_version)):
            ignored[f"{version} {kind}"] += 1
            continue
        wire = decode(document, shelf.type_)
        meta = wire.metadata
        if not meta.name:
            raise InputError(
                document.file, "is required", document=document.number, line=document.line, field=_field(document)
            )
        key = (meta.namespace or "default" if shelf.namespaced else "", meta.name)
        if version != shelf.api_version:
            problems.append(_old_version(_name(kind, key), document, shelf.api_version))
        if document.coerced:
            problems += [_no_string(_name(kind, key), field, document.file) for field, _ in document.coerced]
        if key in shelf.records:
            problems.append(_duplicate(_name(kind, key), document.file))
        if kind in _CHECKED:
            problems += _bad_fields(_name(kind, key), document, wire)
        shelf.records[key] = shelf.record_of(wire)
    problems += [_ignored(kind, count) for kind, count in sorted(ignored.items())]
    found = {kind: shelf.records.values() for kind, shelf in shelves.items()}
    return (
        take_snapshot(
            pods=found["Pod"],
            nodes=found["Node"],
            claims=found[names.NODECLAIM_KIND],
            pools=found[names.NODEPOOL_KIND],
            pdbs=found["PodDisruptionBudget"],
        ),
        problems,
    )


def _name(kind: str, key: tuple[str, str]) -> Ref:
    return Ref(kind, *key)


def _field(document: Document) -> str:
    return f"{document.path}.metadata.name" if document.path else "metadata.name"


def _bad_fields(name: Ref, document: Document, wire: objects.NodePool | objects.NodeClaim) -> Iterable[Finding]:
    """What the rules read but the API would refuse. Fields that our CRDs do not know are not our matter here."""
    if isinstance(wire, objects.NodeClaim):  # there are thousands, with few texts among them
        found = _bad_texts(wire.spec.expire_after, wire.spec.termination_grace_period)
    else:
        found = _violations(document.kind, plain_value(document).get("spec") or {})
    for violation in found:
        yield Finding(
            severity=Severity.ERROR,
            rule="InvalidField",
            object=name,
            field=violation.field,
            message=f"{violation.message}; the API refuses it, and here it counts as not set or not to be read",
            remedy="correct it; `dovetail lint` says how",
            file=document.file,
        )


@lru_cache(maxsize=1024)
def _bad_texts(expire_after: str, grace_period: str | None) -> tuple[SchemaViolation, ...]:
    spec = {"expireAfter": expire_after, "terminationGracePeriod": grace_period}
    return _violations(names.NODECLAIM_KIND, spec)


def _violations(kind: str, spec: object) -> tuple[SchemaViolation, ...]:
    found = violations({"spec": spec}, crd_schema(kind) or {})
    return tuple(one for one in found if not one.unknown and one.field.startswith(_CHECKED[kind]))


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]


def _old_version(name: Ref, document: Document, version: str) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        rule="OldApiVersion",
        object=name,
        field="apiVersion",
        message=f"{document.api_version} is read as if it were {version}",
        remedy=f"write {version}",
        file=document.file,
    )


def _no_string(name: Ref, field: str, file: str) -> Finding:
    return Finding(
        severity=Severity.ERROR,
        rule="NotAString",
        object=name,
        field=field,
        message="the value is not a string, which the API refuses; its text is used here",
        remedy="put the value in quotes",
        file=file,
    )


def _duplicate(name: Ref, file: str) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        rule="DuplicateObject",
        object=name,
        field="metadata.name",
        message="the input holds this object more than once; the last one counts",
        remedy="remove all but one",
        file=file,
    )


def _ignored(kind: str, count: int) -> Finding:
    return Finding(
        severity=Severity.INFO,
        rule="NotRead",
        object=Ref(kind),
        field="kind",
        message=f"{count} {'object' if count == 1 else 'objects'} of a kind that no rule reads",
        remedy="nothing to do",
    )
