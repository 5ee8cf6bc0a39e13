"""What becomes of objects that cannot be read into the struct that was asked for?"""

from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from dovetail.ports import ApiError, Create, Delete, EventType, Patch, Resource
from tests.contract.backends import Cluster
from tests.contract.bodies import LEASES


class Spec(msgspec.Struct, rename="camel"):
    """Reads only leases that nobody holds."""

    holder_identity: int = 0


class Lease(msgspec.Struct):
    metadata: dict[str, Any]
    spec: Spec


STRICT: Resource[Lease] = LEASES.read_as(Lease)


async def leases(cluster: Cluster, space: str) -> None:
    """One that can be read, and one that cannot."""
    await cluster.api.write(Create(LEASES, {"metadata": {"name": "a"}, "spec": {}}, namespace=space))
    await cluster.api.write(
        Create(LEASES, {"metadata": {"name": "b"}, "spec": {"holderIdentity": "me"}}, namespace=space)
    )


async def test_a_list_names_what_it_could_not_read(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await leases(cluster, space)
    page = await cluster.api.list(STRICT, namespace=space)
    assert [item.metadata["name"] for item in page.items] == ["a"]
    assert page.undecodable == 1
    (unread,) = page.unread
    assert (unread.namespace, unread.name) == (space, "b")
    assert "holderIdentity" in unread.problem


async def test_a_watch_goes_on_after_what_it_could_not_read(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    start = (await cluster.api.list(LEASES, namespace=space)).resource_version
    await leases(cluster, space)
    await cluster.api.write(Delete(LEASES, "a", namespace=space))
    found = []
    watch = cluster.api.watch(STRICT, resource_version=start, namespace=space, timeout_seconds=20)
    async with aclosing(watch) as events:
        async for event in events:
            if event.type is not EventType.BOOKMARK:
                found.append(event)
            if len(found) == 3:
                break
    assert [event.type for event in found] == [EventType.ADDED, EventType.ADDED, EventType.DELETED]
    assert [event.object is None for event in found] == [False, True, False]
    assert "holderIdentity" in found[1].problem
    assert int(found[0].resource_version) < int(found[1].resource_version)
    assert found[1].unread is not None
    assert (found[1].unread.namespace, found[1].unread.name) == (space, "b")


async def test_one_that_cannot_be_read(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await leases(cluster, space)
    with pytest.raises(ApiError) as caught:
        await cluster.api.get(STRICT, "b", namespace=space)
    assert caught.value.reason == "Unreadable"


async def test_what_is_written_is_written_even_if_it_cannot_be_read(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    with pytest.raises(ApiError) as caught:
        await cluster.api.write(
            Create(STRICT, {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}}, namespace=space)
        )
    assert caught.value.reason == "Unreadable"
    assert await cluster.find(LEASES, "a", namespace=space) is not None
    with pytest.raises(ApiError) as caught:
        await cluster.api.write(Patch(STRICT, "a", {"spec": {"holderIdentity": "you"}}, namespace=space))
    assert caught.value.reason == "Unreadable"
    assert (await cluster.api.get(LEASES, "a", namespace=space))["spec"]["holderIdentity"] == "you"
