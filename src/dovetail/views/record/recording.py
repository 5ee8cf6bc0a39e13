"""Selects the fields of an object that a dump contains: only those that are read, so no environment, commands, images
or secrets.

It is an allow-list, made from the structs that objects are decoded with. Values are kept as they are written, so that a
dump gives the same answers as its cluster.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, Final, cast

import msgspec
from msgspec import inspect

from dovetail.api import objects, pod_specs
from dovetail.api.documents import Document, InputError, decode, plain_value
from dovetail.api.recorded import (
    ALSO,
    ANNOTATION_DOMAINS,
    ANNOTATIONS,
    INSTEAD,
    LEFT_OUT,
    RECORDED,
)

Keep = Callable[[Any], Any]

IMAGE: Final = "left-out"  # containers must have one, or no API takes them


def recorded(document: Document) -> dict[str, Any] | None:
    """The object as a dump contains it; None if dumps do not contain its kind. Raises InputError.

    It is first decoded as `explain` does, so that every field has the expected type.
    """
    type_ = RECORDED.get((document.group, document.kind))
    if type_ is None:
        return None
    if not decode(document, type_).metadata.name:
        field = f"{document.path}.metadata.name" if document.path else "metadata.name"
        raise InputError(document.file, "is required", document=document.number, line=document.line, field=field)
    fields = _keeper_of(cast(Hashable, type_))(plain_value(document))
    return {"apiVersion": document.api_version, "kind": document.kind, **fields}


@lru_cache(maxsize=256)
def _keeper_of(struct: type[Any]) -> Keep:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType), f"{struct} is no struct"
    fields: dict[str, Keep] = {}
    for field in info.fields:
        place = (struct, field.encode_name)
        if place not in LEFT_OUT:
            fields[field.encode_name] = _instead(INSTEAD[place]) if place in INSTEAD else _keeper(field.type)
    for extra in (ALSO[base] for base in struct.__mro__ if base in ALSO):
        fields |= {name: _checked(extra, name) for name in extra.__struct_encode_fields__}
    finish = next((_FINISH[base] for base in struct.__mro__ if base in _FINISH), _same)

    def keep(value: Any) -> Any:
        if not isinstance(value, dict):
            return {}  # in an open mapping, which was not checked
        return finish(
            {
                name: kept
                for name, keep in fields.items()
                if (part := value.get(name)) is not None and (kept := keep(part)) is not None
            }
        )

    return keep


def _keeper(info: inspect.Type) -> Keep:
    match info:
        case inspect.StructType(cls=struct):
            return _keeper_of(struct)
        case inspect.UnionType(types=types):
            return next((keep for type_ in types if (keep := _keeper(type_)) is not _same), _same)
        case inspect.CollectionType(item_type=item):
            return _each(_keeper(item))
        case inspect.DictType(value_type=inspect.AnyType() | inspect.CustomType()):
            return _presence
        case _:
            return _same


def _checked(struct: type[Any], name: str) -> Keep:
    """Keeps a field of a struct that the object was not decoded with, if it has the right type."""
    keep = _keeper_of(cast(Hashable, struct))

    def checked(value: Any) -> Any:
        try:
            msgspec.convert({name: value}, struct)
        except msgspec.ValidationError:
            return None
        return keep({name: value})[name]

    return checked


def _instead(struct: type[Any]) -> Keep:
    """Keeps only this part of an open mapping; an empty mapping if it has the wrong type."""
    keep = _keeper_of(cast(Hashable, struct))

    def kept(value: Any) -> Any:
        try:
            msgspec.convert(value, struct)
        except msgspec.ValidationError:
            return {}
        return keep(value)

    return kept


def _each(keep: Keep) -> Keep:
    return _same if keep is _same else lambda values: [keep(value) for value in values]


def _same(value: Any) -> Any:
    return value


def _presence(_value: Any) -> dict[str, Any]:
    """Keeps only the fact that the field is set."""
    return {}


def _metadata(meta: dict[str, Any]) -> dict[str, Any]:
    if annotations := meta.pop("annotations", None):
        meta["annotations"] = {key: value for key, value in annotations.items() if is_kept(key)}
    return meta


@lru_cache(maxsize=4096)
def is_kept(annotation: str) -> bool:
    """Whether the annotation is Karpenter's, ours, or about scheduling."""
    domain = annotation.partition("/")[0]
    return annotation in ANNOTATIONS or any(
        domain == kept_domain or domain.endswith(f".{kept_domain}") for kept_domain in ANNOTATION_DOMAINS
    )


def _pod_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """Keeps volumes that tie a pod to a zone or node; others are Secrets, ConfigMaps and scratch space."""
    if volumes := spec.pop("volumes", None):
        spec["volumes"] = [volume for volume in volumes if volume.keys() & {"persistentVolumeClaim", "ephemeral"}]
    return spec


_FINISH: Final[dict[type[msgspec.Struct], Keep]] = {
    objects.ObjectMeta: _metadata,
    objects.PodSpec: _pod_spec,
    pod_specs.Container: lambda container: {**container, "image": IMAGE},
}
