"""Chooses the instance type and offering for a NodeClaim (07 §4).

The cheapest available offering that meets the requirements wins. Of equally cheap ones, the UID of the claim chooses,
so that a repeated launch gets the same machine, even after a crash.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from hashlib import sha256
from operator import and_

from dovetail.api import names
from dovetail.api.objects import NodeClaim, NodeSelectorRequirement, Quantities
from dovetail.model.instance_types import InstanceType, Offering
from dovetail.ports import CloudError, InsufficientCapacity
from dovetail.scheduling import requirements
from dovetail.scheduling.labels import normalised
from dovetail.scheduling.resources import offered_amounts, read_amounts, type_allocatable

RequirementsByKey = Mapping[str, Sequence[NodeSelectorRequirement]]

_NAMES_SHOWN = 5


def by_key(entries: Iterable[NodeSelectorRequirement]) -> dict[str, list[NodeSelectorRequirement]]:
    """The requirements by label, under current names."""
    entries_by_key: dict[str, list[NodeSelectorRequirement]] = {}
    for entry in entries:
        entries_by_key.setdefault(normalised(entry.key), []).append(entry)
    return entries_by_key


def accepts(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    """Whether a label may have the value; None: may be missing."""
    return _allowed(requirement).has(value)


def compatible(wanted: RequirementsByKey, offered: Iterable[NodeSelectorRequirement]) -> bool:
    """Whether each offered label can have a wanted value. The claim sets the labels that are not offered."""
    return all(
        key not in wanted or _together(asked).agrees(_together(wanted[key])) for key, asked in by_key(offered).items()
    )


def _together(entries: Iterable[NodeSelectorRequirement]) -> requirements.Requirement:
    return reduce(and_, map(_allowed, entries))


def _allowed(entry: NodeSelectorRequirement) -> requirements.Requirement:
    try:
        return requirements.read_requirement(entry)
    except requirements.RequirementError:
        return requirements.one_of(normalised(entry.key), ())  # unreadable: allows nothing


def choose(
    claim: NodeClaim, types: Mapping[str, InstanceType], seed: int, *, like_kwok: bool = True
) -> tuple[InstanceType, Offering]:
    """The type and offering for the claim. Raises InsufficientCapacity, or CloudError if the claim lists no types.

    Unless `like_kwok`, such a claim can get any type that its requests fit, as from most clouds. kwok needs a list and
    does not read requests. Resources that a type does not know are left aside: nodes get them as requested.
    """
    wanted = by_key(claim.spec.requirements)
    candidates = _candidates(wanted, types, must_list=like_kwok)
    if not like_kwok:
        candidates = [type_ for type_ in candidates if _fits(claim.spec.resources.requests, type_)]
    # The candidates already meet it, and the list of names can be long.
    wanted.pop(names.INSTANCE_TYPE_LABEL, None)
    best_price = float("inf")
    best: tuple[InstanceType, list[Offering]] | None = None
    for type_ in candidates:
        cheap = [offering for offering in type_.offerings if offering.available and offering.price < best_price]
        if not cheap or not compatible(wanted, type_.requirements):
            continue
        fitting = [offering for offering in cheap if compatible(wanted, offering.requirements)]
        if fitting:
            best_price = min(offering.price for offering in fitting)
            best = type_, [offering for offering in fitting if offering.price == best_price]
    if best is None:
        listed = ", ".join(type_.name for type_ in candidates[:_NAMES_SHOWN]) or "any type"
        more = f" and {len(candidates) - _NAMES_SHOWN} more" if len(candidates) > _NAMES_SHOWN else ""
        raise InsufficientCapacity(f"no available offering of {listed}{more} meets the claim's requirements")
    type_, equal = best
    return type_, equal[_drawn(seed, claim.metadata.uid, len(equal))]


def _fits(requests: Quantities, type_: InstanceType) -> bool:
    capacity, overhead = (offered_amounts(dict(amounts))[0] for amounts in (type_.capacity, type_.overhead))
    known = {name: amount for name, amount in requests.items() if name in type_.capacity}
    return read_amounts(known).fits(type_allocatable(capacity, overhead))


def _candidates(wanted: RequirementsByKey, types: Mapping[str, InstanceType], *, must_list: bool) -> list[InstanceType]:
    """The types that the claim lists, in its order."""
    asked = wanted.get(names.INSTANCE_TYPE_LABEL, ())
    listed = next((entry.values for entry in asked if entry.operator == "In"), [])
    if not listed and not must_list:
        return [type_ for name, type_ in types.items() if all(_allowed(entry).has(name) for entry in asked)]
    if not listed:
        raise CloudError(
            f"instance type requirement not found: the claim has to list its types, as {names.INSTANCE_TYPE_LABEL} In "
            "[...]; a static NodePool (spec.replicas) has to say so in its template"
        )
    unknown = [name for name in listed if name not in types]
    if unknown:
        raise CloudError(f"instance type {unknown[0]!r} is not in the catalogue")
    allowed = _together(asked)
    return [types[name] for name in listed if allowed.has(name)]


def _drawn(seed: int, uid: str, number: int) -> int:
    """A number below `number`. Python's hash and random numbers may differ between processes."""
    assert uid, "a claim without a UID cannot be told from another"
    digest = sha256(f"{seed}/{uid}".encode()).digest()
    return int.from_bytes(digest[:8]) % number
