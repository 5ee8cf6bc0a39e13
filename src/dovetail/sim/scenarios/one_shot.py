"""Assesses a dump at one instant as the controller does.

The documents feed the same state that watches feed in `run`. There is no API server, nothing is scheduled, no condition
is written, and no time passes.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from dovetail.api import names
from dovetail.api.documents import Document, InputError, decode
from dovetail.api.names import Reason
from dovetail.api.objects import why_not_ready
from dovetail.api.schema import crd_schema, defaulted
from dovetail.model.finding import Finding
from dovetail.model.instance_types import InstanceType
from dovetail.model.node_records import ClaimRecord
from dovetail.model.pod_records import PodInterner, PodRecord
from dovetail.model.rule_settings import DEFAULT_SETTINGS, RuleSettings
from dovetail.planning.disruption.assessment import DisruptionAssessment, DisruptionInputs, DisruptionPlanner
from dovetail.planning.disruption.board import DisruptionBoard
from dovetail.planning.disruption.records import failed_replacements
from dovetail.planning.disruption.replaceable import replacement_verdicts
from dovetail.rules.verdict import Verdict
from dovetail.scheduling.default_spread import SchedulerProfiles
from dovetail.scheduling.placement import Origin, PodError, PodInfo, SchedulingOptions
from dovetail.sim.scenarios.machines import TYPES_ASSUMED
from dovetail.sim.scenarios.reading import ScenarioObject, read_scenario
from dovetail.sim.scenarios.restore import EVERYWHERE, PreparedCluster, prepare
from dovetail.sim.scenarios.whole_pods import WholePods
from dovetail.sim.server.admission import fill_in
from dovetail.sim.server.kinds import NAMESPACES, PRIORITY_CLASSES, SYSTEM_PRIORITIES, Body
from dovetail.state.cluster import ClusterState, NodeClassKind
from dovetail.state.instance_types import bought_as
from dovetail.state.scheduling import SchedulingState
from dovetail.state.store import Added, Key, StoredValue
from dovetail.state.unplaceable import Unplaceable
from dovetail.values.timestamp import format_time
from dovetail.views.explain.pending import PendingFacts
from dovetail.views.plan import DrainedNode

_SPECS: Final = frozenset({names.NODEPOOL_KIND, names.NODECLAIM_KIND})


class OneShotResult(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The assessment, and the assumptions behind it."""

    assessment: DisruptionAssessment
    board: DisruptionBoard
    pools: Mapping[str, str]  # of nodes
    drained: tuple[DrainedNode, ...]
    problems: tuple[Finding, ...]
    known_share: float | None  # of the hourly cost: the part whose prices are no guesses
    unsynced: str | None  # why the controller would wait before it decides anything
    unbound: Mapping[tuple[str, str], PodRecord]  # active pods without a node, by namespace and name
    pools_not_ready: Mapping[str, str]  # and why
    refused: Mapping[str, str]  # pods for which no node is planned, by UID, and why

    @property
    def types_known(self) -> bool:
        """Whether the instance types are those of the provider."""
        return all(problem.rule != TYPES_ASSUMED for problem in self.problems)

    def replacements(self, only: Container[str] | None = None) -> dict[tuple[str, Reason], Verdict]:
        """Whether nodes can be replaced, by node and reason. `only`: names of nodes."""
        backoffs = self.assessment.inputs.pools_in_backoff
        return replacement_verdicts(self.board, backoffs, only=only, types_known=self.types_known)

    def pending(self, claims: Mapping[str, ClaimRecord]) -> PendingFacts:
        """What pods without a node wait for. `claims`: by the name of their node."""
        places, world, owed = self.assessment.places, self.board.world, self.board.owed
        errors = world.what_if((), owed=owed, explain=True).errors
        return PendingFacts(
            nodes=world.nodes_for(owed),
            pools=world.pools_for(owed),
            refused={
                **{uid: (why, "") for uid, why in self.refused.items()},
                **{uid: _told(error) for uid, error in errors.items()},
            },
            claims=claims,
            pools_left_out={**places.left_out, **self.pools_not_ready},
            types_known=self.types_known,
        )


def _told(error: PodError) -> tuple[str, str]:
    cause = None if error.no_place is None else error.no_place.cause()
    if error.no_place is None or cause is None:
        return error.reason, ""
    return f"NodePool {cause.name}: {cause.why}", error.no_place.others()


