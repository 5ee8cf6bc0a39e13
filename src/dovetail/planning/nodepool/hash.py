"""The hash of a NodePool's template, and the annotations that carry it (01 §7).

The hash must equal upstream's: migrated clusters have claims with upstream's hash, and another value would drift them
all. It is FNV-1 of 64 bits over the template with upstream's type names. Absent fields are left out; empty lists and
mappings are not.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import xor
from typing import Final

from dovetail.api import names, objects
from dovetail.values.duration import parse_nillable, parse_simple

_BASIS: Final = 0xCBF29CE484222325
_PRIME: Final = 0x100000001B3
_MASK: Final = 2**64 - 1


def pool_hash(template: objects.NodeClaimTemplate) -> str:
    """The value of the annotation. Raises DurationError for durations that the CRD accepts."""
    spec = template.spec
    ref = spec.node_class_ref
    grace, expire_after = spec.termination_grace_period, parse_nillable(spec.expire_after)
    meta = [("Labels", _mapping(template.metadata.labels)), ("Annotations", _mapping(template.metadata.annotations))]
    return str(
        _struct(
            "NodeClaimTemplate",
            ("ObjectMeta", _struct("ObjectMeta", *meta) if any(hashed is not None for _, hashed in meta) else None),
            (
                "Spec",
                _struct(
                    "NodeClaimTemplateSpec",
                    ("Taints", _taints(spec.taints)),
                    ("StartupTaints", _taints(spec.startup_taints)),
                    ("NodeClassRef", _texts("NodeClassReference", Kind=ref.kind, Name=ref.name, Group=ref.group)),
                    ("TerminationGracePeriod", None if grace is None else _grace_period(parse_simple(grace))),
                    ("ExpireAfter", None if expire_after is None else _expire_after(expire_after)),
                ),
            ),
        )
    )


def pool_annotations(hashed: str) -> dict[str, str]:
    """The annotations of a pool and of its new claims."""
    return {names.NODEPOOL_HASH: hashed, names.NODEPOOL_HASH_VERSION: names.HASH_VERSION}


def migrated_annotations(claim: objects.NodeClaim, hashed: str) -> dict[str, str]:
    """The new annotations of a claim with another version of the hash; empty if it has this version.

    A claim with a Drifted condition, whatever its status, keeps its hash: a new one would hide the drift.
    """
    if claim.metadata.annotations.get(names.NODEPOOL_HASH_VERSION) == names.HASH_VERSION:
        return {}
    if any(entry.type == names.ConditionType.DRIFTED for entry in claim.status.conditions):
        return {names.NODEPOOL_HASH_VERSION: names.HASH_VERSION}
    return pool_annotations(hashed)


# -- the template by upstream's types; None is a zero value and is left out -------------------------------------------


def _mapping(texts: Mapping[str, str] | None) -> int | None:
    if texts is None:
        return None
    return _final(_union(_ordered(_text(key), _text(value)) for key, value in texts.items()))


def _taints(taints: Sequence[objects.Taint] | None) -> int | None:
    if taints is None:
        return None
    return _union(_texts("Taint", Key=taint.key, Value=taint.value, Effect=taint.effect) for taint in taints)


def _grace_period(nanoseconds: int) -> int:
    return _struct("Duration", ("Duration", _number(nanoseconds) if nanoseconds else None))


def _expire_after(nanoseconds: int) -> int:
    return _struct("NillableDuration", ("Duration", _number(nanoseconds)))


def _texts(type_name: str, /, **fields: str) -> int:
    return _struct(type_name, *((name, _text(text) if text else None) for name, text in fields.items()))


# -- hashing ----------------------------------------------------------------------------------------------------------


def _struct(type_name: str, *fields: tuple[str, int | None]) -> int:
    hashed = _text(type_name)
    for name, value in fields:
        if value is not None:
            hashed = _final(hashed ^ _ordered(_text(name), value))
    return hashed


def _union(hashes: Iterable[int]) -> int:
    """The hash of a set, which has no order."""
    return reduce(xor, hashes, 0)


def _text(text: str) -> int:
    return _fnv(text.encode())


def _number(number: int) -> int:
    return _fnv(number.to_bytes(8, "little", signed=True))


def _ordered(first: int, second: int) -> int:
    return _fnv(first.to_bytes(8, "little") + second.to_bytes(8, "little"))


def _final(hashed: int) -> int:
    return _fnv(hashed.to_bytes(8, "little"))


def _fnv(data: bytes) -> int:
    """FNV-1: multiply, then xor."""
    hashed = _BASIS
    for byte in data:
        hashed = (hashed * _PRIME & _MASK) ^ byte
    return hashed
