"""Findings about NodePools, NodeClaims and KWOKNodeClasses: what the API server refuses, and unlikely values."""

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

from dovetail.api import names, objects
from dovetail.api.schema import Schema, SchemaViolation, crd_schema, defaulted, violations
from dovetail.api.yaml_events import join, shorten
from dovetail.model.field_errors import value_flaw
from dovetail.model.finding import Finding
from dovetail.model.pool_records import pool_record
from dovetail.model.rule_settings import RuleSettings
from dovetail.planning.nodepool.validation import field_flaws, restricted_label, unsettable_label
from dovetail.rules.budgets import budget_duration_remedy, meant_reason
from dovetail.values.duration import DurationError, parse_nillable, parse_simple, short_duration
from dovetail.values.mending import is_unitless, meant_duration
from dovetail.values.spelling import meant_word
from dovetail.views.findings.beside import mark_findings
from dovetail.views.findings.budgets import BUDGETS, budget_findings, dropped_graceful, unread_graceful
from dovetail.views.findings.joined import INVALID
from dovetail.views.findings.pods import annotation_field, misnamed_findings, node_findings
from dovetail.views.findings.subject import Subject

UNKNOWN = "UnknownField"
NO_DRAIN_LIMIT = "DrainWithoutLimit"
UNUSABLE = names.ConditionReason.NODEPOOL_VALIDATION_FAILED.value
_TEMPLATE = "spec.template.spec"
_DURATIONS = (
    "expireAfter",
    "consolidateAfter",
    "gracefulExpireAfter",
    "terminationGracePeriod",
    "nodeRegistrationDelay",
)
# Fields that have moved, or that people look for elsewhere, by kind and path.
_MOVED = {
    ("NodePool", "spec.disruption.expireAfter"): "move it to spec.template.spec.expireAfter",
    ("NodePool", "spec.disruption.terminationGracePeriod"): "move it to spec.template.spec.terminationGracePeriod",
    ("NodePool", "spec.template.terminationGracePeriod"): "move it to spec.template.spec.terminationGracePeriod",
    ("NodePool", "spec.terminationGracePeriod"): "move it to spec.template.spec.terminationGracePeriod",
    ("NodePool", "spec.expireAfter"): "move it to spec.template.spec.expireAfter",
    ("NodePool", "spec.budgets"): "move it to spec.disruption.budgets",
    ("NodePool", "spec.template.spec.nodeClassRef.apiVersion"): "write group, without the version",
    ("NodeClaim", "spec.nodeClassRef.apiVersion"): "write group, without the version",
    ("NodePool", "spec.template.spec.kubelet"): "move it to the node class",
    ("NodeClaim", "spec.kubelet"): "move it to the node class",
    ("NodePool", "spec.template.spec.gracefulExpireAfter"): "move it to spec.disruption.gracefulExpireAfter",
    ("NodePool", "spec.disruption.defaults"): "write spec.disruption.budgets, without reasons",
    ("NodePool", "spec.disruption.consolidation"): "write consolidationPolicy and consolidateAfter in spec.disruption",
    ("NodePool", "spec.disruption.drift"): "write spec.disruption.budgets with reasons: [Drifted]",
    ("NodePool", "spec.disruption.empty"): "write spec.disruption.budgets with reasons: [Empty]",
    ("NodePool", "spec.disruption.underutilized"): "write spec.disruption.budgets with reasons: [Underutilized]",
    ("NodePool", "spec.ttlSecondsAfterEmpty"): "write spec.disruption.consolidateAfter, with a unit such as 30s",
    ("NodePool", "spec.ttlSecondsUntilExpired"): "write spec.template.spec.expireAfter, with a unit such as 720h",
}
# Values of older versions that still have one meaning.
_FORMER_VALUES = {"WhenUnderutilized": "WhenEmptyOrUnderutilized"}
# Fields that v1 has in the place of others, and those that it moves, renames or has in their place.
ADDED_FIELDS = frozenset(f"{path}.nodeClassRef.group" for path in ("spec", _TEMPLATE))
_CHANGED_FIELDS = ADDED_FIELDS | {
    "spec.disruption.expireAfter",
    "spec.disruption.consolidationPolicy",
    *(f"{path}.{name}" for path in ("spec", _TEMPLATE) for name in ("kubelet", "nodeClassRef.apiVersion")),
}