def look(
    documents: Iterable[Document],
    now: datetime,
    *,
    settings: RuleSettings = DEFAULT_SETTINGS,
    catalogue: Sequence[InstanceType] | None = None,
    drained: Sequence[str] = (),
    scheduler_profiles: SchedulerProfiles | None = None,
    pods: WholePods | None = None,
    only: Container[str] | None = None,
) -> OneShotResult:
    """Assess the cluster now. `drained`: nodes whose pods are listed, too. `pods`: those that are read already.

    `only`: names of nodes; no others become candidates, which is enough to know whether these can be replaced, not
    whether consolidation is worth it. Raises InputError.
    """
    spread_by_default = scheduler_profiles is not None and scheduler_profiles.any_constraints
    pods = pods or WholePods(PodInterner(spread_by_default=spread_by_default, settings=settings))
    scenario = read_scenario(documents, now=now, start=now, settings=settings, pods=pods)
    prepared = prepare(scenario, catalogue, played=False)
    kind = prepared.node_classes
    cluster = ClusterState(
        NodeClassKind(kind.group, kind.kind, kind.plural),
        scheduler_profiles=scheduler_profiles,
        settings=settings,
    )
    state = SchedulingState(cluster, only=only)
    _load(cluster, prepared, now)
    for pool in state.usable_pools():
        cluster.instance_types.answered(pool, prepared.machines.types, at=0.0)
    planner = DisruptionPlanner(options=SchedulingOptions(), settings=settings)
    failed = failed_replacements(claim.value for claim in cluster.claims.snapshot().items.values())
    backoffs = {claim.metadata.pool: None for claim in failed}
    assessment = planner.assess(DisruptionInputs(snapshot=state.snapshot(now), pools_in_backoff=backoffs))
    pools = {node.name: node.pool for node in assessment.places.nodes if node.pool}
    return OneShotResult(
        assessment=assessment,
        board=planner.board(assessment),
        pools=pools,
        drained=tuple(_drained(cluster, state, assessment, name) for name in drained if name in pools),
        problems=prepared.problems,
        known_share=prepared.machines.known_share,
        unsynced=state.unsynced(now),
        unbound={
            (pod.namespace, pod.name): pod
            for pod in (stored.value for stored in cluster.pods.snapshot().items.values())
            if pod.active and not pod.node_name
        },
        pools_not_ready={
            pool.metadata.name: why
            for pool in cluster.our_pools()
            if pool.spec.replicas is None and (why := why_not_ready(pool))
        },
        refused={uid: refusal.reason for uid, refusal in state.pending().refused.items()},
    )


def _load(cluster: ClusterState, prepared: PreparedCluster, now: datetime) -> None:
    """Raises InputError."""
    priorities: dict[str, int] = dict(SYSTEM_PRIORITIES)
    default: int | None = None  # of several, the lowest
    for placed in prepared.objects:
        if placed.resource.kind == PRIORITY_CLASSES.kind:
            value = int(placed.body.get("value") or 0)
            priorities[placed.body["metadata"]["name"]] = value
            if placed.body.get("globalDefault"):
                default = value if default is None else min(default, value)
    created = format_time(now.replace(microsecond=0))
    pods: dict[Key, StoredValue[PodRecord]] = {}
    for number, placed in enumerate((*_first_namespaces(prepared.objects), *prepared.objects)):
        plural = placed.resource.plural
        if plural not in cluster.stores:  # nothing reads this kind
            continue
        if placed.pod is not None:
            class_, record = placed.pod.priority_class, placed.pod.record
            priority = priorities.get(class_, 0) if class_ else default or 0
            if priority != record.priority:
                record = msgspec.structs.replace(record, priority=priority)
            pods[record.namespace, record.name] = StoredValue(record.uid, "", record)
            continue
        body = _as_stored(placed, number, created)
        if placed.resource.kind == "Pod":
            spec = body.get("spec") or {}
            name = spec.get("priorityClassName")
            body["spec"] = {**spec, "priority": priorities.get(name, 0) if name else default or 0}
        document = msgspec.structs.replace(placed.document, value=body, raw=None)
        try:
            cluster.load(plural, decode(document, cluster.reading(plural).struct))
        except InputError as error:
            raise placed.error(error.message, error.field or "") from None
        except ValueError as error:
            raise placed.error(f"{placed.name}: {error}") from None
    cluster.pods.apply(*(Added(key, kept) for key, kept in pods.items()))
    cluster.loaded()


def _first_namespaces(objects: Sequence[ScenarioObject]) -> Iterator[ScenarioObject]:
    """The namespaces that every cluster has and the input lacks."""
    have = {object_.key for object_ in objects if object_.resource.kind == NAMESPACES.kind}
    for name in sorted(EVERYWHERE - have) if objects else ():
        yield ScenarioObject(NAMESPACES, {"metadata": {"name": name}}, objects[0].document)


def _as_stored(placed: ScenarioObject, number: int, created: str) -> Body:
    """The object with the fields that the API server adds."""
    body: dict[str, Any] = dict(placed.body)
    meta = {key: value for key, value in body["metadata"].items() if value is not None}
    body["metadata"] = {"uid": f"00000000-0000-4000-9000-{number:012x}", "creationTimestamp": created, **meta}
    status, taints = body.get("status"), (body.get("spec") or {}).get("taints") or []
    fill_in(placed.resource, body, created)
    if status is not None:
        body["status"] = status
        if placed.resource.kind == "Node":  # only a new Node is tainted until it is Ready
            body["spec"] = {**body["spec"], "taints": taints}
    schema = crd_schema(placed.resource.kind) if placed.resource.kind in _SPECS else None
    return body if schema is None else defaulted(body, schema)


def _drained(cluster: ClusterState, state: SchedulingState, assessment: DisruptionAssessment, name: str) -> DrainedNode:
    read = state.read(state.place(name), tuple(cluster.pods_on[name]), Origin.CANDIDATE).read
    (node,) = (node for node in assessment.places.nodes if node.name == name)
    prices = cluster.instance_types.of(node.pool).prices
    return DrainedNode(
        node=name,
        price=prices.get(bought_as(node.labels)),
        pods=tuple(reading for reading in read if isinstance(reading, PodInfo)),
        unplaceable={reading.pod.path: str(reading) for reading in read if isinstance(reading, Unplaceable)},
    )
