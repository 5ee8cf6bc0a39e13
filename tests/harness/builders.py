"""Records for tests, made as the program makes them: from wire objects. Every argument has an ordinary default."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from dovetail.api import names, objects
from dovetail.model.node_records import ClaimRecord, NodeRecord, claim_record, node_record
from dovetail.model.pdb_records import PdbRecord, pdb_record
from dovetail.model.pod_records import PodInterner, PodRecord
from dovetail.model.pool_records import PoolRecord, pool_record
from dovetail.model.snapshot import ClusterNode
from dovetail.values.timestamp import parse_time

CREATED = "2026-03-01T00:00:00Z"
OWNERS = {
    "DaemonSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "Job": "batch/v1",
    "Node": "v1",
}
_RECORDER = PodInterner()


def at(text: str) -> datetime:
    """The instant of an RFC 3339 text."""
    return parse_time(text)


def _at(text: str | None) -> datetime | None:
    return None if text is None else at(text)


def conditions(statuses: Mapping[str, str], since: Mapping[str, str] | None = None) -> list[objects.Condition]:
    """Conditions by type and status, each with the time in `since`, if any."""
    since = since or {}
    return [
        objects.Condition(type=type_, status=status, last_transition_time=_at(since.get(type_)))
        for type_, status in statuses.items()
    ]


def _ready(status: str | None) -> list[objects.ConditionStatus]:
    return [] if status is None else [objects.ConditionStatus(type="Ready", status=status)]


def pod(
    name: str = "web-1",
    *,
    namespace: str = "default",
    node: str = "node-1",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    do_not_disrupt: str | None = None,
    schedule: str | None = None,
    duration: str | None = None,
    block_schedule: str | None = None,
    block_duration: str | None = None,
    deletion_cost: str | None = None,
    created: str | None = CREATED,
    deleted: str | None = None,
    phase: str = "Running",
    ready: str | None = "True",
    owner: str | None = "ReplicaSet",
    grace: int | None = 30,
    priority: int | None = None,
    priority_class: str = "",
    tolerations: Sequence[objects.Toleration] = (),
    volumes: Sequence[objects.Volume] = (),
    recorder: PodInterner = _RECORDER,
) -> PodRecord:
    """A running, ready pod of a ReplicaSet on node-1."""
    texts = {
        names.DO_NOT_DISRUPT: do_not_disrupt,
        names.DISRUPTION_SCHEDULE: schedule,
        names.DISRUPTION_SCHEDULE_DURATION: duration,
        names.DISRUPTION_BLOCK_SCHEDULE: block_schedule,
        names.DISRUPTION_BLOCK_DURATION: block_duration,
        names.POD_DELETION_COST: deletion_cost,
    }
    references = [] if owner is None else [objects.OwnerReference(api_version=OWNERS[owner], kind=owner, name="owner")]
    return recorder.pod(
        objects.Pod(
            metadata=objects.ObjectMeta(
                name=name,
                namespace=namespace,
                uid=f"uid-{name}",
                labels=dict(labels or {}),
                annotations={**(annotations or {}), **{key: text for key, text in texts.items() if text is not None}},
                creation_timestamp=_at(created),
                deletion_timestamp=_at(deleted),
                owner_references=references,
            ),
            spec=objects.PodSpec(
                node_name=node,
                termination_grace_period_seconds=grace,
                priority=priority,
                priority_class_name=priority_class,
                tolerations=list(tolerations),
                volumes=list(volumes),
            ),
            status=objects.PodStatus(phase=phase, conditions=_ready(ready)),
        )
    )


def node(
    name: str = "node-1",
    *,
    pool: str = "default",
    provider_id: str | None = None,
    created: str | None = CREATED,
    deleted: str | None = None,
    do_not_disrupt: str | None = None,
    do_not_repair: str | None = None,
    registered: bool = True,
    initialized: bool | None = None,
    ready: str | None = "True",
    taints: Iterable[tuple[str, str]] = (),
) -> NodeRecord:
    """A ready, initialized node of the pool default; its provider ID is kwok://<name> unless given.

    A node that is not registered is not initialized either, unless told so.
    """
    initialized = registered if initialized is None else initialized
    labels = {
        names.NODEPOOL_LABEL: pool,
        names.REGISTERED_LABEL: "true" if registered else "",
        names.INITIALIZED_LABEL: "true" if initialized else "",
    }
    return node_record(
        objects.Node(
            metadata=objects.ObjectMeta(
                name=name,
                uid=f"uid-{name}",
                labels={key: value for key, value in labels.items() if value},
                annotations={
                    key: value
                    for key, value in ((names.DO_NOT_DISRUPT, do_not_disrupt), (names.DO_NOT_REPAIR, do_not_repair))
                    if value is not None
                },
                creation_timestamp=_at(created),
                deletion_timestamp=_at(deleted),
            ),
            spec=objects.NodeSpec(
                provider_id=f"kwok://{name}" if provider_id is None else provider_id,
                taints=[objects.Taint(key=key, effect=effect) for key, effect in taints],
            ),
            status=objects.NodeStatus(conditions=conditions({} if ready is None else {"Ready": ready})),
        )
    )


STEADY = {"Launched": "True", "Registered": "True", "Initialized": "True"}


def claim(
    name: str = "claim-1",
    *,
    pool: str = "default",
    provider_id: str = "kwok://node-1",
    created: str | None = CREATED,
    deleted: str | None = None,
    expire_after: str = "Never",
    grace_period: str | None = None,
    termination_timestamp: str | None = None,
    last_pod_event: str | None = None,
    initialized_since: str | None = CREATED,
    true: Iterable[str] = (),
    statuses: Mapping[str, str] | None = None,
) -> ClaimRecord:
    """The initialized NodeClaim of node-1; `true` adds true conditions, `statuses` replaces all of them."""
    given = {**STEADY, **dict.fromkeys(true, "True")} if statuses is None else statuses
    since = {"Initialized": initialized_since} if initialized_since is not None else {}
    return claim_record(
        objects.NodeClaim(
            metadata=objects.ObjectMeta(
                name=name,
                uid=f"uid-{name}",
                labels={names.NODEPOOL_LABEL: pool} if pool else {},
                annotations=(
                    {} if termination_timestamp is None else {names.TERMINATION_TIMESTAMP: termination_timestamp}
                ),
                creation_timestamp=_at(created),
                deletion_timestamp=_at(deleted),
            ),
            spec=objects.NodeClaimSpec(expire_after=expire_after, termination_grace_period=grace_period),
            status=objects.NodeClaimStatus(
                provider_id=provider_id,
                conditions=conditions(given, since),
                last_pod_event_time=_at(last_pod_event),
            ),
        )
    )


def member(
    claim_: ClaimRecord | None = None, node_: NodeRecord | None = None, pods: Iterable[PodRecord] = ()
) -> ClusterNode:
    """A NodeClaim with its Node and pods, either of which may be missing."""
    return ClusterNode(claim=claim_, node=node_, pods=tuple(pods))


def budget(
    nodes: str | int = "10%",
    reasons: Sequence[str] = (),
    schedule: str | None = None,
    duration: str | None = None,
) -> objects.Budget:
    return objects.Budget(nodes=nodes, reasons=list(reasons), schedule=schedule, duration=duration)


def pool(
    name: str = "default",
    *,
    budgets: Iterable[objects.Budget] | None = None,
    consolidate_after: str = "0s",
    policy: str = "WhenEmptyOrUnderutilized",
    graceful_expire_after: str = "Never",
    grace_period: str | None = None,
    replicas: int | None = None,
) -> PoolRecord:
    """A pool with the API's defaults; `budgets` absent means one of 10% (R30)."""
    default = objects.Disruption()
    return pool_record(
        objects.NodePool(
            metadata=objects.ObjectMeta(name=name, uid=f"uid-{name}"),
            spec=objects.NodePoolSpec(
                template=objects.NodeClaimTemplate(spec=objects.NodeClaimSpec(termination_grace_period=grace_period)),
                disruption=objects.Disruption(
                    consolidate_after=consolidate_after,
                    consolidation_policy=policy,
                    graceful_expire_after=graceful_expire_after,
                    budgets=default.budgets if budgets is None else tuple(budgets),
                ),
                replicas=replicas,
            ),
        )
    )


