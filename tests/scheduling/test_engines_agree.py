"""Does the fast engine answer as the reference does? And would it be seen, and shown in few words, if it did not?"""

import hashlib
import os
import subprocess
import sys

import msgspec
import pytest

from dovetail.scheduling import reference
from dovetail.scheduling.placement import PlacementRequest, Solution
from tests.scheduling.comparison import FAST, difference, engines_of, report, shown, shrunk_difference
from tests.scheduling.generator import random_problem

_SEEDS = 300
_AT_ONCE = 15


@pytest.mark.parametrize("first", range(0, _SEEDS, _AT_ONCE))
def test_engines_agree(first: int) -> None:
    for seed in range(first, first + _AT_ONCE):
        problem = random_problem(seed)
        wanted = reference.solve(problem)
        for engine in engines_of(FAST):
            if difference(problem, engine, wanted) is not None:
                pytest.fail(report(seed, *shrunk_difference(problem, engine, seconds=20)))


# -- the test of the test ----------------------------------------------------------------------------------------------


def without_carriers(problem: PlacementRequest) -> Solution:
    """An engine that forgets that pods on nodes may keep others away."""
    nodes = [
        msgspec.structs.replace(node, pods=tuple(msgspec.structs.replace(pod, apart=()) for pod in node.pods))
        for node in problem.nodes
    ]
    return reference.solve(msgspec.structs.replace(problem, nodes=tuple(nodes)))


def with_other_reasons(problem: PlacementRequest) -> Solution:
    """An engine that says too little."""
    found = reference.solve(problem)
    errors = {uid: msgspec.structs.replace(error, reason="no") for uid, error in found.errors.items()}
    return msgspec.structs.replace(found, errors=errors)


def with_a_flaw(problem: PlacementRequest) -> Solution:
    """An engine that cannot do something at all."""
    if any(pod.ports for pod in problem.pods):
        raise NotImplementedError("ports")
    return reference.solve(problem)


@pytest.mark.parametrize("engine", [without_carriers, with_other_reasons, with_a_flaw])
def test_a_difference_is_found_and_made_small(engine: object) -> None:
    assert callable(engine)
    seed = next(seed for seed in range(200) if difference(random_problem(seed), engine) is not None)
    problem, found = shrunk_difference(random_problem(seed), engine)
    assert len(problem.pods) == 1
    assert len(problem.nodes) <= 1
    assert sum(len(node.pods) for node in problem.nodes) <= 1
    assert str(found) in report(seed, problem, found)


def test_an_engine_agrees_with_itself() -> None:
    assert all(difference(random_problem(seed), reference.solve) is None for seed in range(20))


def test_a_missing_engine_is_named() -> None:
    with pytest.raises(AssertionError, match="no engine to compare with"):
        engines_of("dovetail.scheduling.faster")


# -- seeds -------------------------------------------------------------------------------------------------------------

_DIGEST = "from tests.scheduling.test_engines_agree import digest; print(digest())"


def digest() -> str:
    """Of what is asked and answered for some seeds."""
    problems = [random_problem(seed) for seed in range(30)]
    said = "".join(shown(problem) + shown(reference.solve(problem)) for problem in problems)
    return hashlib.sha256(said.encode()).hexdigest()


def test_a_seed_is_the_same_problem_with_the_same_answer_in_every_process() -> None:
    """The order of sets of text changes from process to process; nothing here does."""
    found = {
        subprocess.run(
            [sys.executable, "-c", _DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {digest()}


def test_problems_stay_within_the_bounds_given() -> None:
    problems = [random_problem(seed, nodes=2, pods=5) for seed in range(100)]
    assert max(len(problem.nodes) for problem in problems) == 2
    assert max(len(problem.pods) for problem in problems) == 5