def is_change_of_version(problem: Finding) -> bool:
    """Whether a field of v1beta1 is wrong only because v1 has another one in its place."""
    return problem.rule in (INVALID, UNKNOWN) and problem.field in _CHANGED_FIELDS


def resource_findings(subject: Subject, value: Mapping[str, Any]) -> list[Finding]:
    """What the API server refuses or drops: violations of the schema, and of its CEL rules, written out here."""
    schema = crd_schema(subject.kind)
    if schema is None:
        return []
    # The API server drops what a manifest says of the status.
    stored = defaulted({key: part for key, part in value.items() if key != "status"}, schema)
    findings = [_violation(subject, schema, value, violation) for violation in violations(stored, schema)]
    refused = {problem.field for problem in findings}
    spec = _mapping(stored.get("spec"))
    template = _mapping(_mapping(spec.get("template")).get("spec"))
    claim, path = (spec, "spec") if subject.kind == names.NODECLAIM_KIND else (template, _TEMPLATE)
    if subject.kind == names.NODEPOOL_KIND:
        findings += [*_pool_rules(subject, spec), *_labels(subject, spec)]
    if subject.kind in (names.NODEPOOL_KIND, names.NODECLAIM_KIND):
        findings += [*_requirements(subject, claim, path), *_node_class(subject, claim, path)]
    return findings + [
        problem for problem in _long_durations(subject, spec, claim, path) if problem.field not in refused
    ]


# -- the schema -------------------------------------------------------------------------------------------------------


def _violation(subject: Subject, schema: Schema, value: object, violation: SchemaViolation) -> Finding:
    field = violation.field or "(the whole object)"
    if violation.unknown:
        return subject.warning(
            UNKNOWN,
            field,
            "the kind has no such field: the API server drops it",
            _unknown_remedy(subject.kind, schema, value, field),
        )
    return subject.error(
        INVALID, field, f"{violation.message}; the API server refuses the object", _remedy(schema, value, violation)
    )


def _unknown_remedy(kind: str, schema: Schema, value: object, field: str) -> str:
    moved = _MOVED.get((kind, field))
    if moved:
        return moved
    parent, _, name = field.rpartition(".")
    if name == "reason" and parent.startswith(BUDGETS):
        return "write reasons, a list such as [Drifted]"
    siblings = _schema_at(schema, parent).get("properties", {})
    near = meant_word(name, siblings)
    if near and _value_at(value, join(parent, near))[0] is not None:
        return f"remove it; {near} is set already"
    # A value of another type, such as seconds for a duration, was meant for another field.
    if near and not list(violations({near: _value_at(value, field)[0]}, {"properties": {near: siblings[near]}})):
        return f"write {near}"
    return f"remove it; known here are {', '.join(siblings) or 'no fields'}"


def field_remedy(kind: str, value: object, violation: SchemaViolation) -> str:
    """What to write instead of a field that the API server refuses."""
    return _remedy(crd_schema(kind) or {}, value, violation)


