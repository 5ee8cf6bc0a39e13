"""Assesses a dump at one instant as the controller does.

The documents feed the same state that watches feed in `run`. There is no API server, nothing is scheduled, no condition
is written, and no time passes.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from dovetail.api import names
from dovetail.api.documents import InputError, decode
from dovetail.api.schema import crd_schema, defaulted
from dovetail.model.finding import Finding
from dovetail.model.instance_types import InstanceType
from dovetail.planning.disruption.assessment import DisruptionAssessment, DisruptionInputs, DisruptionPlanner
from dovetail.planning.disruption.board import DisruptionBoard
from dovetail.rules.budgets import BudgetSemantics
from dovetail.rules.states import NodeState
from dovetail.scheduling.placement import Origin, PodInfo, SchedulingOptions
from dovetail.sim.scenarios.reading import Body, Scenario, ScenarioObject
from dovetail.sim.scenarios.restore import EVERYWHERE, PreparedCluster, prepare
from dovetail.sim.server.admission import fill_in
from dovetail.sim.server.kinds import NAMESPACES, PRIORITY_CLASSES, SYSTEM_PRIORITIES
from dovetail.state.cluster import ClusterState, NodeClassKind
from dovetail.state.instance_types import bought_as
from dovetail.state.scheduling import SchedulingState
from dovetail.state.unplaceable import Unplaceable
from dovetail.values.timestamp import format_time
from dovetail.views.plan import DrainedNode

_SPECS: Final = frozenset({names.NODEPOOL_KIND, names.NODECLAIM_KIND})


class OneShotResult(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The assessment, and the assumptions behind it."""

    assessment: DisruptionAssessment
    board: DisruptionBoard
    pools: Mapping[str, str]  # of nodes
    drained: tuple[DrainedNode, ...]
    problems: tuple[Finding, ...]
    unsynced: str | None  # why the controller would wait before it decides anything

    @property
    def states(self) -> dict[str, NodeState]:
        """The state of every node, by name."""
        return {node.name: node.state for node in self.assessment.inputs.snapshot.nodes.values()}


def look(
    scenario: Scenario,
    *,
    catalogue: Sequence[InstanceType] | None = None,
    reading: BudgetSemantics = BudgetSemantics.SEED,
    drained: Sequence[str] = (),
) -> OneShotResult:
    """Assess the cluster at the scenario's start. `drained`: nodes whose pods are listed, too. Raises InputError."""
    prepared, now = prepare(scenario, catalogue), scenario.start
    kind = prepared.node_classes
    cluster = ClusterState(NodeClassKind(kind.group, kind.kind, kind.plural))
    state = SchedulingState(cluster)
    _load(cluster, prepared, now)
    for pool in state.usable_pools():
        cluster.instance_types.answered(pool, prepared.machines.types, at=0.0)
    planner = DisruptionPlanner(options=SchedulingOptions(), reading=reading)
    assessment = planner.assess(DisruptionInputs(snapshot=state.snapshot(now)))
    pools = {node.name: node.pool for node in assessment.places.nodes if node.pool}
    return OneShotResult(
        assessment=assessment,
        board=planner.board(assessment),
        pools=pools,
        drained=tuple(_drained(cluster, state, assessment, name) for name in drained if name in pools),
        problems=prepared.problems,
        unsynced=state.unsynced(now),
    )


def _load(cluster: ClusterState, prepared: PreparedCluster, now: datetime) -> None:
    """Raises InputError."""
    priorities: dict[str, int] = dict(SYSTEM_PRIORITIES)
    default: int | None = None  # of several, the lowest
    for each in prepared.objects:
        if each.resource.kind == PRIORITY_CLASSES.kind:
            value = int(each.body.get("value") or 0)
            priorities[each.body["metadata"]["name"]] = value
            if each.body.get("globalDefault"):
                default = value if default is None else min(default, value)
    created = format_time(now.replace(microsecond=0))
    for number, each in enumerate((*_first_namespaces(prepared.objects), *prepared.objects)):
        plural = each.resource.plural
        if plural not in cluster.stores:  # nothing reads this kind
            continue
        body = _as_stored(each, number, created)
        if each.resource.kind == "Pod":
            spec = body.get("spec") or {}
            name = spec.get("priorityClassName")
            body["spec"] = {**spec, "priority": priorities.get(name, 0) if name else default or 0}
        document = msgspec.structs.replace(each.document, value=body, raw=None)
        try:
            cluster.load(plural, decode(document, cluster.reading(plural).struct))
        except InputError as error:
            raise each.error(error.message, error.field or "") from None
        except ValueError as error:
            raise each.error(f"{each.name}: {error}") from None
    cluster.loaded()


def _first_namespaces(objects: Sequence[ScenarioObject]) -> Iterator[ScenarioObject]:
    """The namespaces that every cluster has and the input lacks."""
    have = {each.key for each in objects if each.resource.kind == NAMESPACES.kind}
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
    (node,) = (each for each in assessment.places.nodes if each.name == name)
    prices = cluster.instance_types.of(node.pool).prices
    return DrainedNode(
        node=name,
        price=prices.get(bought_as(node.labels)),
        pods=tuple(each for each in read if isinstance(each, PodInfo)),
        unplaceable={each.pod.path: str(each) for each in read if isinstance(each, Unplaceable)},
    )
