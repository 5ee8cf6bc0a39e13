"""Where does a NodeClaim stand between wanted and initialized, and what is written next (03 §7)?"""

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
    """What registration makes of the Node, as a merge patch with a lock: lists are written whole.

    `label` is the one that says which node class it is; termination only handles Nodes that have it (03 §7.5).
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
    """Whether pods may have come to the node before its taints did (03 §7.2)."""
    registered = node.metadata.labels.get(names.REGISTERED_LABEL) == "true"
    return not registered and not any(taint.matches(_UNREGISTERED) for taint in node.spec.taints)


def is_new(node: objects.Node, conditions: Conditions) -> bool:
    """Whether the Node was created after its claim was registered, as by a kubelet that starts anew, and nobody has
    registered this one. Labels do not tell: people edit them."""
    created_at, registered_at = node.metadata.creation_timestamp, conditions.since(ConditionType.REGISTERED)
    if created_at is None or registered_at is None or node.metadata.deletion_timestamp is not None:
        return False
    return created_at > registered_at and names.TERMINATION_FINALIZER not in node.metadata.finalizers


def _registered_taints(claim: objects.NodeClaim, node: objects.Node) -> list[objects.Taint]:
    taints = [taint for taint in node.spec.taints if not taint.matches(_UNREGISTERED)]
    if node.metadata.labels.get(names.DO_NOT_SYNC_TAINTS_LABEL) == "true":
        return taints
    # A startup taint that has been removed since must not come back.
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
    known = any(
        (found.api_version, found.kind, found.uid) == (owner.api_version, owner.kind, owner.uid) for found in owners
    )
    return [*owners, *(() if known else (owner,))]


def to_body(struct: objects.Wire) -> dict[str, Any]:
    """A wire struct as the API takes it."""
    body: dict[str, Any] = msgspec.to_builtins(struct)
    return body


# -- initialization ----------------------------------------------------------------------------------------------------


class InitializationBlocker(msgspec.Struct, frozen=True):
    """Why a registered claim is not initialized yet."""

    reason: ConditionReason
    message: str


def why_not_initialized(claim: objects.NodeClaim, node: objects.Node) -> InitializationBlocker | None:
    """The first check of 03 §7.3 that fails."""
    name = node.metadata.name
    if not is_ready(node):
        return InitializationBlocker(ConditionReason.NODE_NOT_READY, f"Node {name} is not Ready")
    startup = [
        taint for taint in node.spec.taints if any(taint.matches(wanted) for wanted in claim.spec.startup_taints)
    ]
    if startup:
        return InitializationBlocker(
            ConditionReason.STARTUP_TAINTS_EXIST, f"Node {name} still has startup taint {_text(startup[0])}"
        )
    ephemeral = [taint for taint in node.spec.taints if is_ephemeral(taint)]
    if ephemeral:
        return InitializationBlocker(
            ConditionReason.KNOWN_EPHEMERAL_TAINTS_EXIST, f"Node {name} still has taint {_text(ephemeral[0])}"
        )
    for resource, amount in sorted(claim.spec.resources.requests.items()):
        if not _is_zero(amount) and _is_zero(node.status.allocatable.get(resource, "0")):
            return InitializationBlocker(
                ConditionReason.RESOURCE_NOT_REGISTERED, f"Node {name} does not offer {resource} yet"
            )
    return None


def _is_zero(amount: str | int | float) -> bool:
    """What cannot be read is nothing: it is neither offered nor waited for."""
    try:
        return parse_quantity(str(amount)).nano == 0
    except QuantityError:
        return True


def is_ready(node: objects.Node) -> bool:
    """Missing counts as not ready (03 §10.20)."""
    return is_true(node, ConditionType.READY)


def _text(taint: objects.Taint) -> str:
    return f"{taint.key}:{taint.effect}"


# -- all of it ---------------------------------------------------------------------------------------------------------


class LivenessTimeout(msgspec.Struct, frozen=True):
    """The claim has taken too long; `reason` is that of the metrics."""

    reason: str
    message: str


def liveness(conditions: Conditions, now: datetime, timings: Timings) -> LivenessTimeout | datetime | None:
    """03 §7.4: give it up, or the instant at which it would be, or None if it is registered and has its Node."""
    lost = (ConditionType.NODE_LOST, timings.lost_node_seconds, "node_lost", "without a Node for")
    launch = (ConditionType.LAUNCHED, timings.launch_timeout_seconds, "launch_timeout", "not launched within")
    registration = (
        ConditionType.REGISTERED,
        timings.registration_timeout_seconds,
        "registration_timeout",
        "not registered within",
    )
    if conditions.is_true(ConditionType.REGISTERED):
        limits = [lost]
    else:
        limits = [registration] if conditions.is_true(ConditionType.LAUNCHED) else [launch, registration]
    ends = []
    for condition, seconds, reason, words in limits:
        since = conditions.since(condition)
        if since is None:
            continue
        at = add(since, round(seconds * SECOND))
        if at is None:
            continue
        if now >= at:
            return LivenessTimeout(reason, f"{words} {seconds:g} s")
        ends.append(at)
    return min(ends, default=None)


def note_launch_failure(conditions: Conditions, reason: str, message: str) -> None:
    """Launched stays Unknown, and says why (03 §7.1)."""
    conditions.set(ConditionType.LAUNCHED, UNKNOWN, reason, message[:300])


def note_nodes(conditions: Conditions, count: int) -> None:
    """What Registered says while there is not exactly one Node."""
    if count == 0:
        conditions.set(
            ConditionType.REGISTERED, UNKNOWN, ConditionReason.NODE_NOT_FOUND, "Node not registered with cluster"
        )
    else:
        conditions.set(
            ConditionType.REGISTERED, FALSE, ConditionReason.MULTIPLE_NODES_FOUND, f"{count} Nodes have its provider ID"
        )


def note_lost_node(conditions: Conditions, nodes: int) -> None:
    """Say whether the claim was registered and has no Node any more; `nodes`: how many have its provider ID."""
    if nodes or not conditions.is_true(ConditionType.REGISTERED):
        conditions.clear(ConditionType.NODE_LOST)
    else:
        conditions.set(ConditionType.NODE_LOST, reason=ConditionReason.NODE_NOT_FOUND, message="its Node is gone")


def launched_metadata(claim: objects.NodeClaim, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Any:
    """03 §7.1: provider labels overlaid by the claim's own; the claim's annotations overlaid by the provider's."""
    return {"labels": {**labels, **claim.metadata.labels}, "annotations": {**claim.metadata.annotations, **annotations}}
