"""Checks and results that both engines share, for existing and for new nodes."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from dovetail.scheduling.host_ports import HostPorts, conflict
from dovetail.scheduling.no_place import Lack, NoPlace
from dovetail.scheduling.placement import NewClaim, NodeInfo, Origin, PodError, PodInfo, SchedulingOptions, Solution
from dovetail.scheduling.relaxation import RelaxedRequest
from dovetail.scheduling.taints import Taints, untolerated


class Refusal(Exception):
    """The pod cannot go there; the message is for people."""

    def __init__(self, message: object = "", lack: Lack = Lack.TYPES) -> None:
        super().__init__(message)
        self.lack = lack


class RefusedByAll(Refusal):
    """No NodePool makes a node for the pod, and no node takes it."""

    def __init__(self, no_place: NoPlace) -> None:
        super().__init__(no_place)
        self.no_place = no_place


class PlacementDeferred(Exception):
    """The pod has to wait for the next run: relaxing does not help."""


class NodeDraft(Protocol):
    """A new node and its pods."""

    @property
    def pods(self) -> Sequence[PodInfo]: ...


D = TypeVar("D", bound=NodeDraft)


def pod_error(pod: PodInfo, refusal: Refusal | PlacementDeferred) -> PodError:
    waiting = isinstance(refusal, PlacementDeferred)
    no_place = refusal.no_place if isinstance(refusal, RefusedByAll) else None
    return PodError(pod.ref, pod.origin, str(refusal), waiting, no_place)


def check_taints(wish: RelaxedRequest, taints: Taints) -> None:
    if taint := untolerated(wish.tolerations, taints):
        value = f"={taint.value}" if taint.value else ""
        raise Refusal(f"the taint {taint.key}{value}:{taint.effect} is not tolerated", Lack.TAINTS)


def check_ports(ports: HostPorts, taken: HostPorts) -> None:
    if port := conflict(ports, taken):
        raise Refusal(f"host port {port} is taken", Lack.PORTS)


def solution(
    order: Iterable[PodInfo],
    placed: Iterable[tuple[NodeInfo, Sequence[PodInfo]]],
    drafts: Iterable[D],
    errors: dict[str, PodError],
    options: SchedulingOptions,
    *,
    finish: Callable[[D], NewClaim],
) -> Solution:
    """The solution, with errors in the order of the pods.

    With `refuse_uninitialized` only pods of deleting nodes may wait for a node to come up: they have to move anyway
    (05 §12.3).
    """
    existing = {}
    for node, pods in placed:
        if options.refuse_uninitialized and not node.initialized:
            why = Refusal(f"node {node.name} is not initialized")
            errors |= {pod.uid: pod_error(pod, why) for pod in pods if pod.origin is not Origin.DELETING}
        if kept := tuple(pod.uid for pod in pods if pod.uid not in errors):
            existing[node.name] = kept
    claims = []
    for draft in drafts:
        try:
            claims.append(finish(draft))
        except Refusal as refusal:
            errors |= {pod.uid: pod_error(pod, refusal) for pod in draft.pods}
    in_order = {pod.uid: errors[pod.uid] for pod in order if pod.uid in errors}
    return Solution(existing=existing, new_claims=tuple(claims), errors=in_order)
