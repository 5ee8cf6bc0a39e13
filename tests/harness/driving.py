"""Drive beside a simulated Karpenter, in virtual time.

async def test_it(setting: Driven) -> None:
    (old,) = await stand(setting, pool())
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, old))

pytestmark = stage(drive)
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.beside.driven_cluster import DrivenCluster
from dovetail.controllers.beside.driving import DriveOptions, drive_controllers
from dovetail.controllers.beside.karpenter_watch import FIRST_LOOKS_SECONDS, KarpenterWatch
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.ports import EVENTS, NODES, Clock, KubeApi
from dovetail.runtime.failures import Failures
from dovetail.runtime.manager import Controller
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import Raw
from dovetail.sim.checkers.checkers import RULES
from dovetail.sim.cloud.machines import SimCloud
from dovetail.sim.karpenter.karpenter import Karpenter
from dovetail.sim.loop.virtual_loop import InlineCompute
from tests.harness.provisioning import Setting
from tests.harness.running import Program, run_controllers
from tests.harness.stage import gives
from tests.harness.termination import Scenario

BESIDE_TAINT = (names.BESIDE_DISRUPTED_TAINT, "NoSchedule")


class Driven(Setting):
    """With the Karpenter, and with what drive knows about it."""

    karpenter: Karpenter
    watch: KarpenterWatch

    def held(self) -> dict[str, bool]:
        """By Node, whether Karpenter is kept off it by us."""
        found = ((each["metadata"]["name"], each["metadata"].get("annotations") or {}) for each in self.nodes())
        return {name: names.HELD in marks and marks.get(names.DO_NOT_DISRUPT) == "true" for name, marks in found}

    def nodes(self) -> list[Raw]:
        return self.sim.objects(NODES)

    def tainted(self) -> list[str]:
        """The Nodes in S3 by us."""
        return [
            each["metadata"]["name"] for each in self.nodes() if BESIDE_TAINT in self.taints(each["metadata"]["name"])
        ]

    def writes(self) -> list[tuple[str, str]]:
        """The writes of drive, besides events: the verb, and the kind with its subresource."""
        asked = (sent.request for sent in self.sent)
        return [
            (each.verb, "/".join(filter(None, (each.resource.plural, each.subresource))))
            for each in asked
            if each.verb not in ("get", "list", "watch") and each.resource.plural != EVENTS.plural
        ]


def cluster_driven(api: KubeApi, clock: Clock, failures: Failures | None) -> WatchedCluster:
    return DrivenCluster(api, clock, failures=failures)


async def watched(setting: Driven) -> None:
    """Looks after Karpenter as the process does, also after a restart of it."""
    api = setting.sim.server.client(names.COMPONENT)
    while True:
        await setting.watch.look(api, setting.sim.clock)
        await setting.sim.clock.sleep(FIRST_LOOKS_SECONDS)


@gives("setting")
def drive(
    scenario: Scenario[Driven],
    *,
    seed: int = 0,
    register_seconds: float = 30.0,
    options: DriveOptions | None = None,
    karpenter_version: str = "",
    **running: Any,
) -> None:
    """Runs the scenario with drive and a Karpenter. With `karpenter_version` drive believes that it runs."""
    settings: list[Driven] = []

    def controllers_of(program: Program) -> Sequence[Controller]:
        (setting,) = settings
        setting.metrics = Metrics(CollectorRegistry())
        cluster = program.cluster
        assert isinstance(cluster, DrivenCluster)
        given = options or DriveOptions(compute=InlineCompute())
        setting.watch = KarpenterWatch(karpenter_version)
        return drive_controllers(cluster, setting.metrics, setting.watch, given, Timings())

    async def within(sim: SimCluster, program: Program) -> None:
        setting = Driven(sim, program)
        settings.append(setting)
        async with AsyncExitStack() as stack:
            cloud = SimCloud(sim, seed=seed, register_seconds=register_seconds)
            setting.cloud = await stack.enter_async_context(cloud)
            setting.provider = setting.cloud
            setting.karpenter = await stack.enter_async_context(Karpenter(sim, setting.cloud))
            await program.start()
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watched(setting))
                await scenario(setting)
                watching.cancel()
            await program.stop()

    # The checkers know the marks of `run`; the tests of drive look for its own.
    run_controllers(
        within, controllers_of, seed=seed, started=False, cluster_of=cluster_driven, except_for=RULES, **running
    )
