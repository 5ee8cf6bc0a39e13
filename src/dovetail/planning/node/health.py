"""Decides which unhealthy nodes are replaced, and when (02 §11, R24a, R47)."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from dovetail.api import names, objects
from dovetail.values.duration import SECOND, add

TOLERATED_PERCENT = 20


class RepairPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Replaces a node whose condition has this status for so long, with a drain of at most `drain_seconds`."""

    condition: str
    status: str
    toleration_seconds: int
    drain_seconds: int | None = None  # None: only the claim limits the drain


class NodeFault(msgspec.Struct, frozen=True):
    """A fault of a node, and when it is replaced for it."""

    condition: str
    replace_at: datetime
    drain_seconds: int | None = None


def ailment(node: objects.Node, policies: Sequence[RepairPolicy]) -> NodeFault | None:
    """The fault that is due first; None for a healthy node."""
    faults = [
        NodeFault(condition.type, replace_at, policy.drain_seconds)
        for condition in node.status.conditions
        for policy in policies
        if (condition.type, condition.status) == (policy.condition, policy.status)
        and condition.last_transition_time is not None
        and (replace_at := add(condition.last_transition_time, policy.toleration_seconds * SECOND)) is not None
    ]
    return min(faults, key=lambda fault: (fault.replace_at, fault.condition), default=None)


def is_repaired(node: objects.Node) -> bool:
    """Whether the Node may be replaced (R47)."""
    return node.metadata.annotations.get(names.DO_NOT_REPAIR) != "true"


def too_many_unhealthy(nodes: Iterable[objects.Node], policies: Sequence[RepairPolicy]) -> str | None:
    """The 20 % guard: replacing nodes does not repair a fault of the whole cluster. None: replace."""
    all_ = list(nodes)
    unhealthy = sum(ailment(node, policies) is not None for node in all_)
    tolerated = -(-len(all_) * TOLERATED_PERCENT // 100)
    if unhealthy <= tolerated:
        return None
    return f"{unhealthy} of {len(all_)} nodes are unhealthy, more than {TOLERATED_PERCENT} % ({tolerated})"


def snake_case(condition: str) -> str:
    """For metrics: KernelReady is kernel_ready, PIDPressure is pid_pressure."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", condition).lower()
