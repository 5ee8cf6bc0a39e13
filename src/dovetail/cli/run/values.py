"""Reads the values of options of `dovetail run`. A bad value raises ValueError with a message for people."""

from collections.abc import Callable
from typing import Any, Final

import click

from dovetail.controllers.assembly import FeatureGates
from dovetail.values.duration import SECOND, parse_duration, shown

_GATES: Final = {
    "NodeRepair": "node_repair",
    "StaticCapacity": "static_capacity",
    "SpotToSpotConsolidation": "spot_to_spot_consolidation",
}
UNSUPPORTED_GATES: Final = ("NodeOverlay", "CapacityBuffer")
# Karpenter's charts set it. It is about offerings, which are used as the provider reports them.
_ALWAYS_ON: Final = "ReservedCapacity"


class ConvertedParam(click.ParamType[Any]):
    """An option value that a function reads; its ValueError becomes a usage error."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def positive_seconds(text: str) -> float:
    span_ns = parse_duration(text)
    if span_ns <= 0:
        raise ValueError(f"{shown(text)} is not a positive duration")
    return span_ns / SECOND


def boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{shown(text)} is neither true nor false")
    return text == "true"


def paths(text: str) -> tuple[str, ...]:
    paths = tuple(path.strip() for path in text.split(","))
    if not all(paths):
        raise ValueError(f"{shown(text)} holds an empty path")
    return paths


def read_gates(text: str) -> tuple[FeatureGates, tuple[str, ...]]:
    """The gates, and those that have no effect: out of scope (R39), or unknown."""
    asked: dict[str, bool] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not name or value not in ("true", "false"):
            raise ValueError(f"{shown(part)} is not of the form Gate=true or Gate=false")
        asked[name] = value == "true"
    gates = {_GATES[name]: value for name, value in asked.items() if name in _GATES}
    strange = {name: value for name, value in asked.items() if name not in _GATES and name != _ALWAYS_ON}
    return FeatureGates(**gates), tuple(name for name, on in strange.items() if on or name not in UNSUPPORTED_GATES)
