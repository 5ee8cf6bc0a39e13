"""Commands that take nodes, in the simulated cluster with all controllers running but the one that decides.

async def test_it(setting: Setting) -> None:
    await setting.stand("a")
    assert await setting.start(setting.command("a", replacements=1))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"))

pytestmark = stage(play)
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from dovetail.api import names, objects
from dovetail.api.names import REPLACEMENT_OF, ConditionType
from dovetail.controllers.assembly import FeatureGates, all_controllers
from dovetail.controllers.base.claim_creation import ClaimCreation
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.disruption.commands import DisruptionCommands
from dovetail.controllers.disruption.recheck import LandingCheck, Recheck
from dovetail.controllers.disruption.strays import DisruptionStrays, FailedReplacements
from dovetail.controllers.provisioning.provisioner import Provisioner, ProvisioningOptions
from dovetail.observe.disruption_metrics import DisruptionMetrics
from dovetail.observe.metrics import Metrics
from dovetail.planning.disruption.assessment import DisruptionPlanner
from dovetail.planning.disruption.board import Candidate, Method
from dovetail.planning.disruption.commands import Command, command_id
from dovetail.planning.disruption.records import CommandRecord, read_record
from dovetail.planning.timings import Timings
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, CloudProvider, Patch
from dovetail.runtime.manager import Context, Controller
from dovetail.scheduling.placement import NewClaim, PodInfo, SchedulingOptions, read_pool
from dovetail.scheduling.resources import NOTHING
from dovetail.sim.actors.wire import Raw
from dovetail.sim.loop.virtual_loop import InlineCompute
from dovetail.state.scheduling import SchedulingState
from tests.harness import provisioning
from tests.harness.provisioning import OF_FOUR, pool_of_four
from tests.harness.stage import gives
from tests.harness.termination import Scenario, annotation, is_deleting, play_with

DECIDES = "disruption"
# What rules of checkers ask of decisions, which here are the tests', for nodes that have no reason to go.
DECISIONS = ("budgets", "explained", "cheaper", "rescheduled")
TAINT = (names.DISRUPTED_TAINT, "NoSchedule")
UNLIMITED = {"budgets": [{"nodes": "100%"}]}
OWN = (names.NODEPOOL_LABEL, names.KWOK_NODECLASS_LABEL)


class Parts(msgspec.Struct, frozen=True):
    """What a process runs, and what tests ask of it."""

    cluster: WatchedCluster
    types: InstanceTypeSource
    controllers: list[Controller]
    commands: DisruptionCommands
    state: SchedulingState
    counts: DisruptionMetrics

    async def refresh(self) -> None:
        await self.types.refresh(self.state.usable_pools())
        await self.cluster.settled()


def parts(
    cluster: WatchedCluster,
    provider: CloudProvider,
    metrics: Metrics,
    timings: Timings,
    gates: FeatureGates | None = None,
) -> Parts:
    """All controllers, but nobody who decides anything: that is the tests' part."""
    types = InstanceTypeSource(cluster, provider, keep_seconds=timings.instance_types_seconds)
    made = all_controllers(
        cluster,
        provider,
        metrics,
        timings,
        gates or FeatureGates(),
        provisioning=ProvisioningOptions(compute=InlineCompute()),
        types=types,
    )
    (provisioner,) = (each for each in made if isinstance(each, Provisioner))
    others = [each for each in made if not each.name.startswith(DECIDES)]
    counts = DisruptionMetrics(CollectorRegistry())
    planner = DisruptionPlanner(options=SchedulingOptions())
    landing = LandingCheck(cluster, provisioner.state, planner, InlineCompute())
    commands = DisruptionCommands(
        cluster,
        provisioner.state,
        ClaimCreation(cluster, metrics),
        metrics,
        timings,
        recheck=Recheck(cluster, landing),
        counts=counts,
    )
    leftovers = (DisruptionStrays(cluster, provisioner.state), FailedReplacements(cluster, commands, timings))
    controllers = [*others, commands, *leftovers]
    return Parts(cluster, types, controllers, commands, provisioner.state, counts)


