"""Plans NodeClaims for pods without a place, builds their bodies, and writes the notes of events (06 §4–§6)."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import Any, Final

import msgspec

from dovetail.api import names, objects
from dovetail.planning.nodepool.hash import pool_annotations, pool_hash
from dovetail.planning.provisioning.spare_room import WaitingPods, with_spare_room
from dovetail.scheduling.fast import IncrementalWorld
from dovetail.scheduling.new_nodes import offers
from dovetail.scheduling.placement import (
    MachineType,
    NewClaim,
    NodeInfo,
    PlacementRequest,
    PodInfo,
    Pool,
    SchedulingOptions,
    Solution,
)
from dovetail.scheduling.requirements import Requirements, one_of, read_requirements, selecting
from dovetail.scheduling.resources import CPU, PODS, Resources, offered_amounts, total
from dovetail.values.quantity import NANO_PER_MILLI, NANO_PER_UNIT, Format, Quantity

# Labels of a node's progress, which no new node can be required to have.
_OF_PROGRESS: Final = (names.REGISTERED_LABEL, names.INITIALIZED_LABEL)
# Without vowels, like generated names in Kubernetes, so that they do not become words.
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_LETTERS_OF_A_NAME: Final = 8
_NAME_AT_MOST: Final = 63  # the name is a label value of the Node

NO_POOLS: Final = "no dynamic nodepools found"
FLEXIBLE, NOWHERE = "flexible", "none"


# -- plans -------------------------------------------------------------------------------------------------------------


class ProvisioningPlan(msgspec.Struct, frozen=True):
    """The targets of the pods, the pools without usable types and why, and the number of pods by zone."""

    solution: Solution
    starved: Mapping[str, str]
    zones: Mapping[str, int]
    spared: frozenset[str] = frozenset()  # UIDs of pods that get nodes of their own, because others may take their room


def plan(
    problem: PlacementRequest, waiting: WaitingPods | None, world: IncrementalWorld, go_on: Callable[[], bool]
) -> ProvisioningPlan:
    """The expensive part of a pass, which runs on a worker thread. Without waiting pods there is no room to spare."""
    now = world.now(problem.nodes, problem.pools, problem.types, problem.daemons)
    solution, spared = now.what_if(problem.pods, go_on=go_on, explain=True), frozenset[str]()
    if waiting is not None:
        solution, spared = with_spare_room(now, waiting, solution, go_on)
    return ProvisioningPlan(solution, starved(problem), effective_zones(problem), spared)


def nomination(batch_longest: timedelta) -> timedelta:
    """How long a node is reserved for the pods that were placed on it (06 §7.4)."""
    return max(2 * batch_longest, timedelta(seconds=10))


def starved(problem: PlacementRequest) -> dict[str, str]:
    """The pools without usable types, and the note of the event."""
    notes = {pool.name: _starvation(pool, problem.types.get(pool.name, ()), problem.options) for pool in problem.pools}
    return {name: why for name, why in notes.items() if why}


def _starvation(pool: Pool, types: Sequence[MachineType], options: SchedulingOptions) -> str:
    usable = [type_ for type_ in types if type_.requirements.intersects(pool.requirements)]
    usable = [type_ for type_ in usable if any(offers(type_, pool.requirements))]
    text = "NodePool requirements filtered out all compatible available instance types"
    if not usable:
        return text
    for requirement in pool.requirements if options.strict_min_values else ():
        values = {value for type_ in usable for value in type_.requirements.get(requirement.key).values}
        if requirement.min_values is not None and len(values) < requirement.min_values:
            few = f"{requirement.key} has {len(values)} of at least {requirement.min_values} values"
            return f"{text} due to minValues incompatibility: {few}"
    return ""


def effective_zones(problem: PlacementRequest) -> dict[str, int]:
    """The number of pods for each zone that they are limited to, for several zones, and for none."""
    zones = {node.labels[names.ZONE_LABEL] for node in problem.nodes if names.ZONE_LABEL in node.labels}
    for types in problem.types.values():
        zones.update(value for type_ in types for value in type_.requirements.get(names.ZONE_LABEL).values)
    return dict(Counter(_zone(pod, zones) for pod in problem.pods))


def _zone(pod: PodInfo, known: Iterable[str]) -> str:
    wanted = [
        (nodes & place).get(names.ZONE_LABEL)
        for nodes in pod.affinity.alternatives()
        for place in pod.volumes.alternatives
    ]
    allowed = {zone for zone in known if any(requirement.has(zone) for requirement in wanted)}
    return next(iter(allowed)) if len(allowed) == 1 else FLEXIBLE if allowed else NOWHERE


# -- limits ------------------------------------------------------------------------------------------------------------


def usage_by_pool(nodes: Iterable[NodeInfo]) -> dict[str, Resources]:
    """The resources of each pool (06 §7.5), without nodes that are being disrupted."""
    held: dict[str, list[Resources]] = {}
    one_node = Resources({names.NODES_RESOURCE: 1})
    for node in nodes:
        if node.pool and node.open:
            held.setdefault(node.pool, []).append(node.capacity + one_node)
    return {pool: total(parts) for pool, parts in held.items()}


def over_limits(pool: objects.NodePool, used: Resources) -> str:
    """Which limit the pool exceeds; empty if none, also when it is exactly at its limit."""
    limits, bad = offered_amounts(pool.spec.limits)
    if bad:
        return f"its limits cannot be read: {bad[0]}"
    over = [name for name in sorted(pool.spec.limits) if used[name] > limits[name]]
    return f"it uses {_text(over[0], used[over[0]])} {over[0]} of {pool.spec.limits[over[0]]}" if over else ""


# -- the claim ---------------------------------------------------------------------------------------------------------


def claim_name(pool: str, *reasons: str) -> str:
    """The pool's name plus a hash of the reasons: the same reasons give the same name.

    So a create with an unknown outcome can be repeated without a second claim.
    """
    number = int.from_bytes(blake2b("\0".join(reasons).encode(), digest_size=8).digest())
    letters = ""
    for _ in range(_LETTERS_OF_A_NAME):
        number, index = divmod(number, len(_LETTERS))
        letters += _LETTERS[index]
    return f"{pool[: _NAME_AT_MOST - len(letters) - 1].rstrip('-.')}-{letters}"


def claim_body(
    pool: objects.NodePool,
    claim: NewClaim,
    types: Iterable[MachineType],
    *,
    name: str,
    well_known: frozenset[str],
    names_types: bool = True,
    infers_labels: bool = True,
) -> dict[str, Any]:
    """The body of a claim for pods (06 §5), from the pool as it was planned. Raises DurationError.

    Without `names_types` the provider chooses the type, by the requirements of the pool and of the pods. Without
    `infers_labels` it chooses the labels that follow from requirements, too: it may know what others do not.
    """
    requirements = _with_types(claim, types) if names_types else claim.requirements
    body = _body(
        pool, requirements.without(names.HOSTNAME_LABEL, *_OF_PROGRESS), name, well_known, infers_labels=infers_labels
    )
    body["metadata"]["annotations"][names.MIN_VALUES_RELAXED] = str(claim.min_values_relaxed).lower()
    body["spec"]["resources"] = {
        "requests": {resource: _text(resource, amount) for resource, amount in claim.requests.items()}
    }
    return body


def _with_types(claim: NewClaim, types: Iterable[MachineType]) -> Requirements:
    chosen = frozenset(claim.types)
    offered = {
        value
        for type_ in types
        if type_.name in chosen
        for offer in offers(type_, claim.requirements)
        for value in offer.requirements.get(names.CAPACITY_TYPE_LABEL).values
    }
    return claim.requirements.add(one_of(names.INSTANCE_TYPE_LABEL, chosen), one_of(names.CAPACITY_TYPE_LABEL, offered))


def static_claim_body(pool: objects.NodePool, *, name: str, well_known: frozenset[str]) -> dict[str, Any]:
    """The body of a claim of a pool with replicas (06 §9). Raises DurationError and RequirementError."""
    template = pool.spec.template
    requirements = read_requirements(template.spec.requirements) & selecting(template.metadata.labels or {})
    return _body(pool, requirements, name, well_known)


def _body(
    pool: objects.NodePool,
    requirements: Requirements,
    name: str,
    well_known: frozenset[str],
    *,
    infers_labels: bool = True,
) -> dict[str, Any]:
    template, meta = pool.spec.template, pool.metadata
    spec, class_ = template.spec, template.spec.node_class_ref
    not_labels = {*well_known, names.HOSTNAME_LABEL, *_OF_PROGRESS}
    inferred = requirements if infers_labels else ()
    custom = {requirement.key: requirement.any_value() for requirement in inferred if requirement.key not in not_labels}
    owner = {"apiVersion": names.API_VERSION, "kind": names.NODEPOOL_KIND, "name": meta.name, "uid": meta.uid}
    copied = {
        "taints": spec.taints,
        "startupTaints": spec.startup_taints,
        "expireAfter": spec.expire_after,
        "terminationGracePeriod": spec.termination_grace_period,
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.NODECLAIM_KIND,
        "metadata": {
            "name": name,
            "labels": {
                **{key: value for key, value in custom.items() if value is not None},
                **(template.metadata.labels or {}),
                names.NODEPOOL_LABEL: meta.name,
                f"{class_.group}/{class_.kind.lower()}": class_.name,
            },
            "annotations": {**(template.metadata.annotations or {}), **pool_annotations(pool_hash(template))},
            "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
        },
        "spec": {
            "nodeClassRef": {"group": class_.group, "kind": class_.kind, "name": class_.name},
            "requirements": msgspec.to_builtins(requirements.entries()),
            **{key: msgspec.to_builtins(value) for key, value in copied.items() if value is not None},
        },
    }


def _text(resource: str, amount: int) -> str:
    """The amount as a Kubernetes quantity."""
    if resource == CPU:
        return str(Quantity(amount * NANO_PER_MILLI))
    counted = resource in (PODS, names.NODES_RESOURCE)
    return str(Quantity(amount * NANO_PER_UNIT, Format.DECIMAL_SI if counted else Format.BINARY_SI))


# -- notes of events ---------------------------------------------------------------------------------------------------


def nominated_note(claim: str, node: str = "") -> str:
    """The target of a pod: a claim, its Node, or both."""
    places = [f"nodeclaim/{claim}" if claim else "", f"node/{node}" if node else ""]
    return f"Pod should schedule on: {', '.join(filter(None, places))}"


def failed_note(reason: str) -> str:
    return f"Failed to schedule pod, {reason}"


def hinders_consolidation(pod: PodInfo) -> bool:
    """Whether the pod has preferences that planning treats like rules, so that nodes stay apart (06 §6)."""
    return bool(pod.preferred_apart or pod.preferred_spread)
