"""Validation of metadata: name, labels, annotations, owners and finalizers."""

from collections.abc import Iterator, Mapping
from typing import Any

from dovetail.sim.server.errors import bad_request
from dovetail.values.label_syntax import is_label_name, is_label_value, is_subdomain

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character"
)
_MAX_ANNOTATIONS_BYTES = 256 * 1024
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


def metadata_faults(meta: Mapping[str, Any], old: Mapping[str, Any] | None, *, custom: bool) -> Iterator[str]:
    """Faults, each with its field; `old` is the metadata before an update."""
    name = meta.get("name")
    if not name:
        yield "metadata.name: Required value: name or generateName is required"
    elif old is None and not is_subdomain(name):
        yield f'metadata.name: Invalid value: "{name}": {_SUBDOMAIN_RULE}'
    if old is not None:
        yield from _metadata_changes(meta, old)
    if old is None or meta.get("labels") is not old.get("labels"):
        yield from _label_faults(meta.get("labels") or {})
    if old is None or meta.get("annotations") is not old.get("annotations"):
        yield from _annotation_faults(meta.get("annotations") or {})
    yield from _owner_faults(meta.get("ownerReferences") or ())
    for index, finalizer in enumerate(meta.get("finalizers") or ()):
        if fault := qualified_fault(finalizer):
            yield f'metadata.finalizers: Invalid value: "{finalizer}": {fault}'
        elif "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS and not custom:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield f'metadata.finalizers[{index}]: Invalid value: "{finalizer}": {why}'


def _metadata_changes(meta: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    if old.get("deletionTimestamp") is not None:
        new = sorted(set(meta.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if new:
            listed = ", ".join(f'"{finalizer}"' for finalizer in new)
            yield (
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found "
                f"new finalizers []string{{{listed}}}"
            )
    for field in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if meta.get(field) != old.get(field):
            yield f'metadata.{field}: Invalid value: "{meta.get(field)}": field is immutable'


def _label_faults(labels: Mapping[str, Any]) -> Iterator[str]:
    for key, value in labels.items():
        if fault := qualified_fault(key):
            yield f'metadata.labels: Invalid value: "{key}": {fault}'
        _check_text(value, key, "labels")
        if not is_label_value(value):
            yield (
                f'metadata.labels: Invalid value: "{value}": a valid label must be an empty string or consist of '
                "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
            )


def _annotation_faults(annotations: Mapping[str, Any]) -> Iterator[str]:
    size = 0
    for key, value in annotations.items():
        if fault := qualified_fault(key.lower()):
            yield f'metadata.annotations: Invalid value: "{key}": {fault}'
        _check_text(value, key, "annotations")
        size += len(key) + len(value)
    if size > _MAX_ANNOTATIONS_BYTES:
        yield f"metadata.annotations: Too long: may not be more than {_MAX_ANNOTATIONS_BYTES} bytes"


def _check_text(value: Any, key: str, field: str) -> None:
    if not isinstance(value, str):
        what = f"Go struct field ObjectMeta.metadata.{field} of type string: {key}"
        raise bad_request(f"json: cannot unmarshal into {what}")


def _owner_faults(references: Any) -> Iterator[str]:
    controllers = []
    for reference in references:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not reference.get(field):
                yield f'metadata.ownerReferences.{field}: Invalid value: "": must not be empty'
        if reference.get("controller"):
            controllers.append(f"{reference.get('kind')}/{reference.get('name')}")
    if len(controllers) > 1:
        yield (
            'metadata.ownerReferences: Invalid value: Only one reference can have Controller set to true. Found "true" '
            f"in references for {controllers[0]} and {controllers[1]}"
        )


def qualified_fault(key: str) -> str:
    """The fault of a name such as `example.com/part`; empty if it is valid."""
    prefix, slash, name = key.rpartition("/")
    if slash and not is_subdomain(prefix):
        return f"prefix part {_SUBDOMAIN_RULE}"
    if not is_label_name(name):
        return (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character"
        )
    return ""
