"""A cluster with a Karpenter in it, real or simulated, behind one face.

async def test_it(beside: BesideKarpenter) -> None:
    pool = await beside.pool()
    await beside.run(pool, 2)
    (first, second) = await beside.claims(pool)
    await beside.stamp(first)
"""

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any, Final, TypeAlias

from prometheus_client import generate_latest

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.controllers.beside.assembly import GuardOptions, guard_controllers
from dovetail.controllers.beside.karpenter_watch import KarpenterWatch
from dovetail.model.beside import OFF
from dovetail.ports import Clock, Create, Delete, KubeApi, Patch, Resource
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.tasks import root_cause
from dovetail.sim.actors.wire import Raw, active, deleting
from dovetail.sim.cloud.machines import SimCloud
from dovetail.sim.karpenter.karpenter import Karpenter
from dovetail.values.timestamp import parse_time
from tests.contract.backends import RealCluster, SimulatedCluster, condition
from tests.contract.bodies import DEPLOYMENTS, NODECLAIMS, NODECLASSES, NODEPOOLS, NODES, PODS, Object
from tests.harness import manifests
from tests.harness.claims import node_class, node_pool
from tests.harness.guarding import BesideProgram
from tests.harness.provisioning import BIG, OF_FOUR

NO_BUDGET: Final = {"nodes": "0"}
ALL: Final = {"nodes": "100%"}
GUARD_URL: Final = "guard.url"  # in the folder of the control plane: where the metrics of guard are
STAMP: Final = "dovetail-expired-1"
Metrics: TypeAlias = Callable[[], Awaitable[str]]  # the text of /metrics of guard


class RealBeside(RealCluster):
    """The control plane of the test run, with the real Karpenter, which other tests use too."""

    longest_seconds = 400
    clock = SystemClock()

    def client(self) -> KubeApi:
        """Another client, for somebody who looks on."""
        return self.api

    @asynccontextmanager
    async def guard(self) -> AsyncIterator[Metrics]:
        """The guard of the test run looks after all pools that do not keep it away."""
        url = (self.plane.folder / GUARD_URL).read_text()

        async def metrics() -> str:
            return await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read().decode())

        yield metrics


