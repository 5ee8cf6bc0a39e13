"""A corner of a real control plane for one timeline: a pool whose nodes take nobody's pods but its own."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.ports import KWOK_NODECLASSES, NODECLAIMS, NODEPOOLS, NODES, PODS, Create, Delete, NotFound, Patch
from dovetail.sim.actors.wire import DEPLOYMENTS
from dovetail.sim.server.kinds import NAMESPACES
from dovetail.values.timestamp import format_time
from tests.cluster.disruption.chronicle import is_deleted, is_disrupted, is_initialized, reason_of
from tests.cluster.disruption.program import Stage
from tests.cluster.termination import setting as termination
from tests.cluster.termination.history import SERVICE_ACCOUNTS, Thing
from tests.cluster.termination.setting import quick
from tests.harness import manifests
from tests.harness.claims import NODE_CLASS_REF, node_claim, node_class, node_pool

FOUR_CPUS: Final = "c-4x-amd64-linux"
ONE_CPU: Final = "c-1x-amd64-linux"
TEAM: Final = "example.com/team"
HELD: Final = "example.com/held"
NOTHING: Final = [{"nodes": "0"}]
EVERYTHING: Final = [{"nodes": "100%"}]
CANDIDATE: Final = (names.CANDIDATE_TAINT, "PreferNoSchedule")
DISRUPTED: Final = (names.DISRUPTED_TAINT, "NoSchedule")
NOT_READY: Final = {"dovetail.dev/test": "not-ready"}  # to kwok, on a Node
OUTDATED: Final = {names.NODEPOOL_HASH: "0", names.NODEPOOL_HASH_VERSION: names.HASH_VERSION}
PASS_ASKED: Final = "example.com/pass-asked"
BETWEEN_LOOKS: Final = timedelta(seconds=0.5)
_FULL_PASSES: Final = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds_count"


class Setting(termination.Setting):
    """What timelines do and ask again and again. `name` is its alone."""

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage.api, stage.chronicle, name)
        self.chronicle = stage.chronicle
        self.program = stage.program
        self.selector = {names.NODEPOOL_LABEL: name}
        self.consolidating = stage.consolidating
        self.kubeconfig = stage.kubeconfig

    # -- making -------------------------------------------------------------------------------------------------------

    async def begin(
        self,
        *,
        types: Iterable[str] = (FOUR_CPUS,),
        replicas: int | None = None,
        template: Mapping[str, Any] | None = None,
        **disruption: Any,
    ) -> None:
        """A pool of machines of these types. Nodes that pods have left stay unless `disruption` says otherwise."""
        fields: dict[str, Any] = {} if replicas is None else {"replicas": replicas}
        machines = {**self.machines(*types), **(template or {})}
        await self.apply({"apiVersion": "v1", "kind": NAMESPACES.kind, "metadata": {"name": self.name}})
        await self.apply(node_class(self.name))
        disruption = {"consolidateAfter": "Never", **disruption}
        await self.apply(node_pool(self.name, template=machines, disruption=disruption, **fields))
        account = f"the service account of {self.name}"  # without it no pod is admitted
        await self.history.until(lambda: self.history.get(SERVICE_ACCOUNTS, "default", self.name), account)

    def machines(self, *types: str) -> dict[str, Any]:
        """Fields of a pool's template, or of a claim."""
        wanted = {names.INSTANCE_TYPE_LABEL: list(types), names.CAPACITY_TYPE_LABEL: ["on-demand"]}
        requirements = [{"key": key, "operator": "In", "values": values} for key, values in wanted.items()]
        return {"nodeClassRef": {**NODE_CLASS_REF, "name": self.name}, "requirements": requirements}

    async def deploy(
        self, app: str, *, replicas: int = 1, annotations: Mapping[str, str] | None = None, **spec: Any
    ) -> None:
        """Have so many pods run, on nodes of the pool."""
        pods = {"annotations": quick(**(annotations or {})), "nodeSelector": self.selector, **spec}
        await self.apply(manifests.deployment(app, replicas=replicas, **pods))
        await self.runs_all(app, replicas)

    async def launch_bare(self, *claims: str, **spec: Any) -> list[str]:
        """Have nodes without pods, whose claims stay in S6 until they are released; the names of the claims."""
        fields = {"pool": self.name, **self.machines(FOUR_CPUS), **spec}
        bodies = [node_claim(self.claim_name(claim), **fields) for claim in claims]
        for body in bodies:
            body["metadata"]["finalizers"] = [HELD]
        await asyncio.gather(*(self.api.write(Create(NODECLAIMS, body)) for body in bodies))
        for claim in claims:
            await self.node_of(claim)
        return [self.claim_name(claim) for claim in claims]

    async def occupy(
        self, *claims: str, cpu: str = "500m", annotations: Mapping[str, str] | None = None, **spec: Any
    ) -> None:
        """Have a pod on each of the claims' nodes, by the name of the claim, that is nobody's."""
        spec = {"cpu": cpu, "nodeSelector": self.selector, **spec}
        told = quick(**(annotations or {}))
        pods = (manifests.pod(claim, annotations=told, nodeName=self.node(claim), **spec) for claim in claims)
        await asyncio.gather(*map(self.apply, pods))
        for claim in claims:
            await self.ready(claim)

    async def hold(self, *claims: str, **pods: Any) -> list[str]:
        """Have nodes, each with a pod of its name; the names of the claims. The pool must let bare nodes be."""
        launched = await self.launch_bare(*claims)
        await self.occupy(*launched, **pods)
        return launched

    # -- changing -----------------------------------------------------------------------------------------------------

    async def scale(self, app: str, replicas: int) -> None:
        await self.api.write(Patch(DEPLOYMENTS, app, {"spec": {"replicas": replicas}}, namespace=self.name))
        await self.runs_all(app, replicas)

    async def change_pool(self, **spec: Any) -> None:
        await self.api.write(Patch(NODEPOOLS, self.name, {"spec": spec}))

    async def let_drift(self) -> None:
        """By a label that nodes should have from now on."""
        await self.change_pool(template={"metadata": {"labels": {TEAM: "blue"}}})

    async def outdate(self, *claims: str, undo: bool = False) -> None:
        """Let these claims alone drift, as if they were made from another template; or no longer."""
        annotations = dict.fromkeys(OUTDATED) if undo else OUTDATED
        await asyncio.gather(*(self.annotate(NODECLAIMS, claim, annotations) for claim in claims))
        for claim in claims:
            await self.history.until(partial(self._is_drifted, claim, not undo), f"{claim} has drifted: {not undo}")

    def _is_drifted(self, claim: str, drifted: bool) -> bool:
        found = self.history.get(NODECLAIMS, claim)
        return found is not None and (found.condition(ConditionType.DRIFTED) == "True") == drifted

    async def unguard(self, *pods: str) -> None:
        """Nothing protects them any more."""
        await asyncio.gather(*(self.annotate(PODS, pod, {names.DO_NOT_DISRUPT: None}) for pod in pods))

    async def empty(self, claim: str) -> None:
        """Take the pod away that is nobody's."""
        await self.api.write(Delete(PODS, claim, namespace=self.name))
        await self.history.until(lambda: self.pod(claim) is None, f"the pod on {claim} is gone")

    async def mark_ready(self, claim: str, *, ready: bool) -> None:
        """Have kwok say of its Node that it is Ready, or that it is not."""
        labels = dict.fromkeys(NOT_READY) if ready else NOT_READY
        await self.api.write(Patch(NODES, self.node(claim), {"metadata": {"labels": labels}}))
        wanted = str(ready)

        def is_so() -> bool:
            found = self.history.get(NODES, self.node(claim))
            return found is not None and found.condition("Ready") == wanted

        await self.history.until(is_so, f"the Node of {claim} is ready: {wanted}")

    async def fall_ill(self, claim: str, *, ago: timedelta) -> None:
        """Its Node is not Ready, and says that it has not been for so long."""
        await self.mark_ready(claim, ready=False)
        found = self.history.get(NODES, self.node(claim))
        assert found is not None
        at = format_time((self.history.now() - ago).replace(microsecond=0))
        conditions = [
            {**each, "lastTransitionTime": at} if each["type"] == "Ready" else each
            for each in found.status["conditions"]
        ]
        raw = NODES.read_as(dict[str, Any])
        await self.api.write(Patch(raw, self.node(claim), {"status": {"conditions": conditions}}, subresource="status"))

    async def allow(self, budgets: Sequence[Mapping[str, Any]]) -> None:
        await self.change_pool(disruption={"budgets": list(budgets)})

    async def delay_nodes(self, delay: str) -> None:
        """From their launch on; those that wait for their Node, too."""
        raw = KWOK_NODECLASSES.read_as(dict[str, Any])
        await self.api.write(Patch(raw, self.name, {"spec": {"nodeRegistrationDelay": delay}}))

    async def release(self, claim: str) -> None:
        """Once nothing but us keeps it."""

        def is_held() -> bool:
            found = self.history.get(NODECLAIMS, claim)
            return found is not None and found.metadata.finalizers == [HELD]

        await self.history.until(is_held, f"{claim} is kept by the test alone")
        await self._drop_finalizers(claim)
        await self.history.until(lambda: self.history.gone(NODECLAIMS, claim), f"{claim} is gone")

    async def _drop_finalizers(self, claim: str) -> None:
        await self.api.write(Patch(NODECLAIMS, claim, {"metadata": {"finalizers": None}}))

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

    async def in_s3(self) -> tuple[str, str]:
        """A drifted claim, and its replacement that is launched and has no Node until `delay_nodes` says otherwise."""
        await self.begin(budgets=EVERYTHING)
        await self.deploy("web", cpu="1")
        (old,) = await self.has_nodes(1)
        await self.delay_nodes("1h")
        await self.let_drift()
        await self.history.until(lambda: self.ever() != {old}, f"{old} gets a replacement")
        (new,) = self.ever() - {old}
        await self.history.until(partial(self.is_waiting, old, new), f"{old} waits for {new}")
        assert self.is_tainted(old, DISRUPTED)
        return old, new

    def is_waiting(self, old: str, new: str) -> bool:
        going, coming = self.history.get(NODECLAIMS, old), self.history.get(NODECLAIMS, new)
        assert going is not None
        return coming is not None and is_disrupted(going) and coming.condition(ConditionType.LAUNCHED) == "True"

    async def is_in(self, claim: str, state: str) -> None:
        """Once the claim says so of itself."""

        def says_so() -> bool:
            found = self.history.get(NODECLAIMS, claim)
            return found is not None and reason_of(found, ConditionType.DISRUPTION_STATE) == state

        await self.history.until(says_so, f"{claim} is in {state}")

    async def is_true(self, claim: str, condition: ConditionType) -> None:
        def says_so() -> bool:
            found = self.history.get(NODECLAIMS, claim)
            return found is not None and found.condition(condition) == "True"

        await self.history.until(says_so, f"{condition} of {claim}")

    async def go(self, *claims: str) -> None:
        """Once all of these are on their way."""
        await self.history.until(lambda: set(claims) <= self.disrupted(), f"{claims} go")

    async def are_gone(self, *claims: str) -> None:
        await self.history.until(lambda: all(self.history.gone(NODECLAIMS, each) for each in claims), f"{claims} end")

    async def some_go(self, count: int) -> None:
        await self.history.until(lambda: len(self.disrupted()) >= count, f"{self.name}: {count} go")

    async def are_candidates(self, claims: Iterable[str]) -> None:
        """Once the nodes say that they could go (R22)."""
        for claim in claims:
            tainted = partial(self.is_tainted, claim, CANDIDATE)
            await self.history.until(tainted, f"{claim} is a candidate")

    async def is_no_candidate(self, claim: str) -> None:
        await self.history.until(lambda: not self.is_tainted(claim, CANDIDATE), f"{claim} is no candidate")

    async def allows(self, allowed: Mapping[str, tuple[int, int, int]]) -> None:
        """Once the pool's status says so of each reason: limit, in use, allowed."""
        await self.history.until(lambda: self._allowed() == allowed, f"{self.name} allows {allowed}")

    def _allowed(self) -> dict[str, tuple[int, int, int]]:
        found = self.history.get(NODEPOOLS, self.name)
        told = () if found is None else found.status.get("disruptions") or ()
        return {each["reason"]: (each["limit"], each["inUse"], each["allowed"]) for each in told}

    async def all_methods_are_tried(self) -> None:
        """Once two passes have come to the last one: the second has begun after this was asked for.

        Those before it found nothing that may be done, here or elsewhere.
        """
        enough = self._full_passes() + 2
        while self._full_passes() < enough:
            await self.annotate(NODEPOOLS, self.name, {PASS_ASKED: str(self.history.now())})  # any change has one made
            await self.history.reaches(self.history.now() + BETWEEN_LOOKS)

    def _full_passes(self) -> float:
        labels = {"reason": "underutilized", "consolidation_type": "single"}
        families = self.program.metrics.registry.restricted_registry([_FULL_PASSES]).collect()
        return sum(each.value for family in families for each in family.samples if each.labels == labels)

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

    def was_tainted(self, claim: str, taint: tuple[str, str]) -> bool:
        """Ever."""
        versions = self.history.versions(NODES, self.node(claim))
        return any(each.thing is not None and taint in taints(each.thing) for each in versions)

    # -- judging ------------------------------------------------------------------------------------------------------

    def assert_within(self, limit: Callable[[int], int]) -> None:
        """At no moment were more nodes in S3–S6 than the limit, given how many nodes there were (R26, R27)."""
        for moment in self.chronicle.moments(self.name):
            assert len(moment.disrupted & moment.initialized) <= limit(len(moment.initialized)), moment

    def assert_not_before(self, instant: datetime, *claims: str) -> None:
        for claim in claims:
            assert self.chronicle.taken_at(claim) >= instant, claim

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
            await self.api.write(Delete(DEPLOYMENTS, deployment["metadata"]["name"], namespace=self.name))
        await self.api.write(Delete(NODEPOOLS, self.name))
        for pod in self.history.all(PODS, self.name):  # which may keep their nodes
            with suppress(NotFound):
                await self.api.write(Delete(PODS, pod.metadata.name, namespace=self.name))
        for claim in self.claims():
            try:
                await self.api.write(Delete(NODECLAIMS, claim.metadata.name))
                if HELD in claim.metadata.finalizers:
                    await self.release(claim.metadata.name)
            except NotFound:
                continue
        await self.history.until(lambda: not self.claims(), f"{self.name} has no nodes")


def taints(node: Thing) -> set[tuple[str, str]]:
    return {(taint["key"], taint["effect"]) for taint in node.spec.get("taints") or ()}


def half(nodes: int) -> int:
    """Percentages round up (R27)."""
    return -(-nodes // 2)
