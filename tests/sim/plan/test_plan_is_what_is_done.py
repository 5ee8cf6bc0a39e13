"""What `plan` says of a dump is what the controller then does."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.documents import read_documents
from dovetail.api.names import DISRUPTION_COMMAND
from dovetail.model.decider import DOVETAIL
from dovetail.planning.disruption.commands import Command
from dovetail.planning.disruption.methods import decide_pass
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.sim.scenarios.one_shot import OneShotResult, look
from dovetail.views.plan import NodeOutcome, PlanView, PriceView, plan_view
from tests.harness.disruption import drift, play, pool, scale, stand
from tests.harness.dumps import dump
from tests.harness.provisioning import Setting
from tests.harness.stage import stage

pytestmark = stage(play)


async def spare_nodes(setting: Setting) -> None:
    await stand(setting, pool(consolidateAfter="30s"), replicas=9, cpu="1")
    await scale(setting, 4)


async def drifted_nodes(setting: Setting) -> None:
    await drift(setting, *await stand(setting, pool(budgets=[{"nodes": "2"}]), replicas=3))


async def empty_nodes(setting: Setting) -> None:
    await stand(setting, pool(consolidateAfter="30s"), replicas=3)
    await scale(setting, 1)


def nodes_of_commands(setting: Setting) -> list[set[str]]:
    """The nodes of each command that is written down."""
    nodes: dict[str, set[str]] = {}
    for claim in setting.claims():
        if command := claim["metadata"].get("annotations", {}).get(DISRUPTION_COMMAND):
            nodes.setdefault(command, set()).add(claim["status"]["nodeName"])
    return list(nodes.values())


def planned(dumped: bytes, at: Any) -> tuple[PlanView, tuple[Command, ...]]:
    still: OneShotResult = look(read_documents(dumped, "dump.json"), at)
    decision = decide_pass(still.board, ConsolidationOptions())
    view = plan_view(
        still.board,
        decision,
        pools=still.pools,
        left=still.assessment.left,
        answers={},
        prices=PriceView("", None),
        validation_seconds=15,
        decider=DOVETAIL,
        problems=still.problems,
    )
    return view, decision.commands


@pytest.mark.parametrize("make", [spare_nodes, drifted_nodes, empty_nodes], ids=lambda make: make.__name__)
async def test_plan_is_what_is_done(setting: Setting, make: Callable[[Setting], Awaitable[None]]) -> None:
    await make(setting)
    begun: list[set[str]] = []
    deadline = setting.now() + timedelta(minutes=5)
    while not begun:
        assert setting.now() < deadline, "nothing was disrupted"
        # A second before it begins: what was decided 15 s ago is still right.
        at, dumped = setting.now(), dump(setting)
        await setting.sim.run_for("1s")
        begun = nodes_of_commands(setting)
    view, commands = planned(dumped, at)
    assert {frozenset(each.nodes) for each in commands} == set(map(frozenset, begun))
    going = {node.name for node in view.nodes if node.fate is NodeOutcome.GOES}
    assert going == set().union(*begun)
    assert len(view.nodes) == sum(each["kind"] == "Node" for each in msgspec.json.decode(dumped)["items"])
    assert view.complete
    for command in view.commands:
        assert all(move.to for move in command.pods)
