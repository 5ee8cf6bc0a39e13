"""Creates the controllers of drive: Dovetail decides, and Karpenter launches, drains and ends (10 §I.4)."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dovetail.controllers.base.claim_creation import ClaimCreation
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.base.keyed import KeyedController
from dovetail.controllers.beside.assembly import node_holding
from dovetail.controllers.beside.driven_cluster import DrivenCluster
from dovetail.controllers.beside.gate import NodeGate
from dovetail.controllers.beside.holds import drive_policy
from dovetail.controllers.beside.invalid_marks import InvalidMarks
from dovetail.controllers.beside.karpenter_watch import KarpenterWatch
from dovetail.controllers.beside.late import LateNodes
from dovetail.controllers.beside.observed_types import ObservedTypes
from dovetail.controllers.beside.pod_holds import PodHolds
from dovetail.controllers.beside.roll_stamps import RollStamps
from dovetail.controllers.beside.scope import DriveScope
from dovetail.controllers.disruption.accounts import DisruptionAccounts
from dovetail.controllers.disruption.candidate_marks import CandidateMarks
from dovetail.controllers.disruption.commands import DisruptionCommands
from dovetail.controllers.disruption.engine import DisruptionController
from dovetail.controllers.disruption.recheck import LandingCheck, Recheck
from dovetail.controllers.disruption.reporter import DisruptionReporter
from dovetail.controllers.disruption.strays import DisruptionStrays, FailedReplacements
from dovetail.controllers.nodeclaim.expiration import GracefulExpiration
from dovetail.controllers.nodeclaim.state import StateReporter
from dovetail.controllers.nodeclaim.transitions import Transitions
from dovetail.controllers.pod.protection import ProtectionEvents
from dovetail.model.instance_types import InstanceType
from dovetail.observe.beside_metrics import BesideMetrics
from dovetail.observe.disruption_metrics import DisruptionMetrics
from dovetail.observe.metrics import Metrics
from dovetail.planning.disruption.assessment import DisruptionPlanner
from dovetail.planning.disruption.execution import BY_KARPENTER
from dovetail.planning.timings import Timings
from dovetail.ports import Compute
from dovetail.runtime.compute import SerialCompute
from dovetail.runtime.manager import Controller
from dovetail.scheduling.placement import SchedulingOptions
from dovetail.state.scheduling import SchedulingState

OBSERVED_SECONDS: Final = 5.0  # each new node may show a type, or a place, that was not known


class DriveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The user's options for drive. `types`: the instance types of a file; without one they are those of the nodes.

    `gated`: wait until Karpenter is kept off the nodes. A dry run cannot keep it off. `hold_pods`: also write
    do-not-disrupt on pods, for drains that outlast a window.
    """

    compute: Compute
    scheduling: SchedulingOptions = SchedulingOptions()
    types: Sequence[InstanceType] | None = None
    gated: bool = True
    hold_pods: bool = False


def drive_controllers(
    cluster: DrivenCluster, metrics: Metrics, karpenter: KarpenterWatch, options: DriveOptions, timings: Timings
) -> list[Controller]:
    """Call it before the reflectors run: the controllers subscribe to the stores."""
    execution = msgspec.structs.replace(BY_KARPENTER, names_types=options.types is not None)
    counts, disrupted = BesideMetrics(metrics.registry), DisruptionMetrics(metrics.registry)
    scope = DriveScope(cluster)
    holding = node_holding(cluster, scope, drive_policy, counts)
    gate = NodeGate(cluster, scope, karpenter, gated=options.gated)
    types = InstanceTypeSource(cluster, ObservedTypes(cluster, options.types), keep_seconds=OBSERVED_SECONDS)
    state = SchedulingState(cluster)
    creation, compute = ClaimCreation(cluster, metrics), SerialCompute(options.compute)
    planner = DisruptionPlanner(options=options.scheduling, settings=cluster.settings)
    marks, accounts = CandidateMarks(cluster), DisruptionAccounts(cluster, disrupted)
    landing = LandingCheck(cluster, state, planner, compute)
    recheck = Recheck(cluster, landing, gate.halted)
    commands = DisruptionCommands(
        cluster, state, creation, metrics, timings, recheck=recheck, counts=disrupted, execution=execution
    )
    expiration = GracefulExpiration(cluster)
    disruption = DisruptionController(
        cluster,
        state,
        types,
        planner,
        commands,
        condition_writers=(expiration,),
        marks=marks,
        accounts=accounts,
        telling=DisruptionReporter(cluster, disrupted),
        compute=compute,
        rules=execution.options(),
        timings=timings,
        closed=gate.closed,
    )
    karpenter.observers.append(disruption.look_again)
    controllers: list[Any] = [
        holding.holds,
        holding.releases,
        LateNodes(cluster, scope, counts),
        InvalidMarks(cluster),
        ProtectionEvents(cluster, metrics),
        StateReporter(cluster),
        Transitions(cluster),
        RollStamps(cluster, counts),
        expiration,
        commands,
        DisruptionStrays(cluster, state, execution),
        FailedReplacements(cluster, commands, timings),
        marks,
        accounts,
        disruption,
    ]
    if options.hold_pods:
        controllers.append(PodHolds(cluster, scope, counts, lambda: karpenter.reads_durations))
    for controller in controllers:
        if isinstance(controller, KeyedController):
            controller.measure(metrics)
    return controllers
