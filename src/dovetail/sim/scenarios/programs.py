"""The programs that act in a simulated cluster: `dovetail run`, or a Karpenter, alone or with guard or drive beside it.

Who decides in the scenario says which (R56).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.api.names import DovetailMode
from dovetail.controllers.assembly import FeatureGates, all_controllers
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.beside.assembly import GuardOptions, guard_controllers, late_nodes
from dovetail.controllers.beside.driven_cluster import DrivenCluster
from dovetail.controllers.beside.driving import DriveOptions, drive_controllers
from dovetail.controllers.beside.karpenter_watch import KarpenterWatch
from dovetail.controllers.disruption.engine import DisruptionController
from dovetail.controllers.provisioning.provisioner import ProvisioningOptions
from dovetail.model.decider import DecidingController
from dovetail.model.instance_types import InstanceType
from dovetail.model.rule_settings import DURATIONS_SINCE, RuleSettings
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.manager import Controller, Manager, ManagerTimings
from dovetail.runtime.reflector import ReflectorTimings
from dovetail.scheduling.default_spread import SchedulerProfiles
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.cloud.machines import SimCloud
from dovetail.sim.karpenter.karpenter import Karpenter
from dovetail.sim.loop.virtual_loop import InlineCompute
from dovetail.sim.scenarios.ledger import Ledger, ObservedClient, ObservedKarpenterClient

# Heartbeats of a healthy controller, and bookmarks of watches that never break, carry no information here and would
# cost most of the time.
SELDOM_SECONDS: Final = 86_400.0
# Controllers poll less often than in a real cluster: the simulated cloud never changes its answers about drift and
# types, consistency checks and pool counters only inform, and a pod without a place can wait a minute.
_TIMINGS: Final = Timings(
    retrigger_seconds=60.0,
    drift_seconds=SELDOM_SECONDS,
    type_check_seconds=SELDOM_SECONDS,
    consistency_seconds=SELDOM_SECONDS,
    pool_counter_seconds=30.0,
    # Fewer passes: each takes as long as in a real cluster, and a simulation covers weeks.
    disruption_idle_seconds=10.0,
    disruption_longest_seconds=60.0,
)
_PATIENT: Final = ReflectorTimings(watch_seconds=86_400, idle_seconds=2 * SELDOM_SECONDS)
# Guard and drive have been there for a while: they hold what is to be held before Karpenter looks.
_HEAD_START_SECONDS: Final = 60.0
_CURRENT: Final = ".".join(map(str, DURATIONS_SINCE))


class ProgramOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`types`: those that the user gave. `hold_pods`: guard and drive hold pods, too."""

    settings: RuleSettings
    gates: FeatureGates
    seed: int = 0
    types: Sequence[InstanceType] | None = None
    scheduler_profiles: SchedulerProfiles | None = None
    hold_pods: bool = False


