"""Are tasks that end together cancelled in the same order in every run?"""

import asyncio

from dovetail.sim.actors.cluster import START
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate


def order_of_cancellation() -> list[int]:
    ended: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(number)

    async def main(_clock: VirtualClock) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(wait(number)) for number in range(200)]
            await asyncio.sleep(1)
            for task in tasks[::3]:  # holes, as life makes them
                task.cancel()
            await asyncio.sleep(1)
            raise_in = group.create_task(fail())
            await asyncio.wait([raise_in])

    async def fail() -> None:
        raise ValueError

    try:
        simulate(main, start=START)
    except* ValueError:
        pass
    return ended


def test_a_group_cancels_its_tasks_in_the_same_order_every_time() -> None:
    kept = [object() for _ in range(1000)]  # other addresses for the second run
    first = order_of_cancellation()
    del kept
    assert len(first) == 200
    assert first == order_of_cancellation() == order_of_cancellation()
