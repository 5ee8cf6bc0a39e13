"""Validates NodePools beyond what the API server checks (01 §4.1, §4.2), and their node class (01 §5.1)."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import CapacityType, ConditionReason, ConditionType, TaintEffect
from dovetail.api.objects import NodeClass, condition_in
from dovetail.api.yaml_events import join
from dovetail.model.field_errors import OPERATORS, FieldError, value_flaw
from dovetail.planning.conditions import FALSE, TRUE, UNKNOWN
from dovetail.values.duration import DurationError, parse_nillable, parse_simple, shown
from dovetail.values.label_syntax import is_label_value, is_qualified

_TEMPLATE: Final = "spec.template.spec"
_QUALIFIED: Final = "write letters, digits, -, _ and ., at most 63, after an optional domain and /, as example.com/team"
_VALUE: Final = "write at most 63 letters, digits, -, _ and ., beginning and ending with a letter or digit"

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


def pool_flaws(pool: objects.NodePool) -> list[str]:
    """A sentence for each flaw. A pool without flaws can be used."""
    return [flaw.message for flaw in field_flaws(pool)]


def field_flaws(pool: objects.NodePool) -> list[FieldError]:
    """The flaws, each with the path of its field."""
    template = pool.spec.template
    return [
        *_label_flaws(template.metadata.labels or {}),
        *_taint_flaws(template.spec),
        *(
            flaw
            for index, requirement in enumerate(template.spec.requirements)
            for flaw in _requirement_flaws(f"{_TEMPLATE}.requirements[{index}]", requirement)
        ),
        *_duration_flaws(pool),
    ]


def ignored_capacity_types(pool: objects.NodePool) -> list[str]:
    """Unknown capacity types. A pool that also has known ones is accepted."""
    requirements = pool.spec.template.spec.requirements
    listed = [value for entry in requirements if _chooses_capacity_type(entry) for value in entry.values]
    return sorted(set(listed) - set(CapacityType))


# -- labels -----------------------------------------------------------------------------------------------------------


def restricted_label(key: str, *, nodepool_allowed: bool) -> str | None:
    """Why this label may not be set or required (01 §4.1). The caller appends the verb."""
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
    """The same for labels of a template, which may use kwok's domain (01 §4.1)."""
    return None if _KWOK_DOMAIN.match(key) else restricted_label(key, nodepool_allowed=False)


def _label_flaws(labels: dict[str, str]) -> Iterator[FieldError]:
    for key, value in labels.items():
        field = join("spec.template.metadata.labels", key)
        if wrong := unsettable_label(key):
            yield FieldError(field, f"label {wrong} be set", "remove the label, or use a domain of your own")
        if not is_qualified(key):
            yield FieldError(field, f"label {shown(key)}: the key is not a qualified name", _QUALIFIED)
        if not is_label_value(value):
            yield FieldError(field, f"label {shown(key)}: {shown(value)} is not a label value", _VALUE)


# -- taints -----------------------------------------------------------------------------------------------------------


def _taint_flaws(spec: objects.NodeClaimTemplateSpec) -> Iterator[FieldError]:
    """Checks both lists together: a startup taint that equals a permanent one would never be removed."""
    lists = {"taints": spec.taints or (), "startupTaints": spec.startup_taints or ()}
    seen: set[tuple[str, str]] = set()
    for name, taints in lists.items():
        for index, taint in enumerate(taints):
            field, about = f"{_TEMPLATE}.{name}[{index}]", f"taint {shown(taint.key)}"
            if not is_qualified(taint.key):
                yield FieldError(f"{field}.key", f"{about}: the key is not a qualified name", _QUALIFIED)
            if taint.value and not is_qualified(taint.value):
                message = f"{about}: the value {shown(taint.value)} is not a qualified name"
                yield FieldError(f"{field}.value", message, _QUALIFIED)
            if taint.effect not in ("", *TaintEffect):
                message = f"{about}: {shown(taint.effect)} is no effect"
                yield FieldError(f"{field}.effect", message, f"write one of {', '.join(TaintEffect)}")
            if (taint.key, taint.effect) in seen:
                message = f"{about} with effect {shown(taint.effect)} is there more than once"
                yield FieldError(field, message, "keep one of them, in taints or in startupTaints")
            seen.add((taint.key, taint.effect))


