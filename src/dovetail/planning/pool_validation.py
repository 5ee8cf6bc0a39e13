"""What is wrong with a NodePool that the API server has let pass, or may have under other CRDs (01 §4.1, §4.2)?"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import CapacityType, Effect
from dovetail.api.schema import describe
from dovetail.values.duration import DurationError, parse_nillable, parse_simple, shown

_BOUNDS: Final = ("Gt", "Lt", "Gte", "Lte")
OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", *_BOUNDS)

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_NAME = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_KARPENTER_DOMAIN = re.compile(r"[^/]*karpenter[.]sh/")
_KWOK_DOMAIN = re.compile(r"[^/]*karpenter[.]kwok[.]sh/")
_KWOK_LABELS = frozenset(
    {
        names.KWOK_NODECLASS_LABEL,
        names.KWOK_INSTANCE_CPU_LABEL,
        names.KWOK_INSTANCE_MEMORY_LABEL,
        names.KWOK_INSTANCE_FAMILY_LABEL,
        names.KWOK_INSTANCE_SIZE_LABEL,
    }
)


class Flaw(msgspec.Struct, frozen=True):
    """Something wrong with a field of a requirement, and what to do about it."""

    field: str
    message: str
    remedy: str


def pool_flaws(pool: objects.NodePool) -> list[str]:
    """Everything that is wrong, a sentence each; the pool can be used if there is nothing."""
    template = pool.spec.template
    return [
        *_label_flaws(template.metadata.labels or {}),
        *_taint_flaws([*(template.spec.taints or ()), *(template.spec.startup_taints or ())]),
        *(flaw for requirement in template.spec.requirements for flaw in _requirement_flaws(requirement)),
        *_duration_flaws(pool),
    ]


def ignored_capacity_types(pool: objects.NodePool) -> list[str]:
    """Capacity types that nobody knows, beside others that are known: such a pool is accepted."""
    requirements = pool.spec.template.spec.requirements
    listed = [value for each in requirements if _chooses_capacity_type(each) for value in each.values]
    return sorted(set(listed) - set(CapacityType))


# -- labels -----------------------------------------------------------------------------------------------------------


def restricted_label(key: str, *, nodepool_allowed: bool) -> str | None:
    """Why this label may not be set or required, without the last two words (01 §4.1)."""
    if key == names.HOSTNAME_LABEL:
        return f"{key} is every node's own and may not"
    if key == names.NODEPOOL_LABEL:
        return None if nodepool_allowed else f"{key} is set by the controller and may not"
    if _KARPENTER_DOMAIN.match(key) and key != names.CAPACITY_TYPE_LABEL:
        return f"{shown(key)}: of the label domain karpenter.sh only karpenter.sh/capacity-type may"
    if _KWOK_DOMAIN.match(key) and key not in _KWOK_LABELS:
        return f"{shown(key)}: of the label domain karpenter.kwok.sh only kwoknodeclass and instance-* may"
    return None


def unsettable_label(key: str) -> str | None:
    """The same for the labels of a template, where kwok's domain is free (01 §4.1)."""
    return None if _KWOK_DOMAIN.match(key) else restricted_label(key, nodepool_allowed=False)


def _label_flaws(labels: dict[str, str]) -> Iterator[str]:
    for key, value in labels.items():
        if wrong := unsettable_label(key):
            yield f"label {wrong} be set"
        if not _is_qualified(key):
            yield f"label {shown(key)}: the key is not a qualified name"
        if not _is_label_value(value):
            yield f"label {shown(key)}: {shown(value)} is not a label value"


def _is_qualified(key: str) -> bool:
    """An optional domain of at most 253 characters and `/`, and a name of at most 63."""
    domain, slash, name = key.rpartition("/")
    return bool(_NAME.fullmatch(name)) and (not slash or (len(domain) <= 253 and bool(_SUBDOMAIN.fullmatch(domain))))


