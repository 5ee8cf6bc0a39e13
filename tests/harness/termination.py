"""Nodes of ours that are about to go, in the simulated cluster with all controllers running.

async def test_it(setting: Setting) -> None:
    node = await setting.launch(pods=[manifests.pod("web")], terminationGracePeriod="1h")
    await setting.delete_claim()
    assert await setting.seconds_until(lambda: setting.gone(NODES, node)) == 5

pytestmark = stage(play)              # the machines are kwok's
@stage(cloud=True)  # they are the simulator's cloud's: `setting.cloud` makes them slow, fail and vanish
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.controllers.assembly import FeatureGates, all_controllers
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.ports import (
    KWOK_NODECLASSES,
    NODECLAIMS,
    NODES,
    PODS,
    VOLUME_ATTACHMENTS,
    VOLUME_CLAIMS,
    CloudProvider,
    Create,
    Delete,
    KubeApi,
    Patch,
    Resource,
)
from dovetail.providers.kwok.bundle import kwok_controllers
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.manager import Controller
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import KUBELET, Raw, pod_ready
from dovetail.sim.cloud.machines import SimCloud
from dovetail.sim.server.faults import ApiRequest, Fault
from dovetail.values.timestamp import parse_time
from tests.harness.claims import Manifest, condition_of, node, node_claim, node_class
from tests.harness.running import Program, run_controllers
from tests.harness.stage import gives

INSTANCE_TYPE = "c-4x-amd64-linux"
FOR_EVER = 1_000_000
GUARDED = {names.DO_NOT_DISRUPT: "true"}


class Sent(msgspec.Struct, frozen=True):
    """A request of the program, whatever became of it."""

    at: datetime
    request: ApiRequest


class Setting:
    """The cluster, the program, and what tests of termination ask and do again and again."""

    cloud: SimCloud
    provider: CloudProvider  # of the process that runs now
    of_provider: Sequence[Controller] = ()  # the controllers that it needs for itself
    metrics: Metrics  # likewise

    def __init__(self, sim: SimCluster, program: Program) -> None:
        self.sim = sim
        self.program = program
        self.sent: list[Sent] = []
        # A fault that hits nothing, only to be shown every request.
        sim.server.faults.add(Fault(), client=names.COMPONENT, times=FOR_EVER, when=self._overhear)

    def _overhear(self, request: ApiRequest) -> bool:
        self.sent.append(Sent(self.now(), request))
        return False

    # -- making -------------------------------------------------------------------------------------------------------

    async def want(self, name: str = "c1", **options: Any) -> None:
        """Put a claim there that can be launched; options are those of `node_claim`."""
        if self.sim.object(KWOK_NODECLASSES, "default") is None:
            await self.sim.apply(node_class())
        type_ = {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": [INSTANCE_TYPE]}
        await self.sim.apply(node_claim(name, **{"requirements": [type_], **options}))

    async def launch(self, name: str = "c1", *, pods: Sequence[Manifest] = (), **options: Any) -> str:
        """Have a claim launched, registered and initialized, with pods running there; the name of its Node."""
        await self.want(name, **options)
        await self.sim.wait_until(lambda: self.condition(ConditionType.INITIALIZED, name).get("status") == "True")
        found = self.claim(name)
        assert found is not None
        node = str(found["status"]["nodeName"])
        await self.bind(node, *pods)
        return node

    async def bind(self, node: str, *pods: Manifest) -> None:
        """Have pods run on the node, as if the scheduler had put them there."""
        for pod in pods:
            await self.sim.apply({**pod, "spec": {**pod["spec"], "nodeName": node}})
        wanted = {pod["metadata"]["name"] for pod in pods}
        await self.sim.wait_until(
            lambda: all(not self._awaits_start(pod) for pod in self.sim.pods() if pod["metadata"]["name"] in wanted)
        )

    async def add_node(
        self,
        name: str,
        *,
        pods: Sequence[Manifest] = (),
        managed: bool = True,
        provider_id: str | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Put a Node there that no launch has made: with our finalizer, and Ready unless annotated otherwise."""
        body = node(name)
        body["metadata"] |= {"finalizers": [names.TERMINATION_FINALIZER], "annotations": dict(annotations or {})}
        if not managed:
            del body["metadata"]["labels"][names.KWOK_NODECLASS_LABEL]
        if provider_id is not None:
            body["spec"]["providerID"] = provider_id
        await self.sim.apply(body)
        if KUBELET not in body["metadata"]["annotations"]:
            await self.sim.wait_until(lambda: condition_of(self.sim, NODES, name, "Ready").get("status") == "True")
        await self.bind(name, *pods)

    def _awaits_start(self, pod: Raw) -> bool:
        """Whether there is a kubelet that will start it."""
        host = self.node(pod["spec"]["nodeName"])
        return pod["status"]["phase"] == "Pending" and annotation(host, KUBELET) is None

    # -- changing -----------------------------------------------------------------------------------------------------

    async def delete_claim(self, name: str = "c1") -> None:
        await self.sim.api.write(Delete(NODECLAIMS, name))

    async def delete_node(self, name: str) -> None:
        await self.sim.api.write(Delete(NODES, name))

    async def annotate(self, kind: Resource[Any], name: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations, or remove those that are None."""
        where = "default" if kind.namespaced else None
        raw = kind.read_as(dict[str, Any])
        await self.sim.api.write(Patch(raw, name, {"metadata": {"annotations": dict(annotations)}}, namespace=where))

    # -- looking ------------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        return self.sim.clock.now()

    def claim(self, name: str = "c1") -> Raw | None:
        return self.sim.object(NODECLAIMS, name)

    def node(self, name: str) -> Raw | None:
        return self.sim.object(NODES, name)

    def pod(self, name: str) -> Raw | None:
        return self.sim.object(PODS, name)

    def runs(self, name: str) -> bool:
        """Whether the pod is ready and nobody has asked it to go."""
        pod = self.pod(name)
        return pod is not None and pod_ready(pod) and not is_deleting(pod)

    def gone(self, kind: Resource[Any], *wanted: str) -> bool:
        return all(self.sim.object(kind, name) is None for name in wanted)

    def condition(self, type_: str, claim: str = "c1") -> Manifest:
        """A condition of a claim; empty if there is none."""
        return condition_of(self.sim, NODECLAIMS, claim, type_)

    def deadline(self, claim: str = "c1") -> datetime | None:
        """The one that is written on the claim."""
        text = annotation(self.claim(claim), names.TERMINATION_TIMESTAMP)
        return None if text is None else parse_time(text)

    def taints(self, node: str) -> list[tuple[str, str]]:
        found = self.node(node)
        assert found is not None
        return [(taint["key"], taint["effect"]) for taint in found["spec"].get("taints") or ()]

    def requests(self, verb: str, kind: Resource[Any], name: str | None = None) -> list[Sent]:
        """What the program has asked of the API server; evictions are `evict` of PODS."""
        return [
            sent
            for sent in self.sent
            if (sent.request.verb, sent.request.resource.plural) == (verb, kind.plural)
            and name in (None, sent.request.name)
        ]

    def tried_to_evict(self, pod: str | None = None) -> list[datetime]:
        return [sent.at for sent in self.requests("evict", PODS, pod)]

    def events(self, reason: str, about: str | None = None) -> list[Raw]:
        """The events about an object of this name, oldest first."""
        return [event for event in self.program.events(reason) if about in (None, event["regarding"]["name"])]

    # -- time ---------------------------------------------------------------------------------------------------------

    async def seconds_until(self, predicate: Callable[[], bool], *, timeout: str = "10m") -> float:
        """Wait for it, and say how long that took."""
        started_at = self.sim.clock.monotonic()
        await self.sim.wait_until(predicate, timeout=timeout)
        return self.sim.clock.monotonic() - started_at

    async def run_until(self, at: datetime) -> None:
        """Let time pass up to an instant, and let happen what is due by then."""
        await self.sim.clock.sleep(max(0.0, (at - self.now()).total_seconds()))

    async def run_past(self, at: datetime) -> None:
        """Let time pass up to an instant and a moment more, in which what is due then can happen."""
        await self.run_until(at + timedelta(milliseconds=1))


def is_deleting(obj: Raw | None) -> bool:
    return obj is not None and obj["metadata"].get("deletionTimestamp") is not None


def annotation(obj: Raw | None, key: str) -> str | None:
    found = None if obj is None else (obj["metadata"].get("annotations") or {}).get(key)
    return None if found is None else str(found)


def counted(metric: MetricWrapperBase, **labels: str) -> float:
    """The sum over all children of a counter that have these labels."""
    return sum(
        sample.value
        for family in metric.collect()
        for sample in family.samples
        if sample.name.endswith("_total") and labels.items() <= sample.labels.items()
    )


# -- volumes -----------------------------------------------------------------------------------------------------------


def volume_claim(name: str, volume: str) -> Manifest:
    """A PersistentVolumeClaim bound to a volume."""
    return {
        "apiVersion": VOLUME_CLAIMS.api_version,
        "kind": VOLUME_CLAIMS.kind,
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": volume,
        },
    }


def claimed_volume(name: str, claim: str) -> Manifest:
    """A volume of a pod's spec."""
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}


