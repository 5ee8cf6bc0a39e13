"""Claims whose conditions are written, in the simulated cluster, with only the controllers that write them.

async def test_it(setting: Setting) -> None:
    await setting.begin(node_pool(disruption={"consolidateAfter": "10m"}), "c1")
    await setting.bind("c1", "web")
    assert setting.last_pod_event("c1") == setting.now()

pytestmark = stage(play)
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from dovetail.api import names, objects
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.base.keyed import KeyedController
from dovetail.controllers.nodeclaim.consolidatable import PodEvents
from dovetail.controllers.nodeclaim.drift import DriftDetection
from dovetail.model.instance_types import InstanceType, TypeCatalogue
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.ports import NODECLAIMS, PODS, CloudError, KubeApi, Patch, Resource
from dovetail.providers.catalogue import built_in
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.manager import Controller
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import Raw
from dovetail.sim.server.store import Change
from dovetail.values.timestamp import parse_time
from tests.harness import manifests
from tests.harness.claims import (
    Manifest,
    condition_of,
    launched,
    node,
    node_claim,
    node_class,
    status_of,
)
from tests.harness.running import Program, run_controllers
from tests.harness.stage import gives

READY = ("Launched", "Registered", "Initialized")
MOMENT = timedelta(milliseconds=1)
MACHINE = {
    names.INSTANCE_TYPE_LABEL: "c-4x-amd64-linux",
    names.ZONE_LABEL: "test-zone-a",
    names.CAPACITY_TYPE_LABEL: "spot",
}


class Vendor:
    """What the provider has to say; it stays when the program is another process."""

    def __init__(self) -> None:
        self.types: Sequence[InstanceType] = built_in()
        self.drift: dict[str, str] = {}  # reasons, by name of the claim
        self.error: CloudError | None = None
        self.calls: Counter[str] = Counter()


class Provider(KwokProvider):
    """kwok, with a catalogue that changes and machines that drift."""

    def __init__(self, api: KubeApi, vendor: Vendor) -> None:
        super().__init__(api)
        self._vendor = vendor

    async def instance_types(self, pool: objects.NodePool) -> TypeCatalogue:  # noqa: ARG002
        self._vendor.calls["instance_types"] += 1
        if self._vendor.error is not None:
            raise self._vendor.error
        return TypeCatalogue(self._vendor.calls["instance_types"], self._vendor.types)

    async def drift_reason(self, claim: objects.NodeClaim) -> str:
        self._vendor.calls["drift_reason"] += 1
        if self._vendor.error is not None:
            raise self._vendor.error
        return self._vendor.drift.get(claim.metadata.name, "")


class Setting:
    """The cluster, the program, and what these tests ask and do again and again."""

    def __init__(self, sim: SimCluster, program: Program, vendor: Vendor) -> None:
        self.sim = sim
        self.program = program
        self.vendor = vendor
        self.metrics = Metrics(CollectorRegistry())  # of the process that runs now
        self.history: list[tuple[datetime, str, Raw]] = []  # every status that a claim has had
        sim.server.registry.store.observers.append(self._observe)

    def _observe(self, kind: Resource[Any], change: Change) -> None:
        if kind.plural == NODECLAIMS.plural:
            body = change.new.body
            self.history.append((self.now(), body["metadata"]["name"], body.get("status") or {}))

    # -- making and changing ------------------------------------------------------------------------------------------

    async def begin(self, pool: Manifest, *claims: str, true: tuple[str, ...] = READY, **options: Any) -> None:
        """A pool with claims, each with the Node n-<claim>, as if they had just been initialized; the program runs."""
        await self.sim.apply(node_class(), pool)
        for name in claims:
            await self.sim.apply(node(f"n-{name}", pool=pool["metadata"]["name"]))
            labels = {**MACHINE, **options.get("labels", {})}
            await self.sim.apply(node_claim(name, pool=pool["metadata"]["name"], **{**options, "labels": labels}))
            if true:
                await launched(self.sim, name, node=f"n-{name}", true=true)
        await self.program.start()
        await self.sim.run_for("1ms")

    async def bind(self, claim: str, *pods: str, **spec: Any) -> None:
        """Have the scheduler put pods on the claim's node."""
        selector = {names.HOSTNAME_LABEL: f"n-{claim}"}
        for name in pods:
            await self.sim.apply(manifests.pod(name, nodeSelector=selector, **spec))
        await self.sim.wait_until(lambda: all(self.host(name) for name in pods))
        await self.sim.run_for("1ms")

    async def edit(self, kind: Resource[Any], name: str, body: Mapping[str, Any]) -> None:
        where = "default" if kind.namespaced else None
        await self.sim.api.write(Patch(kind.read_as(dict[str, Any]), name, body, namespace=where))
        await self.sim.run_for("1ms")

    async def run_to(self, at: datetime) -> None:
        """Up to the instant, but what is due then has not happened yet."""
        await self.sim.clock.sleep((at - MOMENT - self.now()).total_seconds())

    # -- looking ------------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        return self.sim.clock.now()

    def host(self, pod: str) -> str:
        found = self.sim.object(PODS, pod)
        return "" if found is None else str(found["spec"].get("nodeName") or "")

    def condition(self, type_: str, claim: str = "c1") -> Manifest:
        return condition_of(self.sim, NODECLAIMS, claim, type_)

    def consolidatable(self, claim: str = "c1") -> bool:
        found = self.condition("Consolidatable", claim)
        assert found == {} or found["status"] == "True", "it is there and True, or not there"
        return bool(found)

    def drifted(self, claim: str = "c1") -> str:
        """The reason; empty if there is no such condition."""
        found = self.condition("Drifted", claim)
        assert found == {} or (found["status"] == "True" and found["message"] == found["reason"])
        return str(found.get("reason", ""))

    def last_pod_event(self, claim: str = "c1") -> datetime | None:
        text = status_of(self.sim, NODECLAIMS, claim).get("lastPodEventTime")
        return None if text is None else parse_time(text)

    def recorded(self, claim: str = "c1") -> list[tuple[datetime, datetime]]:
        """When lastPodEventTime changed, and what it then was."""
        found: list[tuple[datetime, datetime]] = []
        for at, name, status in self.history:
            text = status.get("lastPodEventTime")
            if name == claim and text is not None and (not found or found[-1][1] != parse_time(text)):
                found.append((at, parse_time(text)))
        return found

    def writes(self) -> int:
        return self.program.requests("patch")

    def reconciles(self) -> dict[str, float]:
        """How often each controller has looked at something."""
        counted: Counter[str] = Counter()
        for metric in self.metrics.reconciles.collect():
            for sample in metric.samples:
                if sample.name.endswith("_total"):
                    counted[sample.labels["controller"]] += int(sample.value)
        return dict(counted)