# -- requirements -----------------------------------------------------------------------------------------------------


def _requirement_flaws(field: str, requirement: objects.NodeSelectorRequirement) -> Iterator[FieldError]:
    key = names.NORMALISED_LABELS.get(requirement.key, requirement.key)
    about = f"requirement {shown(requirement.key)}"
    if wrong := restricted_label(key, nodepool_allowed=False):
        yield FieldError(f"{field}.key", f"requirement {wrong} be required", "remove the requirement")
    if not is_qualified(key):
        yield FieldError(f"{field}.key", f"{about}: the key is not a qualified name", _QUALIFIED)
    if requirement.operator not in OPERATORS:
        message = f"{about}: {shown(requirement.operator)} is no operator"
        yield FieldError(f"{field}.operator", message, f"write one of {', '.join(OPERATORS)}")
    for value in requirement.values:
        if not is_label_value(value):
            yield FieldError(f"{field}.values", f"{about}: {shown(value)} is not a label value", _VALUE)
    if flaw := value_flaw(requirement.operator, requirement.values, requirement.min_values):
        yield FieldError(f"{field}.{flaw.field}", f"{about}: {flaw.message}", flaw.remedy)
    elif _chooses_capacity_type(requirement):
        number = len(set(requirement.values) & set(CapacityType))
        if number < (requirement.min_values or 1):
            types = ", ".join(CapacityType)
            message = f"{about}: of its values only {number} are capacity types ({types})"
            yield FieldError(f"{field}.values", message, f"write some of {types}")


def _chooses_capacity_type(requirement: objects.NodeSelectorRequirement) -> bool:
    return requirement.key == names.CAPACITY_TYPE_LABEL and requirement.operator == "In"


# -- times ------------------------------------------------------------------------------------------------------------


def _duration_flaws(pool: objects.NodePool) -> Iterator[FieldError]:
    """The CRD accepts durations that are too long to represent. Ignoring them would switch a limit off."""
    spec, disruption = pool.spec.template.spec, pool.spec.disruption
    fields = (
        (_TEMPLATE, "expireAfter", spec.expire_after),
        ("spec.disruption", "consolidateAfter", disruption.consolidate_after),
        ("spec.disruption", "gracefulExpireAfter", disruption.graceful_expire_after),
    )
    for parent, name, text in fields:
        try:
            parse_nillable(text)
        except DurationError as error:
            yield FieldError(f"{parent}.{name}", f"{name}: {error}", "write a shorter time, or Never")
    try:
        parse_simple(spec.termination_grace_period or "0s")
    except DurationError as error:
        yield FieldError(
            f"{_TEMPLATE}.terminationGracePeriod",
            f"terminationGracePeriod: {error}",
            "write a shorter time, or leave it out to wait for ever",
        )


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The condition NodeClassReady."""

    status: str
    reason: str = ""
    message: str = ""


def node_class_readiness(node_class: NodeClass | None, name: str) -> Readiness:
    """`node_class` None: no class has this name."""
    if node_class is None:
        return _unready(ConditionReason.NODECLASS_NOT_FOUND, f"there is no node class {name}")
    if node_class.metadata.deletion_timestamp is not None:
        return _unready(ConditionReason.NODECLASS_TERMINATING, f"node class {name} is being deleted")
    ready = condition_in(node_class.status.conditions, ConditionType.READY)
    if ready is None or ready.status == UNKNOWN:
        return _unready(ConditionReason.NODECLASS_READINESS_UNKNOWN, f"node class {name} does not say if it is ready")
    if ready.status != TRUE:
        return _unready(ready.reason, ready.message)
    return Readiness(status=TRUE)


def _unready(reason: str, message: str) -> Readiness:
    return Readiness(status=FALSE, reason=reason, message=message)
