"""What the metrics and the dashboard of a running controller say of a node."""

import re
from collections.abc import Iterable

from prometheus_client import CollectorRegistry

from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.disruption.engine import DisruptionController
from dovetail.controllers.metrics.cluster import ClusterMetrics
from dovetail.ports import Clock, Compute
from dovetail.views.board.rows import NodeRow
from dovetail.web.sources import ControllerSource
from dovetail.web.stream import Stream
from tests.harness.metrics_text import exposition


def engine_of(controllers: Iterable[object]) -> DisruptionController:
    (found,) = (each for each in controllers if isinstance(each, DisruptionController))
    return found


def pool_metrics(
    cluster: WatchedCluster, clock: Clock, engine: DisruptionController, pool: str = "default"
) -> tuple[set[str], set[str]]:
    """The blockers of `dovetail_nodes_blocked`, and the states that nodes of the pool are in."""
    registry = CollectorRegistry()
    registry.register(ClusterMetrics(cluster, clock, leads=lambda: True, not_replaced=lambda: engine.not_replaced))
    text = exposition(registry).decode()
    series = rf'{{[^}}]*nodepool="{re.escape(pool)}"[^}}]*}} [1-9]'
    blocked = re.findall(rf"^dovetail_nodes_blocked{series}", text, re.MULTILINE)
    states = re.findall(rf"^dovetail_node_state{series}", text, re.MULTILINE)
    return _label("blocker", blocked), _label("state", states)


def _label(name: str, series: Iterable[str]) -> set[str]:
    return {value for line in series for value in re.findall(rf'{name}="([^"]*)"', line)}


async def row_of(cluster: WatchedCluster, engine: DisruptionController, compute: Compute, node: str) -> NodeRow:
    """The node on the dashboard of the controller."""
    stream = Stream(ControllerSource(cluster, engine, title="test"), compute)
    await stream.refresh()
    (row,) = (each for each in stream.board.rows if each.name == node)
    return row
