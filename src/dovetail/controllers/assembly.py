"""Creates all controllers and connects them."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from dovetail.controllers.base.claim_creation import ClaimCreation
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.base.keyed import KeyedController
from dovetail.controllers.disruption.accounts import DisruptionAccounts
from dovetail.controllers.disruption.candidate_marks import CandidateMarks
from dovetail.controllers.disruption.commands import DisruptionCommands
from dovetail.controllers.disruption.engine import DisruptionController
from dovetail.controllers.disruption.recheck import LandingCheck, Recheck
from dovetail.controllers.disruption.reporter import DisruptionReporter
from dovetail.controllers.disruption.strays import DisruptionStrays, FailedReplacements
from dovetail.controllers.node.health import NodeHealth
from dovetail.controllers.node.interruption import Interruptions
from dovetail.controllers.node.termination import Termination
from dovetail.controllers.nodeclaim.consistency import Consistency
from dovetail.controllers.nodeclaim.consolidatable import PodEvents
from dovetail.controllers.nodeclaim.drift import DriftDetection
from dovetail.controllers.nodeclaim.expiration import Expiration
from dovetail.controllers.nodeclaim.garbage import GarbageCollection
from dovetail.controllers.nodeclaim.hydration import ClaimHydration, NodeHydration
from dovetail.controllers.nodeclaim.lifecycle import Lifecycle
from dovetail.controllers.nodeclaim.state import StateReporter
from dovetail.controllers.nodeclaim.transitions import Transitions
from dovetail.controllers.nodepool.conditions import NodePoolReadiness, NodePoolValidation
from dovetail.controllers.nodepool.counter import NodePoolCounter
from dovetail.controllers.nodepool.disruptions import NodePoolDisruptions
from dovetail.controllers.nodepool.hash import NodePoolHash
from dovetail.controllers.nodepool.registration_health import RegistrationHealth
from dovetail.controllers.nodepool.static_capacity import StaticCapacity
from dovetail.controllers.pod.evictions import Evictions
from dovetail.controllers.pod.protection import ProtectionEvents
from dovetail.controllers.provisioning.provisioner import Provisioner, ProvisioningOptions
from dovetail.observe.disruption_metrics import DisruptionMetrics
from dovetail.observe.metrics import Metrics
from dovetail.planning.disruption.assessment import DisruptionPlanner
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.planning.timings import Timings
from dovetail.ports import CloudProvider
from dovetail.runtime.compute import SerialCompute
from dovetail.runtime.manager import Controller
from dovetail.state.scheduling import SchedulingState


class FeatureGates(msgspec.Struct, frozen=True, kw_only=True):
    """Features that can be turned off or on (R39)."""

    node_repair: bool = True
    static_capacity: bool = True
    spot_to_spot_consolidation: bool = False


def all_controllers(
    cluster: WatchedCluster,
    provider: CloudProvider,
    metrics: Metrics,
    timings: Timings,
    gates: FeatureGates,
    *,
    provisioning: ProvisioningOptions | None = None,
    disrupting: bool = False,
    types: InstanceTypeSource | None = None,
    of_provider: Sequence[Controller] = (),
) -> list[Controller]:
    """Call it before the reflectors run: the controllers subscribe to the stores.

    Without `provisioning` pending pods get no nodes. Without it and `disrupting` no node is disrupted gracefully.
    `types`: asks the provider for instance types, if other code needs them too. `of_provider`: the controllers that the
    provider needs for itself.
    """
    health = RegistrationHealth(cluster)
    creation = ClaimCreation(cluster, metrics)
    evictions = Evictions(cluster, metrics, timings)
    types = types or InstanceTypeSource(cluster, provider, keep_seconds=timings.instance_types_seconds)
    condition_writers = (PodEvents(cluster, timings), DriftDetection(cluster, provider, types, timings))
    controllers: list[Controller] = [
        Lifecycle(cluster, provider, health, metrics, timings),
        evictions,
        Termination(cluster, provider, evictions, metrics, timings),
        Expiration(cluster, metrics),
        Interruptions(cluster, provider, metrics),
        GarbageCollection(cluster, provider, metrics, timings),
        ClaimHydration(cluster),
        NodeHydration(cluster),
        Consistency(cluster, timings),
        *condition_writers,
        StateReporter(cluster),
        Transitions(cluster),
        ProtectionEvents(cluster, metrics),
        health,
        NodePoolCounter(cluster, timings),
        NodePoolDisruptions(cluster, timings),
        NodePoolHash(cluster),
        NodePoolReadiness(cluster),
        NodePoolValidation(cluster),
    ]
    if provisioning is not None:
        state = SchedulingState(cluster, pause=timedelta(seconds=timings.unlaunched_pause_seconds))
        provisioner = Provisioner(
            cluster, state, types, creation, provisioning=provisioning, metrics=metrics, timings=timings
        )
        controllers.append(provisioner)
        if disrupting:
            counts, marks = DisruptionMetrics(metrics.registry), CandidateMarks(cluster)
            accounts = DisruptionAccounts(cluster, counts)
            provisioner.on_created(accounts.launched)
            planner = DisruptionPlanner(options=provisioning.options, settings=cluster.settings)
            compute = SerialCompute(provisioning.compute)
            recheck = Recheck(cluster, LandingCheck(cluster, state, planner, compute))
            commands = DisruptionCommands(cluster, state, creation, metrics, timings, recheck=recheck, counts=counts)
            disruption = DisruptionController(
                cluster,
                state,
                types,
                planner,
                commands,
                condition_writers=condition_writers,
                marks=marks,
                accounts=accounts,
                telling=DisruptionReporter(cluster, counts),
                compute=compute,
                rules=ConsolidationOptions(spot_to_spot=gates.spot_to_spot_consolidation),
                timings=timings,
            )
            leftovers = (DisruptionStrays(cluster, state), FailedReplacements(cluster, commands, timings))
            controllers += [commands, *leftovers, marks, accounts, disruption]
    if gates.static_capacity:
        controllers.append(StaticCapacity(cluster, creation, timings))
    if gates.node_repair:
        controllers.append(NodeHealth(cluster, provider, metrics, timings))
    controllers += of_provider
    for controller in controllers:
        if isinstance(controller, KeyedController):
            controller.measure(metrics)
    return controllers