async def attach(setting: Setting, name: str, node: str, volume: str | None) -> None:
    """Have a volume attached to the node; None: an inline one, which has no PersistentVolume."""
    source: Manifest = {"persistentVolumeName": volume}
    if volume is None:
        source = {"inlineVolumeSpec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}
    body = {
        "metadata": {"name": name},
        "spec": {"attacher": "csi.example.com", "nodeName": node, "source": source},
    }
    await setting.sim.api.write(Create(VOLUME_ATTACHMENTS, body))


async def detach(setting: Setting, name: str) -> None:
    await setting.sim.api.write(Delete(VOLUME_ATTACHMENTS, name))


# -- running -----------------------------------------------------------------------------------------------------------

S = TypeVar("S", bound=Setting)
Scenario = Callable[[S], Coroutine[Any, Any, None]]
More = Callable[[Program, CloudProvider, Metrics], Sequence[Controller]]


def play_with(
    make: Callable[[SimCluster, Program], S],
    controllers_of: Callable[[S], Sequence[Controller]],
    scenario: Scenario[S],
    *,
    provider_of: Callable[[KubeApi], KwokProvider] | None = None,
    seed: int = 0,
    **options: Any,
) -> None:
    """Run the scenario with a setting, beside controllers, in virtual time. The machines are those of the provider; if
    there is none, those of the simulator's cloud. Further options are those of `run_controllers`.
    """
    settings: list[S] = []

    def controllers(program: Program) -> Sequence[Controller]:
        (setting,) = settings
        setting.metrics = Metrics(CollectorRegistry())
        if provider_of is None:
            setting.provider = setting.cloud
        else:
            setting.provider = kwok = provider_of(program.api)
            setting.of_provider = kwok_controllers(kwok, program.cluster)
        return controllers_of(setting)

    async def within(sim: SimCluster, program: Program) -> None:
        setting = make(sim, program)
        settings.append(setting)
        async with AsyncExitStack() as stack:
            if provider_of is None:
                setting.cloud = await stack.enter_async_context(SimCloud(sim, seed=seed))
            await program.start()
            await scenario(setting)
            await program.stop()

    run_controllers(within, controllers, seed=seed, started=False, **options)


@gives("setting")
def play(
    scenario: Scenario[Setting],
    *,
    cloud: bool = False,
    timings: Timings | None = None,
    gates: FeatureGates | None = None,
    seed: int = 0,
    more: More | None = None,
    provider_of: Callable[[KubeApi], KwokProvider] | None = None,
    **options: Any,
) -> None:
    """Run the scenario beside all controllers; `more` makes others that run too."""

    def controllers_of(setting: Setting) -> Sequence[Controller]:
        program, provider, metrics = setting.program, setting.provider, setting.metrics
        beside = () if more is None else more(program, provider, metrics)
        return [
            *all_controllers(
                program.cluster,
                provider,
                metrics,
                timings or Timings(),
                gates or FeatureGates(),
                of_provider=setting.of_provider,
            ),
            *beside,
        ]

    kwok = None if cloud else provider_of or partial(KwokProvider, seed=seed)
    play_with(Setting, controllers_of, scenario, provider_of=kwok, seed=seed, **options)