class Setting(provisioning.Setting):
    """With what tests of commands ask again and again."""

    parts: Parts  # of the process that runs now

    @property
    def commands(self) -> DisruptionCommands:
        return self.parts.commands

    async def stand(self, *claims: str, **options: Any) -> list[str]:
        """Have nodes of 4 cpus, initialized, about which nobody has anything left to write; their names."""
        if not self.sim.objects(NODEPOOLS):
            await self.begin(pool_of_four(disruption=UNLIMITED))
        nodes = [await self.launch(name, **{"requirements": [OF_FOUR], **options}) for name in claims]
        for name in claims:
            await self.drift(name)
        await self.sim.run_for("5s")
        return nodes

    async def drift(self, claim: str) -> None:
        """Commands are for Drift unless they say otherwise: their nodes have that reason."""
        found = self.claim(claim)
        assert found is not None
        self.cloud.drift[found["status"]["providerID"]] = "ImageDrift"
        await self.annotate(NODECLAIMS, claim, {"example.com/look": "1"})

    # -- commands ------------------------------------------------------------------------------------------------------

    def command(
        self,
        *claims: str,
        replacements: int = 0,
        method: Method = Method.DRIFT,
        pool: str = "default",
        pods: Sequence[PodInfo] = (),
    ) -> Command:
        """Of claims that are there; of several replacements the first is for the pods."""
        candidates = [self.candidate(name, pods if name == claims[0] else ()) for name in claims]
        uids = tuple(pod.uid for pod in pods)
        return Command(
            id=command_id(self.now(), method, candidates),
            at=self.now(),
            method=method,
            candidates=tuple(candidates),
            replacements=tuple(self.new_claim(pool, uids if number == 0 else ()) for number in range(replacements)),
        )

    def candidate(self, name: str, pods: Sequence[PodInfo] = ()) -> Candidate:
        claim = self.claim(name)
        assert claim is not None
        meta = claim["metadata"]
        pool = meta["labels"][names.NODEPOOL_LABEL]
        node = claim["status"]["nodeName"]
        return Candidate(node=node, claim=name, claim_uid=meta["uid"], pool=pool, pods=tuple(pods))

    def new_claim(self, pool: str, pods: tuple[str, ...] = ()) -> NewClaim:
        requirements = read_pool(self.pools()[pool]).requirements.without(*OWN)
        types = ("s-4x-amd64-linux",)
        return NewClaim(pool=pool, pods=pods, requirements=requirements, types=types, requests=NOTHING)

    def pools(self) -> dict[str, objects.NodePool]:
        return {pool.metadata.name: pool for pool in self.program.cluster.pools.values()}

    async def start(self, command: Command) -> bool:
        await self.parts.refresh()
        return await self.commands.start(self.context(), command, self.pools())

    def context(self) -> Context:
        api, recorder = self.program.api, self.program.recorder
        return Context(api=api, clock=self.sim.clock, recorder=recorder, stopping=asyncio.Event())

    # -- looking -------------------------------------------------------------------------------------------------------

    def record(self, claim: str) -> CommandRecord | None:
        text = annotation(self.claim(claim), names.DISRUPTION_COMMAND)
        return None if text is None else read_record(text)

    def replacements(self) -> list[Raw]:
        return [each for each in self.claims() if annotation(each, REPLACEMENT_OF) is not None]

    def is_disrupting(self, claim: str) -> bool:
        """S3, with all its marks."""
        found = self.claim(claim)
        if found is None or is_deleting(found) or self.record(claim) is None:
            return False
        reason = self.condition(ConditionType.DISRUPTION_REASON, claim).get("status") == "True"
        return reason and TAINT in self.taints(found["status"]["nodeName"])

    def is_untouched(self, claim: str) -> bool:
        """None of the marks of a command."""
        found = self.claim(claim)
        if found is None or is_deleting(found) or annotation(found, names.DISRUPTION_COMMAND) is not None:
            return False
        reason = self.condition(ConditionType.DISRUPTION_REASON, claim)
        return not reason and TAINT not in self.taints(found["status"]["nodeName"])

    def held_for(self, pool: str = "default") -> timedelta | None:
        until = self.commands.backoff_until(pool, self.now())
        return None if until is None else until - self.now()

    async def untaint(self, node: str) -> None:
        await self.sim.api.write(Patch(NODES, node, {"spec": {"taints": []}}))


# -- running -----------------------------------------------------------------------------------------------------------


@gives("setting")
def play(
    scenario: Scenario[Setting], *, timings: Timings | None = None, except_for: Sequence[str] = (), **options: Any
) -> None:
    """Run the scenario beside the controllers; the machines are the simulator's cloud's.

    `except_for`: rules of checkers that the scenario itself breaks, beside those that are about decisions.
    """

    def controllers_of(setting: Setting) -> Sequence[Controller]:
        setting.parts = parts(setting.program.cluster, setting.provider, setting.metrics, timings or Timings())
        return setting.parts.controllers

    play_with(Setting, controllers_of, scenario, except_for=(*DECISIONS, *except_for), **options)