def pdb(
    name: str = "guard",
    *,
    namespace: str = "default",
    match: Mapping[str, str] | None = None,
    expressions: Iterable[tuple[str, str, Sequence[str]]] = (),
    selector: bool = True,
    min_available: int | str | None = None,
    max_unavailable: int | str | None = None,
    policy: str = "",
    allowed: int | None = None,
    expected: int | None = None,
    healthy: int | None = None,
    desired: int | None = None,
) -> PdbRecord:
    """A PDB without status that selects everything in its namespace, unless told otherwise."""
    wanted = objects.LabelSelector(
        match_labels=dict(match or {}),
        match_expressions=[
            objects.LabelSelectorRequirement(key=key, operator=operator, values=list(values))
            for key, operator, values in expressions
        ],
    )
    return pdb_record(
        objects.PodDisruptionBudget(
            metadata=objects.ObjectMeta(name=name, namespace=namespace),
            spec=objects.PodDisruptionBudgetSpec(
                min_available=min_available,
                max_unavailable=max_unavailable,
                selector=wanted if selector else None,
                unhealthy_pod_eviction_policy=policy,
            ),
            status=objects.PodDisruptionBudgetStatus(
                disruptions_allowed=allowed, expected_pods=expected, current_healthy=healthy, desired_healthy=desired
            ),
        )
    )