class SimulatedPrograms:
    """Assembled before the cluster runs. `cluster`: what Dovetail, or somebody who only looks on, follows."""

    cluster: WatchedCluster
    disruption: DisruptionController | None = None

    def __init__(self, sim: SimCluster, cloud: SimCloud, ledger: Ledger, options: ProgramOptions) -> None:
        self._sim, self._cloud, self._ledger, self._options = sim, cloud, ledger, options
        self._metrics = Metrics(CollectorRegistry())
        self._api = ObservedClient(sim.server, names.COMPONENT, ledger)
        assemble: Callable[[], Sequence[Controller]] = {
            None: self._nobody,
            DovetailMode.RUN: self._run,
            DovetailMode.GUARD: self._guard,
            DovetailMode.DRIVE: self._drive,
        }[self._mode]
        controllers = assemble()
        for controller in controllers:
            if isinstance(controller, DisruptionController):
                self.disruption = ledger.disruption = controller
        self._manager = Manager(
            self._api,
            sim.clock,
            election=None,
            # Nobody reads events here, and they would be most of all writes.
            recorder=EventRecorder(self._api, sim.clock, instance="simulated", waiting_at_most=0),
            reflectors=self.cluster.reflectors,
            controllers=controllers,
            timings=ManagerTimings(heartbeat_seconds=SELDOM_SECONDS),
        )

    @property
    def _mode(self) -> DovetailMode | None:
        """Of Dovetail; None: Karpenter is alone."""
        decider = self._options.settings.decider
        alone = decider.controller is DecidingController.KARPENTER
        return None if alone else decider.mode or DovetailMode.RUN

    @property
    def _reads_durations(self) -> bool:
        """Of Karpenter. One of unknown version counts as a current one, as in all readings."""
        release = self._options.settings.decider.release
        return release is None or release >= DURATIONS_SINCE

    def late(self) -> int | None:
        """The nodes that Karpenter had taken when one of their pods was not to be disrupted. None: it is not there."""
        if not self._options.settings.karpenter_drains:
            return None
        samples = (sample for metric in self._metrics.registry.collect() for sample in metric.samples)
        return round(sum(sample.value for sample in samples if sample.name == "dovetail_beside_late_total"))

    async def run(self) -> None:
        """Never ends by itself."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._manager.run(asyncio.Event()), name="manager")
            if self._options.settings.karpenter_drains:
                if self._mode is not None:
                    await self._sim.clock.sleep(_HEAD_START_SECONDS)
                async with self._karpenter():
                    await asyncio.Event().wait()

    def _karpenter(self) -> Karpenter:
        options = self._options
        return Karpenter(
            self._sim,
            self._cloud,
            durations=self._reads_durations,
            timings=_TIMINGS,
            client=ObservedKarpenterClient(self._sim.server, "karpenter", self._ledger),
            elects=False,
            reflecting=_PATIENT,
            scheduler_profiles=options.scheduler_profiles,
        )

    # -- the controllers of each ---------------------------------------------------------------------------------------

    def _watched(self, settings: RuleSettings) -> WatchedCluster:
        """Without node classes, as nothing is launched here."""
        return WatchedCluster(self._api, self._sim.clock, seed=self._options.seed, timings=_PATIENT, settings=settings)

    def _watch(self) -> KarpenterWatch:
        return KarpenterWatch(self._options.settings.decider.version or _CURRENT)

    def _nobody(self) -> Sequence[Controller]:
        """Counts what guard would have counted, in Dovetail's reading: that is what users mean by what they write."""
        self.cluster = self._watched(RuleSettings())
        return late_nodes(self.cluster, self._metrics)

    def _guard(self) -> Sequence[Controller]:
        self.cluster = self._watched(RuleSettings())
        guarding = GuardOptions(hold_pods=self._options.hold_pods)
        return guard_controllers(self.cluster, self._metrics, self._watch(), guarding)

    def _drive(self) -> Sequence[Controller]:
        options = self._options
        self.cluster = cluster = DrivenCluster(
            self._api,
            self._sim.clock,
            budgets=options.settings.budgets,
            seed=options.seed,
            timings=_PATIENT,
            scheduler_profiles=options.scheduler_profiles,
        )
        driving = DriveOptions(compute=InlineCompute(), types=options.types, hold_pods=options.hold_pods)
        return drive_controllers(cluster, self._metrics, self._watch(), driving, _TIMINGS)

    def _run(self) -> Sequence[Controller]:
        """As in `dovetail run`."""
        options = self._options
        self.cluster = WatchedCluster(
            self._api,
            self._sim.clock,
            self._cloud.node_classes,
            seed=options.seed,
            timings=_PATIENT,
            scheduler_profiles=options.scheduler_profiles,
            settings=options.settings,
        )
        provisioning = ProvisioningOptions(compute=InlineCompute())
        return all_controllers(
            self.cluster,
            self._cloud,
            self._metrics,
            _TIMINGS,
            options.gates,
            provisioning=provisioning,
            disrupting=True,
        )
