"""What do the leases of nodes tell of their kubelets, to those who read and to those who watch?"""

import asyncio
from contextlib import aclosing

from dovetail.ports import Delete, EventType, Watch, WatchEvent
from dovetail.values.timestamp import parse_time
from tests.contract.backends import Cluster
from tests.contract.bodies import LEASES, NODES, Object

SPACE = "kube-node-lease"
RENEWAL_SECONDS = 10


def watch(cluster: Cluster, node: str, since: str) -> Watch[Object]:
    return cluster.api.watch(
        LEASES, resource_version=since, namespace=SPACE, fields=f"metadata.name={node}", timeout_seconds=40
    )


async def first(events: Watch[Object]) -> WatchEvent[Object]:
    async with aclosing(events):
        while (event := await anext(aiter(events))).object is None:
            pass
        return event


def renewed_at(lease: Object) -> float:
    return parse_time(lease["spec"]["renewTime"]).timestamp()


async def test_a_node_has_a_lease(cluster: Cluster) -> None:
    on = await cluster.add_node()
    found = await cluster.wait(LEASES, on, lambda _: True, namespace=SPACE)
    node = await cluster.api.get(NODES, on)
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", on, node["metadata"]["uid"])
    assert found["metadata"]["uid"] != node["metadata"]["uid"]
    assert (found["spec"]["leaseDurationSeconds"], bool(found["spec"]["holderIdentity"])) == (40, True)
    assert cluster.now().timestamp() - renewed_at(found) < RENEWAL_SECONDS + 5
    everywhere = await cluster.api.list(LEASES, fields=f"metadata.name={on}")
    assert [(it["metadata"]["namespace"], it["metadata"]["name"]) for it in everywhere.items] == [(SPACE, on)]
    await cluster.api.write(Delete(NODES, on))
    await cluster.wait_gone(LEASES, on, namespace=SPACE)


async def test_renewals_are_told_as_they_happen(cluster: Cluster) -> None:
    on = await cluster.add_node()
    before = await cluster.wait(LEASES, on, lambda _: True, namespace=SPACE)
    since = (await cluster.api.list(LEASES, namespace=SPACE, fields=f"metadata.name={on}")).resource_version
    seen, types = [before], []
    async with aclosing(watch(cluster, on, since)) as events:
        async for event in events:
            if event.object is None:
                continue
            late = cluster.now().timestamp() - renewed_at(event.object)
            assert abs(late) <= (0.01 if cluster.exact else 3)
            seen.append(event.object)
            types.append(event.type)
            if event.type is EventType.DELETED:
                break
            if len(seen) == 3:
                await cluster.api.write(Delete(NODES, on))
    assert types == [EventType.MODIFIED, EventType.MODIFIED, EventType.DELETED]
    times = [renewed_at(lease) for lease in seen]
    tolerated = 0.01 if cluster.exact else 4
    assert abs(times[1] - times[0] - RENEWAL_SECONDS) <= tolerated
    assert abs(times[2] - times[1] - RENEWAL_SECONDS) <= tolerated
    versions = [int(lease["metadata"]["resourceVersion"]) for lease in seen]
    assert versions == sorted(set(versions))


async def test_the_lease_of_a_new_node_is_told(cluster: Cluster) -> None:
    name = cluster.unique("node")
    since = (await cluster.api.list(LEASES, namespace=SPACE)).resource_version
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(first(watch(cluster, name, since)))
        await cluster.settle(0.1)
        await cluster.add_node(name)
    event = watching.result()
    assert event.object is not None
    assert (event.type, event.object["metadata"]["name"]) == (EventType.ADDED, name)


async def test_a_lease_that_was_deleted_comes_back(cluster: Cluster) -> None:
    on = await cluster.add_node()
    before = await cluster.wait(LEASES, on, lambda _: True, namespace=SPACE)
    await cluster.api.write(Delete(LEASES, on, namespace=SPACE))
    after = await cluster.wait(LEASES, on, lambda _: True, namespace=SPACE)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