class SimulatedBeside(SimulatedCluster):
    """A simulated cluster with the simulated Karpenter."""

    karpenter: Karpenter
    cloud: SimCloud
    _names = 0

    @property
    def clock(self) -> Clock:
        return self._sim.clock

    def client(self) -> KubeApi:
        """Another client, for somebody who looks on."""
        return self._sim.server.client("witness")

    @asynccontextmanager
    async def guard(self) -> AsyncIterator[Metrics]:
        async with asyncio.TaskGroup() as tasks:
            program = BesideProgram(
                self._sim,
                tasks,
                lambda cluster, metrics: guard_controllers(cluster, metrics, KarpenterWatch("1.15"), GuardOptions()),
            )
            await program.start()

            async def metrics() -> str:
                return generate_latest(program.metrics.registry).decode()

            yield metrics
            await program.stop()

    def unique(self, name: str) -> str:
        """The same name in each run: chance goes by names."""
        self._names += 1
        return f"{name}-{self._names}"

    def run_test(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def beside() -> None:
            try:
                async with AsyncExitStack() as stack:
                    cloud = SimCloud(self._sim, register_seconds=1.0, delete_seconds=1.0)
                    self.cloud = await stack.enter_async_context(cloud)
                    self.karpenter = await stack.enter_async_context(Karpenter(self._sim, cloud))
                    await test()
            except BaseExceptionGroup as errors:
                raise root_cause(errors) from None

        super().run_test(beside)


class BesideKarpenter:
    """What the tests of a Karpenter ask again and again. Each test has pools of its own."""

    def __init__(self, cluster: RealBeside | SimulatedBeside) -> None:
        self.cluster = cluster
        self.namespace = ""

    def run_test(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def within_a_namespace() -> None:
            self.namespace = await self.cluster.new_namespace()
            await test()

        self.cluster.run_test(within_a_namespace)

    @asynccontextmanager
    async def guard(self) -> AsyncIterator[None]:
        """With guard beside Karpenter."""
        async with self.cluster.guard() as self._metrics:
            yield

    async def late(self, pool: str) -> float:
        """How many nodes of the pool guard has counted as taken before they could be held."""
        series = f'dovetail_beside_late_total{{nodepool="{pool}"}} '
        lines = (await self._metrics()).splitlines()
        return sum(float(line.removeprefix(series)) for line in lines if line.startswith(series))

    # -- making --------------------------------------------------------------------------------------------------------

    async def pool(
        self,
        *,
        guarded: bool = False,
        boots: str = "",
        template: Mapping[str, Any] | None = None,
        annotations: Mapping[str, str] | None = None,
        **disruption: Any,
    ) -> str:
        """A pool of machines of 4 cpus, which are never consolidated unless told otherwise.

        `guarded`: guard looks after it. `boots`: how long a machine takes until its Node is there.
        """
        name = self.cluster.unique("pool")
        delay = {"spec": {"nodeRegistrationDelay": boots}} if boots else {}
        await self.cluster.make(NODECLASSES, node_class(name, **delay))
        reference = {"group": names.KWOK_GROUP, "kind": names.KWOK_NODECLASS_KIND, "name": name}
        spec = {"nodeClassRef": reference, "requirements": [OF_FOUR], **(template or {})}
        told = {
            "consolidationPolicy": "WhenEmpty",
            "consolidateAfter": "Never",
            "budgets": [ALL],
            **disruption,
        }
        body = node_pool(name, template=spec, disruption=told)
        body["metadata"]["annotations"] = {**(annotations or {}), **({} if guarded else {names.BESIDE: OFF})}
        await self.cluster.make(NODEPOOLS, body)
        return name

    async def run(
        self, pool: str, count: int = 1, *, app: str = "", cpu: str = BIG, annotations: Mapping[str, str] | None = None
    ) -> str:
        """A Deployment on nodes of the pool, each pod on a node of its own if it is big; returns its name when all
        pods are ready."""
        app = app or self.cluster.unique("app")
        selector = {names.NODEPOOL_LABEL: pool}
        body = manifests.deployment(
            app,
            replicas=count,
            cpu=cpu,
            annotations=dict(annotations or {}),
            nodeSelector=selector,
            terminationGracePeriodSeconds=1,
        )
        await self.create(DEPLOYMENTS, body)
        await self.until_ready(app, count)
        await self.cluster.eventually(
            lambda: self.claims(pool),
            lambda found: all(condition(each, "Initialized").get("status") == "True" for each in found),
            timeout=60,
        )
        return app

    async def create(self, resource: Resource[Any], body: Object) -> None:
        await self.cluster.api.write(Create(resource, body, namespace=self.namespace))

    async def remove(self, app: str) -> None:
        """Delete a Deployment, and wait until its pods are gone."""
        await self.cluster.api.write(Delete(DEPLOYMENTS, app, namespace=self.namespace))
        await self.cluster.eventually(lambda: self.pods(app), lambda found: not found, timeout=30)

    async def make_twin(self, claim: Raw, pool: str) -> Raw:
        """Create a NodeClaim like the other, as drive does."""
        meta = (await self.cluster.api.get(NODEPOOLS, pool))["metadata"]
        owner = {
            "apiVersion": names.API_VERSION,
            "kind": names.NODEPOOL_KIND,
            "name": meta["name"],
            "uid": meta["uid"],
            "blockOwnerDeletion": True,
        }
        copied = (names.NODEPOOL_HASH, names.NODEPOOL_HASH_VERSION)
        label = names.KWOK_NODECLASS_LABEL
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.NODECLAIM_KIND,
            "metadata": {
                "name": self.cluster.unique(meta["name"]),
                "labels": {names.NODEPOOL_LABEL: meta["name"], label: claim["spec"]["nodeClassRef"]["name"]},
                "annotations": {key: meta["annotations"][key] for key in copied},
                "ownerReferences": [owner],
            },
            "spec": claim["spec"],
        }
        return await self.cluster.make(NODECLAIMS, body)

    # -- changing ------------------------------------------------------------------------------------------------------

    async def let_guard_in(self, pool: str) -> None:
        """From now on guard looks after the pool."""
        await self.cluster.api.write(Patch(NODEPOOLS, pool, {"metadata": {"annotations": {names.BESIDE: None}}}))

    async def annotate_node(self, claim: Raw, value: str | None, key: str = names.DO_NOT_DISRUPT) -> None:
        await self.cluster.api.write(
            Patch(NODES, claim["status"]["nodeName"], {"metadata": {"annotations": {key: value}}})
        )

    async def annotate_pod(self, pod: Raw, value: str | None, key: str = names.DO_NOT_DISRUPT) -> None:
        body = {"metadata": {"annotations": {key: value}}}
        await self.cluster.api.write(Patch(PODS, pod["metadata"]["name"], body, namespace=self.namespace))

    async def taint(self, claim: Raw, key: str) -> None:
        taints = [{"key": key, "effect": "NoSchedule"}]
        await self.cluster.api.write(Patch(NODES, claim["status"]["nodeName"], {"spec": {"taints": taints}}))

    async def stamp(self, claim: Raw, value: str = STAMP) -> None:
        """Give the claim another hash than its pool has."""
        body = {"metadata": {"annotations": {names.NODEPOOL_HASH: value}}}
        await self.cluster.api.write(Patch(NODECLAIMS, claim["metadata"]["name"], body))

    async def delete_claim(self, claim: Raw) -> None:
        await self.cluster.api.write(Delete(NODECLAIMS, claim["metadata"]["name"], uid=claim["metadata"]["uid"]))

    # -- looking -------------------------------------------------------------------------------------------------------

    async def claims(self, pool: str) -> list[Raw]:
        found = await self.cluster.api.list(NODECLAIMS, labels=f"{names.NODEPOOL_LABEL}={pool}")
        return list(found.items)

    async def pods(self, app: str) -> list[Raw]:
        found = await self.cluster.api.list(PODS, namespace=self.namespace, labels=f"app={app}")
        return list(found.items)

    @staticmethod
    def created_at(obj: Raw) -> datetime:
        return parse_time(obj["metadata"]["creationTimestamp"])

    async def claim(self, claim: Raw) -> Raw | None:
        return await self.cluster.find(NODECLAIMS, claim["metadata"]["name"])

    async def node(self, claim: Raw) -> Raw | None:
        return await self.cluster.find(NODES, claim["status"]["nodeName"])

    async def until(self, claim: Raw, type_: ConditionType, *, timeout: float, status: str = "True") -> Raw:
        """The condition, once it has this status; `status` empty: once it is gone."""

        async def found() -> Raw:
            return condition(await self.claim(claim) or {}, type_)

        return await self.cluster.eventually(found, lambda it: it.get("status", "") == status, timeout=timeout)

    async def until_going(self, claim: Raw, *, timeout: float) -> None:
        """Returns when the claim is being deleted or gone."""
        await self.cluster.eventually(lambda: self.claim(claim), lambda it: it is None or deleting(it), timeout=timeout)

    async def pod_goes(self, pod: Raw) -> bool:
        """Whether the pod is being deleted or gone."""
        found = await self.cluster.find(PODS, pod["metadata"]["name"], namespace=self.namespace)
        return found is None or deleting(found)

    async def until_pod_goes(self, pod: Raw, *, timeout: float) -> None:
        await self.cluster.eventually(lambda: self.pod_goes(pod), timeout=timeout)

    async def until_ready(self, app: str, count: int, *, timeout: float = 90) -> None:
        await self.cluster.eventually(
            lambda: self.pods(app), lambda found: sum(map(_is_ready, found)) == count, timeout=timeout
        )

    async def until_untainted(self, claim: Raw, key: str, *, timeout: float) -> None:
        await self.cluster.eventually(
            lambda: self.node(claim),
            lambda node: node is not None and key not in [each["key"] for each in node["spec"].get("taints") or ()],
            timeout=timeout,
        )

    async def until_gone(self, claim: Raw, *, timeout: float) -> None:
        await self.cluster.wait_gone(NODECLAIMS, claim["metadata"]["name"], timeout=timeout)

    async def untouched(self, *claims: Raw, seconds: float) -> None:
        """Returns after this time; fails as soon as Karpenter has begun to disrupt one of the claims."""
        loop_ends_at = self.cluster.now().timestamp() + seconds
        while self.cluster.now().timestamp() < loop_ends_at:
            for each in claims:
                found = await self.claim(each)
                assert found is not None and not deleting(found), "it is being deleted"  # noqa: PT018
                assert not condition(found, ConditionType.DISRUPTION_REASON), "a command has begun"
            await self.cluster.settle(1)


def _is_ready(pod: Raw) -> bool:
    return active(pod) and condition(pod, "Ready").get("status") == "True"


def at(text: str) -> datetime:
    """The instant of a field of an object."""
    return parse_time(text)
