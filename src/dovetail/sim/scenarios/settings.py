"""Applies `--set` values such as `nodepool/default.spec.disruption.budgets=[…]` to a scenario."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from dovetail.api.yaml_events import YamlError, parse
from dovetail.sim.scenarios.reading import Scenario, ScenarioObject
from dovetail.sim.scenarios.wire_checks import InvalidValue, check_fields
from dovetail.values.duration import shown

_STEP = re.compile(r"([^.\[\]]+)|\[(?:([0-9]{1,6})|'([^']+)'|\"([^\"]+)\")\]")


class SettingError(ValueError):
    """The setting cannot be made; the message is one line that names its path."""


class Setting(msgspec.Struct, frozen=True):
    """One value to set. Names may hold dots, so only the objects of a scenario tell where the name ends."""

    text: str
    target: str
    value: Any


def read_setting(text: str) -> Setting:
    """Parse `KIND/NAME.FIELD=VALUE`. Raises SettingError."""
    target, equals, given = text.partition("=")
    if not equals or "/" not in target or "." not in target:
        want = "want KIND/NAME.FIELD=VALUE, such as nodepool/default.spec.disruption.consolidateAfter=1h"
        raise SettingError(f"{shown(text)}: {want}")
    try:
        values = [parsed.value for parsed in parse(given.encode())]
    except YamlError as error:
        raise SettingError(f"{target}: the value is not YAML: {error.message}") from None
    if len(values) > 1:
        raise SettingError(f"{target}: the value is {len(values)} YAML documents")
    return Setting(text, target, values[0] if values else None)


def with_settings(scenario: Scenario, settings: Sequence[Setting]) -> Scenario:
    """The scenario with these values at its start. Raises SettingError."""
    objects = list(scenario.objects)
    for setting in settings:
        index, path = _found(objects, setting.target)
        placed = objects[index]
        body = _with_value(placed.body, path, setting.value, setting.target)
        try:
            check_fields(placed.resource.kind, body)
        except InvalidValue as error:
            raise SettingError(f"{setting.target}: {error.field}: {error.message}") from None
        objects[index] = ScenarioObject(placed.resource, body, placed.document)
    return msgspec.structs.replace(scenario, objects=tuple(objects))


def _found(objects: Sequence[ScenarioObject], target: str) -> tuple[int, list[str | int]]:
    """The index of the object with the longest name that the target begins with, and the path in it."""
    kind, _, rest = target.partition("/")
    alike = [(index, object_) for index, object_ in enumerate(objects) if object_.resource.kind.lower() == kind.lower()]
    alike.sort(key=lambda item: -len(item[1].key))
    for index, placed in alike:
        for name in {placed.key, placed.key.removeprefix("default/")}:
            if rest.startswith(f"{name}."):
                return index, _path(rest.removeprefix(f"{name}."), target)
    candidates = ", ".join(sorted(f"{kind}/{object_.key}" for _, object_ in alike)[:5])
    raise SettingError(f"{target}: there is no such object" + (f"; there are {candidates}" if candidates else ""))


def _path(text: str, target: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        if steps and text[at] == ".":
            at += 1
        step = _STEP.match(text, at)
        if step is None:
            raise SettingError(
                f"{target}: {shown(text[at:])} is no field; want names, [0] and ['a.b/c'] joined by dots"
            )
        name, index, *quoted = step.groups()
        steps.append(int(index) if index else name or next(filter(None, quoted)))
        at = step.end()
    if steps[0] not in ("spec", "metadata") or len(steps) < 2:
        raise SettingError(f"{target}: only what stands below spec or metadata can be set")
    return steps


def _with_value(holder: Any, path: Sequence[str | int], value: Any, target: str) -> Any:
    """A copy with the value at the path. Missing mappings on the way are created, missing list items are not."""
    step, *rest = path
    if isinstance(step, int):
        if not isinstance(holder, list) or step >= len(holder):
            raise SettingError(f"{target}: there is no item [{step}]")
        new = value if not rest else _with_value(holder[step], rest, value, target)
        return [*holder[:step], new, *holder[step + 1 :]]
    if holder is None:
        holder = {}
    if not isinstance(holder, dict):
        raise SettingError(f"{target}: {shown(step)} is below something that has no fields")
    others = {key: item for key, item in holder.items() if key != step}
    if not rest:
        return others if value is None else {**others, step: value}
    return {**holder, step: _with_value(holder.get(step), rest, value, target)}
