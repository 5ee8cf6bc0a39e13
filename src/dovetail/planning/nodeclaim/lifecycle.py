"""The progress of a NodeClaim from creation to initialization, and what is written next (03 §7)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import ConditionReason, ConditionType, TaintEffect
from dovetail.api.objects import is_true
from dovetail.planning.conditions import FALSE, UNKNOWN, Conditions
from dovetail.planning.timings import Timings
from dovetail.scheduling.taints import is_ephemeral
from dovetail.values.duration import SECOND, add
from dovetail.values.quantity import QuantityError, parse_quantity

_UNREGISTERED = objects.Taint(key=names.UNREGISTERED_TAINT, effect=TaintEffect.NO_EXECUTE)


# -- registration ------------------------------------------------------------------------------------------------------


def registration_patch(claim: objects.NodeClaim, node: objects.Node, label: str) -> dict[str, Any]:
    """The merge patch of registration, with a precondition, because lists are written as a whole.

    `label`: of the node class. Termination only handles Nodes that have it (03 §7.5).
    """
    meta = node.metadata
    return {
        "metadata": {
            "resourceVersion": meta.resource_version,
            "finalizers": _with(meta.finalizers, names.TERMINATION_FINALIZER),
            "ownerReferences": [to_body(owner) for owner in _with_owner(meta.owner_references, claim)],
            "labels": {
                **claim.metadata.labels,
                label: claim.spec.node_class_ref.name,
                names.REGISTERED_LABEL: "true",
            },
            "annotations": claim.metadata.annotations,
        },
        "spec": {"taints": [to_body(taint) for taint in _registered_taints(claim, node)]},
    }


def lacks_guard(node: objects.Node) -> bool:
    """Whether pods may have been bound before the node had its taints (03 §7.2)."""
    registered = node.metadata.labels.get(names.REGISTERED_LABEL) == "true"
    return not registered and not any(taint.matches(_UNREGISTERED) for taint in node.spec.taints)


def is_new(node: objects.Node, conditions: Conditions) -> bool:
    """Whether the Node is unregistered and newer than the registration of its claim, as after a kubelet restart.

    Labels do not count, because people edit them.
    """
    created_at, registered_at = node.metadata.creation_timestamp, conditions.since(ConditionType.REGISTERED)
    if created_at is None or registered_at is None or node.metadata.deletion_timestamp is not None:
        return False
    return created_at > registered_at and names.TERMINATION_FINALIZER not in node.metadata.finalizers


def _registered_taints(claim: objects.NodeClaim, node: objects.Node) -> list[objects.Taint]:
    taints = [taint for taint in node.spec.taints if not taint.matches(_UNREGISTERED)]
    if node.metadata.labels.get(names.DO_NOT_SYNC_TAINTS_LABEL) == "true":
        return taints
    # A removed startup taint must not come back.
    synced = node.metadata.labels.get(names.REGISTERED_LABEL) == "true"
    for wanted in () if synced else (*claim.spec.taints, *claim.spec.startup_taints):
        if not any(taint.matches(wanted) for taint in taints):
            taints.append(wanted)
    return taints


def _with(texts: Sequence[str], text: str) -> list[str]:
    return [*texts, *(() if text in texts else (text,))]


def _with_owner(owners: Sequence[objects.OwnerReference], claim: objects.NodeClaim) -> list[objects.OwnerReference]:
    owner = objects.OwnerReference(
        api_version=names.API_VERSION,
        kind=names.NODECLAIM_KIND,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        block_owner_deletion=True,
    )
    is_listed = any(
        (other.api_version, other.kind, other.uid) == (owner.api_version, owner.kind, owner.uid) for other in owners
    )
    return [*owners, *(() if is_listed else (owner,))]


def to_body(struct: objects.Wire) -> dict[str, Any]:
    """A struct as JSON for the API."""
    body: dict[str, Any] = msgspec.to_builtins(struct)
    return body


# -- initialization ----------------------------------------------------------------------------------------------------


class InitializationBlocker(msgspec.Struct, frozen=True):
    """Why a registered claim is not initialized."""

    reason: ConditionReason
    message: str


def why_not_initialized(claim: objects.NodeClaim, node: objects.Node) -> InitializationBlocker | None:
    """The first failed check (03 §7.3)."""
    name = node.metadata.name
    if not is_ready(node):
        return InitializationBlocker(ConditionReason.NODE_NOT_READY, f"Node {name} is not Ready")
    for taint in node.spec.taints:
        if any(map(taint.matches, claim.spec.startup_taints)):
            return InitializationBlocker(
                ConditionReason.STARTUP_TAINTS_EXIST, f"Node {name} still has startup taint {_text(taint)}"
            )
    for taint in filter(is_ephemeral, node.spec.taints):
        return InitializationBlocker(
            ConditionReason.KNOWN_EPHEMERAL_TAINTS_EXIST, f"Node {name} still has taint {_text(taint)}"
        )
    for resource, amount in sorted(claim.spec.resources.requests.items()):
        if not _is_zero(amount) and _is_zero(node.status.allocatable.get(resource, "0")):
            return InitializationBlocker(
                ConditionReason.RESOURCE_NOT_REGISTERED, f"Node {name} does not offer {resource} yet"
            )
    return None


def _is_zero(amount: str | int | float) -> bool:
    """A quantity that cannot be read counts as 0."""
    try:
        return parse_quantity(str(amount)).nano == 0
    except QuantityError:
        return True


def is_ready(node: objects.Node) -> bool:
    """A missing condition counts as not ready (03 §10.20)."""
    return is_true(node, ConditionType.READY)


def _text(taint: objects.Taint) -> str:
    return f"{taint.key}:{taint.effect}"


# -- timeouts ----------------------------------------------------------------------------------------------------------


class LivenessTimeout(msgspec.Struct, frozen=True):
    """The claim took too long and is deleted. `reason`: the label of metrics."""

    reason: str
    message: str


def liveness(conditions: Conditions, now: datetime, timings: Timings) -> LivenessTimeout | datetime | None:
    """Whether the claim took too long, or when it will have; None: it is registered and has its Node (03 §7.4)."""
    seconds = timings.registration_timeout_seconds
    limits = [(ConditionType.REGISTERED, seconds, "registration_timeout", "not registered within")]
    if conditions.is_true(ConditionType.REGISTERED):
        limits = [(ConditionType.NODE_LOST, timings.lost_node_seconds, "node_lost", "without a Node for")]
    elif not conditions.is_true(ConditionType.LAUNCHED):
        limits.insert(
            0, (ConditionType.LAUNCHED, timings.launch_timeout_seconds, "launch_timeout", "not launched within")
        )
    ends = []
    for condition, seconds, reason, words in limits:
        since = conditions.since(condition)
        at = None if since is None else add(since, round(seconds * SECOND))
        if at is None:
            continue
        if now >= at:
            return LivenessTimeout(reason, f"{words} {seconds:g} s")
        ends.append(at)
    return min(ends, default=None)


def note_launch_failure(conditions: Conditions, reason: str, message: str) -> None:
    """Sets Launched to Unknown with the reason (03 §7.1)."""
    conditions.set(ConditionType.LAUNCHED, UNKNOWN, reason, message[:300])


def note_nodes(conditions: Conditions, count: int) -> None:
    """Sets Registered while there is not exactly one Node."""
    status, reason, message = UNKNOWN, ConditionReason.NODE_NOT_FOUND, "Node not registered with cluster"
    if count:
        status, reason = FALSE, ConditionReason.MULTIPLE_NODES_FOUND
        message = f"{count} Nodes have its provider ID"
    conditions.set(ConditionType.REGISTERED, status, reason, message)


def note_lost_node(conditions: Conditions, nodes: int) -> None:
    """Sets NodeLost if the claim is registered and no Node has its provider ID."""
    lost = not nodes and conditions.is_true(ConditionType.REGISTERED)
    conditions.set_or_clear(ConditionType.NODE_LOST, lost, ConditionReason.NODE_NOT_FOUND, "its Node is gone")


def launched_metadata(claim: objects.NodeClaim, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Any:
    """The claim's labels win over the provider's, and the provider's annotations over the claim's (03 §7.1)."""
    return {"labels": {**labels, **claim.metadata.labels}, "annotations": {**claim.metadata.annotations, **annotations}}
