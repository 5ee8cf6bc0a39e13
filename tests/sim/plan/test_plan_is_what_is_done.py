"""What `plan` says of a dump is what the controller then does."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from dovetail.api.documents import read_documents
from dovetail.api.names import DISRUPTION_COMMAND
from dovetail.planning.disruption.commands import Command
from dovetail.planning.disruption.methods import decide_pass
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.ports import (
    DAEMONSETS,
    KWOK_NODECLASSES,
    NAMESPACES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PDBS,
    PODS,
    Resource,
)
from dovetail.sim.scenarios.one_shot import OneShotResult, look
from dovetail.sim.scenarios.reading import read_scenario
from dovetail.views.plan import NodeOutcome, PlanView, plan_view
from tests.harness.disruption import drift, play, pool, scale, stand
from tests.harness.provisioning import Setting

KINDS: list[Resource[Any]] = [
    NAMESPACES,
    KWOK_NODECLASSES,
    NODEPOOLS,
    NODECLAIMS,
    NODES,
    PDBS,
    DAEMONSETS,
    PODS,
]


async def spare_nodes(setting: Setting) -> None:
    await stand(setting, pool(consolidateAfter="30s"), replicas=9, cpu="1")
    await scale(setting, 4)


async def drifted_nodes(setting: Setting) -> None:
    await drift(setting, *await stand(setting, pool(budgets=[{"nodes": "2"}]), replicas=3))


async def empty_nodes(setting: Setting) -> None:
    await stand(setting, pool(consolidateAfter="30s"), replicas=3)
    await scale(setting, 1)


def dump(setting: Setting) -> bytes:
    """As `kubectl get -o json` prints it."""
    items = [body for kind in KINDS for body in setting.sim.objects(kind)]
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})


def planned(dumped: bytes, at: Any) -> tuple[PlanView, tuple[Command, ...]]:
    scenario = read_scenario(read_documents(dumped, "dump.json"), now=at, start=at)
    still: OneShotResult = look(scenario)
    decision = decide_pass(still.board, ConsolidationOptions())
    view = plan_view(
        still.board,
        decision,
        pools=still.pools,
        left=still.assessment.left,
        states=still.states,
        validation_seconds=15,
        problems=still.problems,
    )
    return view, decision.commands


@pytest.mark.parametrize("make", [spare_nodes, drifted_nodes, empty_nodes], ids=lambda make: make.__name__)
def test_plan_is_what_is_done(make: Callable[[Setting], Awaitable[None]]) -> None:
    taken: list[tuple[Any, bytes]] = []
    done: dict[str, set[str]] = {}

    def begun(setting: Setting) -> dict[str, set[str]]:
        """The nodes of each command that is written down, with its replacements."""
        found: dict[str, set[str]] = {}
        for claim in setting.claims():
            if text := claim["metadata"].get("annotations", {}).get(DISRUPTION_COMMAND):
                found.setdefault(text, set()).add(claim["status"]["nodeName"])
        return found

    async def scenario(setting: Setting) -> None:
        await make(setting)
        for _ in range(300):
            taken.append((setting.now(), dump(setting)))
            await setting.sim.run_for("1s")
            if found := begun(setting):
                done.update(found)
                return
        raise AssertionError("nothing was disrupted")

    play(scenario)
    at, dumped = taken[-1]  # a second before it began: what was decided 15 s ago is still right
    view, commands = planned(dumped, at)
    assert {frozenset(each.nodes) for each in commands} == {frozenset(nodes) for nodes in done.values()}
    going = {node.name for node in view.nodes if node.fate is NodeOutcome.GOES}
    assert going == set().union(*done.values())
    assert len(view.nodes) == sum(each["kind"] == "Node" for each in msgspec.json.decode(dumped)["items"])
    assert view.complete
    for command in view.commands:
        assert all(move.to for move in command.pods)
