"""Plays a scenario step by step: all controllers and the simulated cloud in a simulated cluster.

    with Play(scenario) as play:
        while play.now < scenario.end:
            play.advance(play.now + HOUR)
        print(play.report())

Virtual time passes only in `advance`, so the caller decides how fast.
"""

import asyncio
import gc
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from random import Random
from typing import Any, Final

import msgspec

from dovetail.api import names, objects
from dovetail.controllers.assembly import FeatureGates
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.disruption.engine import DisruptionController
from dovetail.model.instance_types import InstanceType
from dovetail.ports import AlreadyExists, ApiError, Create, Delete, InsufficientCapacity, Patch
from dovetail.runtime.compute import space_collections, spare_collections
from dovetail.runtime.tasks import root_cause
from dovetail.scheduling.default_spread import SchedulerProfiles
from dovetail.sim.actors.cluster import SimCluster, kind_of
from dovetail.sim.checkers.checkers import Checkers
from dovetail.sim.cloud.machines import Launch, SimCloud
from dovetail.sim.loop.virtual_loop import VirtualClock, new_loop
from dovetail.sim.scenarios.ledger import Ledger
from dovetail.sim.scenarios.programs import SELDOM_SECONDS, ProgramOptions, SimulatedPrograms
from dovetail.sim.scenarios.reading import FaultSpec, Scenario, ScenarioEvent, error_in
from dovetail.sim.scenarios.restore import PreparedCluster, prepare, put_in
from dovetail.sim.scenarios.wire_checks import sound
from dovetail.sim.server.kinds import NAMESPACES
from dovetail.views.simulation.report import ReportedViolation, SimulationReport

_STEPS: Final = 200  # of a progress bar


