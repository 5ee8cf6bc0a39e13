"""Are the lists of a live cluster read to their end, whatever happens between two pages? And what shows who decides?"""

from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.documents import Document
from dovetail.cli.common.live import LISTS, all_pages, evidence
from dovetail.ports import LEASES, NODES, PODS, Create, Forbidden, Gone
from dovetail.sim.actors.cluster import START
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.sim.server.api_server import ApiServer
from dovetail.sim.server.faults import ApiRequest, Fault
from dovetail.views.deciding import who_decides

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


def shown(holder: str, *, may_list_pods: bool = True) -> str:
    """Who decides, where a pod of Karpenter 1.15.0 runs and this process holds its Lease."""
    found: list[Document] = []

    async def main(clock: VirtualClock) -> None:
        server = ApiServer(clock)
        api = server.client("test")
        meta = {"namespace": "kube-system"}
        image = "public.ecr.aws/karpenter/controller:1.15.0"
        container = {"name": "controller", "image": image}
        lease = {"holderIdentity": holder, "renewTime": "2026-01-01T00:00:00.000000Z"}
        for name, other in (("karpenter-1", "x:1"), ("karpenter-7d", image)):
            spec = {"containers": [container | {"image": other}]}
            body = {"metadata": {"name": name} | meta, "spec": spec}
            await api.write(Create(PODS.read_as(dict[str, Any]), body, namespace="kube-system"))
        made = {"metadata": {"name": names.LEADER_ELECTION_LEASE} | meta, "spec": lease}
        if holder:
            await api.write(Create(LEASES.read_as(dict[str, Any]), made, namespace="kube-system"))
        if not may_list_pods:
            server.faults.add(Fault(error=Forbidden("no", code=403)), verb="list", resource=PODS)
        found.extend(await evidence(api))

    simulate(main, start=START)
    return who_decides(found).name


def test_the_holder_of_the_lease_and_its_pod_show_who_decides() -> None:
    assert shown("karpenter-7d_5a") == "Karpenter 1.15.0"
    assert shown("karpenter-7d_5a", may_list_pods=False) == "Karpenter"
    assert shown("dovetail-5_5a") == "Dovetail"
    assert shown("") == "Karpenter"