def _remedy(schema: Schema, value: object, violation: SchemaViolation) -> str:
    field = violation.field
    wanted, (given, name) = _schema_at(schema, field), _value_at(value, field)
    if violation.missing:
        return f"add {field}"
    if wanted.get("type") == "string" and isinstance(given, int | float) and not isinstance(given, bool):
        return "put it in quotes"
    if wanted.get("type") == "array" and isinstance(given, str):
        return f"write a list: [{given}]" if len(given) <= 40 else "write a list"
    if isinstance(given, str) and "enum" in wanted:
        allowed = [str(value) for value in wanted["enum"]]
        near = meant_reason(given) if name == "reasons" else _FORMER_VALUES.get(given) or meant_word(given, allowed)
        return f"write {near}" if near else f"write one of {', '.join(allowed)}"
    if isinstance(given, str) and name == "group" and (group := given.partition("/")[0]):
        return f"write {shorten(group, 100)}, without the version"
    if isinstance(given, str) and name == "duration":
        return budget_duration_remedy(given)
    if isinstance(given, str) and name in _DURATIONS:
        return _duration_remedy(given, never="Never" in wanted.get("pattern", ""))
    if isinstance(given, str) and wanted.get("type") == "integer" and given.isascii() and given.isdigit():
        return f"write {given[:20]}, without quotes"
    example = wanted.get("default")
    return f"write a valid value, such as {example}" if isinstance(example, str) else "correct or remove the field"


def _duration_remedy(text: str, *, never: bool) -> str:
    if never and text.lower() == "never":
        return "write Never"
    number = text.strip()
    if is_unitless(number):
        return f"add the unit: {number}h, {number}m or {number}s"
    near = meant_duration(text)
    return f"write {near}" if near else "write whole numbers with units h, m or s, such as 1h30m"


_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


def _schema_at(schema: Schema, field: str) -> Schema:
    """The schema of a field; empty if the schema does not describe it."""
    for match in _STEP.finditer(field):
        if match[2] is not None and "items" in schema:
            schema = schema["items"]
            continue
        name = match[1] if match[1] is not None else match[2]
        inner = schema.get("properties", {}).get(name)
        if inner is None:
            others = schema.get("additionalProperties")
            inner = others if isinstance(others, Mapping) else {}
        schema = inner
    return schema


def _value_at(value: object, field: str) -> tuple[object, str]:
    """The value of a field, or None, and the last name in its path."""
    name = ""
    for match in _STEP.finditer(field):
        if match[1] is not None:
            name = match[1]
            value = value.get(name) if isinstance(value, Mapping) else None
        elif isinstance(value, list):
            index = int(match[2]) if match[2].isascii() and match[2].isdigit() and len(match[2]) < 10 else len(value)
            value = value[index] if index < len(value) else None
        else:
            value = value.get(match[2]) if isinstance(value, Mapping) else None
    return value, name


# -- CEL rules --------------------------------------------------------------------------------------------------------


def _pool_rules(subject: Subject, spec: Mapping[str, Any]) -> Iterator[Finding]:
    if spec.get("replicas") is None:
        return
    if spec.get("weight") is not None:
        yield _refused(subject, "spec.weight", "a pool with replicas may have no weight", "remove weight, or replicas")
    if set(_mapping(spec.get("limits"))) - {names.NODES_RESOURCE}:
        yield _refused(
            subject,
            "spec.limits",
            "a pool with replicas may have no limits but limits.nodes",
            "keep only limits.nodes, or remove replicas",
        )


def _labels(subject: Subject, spec: Mapping[str, Any]) -> Iterator[Finding]:
    labels = _mapping(_mapping(_mapping(spec.get("template")).get("metadata")).get("labels"))
    for key in list(labels)[:100]:
        if wrong := unsettable_label(key):
            field = f"spec.template.metadata.labels[{key}]"
            yield _refused(subject, field, f"{wrong} be set", "remove the label, or use a domain of your own")


def _requirements(subject: Subject, claim: Mapping[str, Any], path: str) -> Iterator[Finding]:
    requirements = claim.get("requirements")
    for index, entry in enumerate(requirements[:100] if isinstance(requirements, list) else ()):
        requirement = _mapping(entry)
        field = f"{path}.requirements[{index}]"
        key, operator, values = (requirement.get(name) for name in ("key", "operator", "values"))
        if isinstance(key, str):
            wrong = restricted_label(key, nodepool_allowed=subject.kind == names.NODECLAIM_KIND)
            if wrong:
                yield _refused(subject, f"{field}.key", f"{wrong} be required", "remove the requirement")
        least = requirement.get("minValues")
        flaw = value_flaw(
            operator, values if isinstance(values, list) else [], least if isinstance(least, int) else None
        )
        if flaw:
            yield _refused(subject, f"{field}.{flaw.field}", flaw.message, flaw.remedy)


