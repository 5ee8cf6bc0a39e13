"""Which offering of which instance type does a claim get (07 §4)?

The cheapest that is available and that its requirements allow. Where several are as cheap, one is drawn from the
claim's UID, so that every process that is asked draws the same: a launch that is tried again, after a crash too, asks
for the same machine.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import chain

from dovetail.api import names
from dovetail.api.objects import NodeClaim, Requirement
from dovetail.ports import CloudError, InstanceType, InsufficientCapacity, Offering

Wanted = Mapping[str, Sequence[Requirement]]

_INTEGER = re.compile("[+-]?[0-9]{1,18}")
_NAMES_SHOWN = 5


# -- requirements ------------------------------------------------------------------------------------------------------


def by_key(requirements: Iterable[Requirement]) -> dict[str, list[Requirement]]:
    """The requirements of each label, under its name of today."""
    found: dict[str, list[Requirement]] = {}
    for each in requirements:
        found.setdefault(names.NORMALISED_LABELS.get(each.key, each.key), []).append(each)
    return found


def accepts(requirement: Requirement, value: str | None) -> bool:
    """Whether a label may have the value; None: there is no such label."""
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    number, bound = _integer(value), _integer(next(iter(requirement.values), None))
    if number is None or bound is None:
        return False
    match requirement.operator:
        case "Gt":
            return number > bound
        case "Lt":
            return number < bound
        case "Gte":
            return number >= bound
        case "Lte":
            return number <= bound
    return False  # an operator that nobody knows allows nothing


def compatible(wanted: Wanted, offered: Iterable[Requirement]) -> bool:
    """Whether each label that is offered can have a value that is wanted. Labels not offered are the claim's to set."""
    for key, asked in by_key(offered).items():
        if key in wanted and not _can_all_hold([*asked, *wanted[key]]):
            return False
    return True


def _can_all_hold(requirements: Sequence[Requirement]) -> bool:
    return any(all(accepts(each, value) for each in requirements) for value in _witnesses(requirements))


def _witnesses(requirements: Sequence[Requirement]) -> Iterable[str | None]:
    """If any value at all is accepted by all, one of these is: nothing lies between a bound and its neighbours."""
    listed = [each.values for each in requirements if each.operator == "In"]
    if listed:
        return min(listed, key=len)
    named = dict.fromkeys(chain.from_iterable(each.values for each in requirements))
    numbers = [number for number in map(_integer, named) if number is not None]
    near = [str(number + step) for number in numbers for step in (-1, 0, 1)]
    return [None, *near, "some other text " + "".join(named)]


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and _INTEGER.fullmatch(text) else None


# -- the choice --------------------------------------------------------------------------------------------------------


def choose(claim: NodeClaim, types: Mapping[str, InstanceType], seed: int) -> tuple[InstanceType, Offering]:
    """The type and offering for the claim. Raises InsufficientCapacity, or CloudError if the claim names no types."""
    wanted = by_key(claim.spec.requirements)
    candidates = _candidates(wanted, types)
    # The types are the candidates themselves by now, and the list of their names can be long.
    wanted.pop(names.INSTANCE_TYPE_LABEL)
    best_price = float("inf")
    best: tuple[InstanceType, list[Offering]] | None = None
    for type_ in candidates:
        cheap = [each for each in type_.offerings if each.available and each.price < best_price]
        if not cheap or not compatible(wanted, type_.requirements):
            continue
        fitting = [each for each in cheap if compatible(wanted, each.requirements)]
        if fitting:
            best_price = min(each.price for each in fitting)
            best = type_, [each for each in fitting if each.price == best_price]
    if best is None:
        listed = ", ".join(type_.name for type_ in candidates[:_NAMES_SHOWN]) or "any type"
        more = f" and {len(candidates) - _NAMES_SHOWN} more" if len(candidates) > _NAMES_SHOWN else ""
        raise InsufficientCapacity(f"no available offering of {listed}{more} meets the claim's requirements")
    type_, equal = best
    return type_, equal[_drawn(seed, claim.metadata.uid, len(equal))]


def _candidates(wanted: Wanted, types: Mapping[str, InstanceType]) -> list[InstanceType]:
    """The types that the claim lists, in its order."""
    asked = wanted.get(names.INSTANCE_TYPE_LABEL, ())
    listed = next((each.values for each in asked if each.operator == "In"), [])
    if not listed:
        raise CloudError(
            f"instance type requirement not found: the claim has to list its types, as {names.INSTANCE_TYPE_LABEL} In "
            "[...]; a static NodePool (spec.replicas) has to say so in its template"
        )
    unknown = [name for name in listed if name not in types]
    if unknown:
        raise CloudError(f"instance type {unknown[0]!r} is not in the catalogue")
    return [types[name] for name in listed if all(accepts(each, name) for each in asked)]


def _drawn(seed: int, uid: str, number: int) -> int:
    """One of so many. Neither Python's own hash nor its random numbers: those may differ between processes."""
    assert uid, "a claim without a UID cannot be told from another"
    digest = sha256(f"{seed}/{uid}".encode()).digest()
    return int.from_bytes(digest[:8]) % number
