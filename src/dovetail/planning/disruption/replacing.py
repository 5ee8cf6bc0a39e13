"""Decides whether nodes can be removed, or replaced by a cheaper one (02 §7.6, §7.7; 05 §12)."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from dovetail.api import names
from dovetail.api.names import CapacityType
from dovetail.model.refs import Redactable, Ref, Sentence
from dovetail.planning.disruption.board import Candidate, DisruptionBoard
from dovetail.scheduling.new_nodes import too_few, types_of
from dovetail.scheduling.placement import MachineType, NewClaim, Offer, Origin, PodInfo, Solution, price_text
from dovetail.scheduling.requirements import Requirements, one_of

# The order in which a launch tries capacity types.
_LAUNCH_ORDER = (CapacityType.RESERVED, CapacityType.SPOT, CapacityType.ON_DEMAND)
_FEWEST_SPOT_TYPES = 15
# A replacement must save at least a twentieth, so that pods are not moved for small savings.
_LEAST_SAVING = 20
SPOT_TO_SPOT = (
    "all of it is spot capacity, and spot is not replaced by spot unless the feature gate SpotToSpotConsolidation is on"
)
# The offers of each type, by name.
Ways = dict[str, list[Offer]]


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A set of nodes that can be removed."""

    candidates: tuple[Candidate, ...]
    solution: Solution
    replacements: tuple[NewClaim, ...] = ()
    savings: int = 0  # billionths per hour
    waves: tuple[tuple[str, ...], ...] = ()  # UIDs of pods that are evicted before the others

    @property
    def cost(self) -> float:
        return sum(candidate.cost for candidate in self.candidates)

    @property
    def savings_per_cost(self) -> float:
        return self.savings / self.cost


class NotConsolidatable(msgspec.Struct, frozen=True):
    """Why the nodes cannot be removed. `too_expensive`: their pods have a place, but it saves nothing.

    `pod`: would find no room. `details`: less important reasons. `field`: what of the NodePool an edit has to change.
    """

    message: Sentence
    too_expensive: bool = False
    pod: Ref | None = None
    details: str = ""
    field: str = ""

    def __str__(self) -> str:
        return str(self.message)


class ConsolidationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the methods.

    `replaces`: a cheaper node may replace others; without it nodes are only removed. `in_waves`: drains evict pods in
    waves (R55); without it all pods of a node are evicted at once.
    """

    spot_to_spot: bool = False
    replaces: bool = True
    in_waves: bool = True


def simulate(
    board: DisruptionBoard,
    candidates: Sequence[Candidate],
    *,
    shut: Sequence[str] = (),
    owed: tuple[PodInfo, ...] | None = None,
    explain: bool = False,
    most_new: int | None = None,
) -> Solution | NotConsolidatable:
    """The targets of the pods (02 §7.5), in addition to the pods that the same pass has moved before.

    `shut`: nodes that take no pods. `owed`: instead of the board's.
    """
    unmovable = next((why for candidate in candidates for why in candidate.unmovable), None)
    if unmovable is not None:
        return NotConsolidatable(unmovable)
    solution = board.world.what_if(
        [*board.moved, *(pod for candidate in candidates for pod in candidate.pods)],
        [*board.gone, *(candidate.node for candidate in candidates)],
        shut=shut,
        owed=board.owed if owed is None else owed,
        explain=explain,
        most_new=most_new,
    )
    if not solution.all_scheduled:
        return _without_place(candidates, solution)
    new = {uid for claim in solution.new_claims for uid in claim.pods} if board.moved else set[str]()
    crowded = next((pod for pod in board.moved if pod.uid in new), None)
    return solution if crowded is None else _crowded(crowded)


def _crowded(pod: PodInfo) -> NotConsolidatable:
    return NotConsolidatable(
        Sentence(Redactable(pod.ref, str(pod)), " moves at the same time, and would lose its place")
    )


def crowded_out(board: DisruptionBoard, solution: Solution) -> NotConsolidatable | None:
    """Whether a pod that needs a place anyway would lose its room on an existing node and need a new one.

    Then nothing is saved: the new node is soon consolidated again. This would repeat for as long as the pod needs a
    place, which is forever where its node drains and a PodDisruptionBudget allows nothing.
    """
    with_room = board.world.with_room(board.owed)
    if not with_room:
        return None
    lost = with_room.difference(*solution.existing.values())
    pod = next((owed_pod for owed_pod in board.owed if owed_pod.uid in lost), None)
    if pod is None:
        return None
    return NotConsolidatable(
        Sentence(Redactable(pod.ref, str(pod)), " needs a place too, and would lose the one that there is for it")
    )


def _without_place(candidates: Iterable[Candidate], solution: Solution) -> NotConsolidatable:
    """The first pod without a place, and why its own NodePool makes no node for it."""
    blocking = {uid: error for uid, error in solution.errors.items() if error.origin is not Origin.PENDING}
    uid, error = next(iter(blocking.items()))
    more = f" (and {len(blocking) - 1} more)" if len(blocking) > 1 else ""
    if error.no_place is None:
        because = f": {error.reason}" if error.reason else ""
        return NotConsolidatable(Sentence(Redactable(error.pod, f"{error.pod.path}{more} has no other place{because}")))
    own = next((candidate.pool for candidate in candidates if any(pod.uid == uid for pod in candidate.pods)), "")
    why = Redactable(error.pod, f"{error.pod.path}{more} {error.no_place.sentence(own)}")
    return NotConsolidatable(Sentence(why), details=error.no_place.others(own), field=error.no_place.field(own))


def decide(
    board: DisruptionBoard, candidates: Sequence[Candidate], rules: ConsolidationOptions
) -> Move | NotConsolidatable:
    """Whether consolidating the nodes is possible and saves something.

    New nodes for pending pods are not replacements: they are created whatever is decided here.
    """
    solution = simulate(board, candidates, most_new=1)
    if isinstance(solution, NotConsolidatable):
        return solution
    if (crowded := crowded_out(board, solution)) is not None:
        return crowded
    moved = {pod.uid for candidate in candidates for pod in candidate.pods}
    new = solution.new_for(moved)
    chosen = tuple(candidates)
    if not new:
        return Move(candidates=chosen, solution=solution, savings=sum(candidate.price or 0 for candidate in candidates))
    if not rules.replaces:
        return NotConsolidatable(Sentence("its pods need a new node, and nodes are not replaced to save cost here"))
    unknown = next((candidate for candidate in candidates if candidate.price is None), None)
    if unknown is not None:
        return NotConsolidatable(
            Sentence(f"the price of node {unknown.node} is not known, so nothing is known to be cheaper")
        )
    replacement = cheaper(board.world.types, new[0], candidates, rules)
    if isinstance(replacement, NotConsolidatable):
        return msgspec.structs.replace(replacement, too_expensive=True)
    price = sum(candidate.price or 0 for candidate in candidates)
    saved = price - launch_price(board.world.types, replacement)
    if saved * _LEAST_SAVING < price:
        little = f"a new node would save {price_text(saved)} of {price_text(price)}, less than a twentieth"
        return NotConsolidatable(Sentence(little), too_expensive=True)
    return Move(candidates=chosen, solution=solution, replacements=(replacement,), savings=saved)


# -- prices ------------------------------------------------------------------------------------------------------------


def cheaper(
    types: Mapping[str, Sequence[MachineType]],
    claim: NewClaim,
    candidates: Sequence[Candidate],
    rules: ConsolidationOptions,
) -> NewClaim | NotConsolidatable:
    """The new node, with only those types that cost less in the worst case than all candidates together."""
    limit = sum(candidate.price or 0 for candidate in candidates)
    allowed = claim.requirements.get(names.CAPACITY_TYPE_LABEL)
    from_spot = all(candidate.spot for candidate in candidates) and allowed.has(CapacityType.SPOT)
    if from_spot and not rules.spot_to_spot:
        return NotConsolidatable(Sentence(SPOT_TO_SPOT))
    ways = _ways_below(types, claim, limit)
    spot = {name: bought for name, offers in ways.items() if (bought := [way for way in offers if _is_spot(way)])}
    if from_spot or (allowed.has(CapacityType.SPOT) and allowed.has(CapacityType.ON_DEMAND) and spot):
        # A failed spot launch must not become a more expensive on-demand launch.
        claim, ways = _pinned(claim, CapacityType.SPOT), spot
    replacement = _below(types, claim, ways, limit)
    if isinstance(replacement, NewClaim) and len(candidates) > 1:
        replacement = _unlike(types, replacement, ways, candidates)
    if isinstance(replacement, NotConsolidatable) or not (from_spot and len(candidates) == 1):
        return replacement
    if len(replacement.types) < _FEWEST_SPOT_TYPES:
        few = f"only with {_FEWEST_SPOT_TYPES} cheaper types to choose from, and there are {len(replacement.types)}"
        return NotConsolidatable(Sentence(f"spot is consolidated into spot {few}"))
    return _fewest(types, replacement)


def _ways_below(types: Mapping[str, Sequence[MachineType]], claim: NewClaim, limit: int) -> Ways:
    """Stops at the first type that is too expensive at its cheapest offer: the types are ordered by price."""
    by_name = {type_.name: type_ for type_ in types_of(types, claim)}
    ways_by_type: Ways = {}
    for name in claim.types:
        ways = _ways(by_name[name], claim) if name in by_name else []
        too_expensive = bool(ways) and min(way.price for way in ways) >= limit
        if ways and not (too_expensive and ways_by_type):  # keeps the cheapest type for the message if none is cheaper
            ways_by_type[name] = ways
        if too_expensive:
            break
    return ways_by_type


def _below(
    types: Mapping[str, Sequence[MachineType]], claim: NewClaim, ways: Ways, limit: int
) -> NewClaim | NotConsolidatable:
    """With the types that cost strictly less than the limit."""
    named = set(claim.types)
    prices = [
        (min(way.price for way in offers), name, worst_price(offers)) for name, offers in ways.items() if name in named
    ]
    if not prices:
        return NotConsolidatable(Sentence("no new node that would do can be bought now"))
    cheap = [name for _, name, worst in sorted(prices) if worst < limit]
    if not cheap:
        least = f"costs {price_text(min(worst for *_, worst in prices))}, not less than {price_text(limit)}"
        return NotConsolidatable(Sentence(f"the cheapest new node that would do {least}"))
    return _with_types(types, claim, cheap)


def _unlike(
    types: Mapping[str, Sequence[MachineType]], claim: NewClaim, ways: Ways, candidates: Iterable[Candidate]
) -> NewClaim | NotConsolidatable:
    """Several nodes become one of the same type only if that is cheaper than the cheapest such node."""
    same = [candidate.price or 0 for candidate in candidates if candidate.type in claim.types]
    return _below(types, claim, ways, min(same)) if same else claim


def _fewest(types: Mapping[str, Sequence[MachineType]], claim: NewClaim) -> NewClaim:
    """The cheapest fifteen types, or more if `minValues` needs them."""
    for number in range(_FEWEST_SPOT_TYPES, len(claim.types) + 1):
        reduced = _with_types(types, claim, claim.types[:number])
        if isinstance(reduced, NewClaim):
            return reduced
    return claim


def _with_types(
    types: Mapping[str, Sequence[MachineType]], claim: NewClaim, kept: Sequence[str]
) -> NewClaim | NotConsolidatable:
    for key, reached in too_few_kinds(types, claim, kept).items():
        return NotConsolidatable(
            Sentence(f"too few different values of {key} would be left among cheaper types: {reached}")
        )
    return msgspec.structs.replace(claim, types=tuple(kept))


def too_few_kinds(
    types: Mapping[str, Sequence[MachineType]], claim: NewClaim, kept: Sequence[str]
) -> Mapping[str, int]:
    """The labels whose `minValues` these types do not reach, with the number of their values."""
    chosen = msgspec.structs.replace(claim, types=tuple(kept))
    return too_few(claim.requirements, list(types_of(types, chosen)))


def _pinned(claim: NewClaim, capacity_type: CapacityType) -> NewClaim:
    only = one_of(names.CAPACITY_TYPE_LABEL, (capacity_type,))
    return msgspec.structs.replace(claim, requirements=claim.requirements.add(only))


def worst_price(ways: Sequence[Offer]) -> int:
    """The highest price of a launch: the most expensive offer of the capacity type that it tries first."""
    prices: dict[CapacityType, int] = {}
    for way in ways:
        asked = way.requirements.get(names.CAPACITY_TYPE_LABEL)
        for capacity_type in _LAUNCH_ORDER:
            if asked.has(capacity_type):
                prices[capacity_type] = max(way.price, prices.get(capacity_type, 0))
    return next(
        (prices[capacity_type] for capacity_type in _LAUNCH_ORDER if capacity_type in prices),
        max(way.price for way in ways),
    )


def launch_price(types: Mapping[str, Sequence[MachineType]], claim: NewClaim) -> int:
    """The expected price: the cheapest offer of its types."""
    return min((way.price for type_ in types_of(types, claim) for way in _ways(type_, claim)), default=0)


def _ways(type_: MachineType, claim: NewClaim) -> list[Offer]:
    """The available offers of the type for this node. Reserved offers count only for its own reservations."""
    node, may_use = claim.requirements, claim.reservations or ("",)
    return [
        offer
        for offer in type_.offers
        if offer.available and offer.reservation in may_use and _suits(node, offer.requirements)
    ]


@lru_cache(maxsize=4096)  # there are few distinct values of either
def _suits(node: Requirements, offer: Requirements) -> bool:
    return node.intersects(offer)


def _is_spot(way: Offer) -> bool:
    return way.requirements.get(names.CAPACITY_TYPE_LABEL).has(CapacityType.SPOT)
