"""Which object is a finding about: its name, its file and its place in the input."""

from typing import NamedTuple

import msgspec

from dovetail.api import names, objects
from dovetail.api.documents import Document, InputError, decode
from dovetail.api.yaml_events import shorten
from dovetail.model.finding import Finding, Severity
from dovetail.model.refs import Ref

CLUSTER_SCOPED = frozenset(
    {names.NODEPOOL_KIND, names.NODECLAIM_KIND, names.KWOK_NODECLASS_KIND, "Node", "Namespace", "PersistentVolume"}
)
NO_NAME = "?"


class Subject(NamedTuple):
    """An object of the input; `place` is where it stands among all documents."""

    place: int
    file: str
    kind: str
    namespace: str
    name: str
    generated: bool = False  # the API server adds to the name

    @property
    def object(self) -> Ref:
        return Ref(self.kind, self.namespace, self.name)

    def error(self, rule: str, field: str, message: str, remedy: str) -> Finding:
        return self._problem(Severity.ERROR, rule, field, message, remedy)

    def warning(self, rule: str, field: str, message: str, remedy: str) -> Finding:
        return self._problem(Severity.WARNING, rule, field, message, remedy)

    def info(self, rule: str, field: str, message: str, remedy: str) -> Finding:
        return self._problem(Severity.INFO, rule, field, message, remedy)

    def _problem(self, severity: Severity, rule: str, field: str, message: str, remedy: str) -> Finding:
        return Finding(
            severity=severity,
            rule=rule,
            object=self.object,
            field=field,
            message=message,
            remedy=remedy,
            file=self.file,
        )


class _Meta(objects.Wire, frozen=True):
    name: object = None
    generate_name: object = None
    namespace: object = None


class _NamedObject(objects.Wire, frozen=True):
    metadata: _Meta | None = None


def subject_of(place: int, document: Document) -> Subject:
    """Who the document is, as far as can be read: a nameless one is called `?`."""
    try:
        meta = decode(document, _NamedObject).metadata or _Meta()
    except InputError:
        meta = _Meta()
    kind = shorten(document.kind, 63)
    name, prefix = _text(meta.name), _text(meta.generate_name)
    namespace = "" if kind in CLUSTER_SCOPED else _text(meta.namespace) or "default"
    shown_name = name or (f"{prefix}*" if prefix else NO_NAME)
    return Subject(place, document.file, kind, namespace, shown_name, generated=bool(prefix and not name))


def _text(value: object) -> str:
    return shorten(value, 253) if isinstance(value, str) else ""


def replaced(problem: Finding, subject: Subject, *, remedy: str = "") -> Finding:
    """A problem found by a rule, as a finding about this object."""
    return msgspec.structs.replace(problem, object=subject.object, file=subject.file, remedy=remedy or problem.remedy)