def _node_class(subject: Subject, claim: Mapping[str, Any], path: str) -> Iterator[Finding]:
    reference = _mapping(claim.get("nodeClassRef"))
    for name in ("group", "kind", "name"):
        if reference.get(name) == "":
            yield _refused(subject, f"{path}.nodeClassRef.{name}", "may not be empty", f"name the node class's {name}")


def _long_durations(
    subject: Subject, spec: Mapping[str, Any], claim: Mapping[str, Any], path: str
) -> Iterator[Finding]:
    """Times that match the patterns of the schema but overflow a Go duration."""
    for above, fields in ((path, claim), ("spec.disruption", _mapping(spec.get("disruption"))), ("spec", spec)):
        for name in _DURATIONS:
            text = fields.get(name)
            if isinstance(text, str):
                try:
                    parse_nillable(text)
                except DurationError as error:
                    message = f"{error}; it counts as not set"
                    remedy = "write a shorter time, or Never if it may be"
                    yield subject.error(INVALID, join(above, name), message, remedy)


def _refused(subject: Subject, field: str, message: str, remedy: str) -> Finding:
    return subject.error(INVALID, field, f"{message}; the API server refuses the object", remedy)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# -- valid, but hardly meant ------------------------------------------------------------------------------------------


def pool_findings(
    subject: Subject, pool: objects.NodePool, at: datetime, nodes: int | None, settings: RuleSettings
) -> Iterator[Finding]:
    """Findings about the times and budgets of a NodePool; `nodes`: how many it has, if that is known."""
    template = pool.spec.template
    record = pool_record(pool, settings)
    graceful = record.graceful_expire_after_ns
    own, for_nodes = pool.metadata.annotations, template.metadata.annotations or {}
    yield from misnamed_findings(subject, "metadata", own, pool.metadata.labels)
    yield from misnamed_findings(subject, "spec.template.metadata", for_nodes, {}, "Node")
    yield from mark_findings(subject, own)
    yield from node_findings(subject, "spec.template.metadata", for_nodes, settings)
    yield from _times(subject, template.spec, _TEMPLATE)
    yield from _expiry(subject, pool, graceful)
    yield from budget_findings(subject, pool, at, graceful=graceful is not None, nodes=nodes, settings=settings)
    if record.unread_graceful:
        yield unread_graceful(subject, record.unread_graceful)
    yield from dropped_graceful(subject, pool, settings)
    for flaw in field_flaws(pool):  # the API server lets them pass (01 §4.2)
        message = f"{flaw.message}; no node is made from the pool: its condition ValidationSucceeded is False"
        yield subject.error(UNUSABLE, shorten(flaw.field, 300), message, flaw.remedy)
    if names.DO_NOT_DISRUPT in pool.metadata.annotations:
        yield subject.warning(
            "AnnotationNotOnPods",
            annotation_field("metadata", names.DO_NOT_DISRUPT),
            "do-not-disrupt is read on pods and Nodes; on the NodePool itself it has no effect",
            'move it to spec.template.metadata.annotations, or write a budget with nodes: "0"'
            + ("" if settings.decider.own_budgets else " and reasons: without them it keeps empty nodes too"),
        )


def class_findings(
    subject: Subject, reference: objects.NodeClassReference, known: Mapping[tuple[str, str], Collection[str]]
) -> Iterator[Finding]:
    """A reference to a node class that is missing, though there are others of its kind."""
    classes = known.get((reference.group, reference.kind), ())
    if classes and reference.name not in classes:
        named = ", ".join(sorted(classes)[:10])
        near = meant_word(reference.name, classes)
        yield subject.warning(
            "NodeClassMissing",
            f"{_TEMPLATE}.nodeClassRef.name",
            f"there is no {reference.kind} {shorten(reference.name, 100)!r} in these files, which have {named}",
            f"write {near}" if near else "name one of them, unless the class is elsewhere",
        )


