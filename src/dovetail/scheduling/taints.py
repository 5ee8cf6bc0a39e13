"""Tolerations of pods, and the taints of nodes that count (05 §3)."""

import re
from collections.abc import Iterable
from typing import Final

from dovetail.api import names
from dovetail.api.names import TaintEffect
from dovetail.api.objects import Node, NodeClaim, Taint, Toleration

Taints = tuple[Taint, ...]
Tolerations = frozenset[Toleration]

# Added in the last step of relaxation (05 §10), and for daemons on new nodes (05 §8.3).
SOFT_TAINTS_TOLERATED: Final = Toleration(operator="Exists", effect=TaintEffect.PREFER_NO_SCHEDULE)

_CANDIDATE = Taint(key=names.CANDIDATE_TAINT, effect=TaintEffect.PREFER_NO_SCHEDULE)
_EPHEMERAL = (
    Taint(key=names.NOT_READY_TAINT, effect=TaintEffect.NO_SCHEDULE),
    Taint(key=names.NOT_READY_TAINT, effect=TaintEffect.NO_EXECUTE),
    Taint(key=names.UNREACHABLE_TAINT, effect=TaintEffect.NO_SCHEDULE),
    Taint(key=names.CLOUD_UNINITIALIZED_TAINT, effect=TaintEffect.NO_SCHEDULE),
    Taint(key=names.UNREGISTERED_TAINT, effect=TaintEffect.NO_EXECUTE),
)
# Kubernetes accepts no leading zeros in tolerations.
_NUMBER = re.compile("0|-?[1-9][0-9]{0,18}")


def untolerated(tolerations: Tolerations, taints: Iterable[Taint]) -> Taint | None:
    """The first taint that is not tolerated. PreferNoSchedule counts until relaxation tolerates it."""
    return next((taint for taint in taints if not any(_matches(toleration, taint) for toleration in tolerations)), None)


def _matches(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case "Gt" | "Lt":
            return _compares(toleration, taint)
    return False  # an unknown operator tolerates nothing


def _compares(toleration: Toleration, taint: Taint) -> bool:
    """Gt: the taint's number is greater than the toleration's. Text that is not a 64-bit number is not tolerated."""
    has, limit = _number(taint.value), _number(toleration.value)
    if has is None or limit is None:
        return False
    return has > limit if toleration.operator == "Gt" else has < limit


def _number(text: str) -> int | None:
    number = int(text) if _NUMBER.fullmatch(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def node_taints(node: Node | None, claim: NodeClaim | None) -> Taints:
    """The taints that count, of a Node, its claim, or both. A node without a claim is not managed and keeps its own.

    Until the node is initialized, ephemeral and startup taints do not count. Our candidate taint never does (R22).
    """
    assert node is not None or claim is not None
    if claim is None or (node is not None and _says(node, names.INITIALIZED_LABEL)):
        return _visible(node.spec.taints if node is not None else ())
    taints = node.spec.taints if node is not None and _says(node, names.REGISTERED_LABEL) else claim.spec.taints
    return _visible(
        taint
        for taint in taints
        if not is_ephemeral(taint) and not any(taint.matches(startup) for startup in claim.spec.startup_taints)
    )


def template_taints(taints: Iterable[Taint]) -> Taints:
    """The taints of a new node: `spec.taints` of a NodePool, without startup taints (05 §3.5)."""
    return _visible(taints)


def is_ephemeral(taint: Taint) -> bool:
    """Whether the taint disappears while a node starts."""
    return taint.key.startswith(names.READINESS_TAINT_PREFIX) or any(taint.matches(known) for known in _EPHEMERAL)


def _says(node: Node, label: str) -> bool:
    return node.metadata.labels.get(label) == "true"


def _visible(taints: Iterable[Taint]) -> Taints:
    """Sorted and without times, so that nodes with equal taints have equal values."""
    counted = {(taint.key, taint.effect, taint.value) for taint in taints if not taint.matches(_CANDIDATE)}
    return tuple(Taint(key=key, value=value, effect=effect) for key, effect, value in sorted(counted))
