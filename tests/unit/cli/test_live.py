"""Are the lists of a live cluster read to their end, whatever happens between two pages? And what shows who decides?"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import DovetailMode
from dovetail.cli.common.evidence import Evidence, evidence
from dovetail.cli.common.live import LISTS, all_pages
from dovetail.model.decider import DOVETAIL, Decider, DecidingController
from dovetail.ports import LEASES, NODEPOOLS, NODES, PODS, Clock, Create, Forbidden, Gone, KubeApi, Patch, Resource
from dovetail.runtime.lease import micro_time
from dovetail.sim.actors.cluster import START
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.sim.server.api_server import ApiServer
from dovetail.sim.server.faults import ApiRequest, Fault
from dovetail.values.timestamp import format_time
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


IMAGE = "public.ecr.aws/karpenter/controller:1.15.0"
META = {"namespace": "kube-system"}
LEAD = names.LEADER_ELECTION_LEASE
REFUSED = Fault(error=Forbidden("no", code=403))
MANY = 1000
GUARD = Decider(DecidingController.DOVETAIL, mode=DovetailMode.GUARD)
Prepare = Callable[[ApiServer, KubeApi, Clock], Awaitable[None]]


def found(prepare: Prepare, *forbidden: Resource[Any], beside: bool = True) -> Evidence:
    """What shows who decides, once this is prepared. Nobody may list the forbidden kinds, nor the second Lease if not
    `beside`."""
    results: list[Evidence] = []

    async def main(clock: VirtualClock) -> None:
        server = ApiServer(clock)
        api = server.client("test")
        await prepare(server, api, clock)
        for resource in forbidden:
            server.faults.add(REFUSED, verb="list", resource=resource, times=MANY)
        if not beside:
            asked = count()
            server.faults.add(REFUSED, verb="list", resource=LEASES, times=MANY, when=lambda _: next(asked) % 2 == 1)
        results.append(await evidence(api, clock))

    simulate(main, start=START)
    return results[0]


async def create(api: KubeApi, resource: Resource[Any], name: str, meta: dict[str, Any] = META, **parts: Any) -> None:
    body = {"metadata": {"name": name} | meta, **parts}
    await api.write(Create(resource.read_as(dict[str, Any]), body, namespace=meta.get("namespace")))


def renewed(holder: str, at: datetime) -> dict[str, Any]:
    return {"holderIdentity": holder, "renewTime": micro_time(at), "leaseDurationSeconds": 15}


def held_by(holder: str, *, ahead: timedelta = timedelta(), namespace: str = "kube-system") -> Prepare:
    """Somebody whose clock is ahead by this renewed the Lease just now."""

    async def prepare(_server: ApiServer, api: KubeApi, clock: Clock) -> None:
        spec = renewed(holder, clock.now() + ahead)
        await create(api, LEASES, LEAD, {"namespace": namespace}, spec=spec)

    return prepare


def shown(holder: str, *forbidden: Resource[Any]) -> str:
    """Who decides, where a pod of Karpenter 1.15.0 runs and this process holds its Lease."""

    async def prepare(server: ApiServer, api: KubeApi, clock: Clock) -> None:
        for name, image in (("karpenter-1", "x:1"), ("karpenter-7d", IMAGE)):
            await create(api, PODS, name, spec={"containers": [{"name": "controller", "image": image}]})
        if holder:
            await held_by(holder)(server, api, clock)

    return who_decides(found(prepare, *forbidden).documents).name


def test_the_holder_of_the_lease_and_its_pod_show_who_decides() -> None:
    assert shown("karpenter-7d_5a") == "Karpenter 1.15.0"
    assert shown("karpenter-7d_5a", PODS) == "Karpenter"
    assert shown("dovetail-5_5a") == "Dovetail"
    assert shown("") == "Karpenter"


# -- does it run? ------------------------------------------------------------------------------------------------------


def missing(prepare: Prepare, *forbidden: Resource[Any]) -> list[str]:
    return [str(finding.message) for finding in found(prepare, *forbidden).missing(DOVETAIL)]


STOPPED = held_by("dovetail-5_5a", ahead=-timedelta(minutes=5))
SINCE = format_time(START - timedelta(minutes=5))
SAID = f"no controller has renewed the Lease kube-system/{LEAD} since {SINCE}; nothing is decided until one runs"


def test_a_lease_that_nobody_renews_is_told_and_one_that_somebody_renews_is_not() -> None:
    assert missing(STOPPED) == [SAID]
    assert missing(held_by("dovetail-5_5a")) == []


def test_nothing_is_told_of_leases_that_may_not_be_read() -> None:
    assert missing(STOPPED, LEASES) == []


def test_whoever_may_read_only_one_of_the_leases_is_told_of_that_one() -> None:
    assert [str(finding.message) for finding in found(STOPPED, beside=False).missing(GUARD)] == [SAID]
    held = found(held_by("dovetail-5_5a"), beside=False)
    assert who_decides(held.documents, held.at).reason == f"it holds the Lease kube-system/{LEAD}"
    assert held.missing(GUARD) == []


@pytest.mark.parametrize("ahead", [timedelta(minutes=-10), timedelta(minutes=10)])
def test_a_holder_with_another_clock_is_seen_by_its_renewals(ahead: timedelta) -> None:
    """And the Leases of others are judged by its clock."""

    async def prepare(server: ApiServer, api: KubeApi, clock: Clock) -> None:
        await held_by("dovetail-5_5a", ahead=ahead)(server, api, clock)
        await held_by("gone-5_5a", ahead=ahead - timedelta(minutes=5), namespace="default")(server, api, clock)

        async def renew() -> None:
            while True:
                await clock.sleep(2.0)
                spec = renewed("dovetail-5_5a", clock.now() + ahead)
                await api.write(Patch(LEASES, LEAD, {"spec": spec}, namespace="kube-system"))

        renewing.append(asyncio.create_task(renew()))

    renewing: list[asyncio.Task[None]] = []
    shows = found(prepare)
    assert shows.missing(DOVETAIL) == []
    assert who_decides(shows.documents, shows.at).reason == f"it holds the Lease kube-system/{LEAD}"


def pools_and(*pods: str) -> Prepare:
    """A cluster without a Lease, with a NodePool and pods with these images."""

    async def prepare(_server: ApiServer, api: KubeApi, _clock: Clock) -> None:
        ref = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
        template = {"spec": {"nodeClassRef": ref, "requirements": []}}
        await create(api, NODEPOOLS, "default", {}, spec={"template": template})
        labels = {"labels": {"app.kubernetes.io/name": "karpenter"}}
        for number, image in enumerate(pods):
            containers = [{"name": "controller", "image": image}]
            await create(api, PODS, f"p{number}", META | labels, spec={"containers": containers})
            running = {"status": {"phase": "Running"}}
            await api.write(Patch(PODS, f"p{number}", running, namespace="kube-system", subresource="status"))

    return prepare


def test_once_nobody_holds_the_lease_other_things_show_who_decides() -> None:
    async def prepare(server: ApiServer, api: KubeApi, clock: Clock) -> None:
        await pools_and("example.com/dovetail:1")(server, api, clock)
        await held_by("")(server, api, clock)

    shows = found(prepare)
    assert who_decides(shows.documents, shows.at).reason == "pod kube-system/p0 runs it"
    assert len(shows.missing(DOVETAIL)) == 1


def test_a_clock_is_not_wrong_by_hours() -> None:
    """So nobody waits for a renewal of a Lease that is old."""
    long_ago = found(held_by("gone-1_2", ahead=-timedelta(days=1)))
    assert long_ago.at < START + timedelta(seconds=1)
    assert len(long_ago.missing(DOVETAIL)) == 1


def test_without_a_lease_nothing_is_certain_while_a_controller_may_run() -> None:
    (said,) = missing(pools_and())
    assert said.startswith(f"no controller has made a Lease {LEAD}; unless it runs elsewhere or under another name, ")
    assert missing(pools_and(IMAGE)) == []
    for kind in (LEASES, PODS, NODEPOOLS):
        assert missing(pools_and(), kind) == []
