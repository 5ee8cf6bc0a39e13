"""Resource requests of pods and capacities of nodes in whole numbers."""

from collections.abc import Mapping
from typing import Any

from dovetail.sim.actors.wire import Raw
from dovetail.values.quantity import QuantityError, parse_quantity

Amounts = Mapping[str, int]

# kube-scheduler's scores assume these requests for a container without any.
_SCORE_FLOORS = {"cpu": "100m", "memory": "200Mi"}


def amount(name: str, text: object) -> int:
    """A quantity in thousandths for cpu, else in whole units; 0 if it cannot be parsed."""
    try:
        quantity = parse_quantity(str(text))
    except QuantityError:
        return 0
    return quantity.milli() if name == "cpu" else quantity.value()


def amounts(raw: Raw | None) -> dict[str, int]:
    return {name: amount(name, text) for name, text in (raw or {}).items()}


def pod_requests(spec: Raw) -> dict[str, int]:
    """The effective request: the peak of init containers, sidecars and containers, plus the overhead."""
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
    peak.update(_requests(spec))  # pod-level resources override the sum
    _add(peak, amounts(spec.get("overhead")))
    return peak


def _requests(container: Raw) -> dict[str, int]:
    return amounts(_given(container))


def _add(total: dict[str, int], more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: dict[str, int], other: Amounts) -> None:
    for name, value in other.items():
        total[name] = max(total.get(name, 0), value)


def score_requests(spec: Raw) -> tuple[int, int]:
    """cpu and memory as the scores count them, with a minimum for each container."""
    filled: dict[str, Any] = dict(spec)
    for field in ("initContainers", "containers"):
        filled[field] = [
            {**container, "resources": {"requests": {**_SCORE_FLOORS, **_given(container)}}}
            for container in spec.get(field) or ()
        ]
    requests = pod_requests(filled)
    return requests.get("cpu", 0), requests.get("memory", 0)


def _given(container: Raw) -> dict[str, Any]:
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
