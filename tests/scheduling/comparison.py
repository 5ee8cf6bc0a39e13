"""Do two engines give the same answer to a problem, and if not, what is the smallest problem that shows it?"""

import importlib
import time
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from functools import partial, reduce
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.scheduling import reference
from dovetail.scheduling.host_ports import NO_PORTS
from dovetail.scheduling.placement import NodeInfo, PlacementRequest, Solution
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.resources import NOTHING
from dovetail.values.selector import Expression, Selector

FAST: Final = "dovetail.scheduling.fast"
Engine = Callable[[PlacementRequest], Solution]


def engines_of(module: str) -> list[Engine]:
    """Its engine, asked at once and, if it can be prepared, asked again. Without it, that is what a test says."""
    try:
        found = importlib.import_module(module)
        solve: Engine = found.solve
    except (ModuleNotFoundError, AttributeError) as error:
        raise AssertionError(f"there is no engine to compare with: {error}") from error
    return [solve, partial(_asked_again, found.World)] if hasattr(found, "World") else [solve]


def _asked_again(world_of: Callable[..., Any], problem: PlacementRequest) -> Solution:
    """By an engine that has been asked other questions before, of nodes with other pods: they leave no trace."""
    closed = [node.name for node in problem.nodes if not node.open]
    nodes = [msgspec.structs.replace(node, open=True) for node in problem.nodes]
    world = world_of(_earlier(nodes), problem.pools, problem.types, problem.daemons, problem.options)
    for pods, without in ((problem.pods[::2], closed[:1]), (problem.pods[1::3], [node.name for node in nodes[-1:]])):
        world.what_if(pods, without=without)
    world.update(nodes)
    solution: Solution = world.what_if(problem.pods, without=closed, explain=True)
    return solution


def _earlier(nodes: list[NodeInfo]) -> list[NodeInfo]:
    """When a third of them had only some of their pods, and another third those of the next node."""
    found = list(nodes)
    for at in range(0, len(nodes), 3):
        found[at] = msgspec.structs.replace(nodes[at], pods=nodes[at].pods[::2], requested=NOTHING, ports=NO_PORTS)
    for at in range(1, len(nodes) - 1, 3):
        one, other = nodes[at], nodes[at + 1]
        found[at] = msgspec.structs.replace(one, pods=other.pods, attachments=other.attachments)
        found[at + 1] = msgspec.structs.replace(other, pods=one.pods, requested=one.requested)
    return found


class Difference(NamedTuple):
    """Where two answers differ, and what each of them is there."""

    where: str
    reference: object
    other: object

    def __str__(self) -> str:
        return f"{self.where}:\n  reference {shown(self.reference)}\n  other     {shown(self.other)}"


def difference(problem: PlacementRequest, engine: Engine, wanted: Solution | None = None) -> Difference | None:
    """The first thing that the engine answers differently from the reference."""
    wanted = wanted or reference.solve(problem)
    try:
        got = engine(problem)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no answer
        return Difference(f"raised {type(error).__name__}", wanted, f"{type(error).__name__}: {error}")
    return compared(wanted, got)


def compared(wanted: Solution, got: Solution) -> Difference | None:
    """In all fields, and in the order of everything that has one: people are told of the first errors only."""
    for field in ("existing", "errors"):
        mine, other = getattr(wanted, field), getattr(got, field)
        for key in (*mine, *(each for each in other if each not in mine)):
            if mine.get(key) != other.get(key):
                return Difference(f"{field}[{key}]", mine.get(key), other.get(key))
        if list(mine) != list(other):
            return Difference(f"order of {field}", list(mine), list(other))
    if len(wanted.new_claims) != len(got.new_claims):
        return Difference("new_claims", wanted.new_claims, got.new_claims)
    for index, (claim, its) in enumerate(zip(wanted.new_claims, got.new_claims, strict=True)):
        for name in claim.__struct_fields__:
            if getattr(claim, name) != getattr(its, name):
                return Difference(f"new_claims[{index}].{name}", getattr(claim, name), getattr(its, name))
    return None


# -- the smallest problem that shows it --------------------------------------------------------------------------------

Wrong = Callable[[Any], bool]
_KEPT = frozenset({"uid", "name", "key", "well_known"})


def shrunk(
    problem: PlacementRequest, wrong: Callable[[PlacementRequest], bool], seconds: float = 60.0
) -> PlacementRequest:
    """As little of the problem as is still wrong; when the time is over, what has been reached."""
    deadline = time.monotonic() + seconds

    def still_wrong(smaller: PlacementRequest) -> bool:
        return time.monotonic() < deadline and wrong(smaller)

    before = None
    while problem != before:
        before, problem = problem, _smallest(problem, still_wrong)
    return problem


