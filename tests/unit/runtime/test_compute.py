"""Heavy work runs aside, and what is wrong with it is told to whoever waits."""

import asyncio
import threading

import pytest

from dovetail.runtime.compute import ThreadCompute
from tests.harness.stage import real_time, stage

SECONDS = 30.0


pytestmark = stage(real_time)


async def test_the_loop_goes_on_meanwhile() -> None:
    allowed = threading.Event()

    def work(word: str, *, mark: str) -> str:
        assert allowed.wait(SECONDS), "the loop was held up"
        return word + mark

    async with asyncio.TaskGroup() as group:
        task = group.create_task(ThreadCompute().run(work, "done", mark="!"))
        await asyncio.sleep(0)
        allowed.set()  # only the loop can do this
    assert task.result() == "done!"


async def test_an_error_is_raised_where_it_is_waited_for() -> None:
    def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await ThreadCompute().run(work)
