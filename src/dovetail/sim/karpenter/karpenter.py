"""A Karpenter in the simulated cluster, to try what works beside it: it decides and acts as Karpenter does (10 §1).

    async with SimCloud(sim, register_seconds=20, register_spread_seconds=70) as cloud:
        async with Karpenter(sim, cloud) as karpenter:
            ...
            await karpenter.kill()                  # its commands are forgotten
            await karpenter.start()

Its hands are Dovetail's own controllers, where these behave as Karpenter's do. What it reads differs: see
`karpenter.view`. So does how it decides: see `karpenter.disruption`.
"""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.controllers.assembly import FeatureGates, all_controllers
from dovetail.controllers.base.claim_creation import ClaimCreation
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.nodeclaim.state import StateReporter
from dovetail.controllers.nodeclaim.transitions import Transitions
from dovetail.controllers.nodepool.disruptions import NodePoolDisruptions
from dovetail.controllers.pod.protection import ProtectionEvents
from dovetail.controllers.provisioning.provisioner import Provisioner, ProvisioningOptions
from dovetail.model.decider import KARPENTER
from dovetail.model.rule_settings import settings_of
from dovetail.observe.metrics import Metrics
from dovetail.planning.disruption.assessment import DisruptionPlanner
from dovetail.planning.timings import Timings
from dovetail.ports import CloudProvider
from dovetail.runtime.compute import SerialCompute
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.failures import Failures
from dovetail.runtime.lease import Election, LeaseLost
from dovetail.runtime.manager import Controller, Manager, ManagerTimings
from dovetail.runtime.reflector import ReflectorTimings
from dovetail.scheduling.default_spread import SchedulerProfiles
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.karpenter.disruption import KarpenterCommands, KarpenterDisruption, KarpenterStrays
from dovetail.sim.karpenter.view import KarpenterClient, KarpenterView
from dovetail.sim.loop.virtual_loop import InlineCompute

NAME: Final = "karpenter"
NAMESPACE: Final = "kube-system"
# What Karpenter does not do.
_NOT_ITS: Final = (StateReporter, Transitions, ProtectionEvents, NodePoolDisruptions)
_RESTART_SECONDS: Final = 5.0
_SELDOM_SECONDS: Final = 86_400.0


class Karpenter:
    """One replica. `durations`: whether it is 1.12 or newer, which reads durations on pods.

    `failures` None: an unexpected error ends the run. `client`: another than its own. `elects`: whether it takes its
    Lease, as drive looks for it. `reflecting`: how often watches break.
    """

    def __init__(
        self,
        sim: SimCluster,
        cloud: CloudProvider,
        *,
        durations: bool = True,
        timings: Timings = Timings(),  # noqa: B008  frozen
        failures: Failures | None = None,
        client: KarpenterClient | None = None,
        elects: bool = True,
        reflecting: ReflectorTimings = ReflectorTimings(),  # noqa: B008  frozen
        scheduler_profiles: SchedulerProfiles | None = None,
    ) -> None:
        self._client = client
        self._elects = elects
        self._reflecting = reflecting
        self._profiles = scheduler_profiles
        self._sim = sim
        self._cloud = cloud
        self.durations = durations  # counts from the next start on
        self._timings = timings
        self._failures = failures
        self._group = asyncio.TaskGroup()
        self._task: asyncio.Task[None] | None = None
        self._starts = 0

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()
        await self._group.__aexit__(kind, error, trace)

    async def start(self) -> None:
        """Returns at once; it acts when its caches are synced and it holds its Lease."""
        assert self._task is None, "it is running"
        self._task = self._group.create_task(self._live(), name=NAME)

    async def kill(self) -> None:
        """As on SIGKILL: requests under way may or may not take effect."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _live(self) -> None:
        """Starts again after it has lost its Lease, as its Deployment would have it."""
        while True:
            with suppress(LeaseLost):
                await self._manager().run(asyncio.Event())
            await self._sim.clock.sleep(_RESTART_SECONDS)

    def _manager(self) -> Manager:
        clock = self._sim.clock
        self._starts += 1
        api = self._client or KarpenterClient(self._sim.server, NAME)
        view = KarpenterView(
            api,
            clock,
            self._cloud.node_classes,
            timings=self._reflecting,
            failures=self._failures,
            scheduler_profiles=self._profiles,
        )
        view.durations = self.durations
        election = Election(
            api,
            clock,
            namespace=NAMESPACE,
            name=names.LEADER_ELECTION_LEASE,
            identity=f"{NAME}-{self._starts}",
        )
        return Manager(
            api,
            clock,
            election=election if self._elects else None,
            recorder=EventRecorder(api, clock, instance=NAME, waiting_at_most=0),  # nobody reads its events
            reflectors=view.reflectors,
            controllers=self._controllers(view),
            timings=ManagerTimings(heartbeat_seconds=_SELDOM_SECONDS),
            failures=self._failures,
        )

    def _controllers(self, view: KarpenterView) -> list[Controller]:
        metrics, timings = Metrics(CollectorRegistry()), self._timings
        types = InstanceTypeSource(view, self._cloud, keep_seconds=timings.instance_types_seconds)
        provisioning = ProvisioningOptions(compute=InlineCompute())
        gates = FeatureGates(node_repair=False, static_capacity=False)
        hands = all_controllers(view, self._cloud, metrics, timings, gates, provisioning=provisioning, types=types)
        (provisioner,) = (controller for controller in hands if isinstance(controller, Provisioner))
        state = provisioner.state
        commands = KarpenterCommands(view, state, ClaimCreation(view, metrics), timings)
        loop = KarpenterDisruption(
            view,
            state,
            types,
            DisruptionPlanner(options=provisioning.options, settings=settings_of(KARPENTER)),
            commands,
            compute=SerialCompute(provisioning.compute),
            timings=timings,
        )
        own = (commands, loop, KarpenterStrays(view, state, commands))
        return [*(controller for controller in hands if not isinstance(controller, _NOT_ITS)), *own]