def shrunk_difference(
    problem: PlacementRequest, engine: Engine, seconds: float = 60.0
) -> tuple[PlacementRequest, Difference]:
    """Of a problem for which there is one. An exception stays the same."""
    first = difference(problem, engine)
    assert first is not None, "there is nothing to be made smaller"

    def wrong(each: PlacementRequest) -> bool:
        found = difference(each, engine)
        return found is not None and (found.where == first.where or not found.where.startswith("raised"))

    smallest = shrunk(problem, wrong, seconds)
    found = difference(smallest, engine)
    assert found is not None
    return smallest, found


def _smallest(thing: Any, wrong: Wrong) -> Any:
    """The thing with as little in it as is still wrong. What is in it is left out first, then made smaller."""
    match thing:
        case msgspec.Struct():
            return _smallest_struct(thing, wrong)
        case Requirements():
            return Requirements(_fewest(tuple(thing), lambda left: wrong(Requirements(left))))
        case frozenset():
            return frozenset(_fewest(tuple(sorted(thing, key=repr)), lambda left: wrong(frozenset(left))))
        case dict():
            thing = dict(_fewest(tuple(thing.items()), lambda left: wrong(dict(left))))
            return _smaller_parts(thing, list(thing), lambda whole, key, part: {**whole, key: part}, wrong)
        case tuple() if type(thing) is tuple:
            thing = _fewest(thing, wrong)
            places = list(range(len(thing)))
            return _smaller_parts(thing, places, lambda whole, at, part: (*whole[:at], part, *whole[at + 1 :]), wrong)
        case _:
            return thing


def _smaller_parts(whole: Any, places: list[Any], put: Callable[[Any, Any, Any], Any], wrong: Wrong) -> Any:
    def smaller(whole: Any, place: Any) -> Any:
        return put(whole, place, _smallest(whole[place], lambda part: wrong(put(whole, place, part))))

    return reduce(smaller, places, whole)


def _smallest_struct(thing: Any, wrong: Wrong) -> Any:
    """A field is as by default, if that will do."""

    def smaller(thing: Any, field: msgspec.structs.FieldInfo) -> Any:
        def put(value: Any) -> Any:
            return msgspec.structs.replace(thing, **{field.name: value})

        value, default = getattr(thing, field.name), _default(field)
        if value == default:
            return thing
        if default is not msgspec.NODEFAULT and wrong(put(default)):
            return put(default)
        return thing if field.name in _KEPT else put(_smallest(value, lambda part: wrong(put(part))))

    return reduce(smaller, msgspec.structs.fields(thing), thing)


def _fewest(items: tuple[Any, ...], wrong: Wrong) -> tuple[Any, ...]:
    """Without as many as can be left out: half of them at once, a quarter, … one."""
    step = len(items)
    while step:
        at = 0
        while at < len(items):
            left = items[:at] + items[at + step :]
            if wrong(left):
                items = left
            else:
                at += step
        step //= 2
    return items


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


# -- as a program would write it ---------------------------------------------------------------------------------------


def shown(thing: Any, indent: str = "") -> str:
    """Python for it, without what is as by default."""
    deeper = indent + "  "
    match thing:
        case Requirements():
            return f"Requirements({shown(tuple(thing), indent)})"
        case msgspec.Struct():
            said = [
                f"{field.name}={shown(getattr(thing, field.name), deeper)}"
                for field in msgspec.structs.fields(thing)
                if getattr(thing, field.name) != _default(field)
            ]
            return f"{type(thing).__name__}({_listed(said, deeper)})"
        case tuple() if type(thing) is tuple:
            said = [shown(each, deeper) for each in thing]
            return f"({said[0]},)" if len(said) == 1 else f"({_listed(said, deeper)})"
        case frozenset():
            return f"frozenset([{_listed([shown(each, deeper) for each in sorted(thing, key=repr)], deeper)}])"
        case dict():
            return f"{{{_listed([f'{key!r}: {shown(each, deeper)}' for key, each in thing.items()], deeper)}}}"
        case Selector() | Expression():
            said = [f"{field.name}={shown(getattr(thing, field.name), deeper)}" for field in fields(thing)]
            return f"{type(thing).__name__}({_listed(said, deeper)})"
        case Enum():
            return f"{type(thing).__name__}.{thing.name}"
        case _:
            return repr(thing)


def _listed(parts: list[str], indent: str) -> str:
    line = ", ".join(parts)
    return line if len(line) < 100 and "\n" not in line else "".join(f"\n{indent}{part}," for part in parts)


def report(seed: int, problem: PlacementRequest, found: Difference) -> str:
    return f"seed {seed}: the engines differ on\n{shown(problem)}\n{found}"