Scenario = Callable[[Setting], Coroutine[Any, Any, None]]


@gives("setting")
def play(
    scenario: Scenario,
    *,
    more: Callable[[Program], Sequence[Controller]] = lambda _program: (),
    timings: Timings = Timings(),  # noqa: B008  frozen
    seed: int = 0,
    shuffle: bool = False,
    latency_seconds: float = 0.0,
) -> None:
    """Run the scenario in virtual time; `more` makes controllers that run beside those two."""
    vendor, settings = Vendor(), list[Setting]()

    def controllers_of(program: Program) -> Sequence[Controller]:
        metrics = settings[0].metrics = Metrics(CollectorRegistry())
        provider = Provider(program.api, vendor)
        cluster = program.cluster
        types = InstanceTypeSource(cluster, provider, keep_seconds=timings.instance_types_seconds)
        made = [PodEvents(cluster, timings), DriftDetection(cluster, provider, types, timings), *more(program)]
        for controller in made:
            if isinstance(controller, KeyedController):
                controller.measure(metrics)
        return made

    async def within(sim: SimCluster, program: Program) -> None:
        settings.append(Setting(sim, program, vendor))
        await scenario(settings[0])
        await program.stop()

    run_controllers(within, controllers_of, seed=seed, shuffle=shuffle, latency_seconds=latency_seconds, started=False)
