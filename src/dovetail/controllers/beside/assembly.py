"""Creates the controllers of guard."""

from datetime import timedelta
from typing import Any

import msgspec

from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController
from dovetail.controllers.beside.holds import HoldPolicy, HoldReleases, NodeHolding, NodeHolds, guard_policy
from dovetail.controllers.beside.invalid_marks import InvalidMarks
from dovetail.controllers.beside.karpenter_watch import KarpenterWatch
from dovetail.controllers.beside.late import LateNodes
from dovetail.controllers.beside.pod_holds import PodHolds
from dovetail.controllers.beside.scope import BesideScope
from dovetail.controllers.beside.stamps import ClaimStamps
from dovetail.controllers.pod.protection import ProtectionEvents
from dovetail.observe.beside_metrics import BesideMetrics
from dovetail.observe.metrics import Metrics
from dovetail.planning.beside.holding import DEFAULT_LEAD
from dovetail.runtime.manager import Controller
from dovetail.values.selector import Selector


class GuardOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The user's options for guard."""

    lead: timedelta = DEFAULT_LEAD
    pools: Selector = Selector()
    hold_pods: bool = False


class Holding(msgspec.Struct, frozen=True, eq=False):
    """The controllers that hold nodes and release them."""

    holding: NodeHolding
    holds: NodeHolds
    releases: HoldReleases


def node_holding(cluster: WatchedCluster, scope: BesideScope, policy: HoldPolicy, metrics: BesideMetrics) -> Holding:
    holding = NodeHolding(cluster, scope, policy, metrics)
    holds = NodeHolds(holding)
    return Holding(holding, holds, HoldReleases(holding, holds))


def late_nodes(cluster: WatchedCluster, metrics: Metrics) -> list[Controller]:
    """What counts the nodes that Karpenter takes too early, alone. It only reads."""
    return [LateNodes(cluster, BesideScope(cluster, Selector()), BesideMetrics(metrics.registry))]


def guard_controllers(
    cluster: WatchedCluster, metrics: Metrics, karpenter: KarpenterWatch, options: GuardOptions
) -> list[Controller]:
    """Call it before the reflectors run: the controllers subscribe to the stores."""
    scope, counts = BesideScope(cluster, options.pools), BesideMetrics(metrics.registry)
    holding = node_holding(cluster, scope, guard_policy(options.lead), counts)
    stamps = ClaimStamps(cluster, holding.holding, counts, lambda: karpenter.runs)
    karpenter.observers.append(stamps.look_again)
    controllers: list[KeyedController[Any]] = [
        holding.holds,
        holding.releases,
        stamps,
        LateNodes(cluster, scope, counts),
        InvalidMarks(cluster),
        ProtectionEvents(cluster, metrics),
    ]
    if options.hold_pods:
        controllers.append(PodHolds(cluster, scope, counts, lambda: karpenter.reads_durations))
    for controller in controllers:
        controller.measure(metrics)
    return list(controllers)
