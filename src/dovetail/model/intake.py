"""From documents to a snapshot: reads what the rules need, counts what they do not, and loses nothing silently."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from dovetail.api import names, objects
from dovetail.api.documents import Document, InputError, decode
from dovetail.api.schema import crd_schema, violations
from dovetail.model.problem import Problem, Severity
from dovetail.model.records import Record, Recorder, claim_record, node_record, pdb_record, pool_record
from dovetail.model.snapshot import Snapshot, take_snapshot

_GROUPS = {
    "Pod": "",
    "Node": "",
    "PodDisruptionBudget": "policy",
    names.NODEPOOL_KIND: names.GROUP,
    names.NODECLAIM_KIND: names.GROUP,
}
_NAMESPACED = frozenset({"Pod", "PodDisruptionBudget"})
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
_VERSIONS = {"": "v1", "policy": "policy/v1", names.GROUP: names.API_VERSION}


def take_in(documents: Iterable[Document]) -> tuple[Snapshot, list[Problem]]:
    """The cluster that the documents describe, and what was odd about them. Raises InputError on the unreadable."""
    recorder = Recorder()
    readers: dict[str, tuple[type[Any], Callable[[Any], Record]]] = {
        "Pod": (objects.Pod, recorder.pod),
        "Node": (objects.Node, node_record),
        "PodDisruptionBudget": (objects.PodDisruptionBudget, pdb_record),
        names.NODEPOOL_KIND: (objects.NodePool, pool_record),
        names.NODECLAIM_KIND: (objects.NodeClaim, claim_record),
    }
    found: dict[str, dict[tuple[str, str], Record]] = {kind: {} for kind in readers}
    ignored: Counter[str] = Counter()
    problems: list[Problem] = []
    for document in documents:
        kind, group = document.kind, document.api_version.rpartition("/")[0]
        if _GROUPS.get(kind) != group:
            ignored[f"{document.api_version} {kind}"] += 1
            continue
        type_, record_of = readers[kind]
        wire = decode(document, type_)
        if not wire.metadata.name:
            raise InputError(
                document.file, "is required", document=document.number, line=document.line, field=_field(document)
            )
        key = (wire.metadata.namespace or "default" if kind in _NAMESPACED else "", wire.metadata.name)
        if document.api_version != _VERSIONS[group]:
            problems.append(_old_version(_name(kind, key), document, _VERSIONS[group]))
        if document.coerced:
            problems += [_no_string(_name(kind, key), field, document.file) for field, _ in document.coerced]
        if key in found[kind]:
            problems.append(_duplicate(_name(kind, key), document.file))
        if kind in _CHECKED:
            problems += _bad_fields(_name(kind, key), document)
        found[kind][key] = record_of(wire)
    problems += [_ignored(kind, count) for kind, count in sorted(ignored.items())]
    records: dict[str, Any] = {kind: by_key.values() for kind, by_key in found.items()}
    return (
        take_snapshot(
            pods=records["Pod"],
            nodes=records["Node"],
            claims=records[names.NODECLAIM_KIND],
            pools=records[names.NODEPOOL_KIND],
            pdbs=records["PodDisruptionBudget"],
        ),
        problems,
    )


def _name(kind: str, key: tuple[str, str]) -> str:
    return "/".join(filter(None, (kind, *key)))


def _field(document: Document) -> str:
    return f"{document.path}.metadata.name" if document.path else "metadata.name"


def _bad_fields(name: str, document: Document) -> Iterable[Problem]:
    """What the rules read but the API would refuse. Fields that our CRDs do not know are not our matter here."""
    schema = crd_schema(document.kind)
    value = document.value if document.raw is None else msgspec.json.decode(document.raw)
    if schema is None or not isinstance(value, dict):
        return
    for violation in violations({"spec": value.get("spec") or {}}, schema):
        if not violation.unknown and violation.field.startswith(_CHECKED[document.kind]):
            yield Problem(
                severity=Severity.ERROR,
                rule="InvalidField",
                object=name,
                field=violation.field,
                message=f"{violation.message}; the API refuses it, and here it counts as not set or not to be read",
                remedy="correct it; `dovetail lint` says how",
                file=document.file,
            )


def _old_version(name: str, document: Document, version: str) -> Problem:
    return Problem(
        severity=Severity.WARNING,
        rule="OldApiVersion",
        object=name,
        field="apiVersion",
        message=f"{document.api_version} is read as if it were {version}",
        remedy=f"write {version}",
        file=document.file,
    )


def _no_string(name: str, field: str, file: str) -> Problem:
    return Problem(
        severity=Severity.ERROR,
        rule="NotAString",
        object=name,
        field=field,
        message="the value is not a string, which the API refuses; its text is used here",
        remedy="put the value in quotes",
        file=file,
    )


def _duplicate(name: str, file: str) -> Problem:
    return Problem(
        severity=Severity.WARNING,
        rule="DuplicateObject",
        object=name,
        field="metadata.name",
        message="the input holds this object more than once; the last one counts",
        remedy="remove all but one",
        file=file,
    )


def _ignored(kind: str, count: int) -> Problem:
    return Problem(
        severity=Severity.INFO,
        rule="NotRead",
        object=kind,
        field="kind",
        message=f"{count} {'object' if count == 1 else 'objects'} of a kind that no rule reads",
        remedy="nothing to do",
    )
