"""Pods that wait for nodes, in the simulated cluster with all controllers running.

async def test_it(setting: Setting) -> None:
    await setting.sim.apply(node_class(), node_pool(), manifests.deployment("web", replicas=3))
    await setting.runs_all("web", 3)
    assert len(setting.claims()) == 1

pytestmark = stage(play)              # the machines are the simulator's cloud's
@stage(kwok=True)   # they are kwok's
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from dovetail.api import names
from dovetail.controllers.assembly import FeatureGates, all_controllers
from dovetail.controllers.provisioning.provisioner import Provisioner, ProvisioningOptions
from dovetail.planning.timings import Timings
from dovetail.ports import NODECLAIMS
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.manager import Controller
from dovetail.scheduling.placement import SchedulingOptions
from dovetail.sim.actors.wire import Raw
from dovetail.sim.loop.virtual_loop import InlineCompute
from tests.harness import termination
from tests.harness.claims import Manifest, node_class, node_pool
from tests.harness.stage import gives

BIG = "3"  # cpus of a pod that shares a machine of 4 with no other like it
# Machines of 4 cpus with 16 GiB, so that what fits is easily told.
OF_FOUR = {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["s-4x-amd64-linux"]}


class Setting(termination.Setting):
    """With what tests of provisioning ask again and again."""

    provisioner: Provisioner  # of the process that runs now

    async def begin(self, *pools: Manifest) -> None:
        """Pools of machines of 4 cpus, ready; one called default if none is named."""
        await self.sim.apply(node_class(), *(pools or (pool_of_four(),)))
        await self.sim.run_for("2s")

    def claims(self, pool: str | None = None) -> list[Raw]:
        found = self.sim.objects(NODECLAIMS)
        return [each for each in found if pool in (None, each["metadata"]["labels"][names.NODEPOOL_LABEL])]

    async def runs_all(self, app: str, count: int, *, timeout: str = "5m") -> None:
        await self.sim.wait_until(lambda: len(self.sim.pods(app=app, ready=True)) == count, timeout=timeout)

    def notes(self, reason: str, about: str) -> list[str]:
        return [str(event["note"]) for event in self.events(reason, about)]


def pool_of_four(name: str = "default", **fields: Any) -> Manifest:
    template = fields.pop("template", {})
    return node_pool(name, template={"requirements": [OF_FOUR], **template}, **fields)


def requests(claim: Raw) -> Mapping[str, str]:
    found: Mapping[str, str] = claim["spec"]["resources"]["requests"]
    return found


# -- running -----------------------------------------------------------------------------------------------------------


@gives("setting")
def play(
    scenario: termination.Scenario[Setting],
    *,
    kwok: bool = False,
    gates: FeatureGates | None = None,
    options: SchedulingOptions | None = None,
    timings: Timings | None = None,
    computing_seconds: float = 0.0,
    seed: int = 0,
    batch_longest: timedelta = timedelta(seconds=10),
    disrupting: bool = False,
    **running: Any,
) -> None:
    """Run the scenario beside all controllers."""
    provisioning = ProvisioningOptions(
        compute=InlineCompute(computing_seconds), options=options or SchedulingOptions(), batch_longest=batch_longest
    )

    def controllers_of(setting: Setting) -> Sequence[Controller]:
        made = all_controllers(
            setting.program.cluster,
            setting.provider,
            setting.metrics,
            timings or Timings(),
            gates or FeatureGates(),
            provisioning=provisioning,
            disrupting=disrupting,
            of_provider=setting.of_provider,
        )
        (setting.provisioner,) = (each for each in made if isinstance(each, Provisioner))
        return made

    termination.play_with(
        Setting,
        controllers_of,
        scenario,
        provider_of=partial(KwokProvider, seed=seed) if kwok else None,
        seed=seed,
        computing_seconds=computing_seconds,
        **running,
    )
