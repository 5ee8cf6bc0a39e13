"""Runs guard on the simulated cluster in virtual time, as the program would, and makes nodes for it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.beside.assembly import GuardOptions, guard_controllers
from dovetail.controllers.beside.karpenter_watch import KarpenterWatch
from dovetail.model.beside import Hold, read_hold
from dovetail.observe.metrics import Metrics
from dovetail.ports import EVENTS, NODECLAIMS, NODES, PODS, KubeApi, Patch
from dovetail.runtime.manager import Controller
from dovetail.runtime.tasks import root_cause
from dovetail.sim.actors.cluster import SimCluster, run
from dovetail.sim.actors.wire import Raw
from dovetail.sim.cloud.machines import SimCloud
from dovetail.sim.karpenter.karpenter import Karpenter
from tests.harness import manifests
from tests.harness.running import ManagedProgram
from tests.harness.stage import gives

ControllersOf = Callable[[WatchedCluster, Metrics], Sequence[Controller]]


class BesideProgram(ManagedProgram):
    """Guard, or other controllers beside Karpenter."""

    metrics: Metrics

    def __init__(self, sim: SimCluster, group: asyncio.TaskGroup, controllers_of: ControllersOf) -> None:
        super().__init__(sim, group)
        self.controllers_of = controllers_of

    def _watch(self, api: KubeApi) -> WatchedCluster:
        return WatchedCluster(api, self.sim.clock)

    def _make_controllers(self) -> Sequence[Controller]:
        self.metrics = Metrics(CollectorRegistry())
        return self.controllers_of(self.cluster, self.metrics)

    def writes(self, what: str = "patch nodes ") -> int:
        """How many requests since the start begin with this."""
        return sum(request.startswith(what) for request in self.api.requests)

    def count(self, metric: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(metric, labels) or 0.0

    def events(self, reason: str = "") -> list[Raw]:
        """The events on the server, oldest first."""
        found = [event for event in self.sim.objects(EVENTS) if reason in ("", event["reason"])]
        return sorted(found, key=lambda event: str(event["eventTime"]))


class KarpenterWorld(NamedTuple):
    """The simulated Karpenter and its cloud, whose machines come up 20 to 90 seconds after their launch."""

    karpenter: Karpenter
    cloud: SimCloud


@gives("sim", "program", "world")
def run_beside(
    scenario: Callable[..., Awaitable[None]],
    options: GuardOptions = GuardOptions(),  # noqa: B008  frozen
    *,
    started: bool = True,
    karpenter: bool = False,
    karpenter_version: str = "1.11",
    seed: int = 0,
    shuffle: bool = False,
    latency_seconds: float = 0.0,
) -> None:
    """Runs the scenario with guard beside it. `started` False: the scenario starts guard itself.

    `karpenter`: there is a simulated Karpenter. Otherwise nobody disrupts the nodes, which `stand` makes.
    `karpenter_version`: guard believes that it runs; empty: guard looks at its Lease.
    """
    watch = KarpenterWatch(karpenter_version)

    def of_guard(cluster: WatchedCluster, metrics: Metrics) -> Sequence[Controller]:
        return guard_controllers(cluster, metrics, watch, options)

    async def within(sim: SimCluster) -> None:
        try:
            async with AsyncExitStack() as stack:
                world = None
                if karpenter:
                    slow = SimCloud(sim, seed=seed, register_seconds=20, register_spread_seconds=70, delete_seconds=5)
                    cloud = await stack.enter_async_context(slow)
                    world = KarpenterWorld(await stack.enter_async_context(Karpenter(sim, cloud)), cloud)
                group = await stack.enter_async_context(asyncio.TaskGroup())
                program = BesideProgram(sim, group, of_guard)
                looking = group.create_task(watch.run(sim.server.client(names.COMPONENT), sim.clock))
                if started:
                    await program.start()
                await scenario(sim, program, world)
                await program.stop()
                looking.cancel()
        except BaseExceptionGroup as errors:
            cause = root_cause(errors)
            raise cause from cause.__cause__

    run(within, seed=seed, shuffle=shuffle, latency_seconds=latency_seconds)


# -- what Karpenter would have made ------------------------------------------------------------------------------------


def pool(name: str = "default", *, annotations: Mapping[str, str] | None = None, **disruption: Any) -> Raw:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.NODEPOOL_KIND,
        "metadata": {"name": name, "annotations": {names.NODEPOOL_HASH: "1", **(annotations or {})}},
        "spec": {
            "disruption": {"consolidateAfter": "0s", **disruption},
            "template": {"spec": {"nodeClassRef": reference, "requirements": []}},
        },
    }


def claim(name: str, *, pool: str = "default", **spec: Any) -> Raw:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.NODECLAIM_KIND,
        "metadata": {
            "name": name,
            "labels": {names.NODEPOOL_LABEL: pool},
            "annotations": {names.NODEPOOL_HASH: "1", names.NODEPOOL_HASH_VERSION: names.HASH_VERSION},
        },
        "spec": {"nodeClassRef": reference, "requirements": [], **spec},
    }


async def stand(sim: SimCluster, *nodes: str, pool: str = "default") -> None:
    """Initialized nodes of the pool, with their claims."""
    for name in nodes:
        labels = {
            names.NODEPOOL_LABEL: pool,
            names.REGISTERED_LABEL: "true",
            names.INITIALIZED_LABEL: "true",
        }
        node = manifests.node(name, labels=labels)
        node["spec"]["providerID"] = f"cloud://{name}"
        await sim.apply(claim(name, pool=pool), node)
        entry = {"status": "True", "reason": "Yes", "message": "", "lastTransitionTime": "2026-03-01T00:00:00Z"}
        conditions = [{"type": each, **entry} for each in ("Launched", "Registered", "Initialized")]
        status = {"providerID": f"cloud://{name}", "nodeName": name, "conditions": conditions}
        await sim.api.write(Patch(NODECLAIMS, name, {"status": status}, subresource="status"))


async def bind(sim: SimCluster, node: str, name: str, **annotations: str) -> None:
    """A pod on the node, with annotations by the last part of their keys: `disruption_schedule="@daily"`."""
    keys = {f"{names.GROUP}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    await sim.apply(manifests.pod(name, annotations=keys, nodeName=node))


async def annotate_node(sim: SimCluster, node: str, **values: str | None) -> None:
    """Like a user: `held` and `do_not_disrupt` are the two annotations."""
    keys = {"held": names.HELD, "do_not_disrupt": names.DO_NOT_DISRUPT}
    body = {"metadata": {"annotations": {keys[key]: value for key, value in values.items()}}}
    await sim.api.write(Patch(NODES, node, body))


def annotations_of(sim: SimCluster, node: str) -> dict[str, str]:
    """Those that a hold is made of."""
    found = sim.object(NODES, node)
    assert found is not None
    given = found["metadata"].get("annotations", {})
    return {key: value for key, value in given.items() if key in (names.HELD, names.DO_NOT_DISRUPT)}


def hold_on(sim: SimCluster, node: str) -> Hold | None:
    """Our hold, if Karpenter sees it."""
    given = annotations_of(sim, node)
    return read_hold(given.get(names.HELD, "")) if given.get(names.DO_NOT_DISRUPT) == "true" else None


def pod_annotations(sim: SimCluster, name: str) -> dict[str, str]:
    found = sim.object(PODS, name)
    assert found is not None
    given: dict[str, str] = found["metadata"].get("annotations", {})
    return given
