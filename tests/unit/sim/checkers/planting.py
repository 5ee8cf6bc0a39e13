"""A cluster without controllers, in which tests act as the program would: rightly, or to be caught.

async def test_it(ground: Ground) -> None:
    await ground.nodes("a")
    await ground.pod("p", "a", annotations={names.DO_NOT_DISRUPT: "true"})
    await ground.evict("p")
    (violation,) = ground.finish().violations

pytestmark = stage(play)
"""

import json
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from typing import Any

from dovetail.api import names
from dovetail.ports import NODECLAIMS, NODES, PODS, Delete, Evict, Patch, Resource
from dovetail.sim.actors.cluster import START, SimCluster, run
from dovetail.sim.checkers.checkers import Checkers
from dovetail.values.timestamp import format_time
from tests.harness import manifests
from tests.harness.claims import condition, node, node_claim, node_class, node_pool
from tests.harness.stage import gives

READY = ("Launched", "Registered", "Initialized")
CHEAP, DEAR = "s-2x-amd64-linux", "s-8x-amd64-linux"
DISRUPTED = {"key": names.DISRUPTED_TAINT, "effect": "NoSchedule"}
CANDIDATE = {"key": names.CANDIDATE_TAINT, "effect": "PreferNoSchedule"}


def at(hours: float) -> str:
    """So long after the beginning of all runs, which is at midnight."""
    return format_time(START + timedelta(hours=hours))


class Ground:
    """What tests do to it, and as whom."""

    def __init__(self, sim: SimCluster, checkers: Checkers) -> None:
        self.sim = sim
        self.checkers = checkers
        self.us = sim.server.client(names.COMPONENT)

    # -- what the checkers say -----------------------------------------------------------------------------------------

    def finish(self) -> Checkers:
        """The checkers, at the end of the run."""
        self.checkers.finish()
        return self.checkers

    def violations(self, rule: str) -> list[tuple[str, str]]:
        """The violations of one rule at the end of the run: object and message."""
        checkers = self.finish()
        assert checkers.applied[rule] + checkers.not_applied[rule] > 0, "the rule had nothing to look at"
        return [(each.object, each.message) for each in checkers.violations if each.rule == rule]

    # -- what is there -------------------------------------------------------------------------------------------------

    async def begin(self, **disruption: Any) -> None:
        await self.sim.apply(node_class(), node_pool(disruption={"consolidateAfter": "0s", **disruption}))

    async def nodes(self, *names_: str, true: tuple[str, ...] = READY, machine: str = DEAR, **spec: Any) -> None:
        """Claims with these names, each with a Node of the same name that our finalizers hold."""
        labels = {
            names.INSTANCE_TYPE_LABEL: machine,
            names.ZONE_LABEL: "test-zone-a",
            names.CAPACITY_TYPE_LABEL: "on-demand",
        }
        spec = {key: value for key, value in spec.items() if value is not None}
        for name in names_:
            made = node(name, labels=labels, initialized="Initialized" in true)
            made["metadata"]["finalizers"] = [names.TERMINATION_FINALIZER]
            await self.sim.apply(made, node_claim(name, labels=labels, finalizers=True, **spec))
            await self.status(name, *true)
        await self.sim.run_for("2s")

    async def status(self, claim: str, *true: str, reason: str = "") -> None:
        """Written by us; `reason`: of its disruption."""
        now = format_time(self.sim.clock.now())
        conditions = [condition(type_, lastTransitionTime=now) for type_ in true]
        if reason:
            conditions.append(condition("DisruptionReason", reason=reason, lastTransitionTime=now))
        status = {"providerID": f"{names.KWOK_PROVIDER_ID_PREFIX}{claim}", "conditions": conditions}
        await self.us.write(Patch(_raw(NODECLAIMS), claim, {"status": status}, subresource="status"))

    async def pod(
        self, name: str, node_: str, *, annotations: Mapping[str, str] | None = None, grace_seconds: int = 30
    ) -> None:
        selector = {names.HOSTNAME_LABEL: node_}
        spec = {"nodeSelector": selector, "terminationGracePeriodSeconds": grace_seconds}
        await self.sim.apply(manifests.pod(name, annotations=annotations, **spec))
        await self.sim.wait_until(lambda: any(each["metadata"]["name"] == name for each in self.sim.pods(ready=True)))
        await self.sim.run_for("1s")

    async def run_to(self, hours: float) -> None:
        await self.sim.clock.sleep((START + timedelta(hours=hours) - self.sim.clock.now()).total_seconds())

    # -- what the program does -----------------------------------------------------------------------------------------

    async def write_down(
        self, *claims: str, reason: str = "Drifted", id_: str = "1", replacements: tuple[str, ...] = ()
    ) -> None:
        """A command, on each of its claims."""
        deadline: datetime = self.sim.clock.now() + timedelta(minutes=10)
        record = {
            "id": id_,
            "reason": reason,
            "method": "drift",
            "deadline": format_time(deadline),
            "replacements": replacements,
        }
        for name in claims:
            body = {"metadata": {"annotations": {names.DISRUPTION_COMMAND: json.dumps(record)}}}
            await self.us.write(Patch(NODECLAIMS, name, body))

    async def taint(self, name: str, *taints: Mapping[str, str]) -> None:
        """From now on with these, by us."""
        await self.us.write(Patch(_raw(NODES), name, {"spec": {"taints": [dict(taint) for taint in taints]}}))

    async def delete(self, claim: str) -> None:
        await self.us.write(Delete(NODECLAIMS, claim))

    async def drain(self, name: str) -> None:
        """S4: the claim is deleted by somebody, and the Node by us."""
        await self.sim.api.write(Delete(NODECLAIMS, name))
        await self.us.write(Delete(NODES, name))

    async def evict(self, pod: str) -> None:
        await self.us.write(Evict(pod, namespace="default"))

    async def delete_pod(self, pod: str, grace_seconds: int | None = None) -> None:
        await self.us.write(Delete(PODS, pod, namespace="default", grace_seconds=grace_seconds))


@gives("ground")
def play(scenario: Callable[[Ground], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Run the scenario with all checkers; options are theirs."""

    async def within(sim: SimCluster) -> None:
        await scenario(Ground(sim, Checkers(sim, **options)))

    run(within)


def _raw(resource: Resource[Any]) -> Resource[dict[str, Any]]:
    return resource.read_as(dict[str, Any])