class Play:
    """One run, to be used in a `with` statement, which starts and stops all tasks."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        catalogue: Sequence[InstanceType] | None = None,
        gates: FeatureGates | None = None,
        checked: bool = True,
        scheduler_profiles: SchedulerProfiles | None = None,
        hold_pods: bool = False,
    ) -> None:
        """`hold_pods`: guard and drive hold pods, too."""
        self.scenario = scenario
        self.prepared: PreparedCluster = prepare(scenario, catalogue)
        self._gates = gates or FeatureGates(node_repair=scenario.settings.node_repair)
        # The checks are those of `run`.
        self._checked = checked and not scenario.settings.karpenter_drains
        self._catalogue, self._profiles = catalogue, scheduler_profiles
        self._hold_pods = hold_pods
        self._loop = new_loop(start=scenario.start)
        self._clock = VirtualClock(self._loop)
        self._task: asyncio.Task[None] | None = None
        self._checkers: Checkers | None = None
        self._over = False
        self._before = gc.get_threshold()
        # Set when the run starts.
        self.sim: SimCluster
        self.cloud: SimCloud
        self.ledger: Ledger
        self.programs: SimulatedPrograms

    def __enter__(self) -> "Play":
        space_collections()
        self._task = self._loop.create_task(self._run(), name="play")
        self.advance(self.scenario.start)
        spare_collections()  # most objects of the start live to the end
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None:
                self._loop.cancel_all()
        finally:
            self._loop.close()
            gc.unfreeze()
            gc.set_threshold(*self._before)

    @property
    def cluster(self) -> WatchedCluster:
        return self.programs.cluster

    @property
    def disruption(self) -> DisruptionController:
        """Of Dovetail, where it decides."""
        assert self.programs.disruption is not None, "Karpenter decides"
        return self.programs.disruption

    @property
    def now(self) -> datetime:
        return self._loop.now()

    def advance(self, until: datetime) -> None:
        """Let virtual time pass. Raises InputError if an event cannot be carried out."""
        assert self._task is not None, "it has not been entered"
        assert not self._over, "the report ends the run"
        try:
            self._loop.run_until(self._task, until=until)
        except BaseExceptionGroup as errors:  # an InputError is for the user, any other error is a bug
            raise root_cause(errors) from None
        assert not self._task.done(), "the play never ends by itself"

    def report(self) -> SimulationReport:
        """End the run, run the final checks, and report what has happened."""
        if self._checkers is not None and not self._over:
            self._checkers.finish()
        self._over = True
        return self.ledger.report(
            start=self.scenario.start,
            seed=self.scenario.seed,
            decider=self.scenario.settings.decider,
            problems=self.prepared.problems,
            violations=self.violations() if self._checked else None,
            late=self.programs.late(),
        )

    def violations(self) -> tuple[ReportedViolation, ...]:
        """Rules that were broken so far; there should be none."""
        broken = () if self._checkers is None else self._checkers.violations
        return tuple(ReportedViolation(**msgspec.structs.asdict(violation)) for violation in broken)

    # -- the parts ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        seed = self.scenario.seed
        self.sim = sim = SimCluster(self._clock, seed=seed, scheduler_profiles=self._profiles)
        sim.server.bookmark_seconds = SELDOM_SECONDS
        node_classes = self.prepared.node_classes.read_as(objects.NodeClass)
        types = self.prepared.machines.types
        self.cloud = cloud = SimCloud(sim, types=types, node_classes=node_classes, seed=seed)
        put_in(self.prepared, sim, cloud)
        prices = {
            machine.instance.provider_id: None if machine.offering is None else machine.offering.price
            for machine in self.prepared.machines.standing
        }
        self.ledger = Ledger(sim, cloud, prices, self.prepared.machines.guessed())
        if self._checked:
            reading = self.scenario.settings.budgets.value
            self._checkers = Checkers(sim, types=self.prepared.machines.types, reading=reading)
        options = ProgramOptions(
            settings=self.scenario.settings,
            gates=self._gates,
            seed=seed,
            types=self._catalogue,
            scheduler_profiles=self._profiles,
            hold_pods=self._hold_pods,
        )
        self.programs = SimulatedPrograms(sim, cloud, self.ledger, options)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(sim)
            await stack.enter_async_context(cloud)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            group.create_task(self.programs.run(), name="programs")
            for happening in sorted(self.scenario.happenings, key=lambda event: event.after):
                group.create_task(self._happen(happening), name=happening.field)

    # -- events -------------------------------------------------------------------------------------------------------

    async def _happen(self, happening: ScenarioEvent) -> None:
        await self._clock.sleep(happening.after.total_seconds())
        try:
            for body in happening.apply:
                await self._apply(body)
            if happening.delete is not None:
                kind, namespace, name = happening.delete
                await self.sim.api.write(Delete(kind, name, namespace=namespace))
                self.ledger.note("scenario", "/".join(filter(None, (kind.kind, namespace, name))), "deleted")
            if happening.fault is not None:
                await self._fail(happening, happening.fault)
        except (ApiError, LookupError) as error:
            assert self.scenario.document is not None
            message = error.message if isinstance(error, ApiError) else str(error.args[0])
            raise error_in(self.scenario.document, message[:300], happening.field) from None

    async def _apply(self, body: Mapping[str, Any]) -> None:
        """Create the object, or merge it into the existing one."""
        kind, name = kind_of(body), body["metadata"]["name"]
        namespace = body["metadata"].get("namespace", "default") if kind.namespaced else None
        path = "/".join(filter(None, (kind.kind, namespace, name)))
        if self.sim.object(kind, name, namespace=namespace or "") is not None:
            await self.sim.api.write(Patch(kind, name, body, namespace=namespace))
            self.ledger.note("scenario", path, "changed")
            return
        if namespace is not None:
            with suppress(AlreadyExists):
                await self.sim.api.write(Create(NAMESPACES, {"metadata": {"name": namespace}}))
        created = sound(dict(body))  # nulls remove fields of existing objects only
        await self.sim.api.write(Create(kind, created, namespace=namespace))
        self.ledger.note("scenario", path, "created")

    async def _fail(self, happening: ScenarioEvent, fault: FaultSpec) -> None:
        lasts = happening.spans.get("for")
        if fault.kind == "launch-fails":
            refused = Launch(error=InsufficientCapacity("the scenario's fault: nothing can be had"))
            self.cloud.next_launches(refused, times=fault.count)
            self.ledger.note("fault", "cloud", f"the next {fault.count} launches fail")
            return
        if fault.kind == "insufficient-capacity":
            self.cloud.exhaust(fault.instance_type, zone=fault.zone, capacity_type=fault.capacity_type)
            what = ", ".join(filter(None, (fault.instance_type, fault.zone, fault.capacity_type))) or "anything"
            self.ledger.note("fault", "cloud", f"{what} is sold out")
            if lasts is not None:
                await self._clock.sleep(lasts.total_seconds())
                self.cloud.restock()
                self.ledger.note("fault", "cloud", "everything can be had again")
            return
        nodes = self._drawn(happening, fault)
        for provider_id, node in nodes:
            self._strike(happening, fault, provider_id, node)
        if lasts is not None and fault.kind in ("kubelet-silent", "node-not-ready"):
            await self._clock.sleep(lasts.total_seconds())
            for _, node in nodes:
                self._mend(fault, node)

    def _drawn(self, happening: ScenarioEvent, fault: FaultSpec) -> list[tuple[str, str]]:
        """`count` random machines that the patterns match. Raises LookupError if there is none."""
        now = self._clock.now()
        machines = [
            (provider_id, machine.node)
            for provider_id, machine in sorted(self.cloud.machines.items())
            if not machine.gone(now)
            and machine.registers_at is None
            and fault.hits(machine.node, machine.instance.labels.get(names.NODEPOOL_LABEL, ""))
        ]
        if not machines:
            raise LookupError(f"no node is called {fault.node!r} in a NodePool called {fault.nodepool!r} by then")
        draw = Random(f"{self.scenario.seed} {happening.field}")
        return sorted(draw.sample(machines, min(fault.count, len(machines))))

    def _strike(self, happening: ScenarioEvent, fault: FaultSpec, provider_id: str, node: str) -> None:
        if fault.kind == "instance-lost":
            self.cloud.vanish(provider_id)
            message = "instance lost without notice"
        elif fault.kind == "interruption":
            self.cloud.interrupt(provider_id, deadline=self._clock.now() + happening.spans["notice"])
            message = f"the cloud takes it away in {fault.notice}"
        elif fault.kind == "kubelet-silent":
            self.sim.kill_kubelet(node)
            message = "its kubelet falls silent"
        else:
            self.sim.set_node_ready(node, ready=False)
            message = "is not ready"
        self.ledger.note("fault", f"Node/{node}", message)

    def _mend(self, fault: FaultSpec, node: str) -> None:
        if fault.kind == "kubelet-silent":
            self.sim.revive_kubelet(node)
        else:
            self.sim.set_node_ready(node, ready=True)
        self.ledger.note("fault", f"Node/{node}", "is well again")


def play_through(
    scenario: Scenario,
    catalogue: Sequence[InstanceType] | None,
    tell: Callable[[float], None],
    *,
    scheduler_profiles: SchedulerProfiles | None = None,
    hold_pods: bool = False,
) -> SimulationReport:
    """Play the whole scenario, and call `tell` with the share that is done after each step. Raises InputError."""
    with Play(scenario, catalogue=catalogue, scheduler_profiles=scheduler_profiles, hold_pods=hold_pods) as play:
        for step in range(1, _STEPS + 1):
            play.advance(scenario.start + scenario.span * step / _STEPS)
            tell(step / _STEPS)
        return play.report()
