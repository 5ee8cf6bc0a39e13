"""Resource requests of pods and the resources of nodes (05 §4).

Amounts are ints: thousandths of a cpu, bytes, units. Text that is unreadable, negative or more than 64 bits is refused
by name: a pod with such a request cannot be placed; on a node it counts as nothing and is reported.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from operator import add, sub
from typing import Final

import msgspec

from dovetail.api import names
from dovetail.api.objects import Node, NodeClaim, Quantities
from dovetail.api.pod_specs import Container, ContainerStatus, SchedulingPod
from dovetail.values.duration import shown
from dovetail.values.quantity import MAX_LENGTH, QuantityError, parse_quantity

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
HUGE_PAGES_PREFIX: Final = "hugepages-"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
MAX_AMOUNT: Final = 2**63 - 1

_BINARY: Final = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


class BadQuantity(msgspec.Struct, frozen=True):
    """A text that is not an amount of the resource, and why."""

    resource: str
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{shown(self.resource)}: {self.reason}"


class ResourceError(ValueError):
    """A request of a pod is not an amount."""

    def __init__(self, quantity: BadQuantity) -> None:
        super().__init__(str(quantity))
        self.quantity = quantity


class Resources:
    """Amounts by resource name. Immutable, and equal by content; 0 equals missing."""

    __slots__ = ("_amounts", "_hash")

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        self._amounts = {name: amount for name, amount in sorted((amounts or {}).items()) if amount}
        self._hash: int | None = None

    def __getitem__(self, name: str) -> int:
        return self._amounts.get(name, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def items(self) -> Iterable[tuple[str, int]]:
        return self._amounts.items()

    def __bool__(self) -> bool:
        return bool(self._amounts)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Resources) and self._amounts == other._amounts)

    def __hash__(self) -> int:
        if self._hash is None:  # most are only steps of a sum
            self._hash = hash(tuple(self._amounts.items()))
        return self._hash

    def __repr__(self) -> str:
        return f"Resources({self._amounts})"

    def __add__(self, other: "Resources") -> "Resources":
        if not self or not other:
            return self or other
        return self._each(other, add)

    def __sub__(self, other: "Resources") -> "Resources":
        return self._each(other, sub) if other else self

    def __or__(self, other: "Resources") -> "Resources":
        """The larger amount of each resource."""
        return self if self == other else self._each(other, max)

    def __and__(self, other: "Resources") -> "Resources":
        """The smaller amount of each resource."""
        return self._each(other, min)

    def _each(self, other: "Resources", of: Callable[[int, int], int]) -> "Resources":
        return Resources({name: of(self[name], other[name]) for name in self._amounts.keys() | other._amounts.keys()})

    def fits(self, free: "Resources") -> bool:
        """Whether there is room. A node with an overdrawn resource has room for nothing (05 §4.4)."""
        return self.lacking(free) is None

    def lacking(self, free: "Resources") -> str | None:
        """The first resource, by name, that is short or overdrawn."""
        overdrawn = next((name for name, amount in free.items() if amount < 0), None)
        return overdrawn or next((name for name, amount in self.items() if amount > free[name]), None)


NOTHING: Final = Resources()
ONE_POD: Final = Resources({PODS: 1})


def total(parts: Iterable[Resources]) -> Resources:
    amounts: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            amounts[name] = amounts.get(name, 0) + amount
    return Resources(amounts)


def read_amounts(quantities: Quantities) -> Resources:
    """The amounts that a pod asks for. Raises ResourceError."""
    resources, bad = offered_amounts(quantities)
    if bad:
        raise ResourceError(bad[0])
    return resources


def offered_amounts(quantities: Quantities) -> tuple[Resources, tuple[BadQuantity, ...]]:
    """The amounts of a node or instance type, and those that cannot be read."""
    if not quantities:
        return NOTHING, ()
    # Cut, because the cache must not hold megabytes.
    return _amounts(tuple([(name, str(text)[: MAX_LENGTH + 1]) for name, text in quantities.items()]))


@lru_cache(maxsize=16384)  # 100,000 pods ask for a few hundred different amounts
def _amounts(items: tuple[tuple[str, str], ...]) -> tuple[Resources, tuple[BadQuantity, ...]]:
    amounts = {name: _amount(name, text) for name, text in items}
    return (
        Resources({name: amount for name, amount in amounts.items() if isinstance(amount, int)}),
        tuple(amount for _, amount in sorted(amounts.items()) if isinstance(amount, BadQuantity)),
    )


def _amount(resource: str, text: str) -> int | BadQuantity:
    try:
        quantity = parse_quantity(text)
    except QuantityError as error:
        return BadQuantity(resource, text, str(error))
    amount = quantity.milli() if resource == CPU else quantity.value()
    if amount < 0:
        return BadQuantity(resource, text, f"{shown(text)} is negative")
    if amount > MAX_AMOUNT:
        return BadQuantity(resource, text, f"{shown(text)} is more than any machine has")
    return amount


def amount_text(resource: str, amount: int) -> str:
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith(HUGE_PAGES_PREFIX):
        unit, size = next((unit_and_size for unit_and_size in _BINARY if amount >= unit_and_size[1]), ("", 1))
        return f"{amount // size}{unit}" if amount % size == 0 else f"{amount / size:.1f}{unit}"
    return str(amount)


def pod_request(pod: SchedulingPod) -> Resources:
    """The request of the pod, including 1 of the resource `pods`. Raises ResourceError."""
    spec = pod.spec
    known = {status.name: status for status in (*pod.status.container_statuses, *pod.status.init_container_statuses)}
    infeasible = _resize_infeasible(pod)
    sidecars: dict[str, int] = {}
    steps: dict[str, int] = {}  # the most that an init container and the sidecars before it take
    for container in spec.init_containers:
        for name, amount in _container_request(container, known, infeasible).items():
            together = sidecars.get(name, 0) + amount
            steps[name] = max(steps.get(name, 0), together)
            if container.restart_policy == "Always":
                sidecars[name] = together
    running = total(_container_request(container, known, infeasible) for container in spec.containers)
    peak = (running + Resources(sidecars)) | Resources(steps)
    request = _pod_level(pod, peak) + read_amounts(spec.overhead) + ONE_POD
    for name, amount in request.items():
        if amount > MAX_AMOUNT:
            raise ResourceError(BadQuantity(name, str(amount), "all together is more than any machine has"))
    return request


def _container_request(container: Container, known: Mapping[str, ContainerStatus], infeasible: bool) -> Resources:
    """During a resize, the larger of the current and the wanted request; if the resize is infeasible, the
    current one.
    """
    wants = read_amounts({**container.resources.limits, **container.resources.requests})
    status = known.get(container.name)
    if status is None:
        return wants
    has = read_amounts(status.resources.requests) | read_amounts(status.allocated_resources)
    return has if infeasible and has else wants | has


def _resize_infeasible(pod: SchedulingPod) -> bool:
    return pod.status.resize == "Infeasible" or any(
        (condition.type, condition.status, condition.reason) == ("PodResizePending", "True", "Infeasible")
        for condition in pod.status.conditions
    )


def _pod_level(pod: SchedulingPod, summed: Resources) -> Resources:
    """Requests of the pod as a whole replace the sum; limits only where no container requests anything."""
    whole = pod.spec.resources
    if not (whole.requests or whole.limits):
        return summed
    limits = {name: text for name, text in whole.limits.items() if not summed[name]}
    stated = {name: text for name, text in {**limits, **whole.requests}.items() if _is_pod_level(name)}
    amounts = read_amounts(stated)
    return Resources({**dict(summed.items()), **{name: amounts[name] for name in stated}})


def _is_pod_level(resource: str) -> bool:
    return resource in (CPU, MEMORY) or resource.startswith(HUGE_PAGES_PREFIX)


class NodeResources(msgspec.Struct, frozen=True):
    """The resources of a Node, its claim, or both. `bad` amounts count as nothing."""

    allocatable: Resources
    capacity: Resources
    bad: tuple[BadQuantity, ...] = ()


def node_resources(node: Node | None, claim: NodeClaim | None) -> NodeResources:
    """The resources of the Node; until it is initialized, missing ones come from its claim (05 §4.6).

    A kubelet that is starting reports zero of what its device plugins have not counted yet.
    """
    bad: list[BadQuantity] = []

    def read(quantities: Quantities) -> Resources:
        amounts, problems = offered_amounts(quantities)
        bad.extend(problems)
        return amounts

    if node is None:
        assert claim is not None
        return NodeResources(read(claim.status.allocatable), read(claim.status.capacity), tuple(bad))
    allocatable, capacity = read(node.status.allocatable), read(node.status.capacity)
    if claim is not None and node.metadata.labels.get(names.INITIALIZED_LABEL) != "true":
        allocatable = _filled(allocatable, read(claim.status.allocatable))
        capacity = _filled(capacity, read(claim.status.capacity))
    return NodeResources(allocatable, capacity, tuple(bad))


def _filled(offered: Resources, expected: Resources) -> Resources:
    return Resources({**dict(expected.items()), **dict(offered.items())})


def type_allocatable(capacity: Resources, overhead: Resources) -> Resources:
    """The resources that an instance type leaves for pods. Memory for huge pages is no ordinary memory (05 §4.7)."""
    left = capacity - overhead
    huge = sum(amount for name, amount in capacity.items() if name.startswith(HUGE_PAGES_PREFIX))
    if not huge or left[MEMORY] <= 0:
        return left
    return left - Resources({MEMORY: min(huge, left[MEMORY])})
