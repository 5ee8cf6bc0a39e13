"""The suite for authors of providers, on kwok and on the simulated cloud, and what it finds in bad ones."""

from contextlib import AbstractAsyncContextManager

import pytest

from dovetail.api import names
from dovetail.api.objects import NodeClaim
from dovetail.ports import (
    KWOK_NODECLASSES,
    NODES,
    CloudError,
    CloudProvider,
    Instance,
    InsufficientCapacity,
    Patch,
    TooManyRequests,
)
from dovetail.providers.conformance import NotPossible, ProviderConformance, ProviderTrial, TrialScenario
from dovetail.providers.kwok.bundle import kwok_controllers
from dovetail.providers.kwok.nodes import name_in
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.manager import Controller
from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.cloud.machines import Launch, SimCloud
from dovetail.sim.server.faults import Fault
from tests.harness.running import Program, run_controllers
from tests.unit.providers.conformance import make_claim, take_over

NOT_READY = {
    "type": "Ready",
    "status": "False",
    "reason": "Broken",
    "message": "no subnet",
    "lastTransitionTime": "2026-03-01T00:00:00Z",
}


class SimulatedTrial(ProviderTrial):
    """A provider whose claims are on a simulated server."""

    def __init__(self, sim: SimCluster, cloud: CloudProvider) -> None:
        self.sim = sim
        self.cloud = cloud

    async def claim(self, name: str) -> NodeClaim:
        return await make_claim(self.sim, name)

    async def launched(self, claim: NodeClaim, instance: Instance) -> NodeClaim:
        return await take_over(self.sim, claim, instance)

    async def wait(self, seconds: float) -> None:
        await self.sim.run_for(f"{seconds}s")

    async def break_class(self) -> None:
        status = {"status": {"conditions": [NOT_READY]}}
        await self.sim.api.write(Patch(KWOK_NODECLASSES, "default", status, subresource="status"))


class CloudTrial(SimulatedTrial):
    """The simulated cloud, which can fail in every way."""

    cloud: SimCloud

    def machines(self) -> int:
        now = self.sim.clock.now()
        return sum(not machine.gone(now) for machine in self.cloud.machines.values())

    async def lose_reply(self) -> None:
        self.cloud.next_launches(Launch(error=CloudError("no reply"), after=True))

    async def throttle(self) -> None:
        self.cloud.next_launches(Launch(error=CloudError("slow down", retry_after=7)))

    async def throttle_deletion(self) -> None:
        self.cloud.next_deletions(CloudError("slow down", retry_after=7))

    async def exhaust(self) -> None:
        self.cloud.exhaust()

    async def interrupt(self, provider_id: str) -> None:
        self.cloud.interrupt(provider_id)


class KwokTrial(SimulatedTrial):
    """kwok. A launch writes nothing, so that no reply can be lost, and no machine can run out."""

    def machines(self) -> int:
        return len(self.sim.objects(NODES))

    async def throttle(self) -> None:
        fault = Fault(error=TooManyRequests("slow down", retry_after=7))
        self.sim.server.faults.add(fault, verb="get", resource=KWOK_NODECLASSES)

    async def throttle_deletion(self) -> None:
        fault = Fault(error=TooManyRequests("slow down", retry_after=7))
        self.sim.server.faults.add(fault, verb="delete", resource=NODES)

    async def interrupt(self, provider_id: str) -> None:
        annotation = {"metadata": {"annotations": {names.KWOK_INTERRUPTED: "true"}}}
        await self.sim.api.write(Patch(NODES, name_in(provider_id), annotation))


class InVirtualTime(ProviderConformance):
    """Runs the suite on the simulated cluster."""

    def trial(self) -> AbstractAsyncContextManager[ProviderTrial]:
        raise NotImplementedError("the simulated cluster makes it")


class TestSimulatedCloud(InVirtualTime):
    """All faults are possible."""

    def play(self, scenario: TrialScenario) -> None:
        async def on_fresh_cloud(sim: SimCluster) -> None:
            async with SimCloud(sim) as cloud:
                await scenario(CloudTrial(sim, cloud))

        run(on_fresh_cloud)


class TestKwok(InVirtualTime):
    """With the controller that makes its Nodes."""

    def play(self, scenario: TrialScenario) -> None:
        providers: list[KwokProvider] = []

        async def on_fresh_cluster(sim: SimCluster, _: Program) -> None:
            try:
                await scenario(KwokTrial(sim, providers[-1]))
            except NotPossible:
                return

        def controllers(program: Program) -> list[Controller]:
            providers.append(KwokProvider(program.api))
            return kwok_controllers(providers[-1], program.cluster)

        run_controllers(on_fresh_cluster, controllers)


# -- bad providers -----------------------------------------------------------------------------------------------------


class Forgetful(SimCloud):
    """Launches again at every call, and takes throttling for a lack of machines."""

    async def create(self, claim: NodeClaim) -> Instance:
        self._by_claim.clear()
        self._seed += 1
        try:
            instance = await super().create(claim)
        except CloudError as error:
            raise InsufficientCapacity(str(error)) from error
        self.machines[f"sim://{len(self.machines)}"] = self.machines[instance.provider_id]
        return instance


class WithForgetful(InVirtualTime):
    """Its tests fail."""

    def play(self, scenario: TrialScenario) -> None:
        async def on_fresh_cloud(sim: SimCluster) -> None:
            async with Forgetful(sim) as cloud:
                await scenario(CloudTrial(sim, cloud))

        run(on_fresh_cloud)


def test_the_suite_finds_a_provider_that_launches_twice() -> None:
    with pytest.raises(AssertionError):
        WithForgetful().test_one_claim_is_one_machine()


def test_the_suite_finds_a_provider_that_takes_throttling_for_a_lack_of_machines() -> None:
    with pytest.raises(AssertionError, match="throttling is not InsufficientCapacity"):
        WithForgetful().test_throttling_is_not_a_lack_of_machines()
