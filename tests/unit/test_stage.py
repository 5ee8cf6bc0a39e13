"""Coroutine tests run on the stage that their marker names, with its options and with fixtures."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.harness.stage import gives, stage

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


@stage(other)
async def test_a_test_may_name_another_stage(world: str) -> None:
    assert world == "another stage"
