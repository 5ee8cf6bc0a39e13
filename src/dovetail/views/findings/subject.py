"""The object that a finding is about: its name, its file and its position in the input."""

from typing import NamedTuple

import msgspec

from dovetail.api import names, objects
from dovetail.api.documents import Document, InputError, decode
from dovetail.api.yaml_events import shorten
from dovetail.model.finding import Finding, Severity
from dovetail.model.refs import Ref

CLUSTER_SCOPED = frozenset(
    {
        *(names.NODEPOOL_KIND, names.NODECLAIM_KIND, names.KWOK_NODECLASS_KIND, "Node", "Namespace"),
        *("PersistentVolume", "Provisioner", "Machine", "AWSNodeTemplate", "EC2NodeClass"),
    }
)
NO_NAME = "?"


class Subject(NamedTuple):
    """An object of the input; `place` is its position among all documents."""

    place: int
    file: str
    kind: str
    namespace: str
    name: str
    generated: bool = False  # the API server appends to the name
    line: int | None = None  # where the object begins; YAML only

    @property
    def object(self) -> Ref:
        return Ref(self.kind, self.namespace, self.name)

    def error(self, rule: str, field: str, message: str, remedy: str) -> Finding:
        return self.finding(Severity.ERROR, rule, field, message, remedy)

    def warning(self, rule: str, field: str, message: str, remedy: str) -> Finding:
        return self.finding(Severity.WARNING, rule, field, message, remedy)

    def info(self, rule: str, field: str, message: str, remedy: str) -> Finding:
        return self.finding(Severity.INFO, rule, field, message, remedy)

    def finding(self, severity: Severity, rule: str, field: str, message: str, remedy: str) -> Finding:
        return Finding(
            severity=severity,
            rule=rule,
            object=self.object,
            field=field,
            message=message,
            remedy=remedy,
            file=self.file,
            line=msgspec.UNSET if self.line is None else self.line,
        )


class _Meta(objects.Wire, frozen=True):
    name: object = None
    generate_name: object = None
    namespace: object = None


class _NamedObject(objects.Wire, frozen=True):
    metadata: _Meta | None = None


def subject_of(place: int, document: Document) -> Subject:
    """The object in the document; one without a readable name is called `?`."""
    try:
        meta = decode(document, _NamedObject).metadata or _Meta()
    except InputError:
        meta = _Meta()
    kind = shorten(document.kind, 63)
    name, prefix = _text(meta.name), _text(meta.generate_name)
    namespace = "" if kind in CLUSTER_SCOPED else _text(meta.namespace) or "default"
    shown_name = name or (f"{prefix}*" if prefix else NO_NAME)
    generated = bool(prefix and not name)
    return Subject(place, document.file, kind, namespace, shown_name, generated=generated, line=document.line)


def has_odd_name(document: Document) -> bool:
    """Whether the name is something else than text, such as an unquoted number."""
    try:
        meta = decode(document, _NamedObject).metadata or _Meta()
    except InputError:
        return False
    return meta.name is not None and not isinstance(meta.name, str)


def _text(value: object) -> str:
    return shorten(value, 253) if isinstance(value, str) else ""
