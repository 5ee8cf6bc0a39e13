"""Are the lists of a live cluster read to their end, whatever happens between two pages?"""

from typing import Any

import pytest

from dovetail.cli.common.live import LISTS, all_pages
from dovetail.ports import NODES, Create, Gone
from dovetail.sim.actors.cluster import START
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.sim.server.api_server import ApiServer
from dovetail.sim.server.faults import ApiRequest, Fault

COUNT = 1200  # three pages
RAW = NODES.read_as(dict[str, Any])


def listed(*too_old: int) -> list[str]:
    """The names found if the requests with these numbers, from 1, come too late."""
    asked = 0
    found: list[str] = []

    def is_too_old(_request: ApiRequest) -> bool:
        nonlocal asked
        asked += 1
        return asked in too_old

    async def main(clock: VirtualClock) -> None:
        server = ApiServer(clock)
        api = server.client("test")
        for number in range(COUNT):
            await api.write(Create(RAW, {"metadata": {"name": f"n{number:04}"}}))
        server.faults.add(Fault(error=Gone("too old")), verb="list", times=len(too_old) + 1, when=is_too_old)
        found.extend(each["metadata"]["name"] for each in await all_pages(api, RAW, None))

    simulate(main, start=START)
    return found


ALL = [f"n{number:04}" for number in range(COUNT)]


def test_all_pages_are_read() -> None:
    assert listed() == ALL


@pytest.mark.parametrize("too_old", [(2,), (3,), (2, 4), (3, 6)])
def test_a_list_that_grows_too_old_is_begun_anew(too_old: tuple[int, ...]) -> None:
    assert listed(*too_old) == ALL


def test_it_is_not_begun_anew_for_ever() -> None:
    with pytest.raises(Gone):
        listed(*range(2, 2 * LISTS + 1, 2))
