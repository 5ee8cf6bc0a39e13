"""Coroutine tests run on the stage that their marker names, with its options and with fixtures."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.harness.stage import PARAMETER, gives, real_time, stage

TURNS: list[int] = []


@gives("setting", "clock")
def play(scenario: Callable[[str, int], Coroutine[Any, Any, None]], word: str = "plain", *, times: int = 1) -> None:
    for turn in range(times):
        asyncio.run(scenario(word, turn))


@gives("world")
def other(scenario: Callable[[str], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario("another stage"))


pytestmark = stage(play)


async def test_the_marker_of_the_module_names_the_stage(setting: str, clock: int) -> None:
    assert (setting, clock) == ("plain", 0)


@pytest.mark.parametrize("letter", "ab")
async def test_fixtures_and_parameters_come_beside_what_the_stage_gives(
    setting: str, tmp_path: Path, letter: str
) -> None:
    assert setting == "plain"
    assert tmp_path.is_dir()
    assert letter in "ab"


@stage(times=2)
async def test_the_marker_of_a_test_adds_options(clock: int, request: pytest.FixtureRequest) -> None:
    marks = [(mark.args, mark.kwargs) for mark in request.node.iter_markers("stage")]
    assert marks == [((), {"times": 2}), ((play,), {})]
    TURNS.append(clock)
    assert list(range(clock + 1)) == TURNS


@stage(play, "fancy")
async def test_arguments_after_the_stage_reach_it(setting: str) -> None:
    assert setting == "fancy"


@pytest.mark.parametrize(("word", "letter"), [("one", "o"), ("two", "t")])
@stage(word=PARAMETER)
async def test_a_stage_may_read_parameters_that_its_test_does_not_take(setting: str, letter: str) -> None:
    assert setting[0] == letter


@stage(word=PARAMETER)
async def test_a_stage_may_read_fixtures(setting: Path, tmp_path: Path) -> None:
    assert setting == tmp_path / "word"


@pytest.fixture
def word(tmp_path: Path) -> Path:
    return tmp_path / "word"


@stage(real_time)
async def test_real_time_gives_a_loop_and_nothing_else() -> None:
    await asyncio.sleep(0)


@stage(other)
async def test_a_test_may_name_another_stage(world: str) -> None:
    assert world == "another stage"
