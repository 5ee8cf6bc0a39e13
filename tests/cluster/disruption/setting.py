"""A corner of a real control plane for one timeline: a pool whose nodes take nobody's pods but its own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from dovetail.api import names
from dovetail.ports import KWOK_NODECLASSES, NODECLAIMS, NODEPOOLS, NODES, PODS, NotFound
from dovetail.sim.actors import manifests
from dovetail.sim.actors.wire import DEPLOYMENTS
from dovetail.sim.kinds import NAMESPACES
from tests.cluster.disruption.chronicle import is_deleted, is_disrupted, is_initialized
from tests.cluster.disruption.program import Stage
from tests.cluster.termination import setting as termination
from tests.cluster.termination.history import SERVICE_ACCOUNTS, Thing
from tests.cluster.termination.setting import quick
from tests.unit.controllers.manifests import NODE_CLASS_REF, node_claim, node_class, node_pool

FOUR_CPUS: Final = "c-4x-amd64-linux"
ONE_CPU: Final = "c-1x-amd64-linux"
TEAM: Final = "example.com/team"
HELD: Final = "example.com/held"
NOTHING: Final = [{"nodes": "0"}]
EVERYTHING: Final = [{"nodes": "100%"}]
CANDIDATE: Final = (names.CANDIDATE_TAINT, "PreferNoSchedule")
DISRUPTED: Final = (names.DISRUPTED_TAINT, "NoSchedule")


class Setting(termination.Setting):
    """What timelines do and ask again and again. `name` is its alone."""

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage.api, stage.chronicle, name)
        self.chronicle = stage.chronicle
        self.program = stage.program
        self.selector = {names.NODEPOOL_LABEL: name}
        self.consolidating = stage.consolidating
        self._beacon = f"{name}-beacon"  # a pool of nodes whose end tells that a pass was made
        self._passes = 0

    # -- making -------------------------------------------------------------------------------------------------------

    async def begin(
        self, *, types: Iterable[str] = (FOUR_CPUS,), replicas: int | None = None, **disruption: Any
    ) -> None:
        """A pool of machines of these types. Nodes that pods have left stay unless `disruption` says otherwise."""
        fields: dict[str, Any] = {} if replicas is None else {"replicas": replicas}
        await self.apply({"apiVersion": "v1", "kind": NAMESPACES.kind, "metadata": {"name": self.name}})
        await self.apply(node_class(self.name))
        disruption = {"consolidateAfter": "Never", **disruption}
        await self.apply(node_pool(self.name, template=self._machines(*types), disruption=disruption, **fields))
        account = f"the service account of {self.name}"  # without it no pod is admitted
        await self.history.until(lambda: self.history.get(SERVICE_ACCOUNTS, "default", self.name), account)

    def _machines(self, *types: str, of: str = "") -> dict[str, Any]:
        """Fields of a pool's template, or of a claim; `of` another node class than the timeline's."""
        wanted = {names.INSTANCE_TYPE_LABEL: list(types), names.CAPACITY_TYPE_LABEL: ["on-demand"]}
        requirements = [{"key": key, "operator": "In", "values": values} for key, values in wanted.items()]
        return {"nodeClassRef": {**NODE_CLASS_REF, "name": of or self.name}, "requirements": requirements}

    async def deploy(self, app: str, *, replicas: int = 1, cpu: str) -> None:
        """Have so many pods run, on nodes of the pool."""
        pods = {"cpu": cpu, "annotations": quick(), "nodeSelector": self.selector}
        await self.apply(manifests.deployment(app, replicas=replicas, **pods))
        await self.runs_all(app, replicas)

    async def launch_bare(self, *claims: str) -> list[str]:
        """Have nodes without pods, whose claims stay in S6 until they are released; the names of the claims."""
        for claim in claims:
            body = node_claim(self.claim_name(claim), pool=self.name, **self._machines(FOUR_CPUS))
            body["metadata"]["finalizers"] = [HELD]
            await self.api.create(NODECLAIMS, body)
        for claim in claims:
            await self.node_of(claim)
        return [self.claim_name(claim) for claim in claims]

    # -- changing -----------------------------------------------------------------------------------------------------

    async def scale(self, app: str, replicas: int) -> None:
        await self.api.patch(DEPLOYMENTS, app, {"spec": {"replicas": replicas}}, namespace=self.name)
        await self.runs_all(app, replicas)

    async def change_pool(self, **spec: Any) -> None:
        await self.api.patch(NODEPOOLS, self.name, {"spec": spec})

    async def let_drift(self) -> None:
        """By a label that nodes should have from now on."""
        await self.change_pool(template={"metadata": {"labels": {TEAM: "blue"}}})

    async def allow(self, budgets: Sequence[Mapping[str, Any]]) -> None:
        await self.change_pool(disruption={"budgets": list(budgets)})

    async def delay_nodes(self, delay: str) -> None:
        """From their launch on; those that wait for their Node, too."""
        raw = KWOK_NODECLASSES.read_as(dict[str, Any])
        await self.api.patch(raw, self.name, {"spec": {"nodeRegistrationDelay": delay}})

    async def release(self, claim: str) -> None:
        """Once nothing but us keeps it."""

        def is_held() -> bool:
            found = self.history.get(NODECLAIMS, claim)
            return found is not None and found.metadata.finalizers == [HELD]

        await self.history.until(is_held, f"{claim} is kept by the test alone")
        await self._drop_finalizers(claim)
        await self.history.until(lambda: self.history.gone(NODECLAIMS, claim), f"{claim} is gone")

    async def _drop_finalizers(self, claim: str) -> None:
        await self.api.patch(NODECLAIMS, claim, {"metadata": {"finalizers": None}})

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def runs_all(self, app: str, count: int) -> None:
        """Exactly so many are ready, and none is on its way out."""

        def are_there() -> bool:
            pods = [pod for pod in self.history.all(PODS, self.name) if pod.metadata.labels.get("app") == app]
            return len(pods) == count and all(self.runs(pod.metadata.name) for pod in pods)

        await self.history.until(are_there, f"{self.name}: {count} of {app} run")

    async def has_nodes(self, count: int) -> list[str]:
        """The names of the claims once there are so many, all initialized and none of them going."""

        def are_there() -> bool:
            claims = self.claims()
            return len(claims) == count and all(is_initialized(each) and not is_disrupted(each) for each in claims)

        await self.history.until(are_there, f"{self.name} has {count} nodes")
        return [claim.metadata.name for claim in self.claims()]

    async def some_go(self, count: int) -> None:
        await self.history.until(lambda: len(self.disrupted()) >= count, f"{self.name}: {count} go")

    async def are_candidates(self, claims: Iterable[str]) -> None:
        """Once the nodes say that they could go (R22)."""
        for claim in claims:
            tainted = partial(self.is_tainted, claim, CANDIDATE)
            await self.history.until(tainted, f"{claim} is a candidate")

    async def a_pass_is_made(self) -> None:
        """Once every empty node that may go has been found: one that came after all of them has gone."""
        self._passes += 1
        name, machines = f"{self._beacon}-{self._passes}", self._machines(FOUR_CPUS, of=self._beacon)
        if self._passes == 1:
            disruption = {"consolidateAfter": "0s", "budgets": EVERYTHING}
            pool = node_pool(self._beacon, template=machines, disruption=disruption)
            await self.apply(node_class(self._beacon), pool)
        await self.api.create(NODECLAIMS, node_claim(name, pool=self._beacon, **machines))
        await self.history.until(lambda: self.history.gone(NODECLAIMS, name), f"{name} is gone")

    async def all_methods_are_tried(self) -> None:
        """Once two passes have come to the last one: the second has begun after this was asked for."""
        before = self.program.full_passes()
        while self.program.full_passes() < before + 2:
            await self.a_pass_is_made()

    # -- looking ------------------------------------------------------------------------------------------------------

    def claims(self) -> list[Thing]:
        """Those of the pool that are there now."""
        found = self.history.all(NODECLAIMS)
        return [claim for claim in found if claim.metadata.labels.get(names.NODEPOOL_LABEL) == self.name]

    def ever(self) -> set[str]:
        """The names of all claims that the pool has had."""
        return set(self.chronicle.claims_of(self.name))

    def disrupted(self) -> set[str]:
        return {claim.metadata.name for claim in self.claims() if is_disrupted(claim)}

    def node(self, claim: str) -> str:
        """The name of its Node, also when it is gone."""
        versions = [each.thing for each in self.history.versions(NODECLAIMS, claim) if each.thing is not None]
        return str(versions[-1].status["nodeName"])

    def is_tainted(self, claim: str, taint: tuple[str, str]) -> bool:
        found = self.history.get(NODES, self.node(claim))
        return found is not None and taint in taints(found)

    # -- judging ------------------------------------------------------------------------------------------------------

    def assert_within(self, limit: Callable[[int], int]) -> None:
        """At no moment were more nodes in S3–S6 than the limit, given how many nodes there were (R26, R27)."""
        for moment in self.chronicle.moments(self.name):
            assert len(moment.disrupted & moment.initialized) <= limit(len(moment.initialized)), moment

    def assert_replaced_first(self, old: str) -> str:
        """It was in one command, which made one replacement, and was deleted after that was initialized; its name."""
        (command,) = self.chronicle.commands_of(old)
        (new,) = command.replacements
        came = self.chronicle.number_when(new, is_initialized)
        went = self.chronicle.number_when(old, is_deleted)
        assert came < went, (old, new)
        return new

    def assert_never_fewer(self, count: int) -> None:
        """Since there were so many nodes that serve, there always were."""
        serving = [len(moment.serving) for moment in self.chronicle.moments(self.name)]
        assert min(serving[serving.index(count) :]) == count, serving

    # -- the end ------------------------------------------------------------------------------------------------------

    async def clear(self) -> None:
        """Nothing is left that the program would act on."""
        for deployment in (await self.api.list(DEPLOYMENTS, namespace=self.name)).items:
            await self.api.delete(DEPLOYMENTS, deployment["metadata"]["name"], namespace=self.name)
        for pool in (self.name, *([self._beacon] if self._passes else [])):
            await self.api.delete(NODEPOOLS, pool)
        for claim in self.claims():
            try:
                await self.api.delete(NODECLAIMS, claim.metadata.name)
                if HELD in claim.metadata.finalizers:
                    await self.release(claim.metadata.name)
            except NotFound:
                continue
        await self.history.until(lambda: not self.claims(), f"{self.name} has no nodes")


def taints(node: Thing) -> set[tuple[str, str]]:
    return {(taint["key"], taint["effect"]) for taint in node.spec.get("taints") or ()}
