"""Nodes of NodeClaims on kwok (07 §4).

The claim records what was chosen at launch. Its Node is made from that, so nothing is chosen twice.
"""

import logging
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from dovetail.api import names
from dovetail.api.objects import KWOKNodeClass, Node, NodeClaim, NodeSelectorRequirement, Quantities, condition_in
from dovetail.model.instance_types import InstanceType, Offering
from dovetail.ports import NODES, Instance
from dovetail.providers.catalogue import allocatable
from dovetail.values.duration import DurationError, add, parse_simple

log = logging.getLogger(__name__)

FAKE: Final = "fake"
PARTITION: Final = "a"
KWOK: Final = "kwok"

_LABEL_AT_MOST = 63
_DIGEST_CHARACTERS = 10


def node_name(claim: NodeClaim, provider: str = KWOK) -> str:
    """A name that is unique to the claim and short enough for a label."""
    assert claim.metadata.uid, "a claim without a UID cannot be told from another"
    digest = sha256(claim.metadata.uid.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    room = _LABEL_AT_MOST - len(provider) - len(digest) - 2
    return f"{provider}-{claim.metadata.name[:room].rstrip('-.')}-{digest}"


def instance_of(claim: NodeClaim, type_: InstanceType, offering: Offering, *, provider: str = KWOK) -> Instance:
    """The machine for the claim. Its labels become those of the Node; later ones win."""
    name = node_name(claim, provider)
    short = len(claim.metadata.name) <= _LABEL_AT_MOST
    labels = {
        **claim.metadata.labels,
        **_definite(claim.spec.requirements),
        names.INSTANCE_TYPE_LABEL: type_.name,
        **_definite(type_.requirements),
        **_definite(offering.requirements),
        names.INSTANCE_PRICE_LABEL: f"{offering.price:f}",
        names.KWOK_PARTITION_LABEL: PARTITION,
        names.HOSTNAME_LABEL: claim.metadata.name if short else name,
        names.KWOK_NODE: FAKE,
    }
    requests: Quantities = {resource: str(amount) for resource, amount in claim.spec.resources.requests.items()}
    return Instance(
        provider_id=f"{provider}://{name}",
        labels=labels,
        annotations={**claim.metadata.annotations, names.KWOK_NODE: FAKE},
        capacity=requests,  # not the machine's: limits count requests (R34)
        allocatable={**requests, **allocatable(type_)},
        claim_uid=claim.metadata.uid,
        claim_name=claim.metadata.name,
    )


def _definite(requirements: Iterable[NodeSelectorRequirement]) -> dict[str, str]:
    """The labels of requirements with a single value."""
    return {
        names.NORMALISED_LABELS.get(requirement.key, requirement.key): requirement.values[0]
        for requirement in requirements
        if requirement.operator == "In" and len(requirement.values) == 1
    }


def launched_instance(claim: NodeClaim) -> Instance:
    """The machine of a launched claim, as the claim records it."""
    return Instance(
        provider_id=claim.status.provider_id,
        labels=claim.metadata.labels,
        annotations=claim.metadata.annotations,
        capacity=claim.status.capacity,
        allocatable=claim.status.allocatable,
        claim_uid=claim.metadata.uid,
        claim_name=claim.metadata.name,
    )


def node_body(instance: Instance, *, owner: NodeClaim | None = None) -> dict[str, Any]:
    """The Node to create. It is not registered yet; registration adds the claim's taints (06 §10)."""
    taint = {"key": names.UNREGISTERED_TAINT, "effect": str(names.TaintEffect.NO_EXECUTE)}
    return {
        "apiVersion": NODES.api_version,
        "kind": NODES.kind,
        "metadata": {
            "name": name_in(instance.provider_id),
            "labels": dict(instance.labels),
            "annotations": dict(instance.annotations),
            "ownerReferences": [] if owner is None else [_reference(owner)],
        },
        "spec": {"providerID": instance.provider_id, "taints": [taint]},
        "status": {"phase": "Pending", "capacity": dict(instance.capacity), "allocatable": dict(instance.allocatable)},
    }


def _reference(claim: NodeClaim) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.NODECLAIM_KIND,
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
        "blockOwnerDeletion": True,
    }


def name_in(provider_id: str) -> str:
    """The name of the Node in `kwok://<name>`."""
    return provider_id.partition("://")[2]


def silent_since(node: Node) -> datetime | None:
    """Since when the Node is being deleted and not Ready; None if it is not. A late heartbeat looks the same."""
    deleted_at = node.metadata.deletion_timestamp
    ready = condition_in(node.status.conditions, names.ConditionType.READY)
    if deleted_at is None or (ready is not None and ready.status == "True"):
        return None
    return max(deleted_at, (ready and ready.last_transition_time) or deleted_at)


def registration_delay(node_class: KWOKNodeClass | None) -> int:
    """The nanoseconds from the launch to the Node."""
    text = None if node_class is None else node_class.spec.node_registration_delay
    if node_class is None or text is None:
        return 0
    try:
        return parse_simple(text)
    except DurationError as error:  # the CRD refuses it, but its schema may not be in force
        log.warning("%s: nodeRegistrationDelay counts as 0: %s", node_class.metadata.name, error)
        return 0


def appears_at(claim: NodeClaim, node_class: KWOKNodeClass | None) -> datetime | None:
    """When to create the Node of the claim; None: not at all.

    A registered claim gets no new Node: its machine has vanished.
    """
    conditions = {condition.type: condition for condition in claim.status.conditions}
    launched, registered = conditions.get(names.ConditionType.LAUNCHED), conditions.get(names.ConditionType.REGISTERED)
    if (
        claim.metadata.deletion_timestamp is not None
        or not claim.status.provider_id.startswith(names.KWOK_PROVIDER_ID_PREFIX)
        or launched is None
        or launched.status != "True"
        or launched.last_transition_time is None
        or (registered is not None and registered.status == "True")
    ):
        return None
    return add(launched.last_transition_time, registration_delay(node_class))
