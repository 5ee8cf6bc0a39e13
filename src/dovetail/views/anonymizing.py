"""How does a recorded object look when nobody is to know whose it is?

Every name, and every value of a label, is replaced by a meaningless one, the same everywhere, so that owners, selectors
and affinities still find what they found. What decides stays: times, resources, zones, instance types, schedules.
"""

import re
from itertools import count
from typing import Any, Final

from dovetail.api import names
from dovetail.views.recording import is_kept

_KEPT_TEXTS: Final = frozenset(
    {"default", "kube-system", "kube-public", "kube-node-lease", "default-scheduler", "true", "false"}
)
_PLAIN: Final = re.compile(r"[0-9.]*|system-[a-z-]+")  # numbers, nothing, and the priority classes of every cluster
_ORDINAL: Final = re.compile(r"(.+)(-[0-9]+)")
_SCHEME: Final = re.compile(r"[a-z0-9+.-]+:/*")

_NAMES: Final = frozenset(
    {
        "name",
        "namespace",
        "nodeName",
        "nominatedNodeName",
        "claimName",
        "volumeName",
        "storageClassName",
        "serviceName",
        "priorityClassName",
        "schedulerName",
    }
)
_LISTS_OF_NAMES: Final = frozenset({"namespaces"})
_LABELS: Final = frozenset({"labels", "matchLabels", "nodeSelector"})
_UNTOUCHED: Final = frozenset({"drivers", "schedulingGates"})  # named by those who made them, not by users
_DROPPED: Final = frozenset({"message"})
# Labels whose values say nothing of the owner.
_TELLING_LABELS: Final = (names.WELL_KNOWN_LABELS - {names.NODEPOOL_LABEL}) | {
    *names.NORMALISED_LABELS,
    names.INSTANCE_PRICE_LABEL,
}
# Names stand in the first two; the hash is one of a template whose labels are other ones now.
_DROPPED_ANNOTATIONS: Final = frozenset(
    {names.DISRUPTION_COMMAND, names.REPLACEMENT_OF, names.NODEPOOL_HASH, names.NODEPOOL_HASH_VERSION}
)


class Anonymizer:
    """Remembers what it has called what, for all objects of a dump."""

    def __init__(self) -> None:
        self._aliases = {text: text for text in _KEPT_TEXTS}
        self._numbers = count(1)

    def anonymized(self, thing: dict[str, Any]) -> dict[str, Any]:
        """A recorded object without names."""
        self._learn_ordinal(thing["metadata"])
        plain = {"apiVersion": thing["apiVersion"], "kind": thing["kind"]}
        return plain | {key: self._value(key, value) for key, value in thing.items() if key not in plain}

    def _learn_ordinal(self, meta: dict[str, Any]) -> None:
        """A StatefulSet knows its pods by their numbers."""
        found = _ORDINAL.fullmatch(meta.get("name", ""))
        owners = meta.get("ownerReferences", ())
        if found and any(owner.get("kind") == "StatefulSet" and owner.get("name") == found[1] for owner in owners):
            self._aliases.setdefault(found[0], self._alias(found[1]) + found[2])

    def _alias(self, text: str) -> str:
        if _PLAIN.fullmatch(text):
            return text
        known = self._aliases.get(text)
        if known is None:
            known = self._aliases[text] = f"x{next(self._numbers)}"
        return known

    def _value(self, key: str, value: Any) -> Any:
        if key in _UNTOUCHED:
            return value
        if isinstance(value, dict):
            return self._mapping(key, value)
        if isinstance(value, list):
            if key in _LISTS_OF_NAMES:
                return [self._alias(each) for each in value]
            return [self._mapping("", each) if isinstance(each, dict) else each for each in value]
        if isinstance(value, str):
            return self._text(key, value)
        return value

    def _text(self, key: str, text: str) -> str:
        if key in _NAMES:
            return self._alias(text)
        if key == "generateName":
            return f"{self._alias(text.removesuffix('-'))}-"
        if key == "providerID":
            scheme = _SCHEME.match(text)
            return f"{scheme[0] if scheme else ''}{self._alias(text)}"
        return text

    def _mapping(self, key: str, value: dict[str, Any]) -> dict[str, Any]:
        if key in _LABELS:
            return {label: self._label(label, text) for label, text in value.items()}
        if key == "annotations":
            return {name: text for name, text in value.items() if is_kept(name) and name not in _DROPPED_ANNOTATIONS}
        changed = {name: self._value(name, each) for name, each in value.items() if name not in _DROPPED}
        if isinstance(label := value.get("key"), str):  # an expression, a taint or a toleration
            if isinstance(texts := value.get("values"), list):
                changed["values"] = [self._label(label, text) for text in texts]
            if "value" in value:
                changed["value"] = self._label(label, value["value"])
        return changed

    def _label(self, label: str, value: Any) -> Any:
        return value if label in _TELLING_LABELS or not isinstance(value, str) else self._alias(value)
