"""Validation: metadata, then schema and CEL rules of custom resources, or the rules of built-in kinds."""

import re
from collections.abc import Mapping
from typing import Any

from dovetail.api.schema import Schema, defaulted, violations
from dovetail.ports import Resource
from dovetail.sim.server import built_in_rules
from dovetail.sim.server.cel import broken_rules
from dovetail.sim.server.errors import bad_request, invalid
from dovetail.sim.server.kinds import Body, KindBehavior
from dovetail.sim.server.metadata_rules import metadata_faults
from dovetail.sim.server.selectors import value_at

_MICRO_TIME = re.compile(r".*[0-9]{2}\.[0-9]{6}(Z|[+-][0-9]{2}:[0-9]{2})")


def check(resource: Resource[Any], kind: KindBehavior, body: Body, old: Body | None) -> None:
    """Raises Invalid with all faults; `old` is the object before an update."""
    for path in kind.micro_times:  # the decoder of the API server wants exactly six digits of a second
        at = value_at(body, path)
        if isinstance(at, str) and not _MICRO_TIME.fullmatch(at):
            raise bad_request(f'parsing time "{at}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse ".000000"')
    before = None if old is None else old["metadata"]
    faults = list(metadata_faults(body["metadata"], before, custom=kind.custom))
    if kind.schema is not None:
        faults += _custom_faults(body, old, kind.schema)
    elif (rules := built_in_rules.RULES.get((resource.group, resource.plural))) is not None:
        faults += rules(body, old)
    if faults:
        raise invalid(resource, str(body["metadata"].get("name", "")), faults)


def pruned(body: Body, schema: Schema, old: Body | None = None) -> Body:
    """The object without unknown fields, and with nulls and defaults as the server stores them.

    `old`: as it is stored, so that parts which both share are so already.
    """
    shared = _shared(body, old)
    others = {key: part for key, part in body.items() if key not in shared}
    parts = {**defaulted(_pruned(others, schema), schema), **shared}
    return {key: parts.pop(key) for key in body if key in parts} | parts


def _shared(body: Body, old: Body | None) -> Body:
    """The parts of the object that a patch has left alone: a patched object shares them with the old one."""
    return {} if old is None else {key: part for key, part in body.items() if old.get(key) is part}


def _pruned(value: Any, schema: Schema) -> Any:
    if isinstance(value, dict):
        properties = schema.get("properties")
        if properties is None:
            others = schema.get("additionalProperties")
            return {k: _pruned(v, others) for k, v in value.items()} if isinstance(others, Mapping) else value
        return {key: _pruned(item, properties[key]) for key, item in value.items() if key in properties}
    if isinstance(value, list) and "items" in schema:
        return [_pruned(item, schema["items"]) for item in value]
    return value


def _custom_faults(body: Body, old: Body | None, schema: Schema) -> list[str]:
    """Structural faults first: as the server does, CEL rules are evaluated only on well-formed objects."""
    shared = _shared(body, old)
    others = {key: part for key, part in body.items() if key not in shared}
    found = (fault for fault in violations(others, schema) if not fault.unknown and fault.field not in shared)
    faults = [f"{fault.field}: Invalid value: {fault.message}" for fault in found]
    return faults or list(broken_rules(body, old, schema))
