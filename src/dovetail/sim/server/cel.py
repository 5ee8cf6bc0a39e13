"""Evaluates the CEL rules of our CustomResourceDefinitions.

We depend on no CEL library: each rule is written here in Python, keyed by its text, so that a rule that changes only in
a CRD fails at once.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from dovetail.api import names
from dovetail.api.schema import Schema

RULES: Final = "x-kubernetes-validations"
RuleCheck = Callable[[Any, Any], bool]

_CORE_DOMAIN = re.compile(r"^[^/]*karpenter[.]sh/")
_KWOK_DOMAIN = re.compile(r"^[^/]*karpenter[.]kwok[.]sh/")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_CORE_ALLOWED = (names.CAPACITY_TYPE_LABEL, names.NODEPOOL_LABEL)
_KWOK_ALLOWED = (
    names.KWOK_NODECLASS_LABEL,
    names.KWOK_INSTANCE_CPU_LABEL,
    names.KWOK_INSTANCE_MEMORY_LABEL,
    names.KWOK_INSTANCE_FAMILY_LABEL,
    names.KWOK_INSTANCE_SIZE_LABEL,
)


def broken_rules(value: Any, old: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """The broken rules, each with its field; `old` is None on creation and in lists."""
    for rule in schema.get(RULES, ()):
        if "oldSelf" in rule["rule"] and old is None:
            continue  # a transition rule needs both
        if not KNOWN_RULES[_normal(rule["rule"])](value, old):
            yield f"{path}: Invalid value: {rule['message']}"
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for name, inner in value.items():
            before = old.get(name) if isinstance(old, dict) else None
            if name in properties:
                yield from broken_rules(inner, before, properties[name], f"{path}.{name}" if path else name)
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):  # our lists are atomic: the items of old and new do not correspond
            yield from broken_rules(item, None, schema["items"], f"{path}[{index}]")


def rule_texts(schema: Schema) -> Iterator[str]:
    """The keys of all rules in the schema."""
    yield from (_normal(rule["rule"]) for rule in schema.get(RULES, ()))
    for inner in schema.get("properties", {}).values():
        yield from rule_texts(inner)
    if "items" in schema:
        yield from rule_texts(schema["items"])


def _normal(rule: str) -> str:
    return " ".join(rule.split())


def _one_number(requirement: Mapping[str, Any]) -> bool:
    values: list[str] = requirement.get("values") or []
    if requirement["operator"] not in ("Gt", "Lt", "Gte", "Lte"):
        return True
    return len(values) == 1 and bool(_INTEGER.fullmatch(values[0])) and 0 <= int(values[0]) < 2**63


def _limits_of_static(self: Any, _old: Any) -> bool:
    limits = self.get("limits")
    return "replicas" not in self or not limits or list(limits) == ["nodes"]


def _core_label(key: str) -> bool:
    return key in _CORE_ALLOWED or _CORE_DOMAIN.match(key) is None


_CORE, _KWOK = list(_CORE_ALLOWED), list(_KWOK_ALLOWED)
KNOWN_RULES: Final[Mapping[str, RuleCheck]] = {
    "self == oldSelf": lambda self, old: self == old,
    "self != ''": lambda self, _: self != "",
    "self.group == oldSelf.group": lambda self, old: self["group"] == old["group"],
    "self.kind == oldSelf.kind": lambda self, old: self["kind"] == old["kind"],
    "has(self.replicas) == has(oldSelf.replicas)": lambda self, old: ("replicas" in self) == ("replicas" in old),
    "!has(self.replicas) || !has(self.limits) || size(self.limits) == 0 || "
    "(size(self.limits) == 1 && 'nodes' in self.limits)": _limits_of_static,
    "!has(self.replicas) || !has(self.weight)": lambda self, _: "replicas" not in self or "weight" not in self,
    "self.all(b, has(b.schedule) == has(b.duration))": lambda self, _: all(
        ("schedule" in budget) == ("duration" in budget) for budget in self
    ),
    "self.all(r, r.operator != 'In' || (has(r.values) && size(r.values) > 0))": lambda self, _: all(
        r["operator"] != "In" or r.get("values") for r in self
    ),
    "self.all(r, !(r.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || "
    "(has(r.values) && size(r.values) == 1 && int(r.values[0]) >= 0))": lambda self, _: all(map(_one_number, self)),
    "self.all(r, r.operator != 'In' || !has(r.minValues) || "
    "(has(r.values) && size(r.values) >= r.minValues))": lambda self, _: all(
        r["operator"] != "In" or len(r.get("values") or ()) >= r.get("minValues", 0) for r in self
    ),
    f"self in {_CORE} || !self.matches('^[^/]*karpenter[.]sh/')": lambda self, _: _core_label(self),
    f"self.all(k, k in {_CORE} || !k.matches('^[^/]*karpenter[.]sh/'))": lambda self, _: all(map(_core_label, self)),
    f"self in {_KWOK} || !self.matches('^[^/]*karpenter[.]kwok[.]sh/')": lambda self, _: (
        self in _KWOK_ALLOWED or _KWOK_DOMAIN.match(self) is None
    ),
    "self != 'kubernetes.io/hostname'": lambda self, _: self != names.HOSTNAME_LABEL,
    "self != 'karpenter.sh/nodepool'": lambda self, _: self != names.NODEPOOL_LABEL,
    "!('karpenter.sh/nodepool' in self)": lambda self, _: names.NODEPOOL_LABEL not in self,
    "!('kubernetes.io/hostname' in self)": lambda self, _: names.HOSTNAME_LABEL not in self,
}
