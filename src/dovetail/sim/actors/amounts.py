"""How much does a pod request, and how much has a node, in whole numbers?"""

from collections.abc import Mapping
from typing import Any

from dovetail.sim.actors.wire import Raw
from dovetail.values.quantity import QuantityError, parse_quantity

Amounts = Mapping[str, int]

# What the scheduler's scores assume where a container requests nothing.
DEFAULT_CPU_MILLI = 100
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024


def amount(name: str, text: object) -> int:
    """A quantity in thousandths for cpu, in whole units for everything else; unreadable counts nothing."""
    try:
        quantity = parse_quantity(str(text))
    except QuantityError:
        return 0
    return quantity.milli() if name == "cpu" else quantity.value()


def amounts(raw: Raw | None) -> dict[str, int]:
    return {name: amount(name, text) for name, text in (raw or {}).items()}


def pod_requests(spec: Raw) -> dict[str, int]:
    """The effective request: init containers one by one, sidecars from their start on, and the overhead."""
    running: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, own)
            _raise_to(peak, sidecars)
        else:
            _raise_to(peak, {name: own.get(name, 0) + sidecars.get(name, 0) for name in {**own, **sidecars}})
    for container in spec.get("containers") or ():
        _add(running, _requests(container))
    _add(running, sidecars)
    _raise_to(peak, running)
    peak.update(_requests(spec))  # pod-level resources stand over the sum
    _add(peak, amounts(spec.get("overhead")))
    return peak


def _requests(container: Raw) -> dict[str, int]:
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _add(total: dict[str, int], more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: dict[str, int], other: Amounts) -> None:
    for name, value in other.items():
        total[name] = max(total.get(name, 0), value)


def score_requests(spec: Raw) -> tuple[int, int]:
    """cpu and memory as the scores count them: a container that asks for nothing is given something."""
    floors = {"cpu": f"{DEFAULT_CPU_MILLI}m", "memory": str(DEFAULT_MEMORY_BYTES)}
    filled: dict[str, Any] = dict(spec)
    for field in ("initContainers", "containers"):
        filled[field] = [
            {**container, "resources": {"requests": {**floors, **_given(container)}}}
            for container in spec.get(field) or ()
        ]
    requests = pod_requests(filled)
    return requests.get("cpu", 0), requests.get("memory", 0)


def _given(container: Raw) -> dict[str, Any]:
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