def _is_label_value(value: str) -> bool:
    return not value or bool(_NAME.fullmatch(value))


# -- taints -----------------------------------------------------------------------------------------------------------


def _taint_flaws(taints: Sequence[objects.Taint]) -> Iterator[str]:
    """Of both lists together: a startup taint like a lasting one would never go."""
    seen: set[tuple[str, str]] = set()
    for taint in taints:
        if not _is_qualified(taint.key):
            yield f"taint {shown(taint.key)}: the key is not a qualified name"
        if taint.value and not _is_qualified(taint.value):
            yield f"taint {shown(taint.key)}: the value {shown(taint.value)} is not a qualified name"
        if taint.effect not in ("", *Effect):
            yield f"taint {shown(taint.key)}: {shown(taint.effect)} is no effect"
        if (taint.key, taint.effect) in seen:
            yield f"taint {shown(taint.key)} with effect {shown(taint.effect)} is there more than once"
        seen.add((taint.key, taint.effect))


# -- requirements -----------------------------------------------------------------------------------------------------


def value_flaw(operator: object, values: Sequence[object], min_values: int | None) -> Flaw | None:
    """What is wrong with a requirement's values under its operator (01 §4, R1 to R3)."""
    count = len(values)
    if operator == "In" and not values:
        return Flaw("values", "operator In needs at least one value", "add a value")
    if operator == "In" and min_values is not None and count < min_values:
        message = f"operator In with minValues {describe(min_values)} needs at least as many values, not {count}"
        return Flaw("minValues", message, f"add values, or lower minValues to {count}")
    if operator in _BOUNDS and not (count == 1 and _is_whole(values[0])):
        message = f"operator {operator} needs exactly one value, a whole number of 0 or more"
        return Flaw("values", message, 'write one number in quotes, such as ["4"]')
    return None


def _requirement_flaws(requirement: objects.Requirement) -> Iterator[str]:
    key = names.NORMALISED_LABELS.get(requirement.key, requirement.key)
    about = f"requirement {shown(requirement.key)}"
    if wrong := restricted_label(key, nodepool_allowed=False):
        yield f"requirement {wrong} be required"
    if not _is_qualified(key):
        yield f"{about}: the key is not a qualified name"
    if requirement.operator not in OPERATORS:
        yield f"{about}: {shown(requirement.operator)} is no operator"
    for value in requirement.values:
        if not _is_label_value(value):
            yield f"{about}: {shown(value)} is not a label value"
    if flaw := value_flaw(requirement.operator, requirement.values, requirement.min_values):
        yield f"{about}: {flaw.message}"
    elif _chooses_capacity_type(requirement):
        known = len(set(requirement.values) & set(CapacityType))
        if known < (requirement.min_values or 1):
            yield f"{about}: of its values only {known} are capacity types ({', '.join(CapacityType)})"


def _chooses_capacity_type(requirement: objects.Requirement) -> bool:
    return requirement.key == names.CAPACITY_TYPE_LABEL and requirement.operator == "In"


def _is_whole(text: object) -> bool:
    return isinstance(text, str) and bool(_WHOLE.fullmatch(text)) and 0 <= int(text) < 2**63


# -- times ------------------------------------------------------------------------------------------------------------


def _duration_flaws(pool: objects.NodePool) -> Iterator[str]:
    """The CRD's patterns let times pass that nothing can hold; taken for none, they would switch a limit off."""
    spec, disruption = pool.spec.template.spec, pool.spec.disruption
    texts = {
        "expireAfter": spec.expire_after,
        "consolidateAfter": disruption.consolidate_after,
        "gracefulExpireAfter": disruption.graceful_expire_after,
    }
    for name, text in texts.items():
        try:
            parse_nillable(text)
        except DurationError as error:
            yield f"{name}: {error}"
    try:
        parse_simple(spec.termination_grace_period or "0s")
    except DurationError as error:
        yield f"terminationGracePeriod: {error}"
