"""All checkers together: what a violation looks like, who can be excepted, and what they may know."""

import ast
from pathlib import Path

import pytest

from dovetail.api import names
from dovetail.sim import checkers as package
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.checkers.checkers import Checkers
from tests.harness.running import Program, run_controllers
from tests.harness.stage import stage
from tests.unit.sim.checkers.planting import Ground, play

pytestmark = stage(play)

THE_CHECKED = ("dovetail.rules", "dovetail.scheduling", "dovetail.planning", "dovetail.controllers", "dovetail.views")


async def evicts_a_protected_pod(ground: Ground) -> None:
    await ground.begin()
    await ground.nodes("a")
    await ground.pod("p", "a", annotations={names.DO_NOT_DISRUPT: "true"})
    await ground.drain("a")
    await ground.sim.run_for("1m")
    await ground.evict("p")


async def test_a_violation_says_when_what_and_how(ground: Ground) -> None:
    await evicts_a_protected_pod(ground)
    (first, second) = ground.finish().violations
    assert str(first) == (
        "2026-03-02T00:01:04+00:00 protected-pods: Pod/default/p was evicted though it is protected: "
        "karpenter.sh/do-not-disrupt is 'true'"
    )
    assert (first.at, first.object, second.rule) == (second.at, second.object, "explained")


@stage(except_for=("explained",))
async def test_a_rule_can_be_excepted_by_its_name(ground: Ground) -> None:
    await evicts_a_protected_pod(ground)
    assert [each.rule for each in ground.finish().violations] == ["protected-pods"]
    with pytest.raises(AssertionError, match="rules are"):
        Checkers(ground.sim, except_for=("explaned",))


async def misbehaving(_: SimCluster, program: Program) -> None:
    await evicts_a_protected_pod(Ground(program.sim, program.checkers))


async def misbehaving_and_failing(sim: SimCluster, program: Program) -> None:
    await misbehaving(sim, program)
    raise LookupError("something else")


def test_a_violation_fails_the_test_that_runs_controllers() -> None:
    with pytest.raises(AssertionError, match="protected-pods: Pod/default/p was evicted"):
        run_controllers(misbehaving, lambda _: [])
    run_controllers(misbehaving, lambda _: [], except_for=("protected-pods", "explained"))


def test_a_test_that_fails_by_itself_tells_of_violations_too() -> None:
    with pytest.raises(LookupError) as caught:
        run_controllers(misbehaving_and_failing, lambda _: [])
    assert [note.split()[1] for note in caught.value.__notes__] == ["protected-pods:", "explained:"]


def test_checkers_use_nothing_of_what_they_check() -> None:
    """But for the one that asks `explain`."""
    files = sorted(Path(package.__file__).parent.glob("*.py"))
    for file in files:
        nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        imported = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        assert (file.name == "explanations.py") == any(name.startswith(THE_CHECKED) for name in imported), file.name
    assert len(files) > 5