def claim_findings(subject: Subject, claim: objects.NodeClaim, settings: RuleSettings) -> Iterator[Finding]:
    """Findings about the times of a NodeClaim. A claim of a pool has the times of the pool, which has the finding."""
    yield from misnamed_findings(subject, "metadata", claim.metadata.annotations, claim.metadata.labels)
    yield from node_findings(subject, "metadata", claim.metadata.annotations, settings)
    yield from mark_findings(subject, claim.metadata.annotations)
    if not claim.metadata.pool:
        yield from _times(subject, claim.spec, "spec")


def _times(subject: Subject, spec: objects.NodeClaimTemplateSpec, path: str) -> Iterator[Finding]:
    if _nillable(spec.expire_after) == 0:
        yield subject.error(
            "ExpiresAtOnce",
            f"{path}.expireAfter",
            "nodes expire the moment they are made, so no pod ever stays on one",
            "write Never to switch expiration off, or a time such as 720h",
        )
    if _simple(spec.termination_grace_period) == 0:
        yield subject.warning(
            "NoGracefulShutdown",
            f"{path}.terminationGracePeriod",
            "0s forces every drain at once: no pod gets its graceful shutdown, and no PodDisruptionBudget counts",
            "write the longest time a drain may take, such as 24h, or leave it out to wait without limit",
        )


def _expiry(subject: Subject, pool: objects.NodePool, graceful: int | None) -> Iterator[Finding]:
    disruption, spec = pool.spec.disruption, pool.spec.template.spec
    expires, settles = _nillable(spec.expire_after), _nillable(disruption.consolidate_after)
    if graceful == 0:
        yield subject.error(
            "ExpiresAtOnce",
            "spec.disruption.gracefulExpireAfter",
            "every node is replaced as soon as it is made, without end",
            "write Never to switch it off, or a time such as 336h",
        )
    if expires and graceful is not None and graceful >= expires:
        yield subject.warning(
            "GracefulExpiryTooLate",
            "spec.disruption.gracefulExpireAfter",
            f"it never takes effect: expireAfter removes nodes by force after {short_duration(expires)} already",
            f"make it shorter than {short_duration(expires)}, or set expireAfter: Never",
        )
    if expires and settles is not None and settles >= expires:
        yield subject.warning(
            "ExpiresBeforeConsolidation",
            "spec.disruption.consolidateAfter",
            f"nodes expire after {short_duration(expires)}, before they have been quiet for "
            f"{short_duration(settles)}: they are never consolidated",
            f"make it shorter than {short_duration(expires)}, or write Never if that is meant",
        )
    if expires and spec.termination_grace_period is None:
        yield subject.info(
            NO_DRAIN_LIMIT,
            f"{_TEMPLATE}.terminationGracePeriod",
            f"nodes expire after {short_duration(expires)}, but without terminationGracePeriod a drain that a pod "
            "blocks may last forever, and uses its budget slot",  # R19
            "set terminationGracePeriod to the longest time a drain may take, such as 24h",
        )
    policy = disruption.consolidation_policy
    if disruption.consolidate_after == names.NEVER and policy == names.ConsolidationPolicy.WHEN_EMPTY_OR_UNDERUTILIZED:
        yield subject.info(
            "ConsolidationOff",
            "spec.disruption.consolidateAfter",
            f"Never switches consolidation off: consolidationPolicy {policy} has no effect",
            "write a time such as 5m to consolidate, or leave it if that is meant",
        )


def _nillable(text: str) -> int | None:
    try:
        return parse_nillable(text)
    except DurationError:
        return None  # a violation of the schema, which has a finding


def _simple(text: str | None) -> int | None:
    try:
        return None if text is None else parse_simple(text)
    except DurationError:
        return None
