"""What does a watch tell, from where does it go on, and when does it end? And how do lists come in pages?"""

import asyncio
from contextlib import aclosing

import pytest

from dovetail.ports import Create, Delete, EventType, Gone, InternalError, Invalid, Page, Patch, Watch, WatchEvent
from tests.contract.backends import Cluster
from tests.contract.bodies import FINALIZER, LEASES, NODECLAIMS, Object, nodeclaim

ADDED, MODIFIED, DELETED, BOOKMARK = EventType


async def take(
    cluster: Cluster, space: str, since: str, count: int, *, labels: str = "", fields: str = ""
) -> list[WatchEvent[Object]]:
    """The first changes after the version; bookmarks, which come when they like, are passed over."""
    watch = cluster.api.watch(
        LEASES, resource_version=since, namespace=space, labels=labels, fields=fields, timeout_seconds=20
    )
    found: list[WatchEvent[Object]] = []
    async with aclosing(watch) as events:
        while len(found) < count:
            event = await anext(events)
            if event.type is not BOOKMARK:
                found.append(event)
    return found


async def only_bookmarks(watch: Watch[Object]) -> None:
    """Watch to the end, and see no change."""
    async with aclosing(watch) as events:
        async for event in events:
            assert event.type is BOOKMARK


def told(events: list[WatchEvent[Object]]) -> list[tuple[EventType, str]]:
    return [(event.type, (event.object or {})["metadata"]["name"]) for event in events]


async def lease(cluster: Cluster, space: str, name: str, **labels: str) -> Object:
    body = {"metadata": {"name": name, "labels": labels}, "spec": {}}
    return await cluster.api.write(Create(LEASES, body, namespace=space))


async def label(cluster: Cluster, space: str, name: str, **labels: str | None) -> Object:
    return await cluster.api.write(Patch(LEASES, name, {"metadata": {"labels": labels}}, namespace=space))


async def version(cluster: Cluster, space: str) -> str:
    return (await cluster.api.list(LEASES, namespace=space)).resource_version


# -- changes -----------------------------------------------------------------------------------------------------------


async def test_changes_come_in_order(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    start = await version(cluster, space)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(take(cluster, space, start, 4))
        await cluster.settle(0.1)
        made = await lease(cluster, space, "a")
        changed = await label(cluster, space, "a", x="1")
        await lease(cluster, space, "b")
        await cluster.api.write(Delete(LEASES, "a", namespace=space))
    events = watching.result()
    assert told(events) == [(ADDED, "a"), (MODIFIED, "a"), (ADDED, "b"), (DELETED, "a")]
    assert (events[0].object, events[1].object) == (made, changed)
    versions = [int(event.resource_version) for event in events]
    assert versions == sorted(set(versions))
    assert int(start) < versions[0]
    assert all(
        event.object and event.object["metadata"]["resourceVersion"] == event.resource_version for event in events
    )


async def test_what_is_deleted_is_told_as_it_was_last(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await lease(cluster, space, "a")
    last = await label(cluster, space, "a", x="1")
    start = last["metadata"]["resourceVersion"]
    await cluster.api.write(Delete(LEASES, "a", namespace=space))
    (event,) = await take(cluster, space, start, 1)
    assert event.type is DELETED
    assert event.object is not None
    assert event.object["metadata"]["labels"] == {"x": "1"}
    assert int(event.resource_version) > int(start)


async def test_what_was_before_is_not_told(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await lease(cluster, space, "a")
    start = await version(cluster, space)
    await lease(cluster, space, "b")
    assert told(await take(cluster, space, start, 1)) == [(ADDED, "b")]


async def test_a_watch_goes_on_from_any_version_it_told(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    start = await version(cluster, space)
    await lease(cluster, space, "a")
    await label(cluster, space, "a", x="1")
    await lease(cluster, space, "b")
    await cluster.api.write(Delete(LEASES, "b", namespace=space))
    events = await take(cluster, space, start, 4)
    for index in range(3):
        assert await take(cluster, space, events[index].resource_version, 3 - index) == events[index + 1 :]


async def test_a_watch_without_a_version_begins_with_what_is_there(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    for name in ("b", "a"):
        await lease(cluster, space, name)
    for since in ("", "0"):
        await cluster.settle(0.2)  # "0" is answered from a cache that may be a little behind
        events = await take(cluster, space, since, 2)
        assert sorted(told(events)) == [(ADDED, "a"), (ADDED, "b")]


async def test_two_watchers_see_the_same(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    start = await version(cluster, space)
    async with asyncio.TaskGroup() as group:
        watching = [group.create_task(take(cluster, space, start, 6)) for _ in range(2)]
        for name in ("a", "b"):
            await lease(cluster, space, name)
            await label(cluster, space, name, x="1")
            await cluster.api.write(Delete(LEASES, name, namespace=space))
    first, second = (task.result() for task in watching)
    assert first == second


async def test_a_watch_of_one_namespace_hears_nothing_of_others(cluster: Cluster) -> None:
    one, two = await cluster.new_namespace(), await cluster.new_namespace()
    start = await version(cluster, one)
    await lease(cluster, two, "a")
    await lease(cluster, one, "b")
    assert told(await take(cluster, one, start, 1)) == [(ADDED, "b")]


async def test_a_change_that_is_none_is_not_told(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await lease(cluster, space, "a", x="1")
    start = await version(cluster, space)
    await label(cluster, space, "a", x="1")
    await lease(cluster, space, "b")
    assert told(await take(cluster, space, start, 1)) == [(ADDED, "b")]


async def test_a_finalized_deletion_is_a_modification_first(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await lease(cluster, space, "a")
    await cluster.api.write(Patch(LEASES, "a", {"metadata": {"finalizers": [FINALIZER]}}, namespace=space))
    start = await version(cluster, space)
    await cluster.api.write(Delete(LEASES, "a", namespace=space))
    await cluster.api.write(Patch(LEASES, "a", {"metadata": {"finalizers": None}}, namespace=space))
    events = await take(cluster, space, start, 2)
    assert told(events) == [(MODIFIED, "a"), (DELETED, "a")]
    for event in events:
        assert event.object is not None
        assert "deletionTimestamp" in event.object["metadata"]


# -- selectors ---------------------------------------------------------------------------------------------------------


async def test_what_comes_to_match_is_added_and_what_ceases_to_is_deleted(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await lease(cluster, space, "a", x="1")
    await lease(cluster, space, "b", x="2")
    start = await version(cluster, space)
    await label(cluster, space, "b", x="1")  # comes
    await label(cluster, space, "b", y="1")  # stays
    await label(cluster, space, "b", x="2")  # goes
    await label(cluster, space, "b", y="2")  # not told
    await cluster.api.write(Delete(LEASES, "b", namespace=space))  # not told
    await cluster.api.write(Delete(LEASES, "a", namespace=space))
    events = await take(cluster, space, start, 4, labels="x=1")
    assert told(events) == [(ADDED, "b"), (MODIFIED, "b"), (DELETED, "b"), (DELETED, "a")]


async def test_what_ceases_to_match_is_told_as_it_was_at_the_new_version(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await lease(cluster, space, "a", x="1")
    start = await version(cluster, space)
    changed = await label(cluster, space, "a", x="2")
    (event,) = await take(cluster, space, start, 1, labels="x=1")
    assert event.type is DELETED
    assert event.object is not None
    assert event.object["metadata"]["labels"] == {"x": "1"}
    assert event.object["metadata"]["resourceVersion"] == event.resource_version
    assert event.resource_version == changed["metadata"]["resourceVersion"]


async def test_a_watch_of_one_object(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    start = await version(cluster, space)
    await lease(cluster, space, "a")
    await lease(cluster, space, "b")
    assert told(await take(cluster, space, start, 1, fields="metadata.name=b")) == [(ADDED, "b")]


async def test_a_watch_by_an_unknown_field_is_refused(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    with pytest.raises(Invalid):
        await take(cluster, space, "0", 1, fields="spec.holderIdentity=x")


# -- the end -----------------------------------------------------------------------------------------------------------


async def test_a_watch_ends_at_its_time(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    start, began = await version(cluster, space), cluster.now()
    await only_bookmarks(cluster.api.watch(LEASES, resource_version=start, namespace=space, timeout_seconds=2))
    lasted = (cluster.now() - began).total_seconds()
    assert lasted == 2 if cluster.exact else 1.5 < lasted < 6


async def test_bookmarks_tell_how_far_the_watch_has_come(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    start = await version(cluster, space)
    watch = cluster.api.watch(LEASES, resource_version=start, namespace=space, labels="x=1", timeout_seconds=5)
    async with aclosing(watch) as events:
        await lease(cluster, space, "a", x="1")
        assert (await anext(events)).type is ADDED
        passed_over = await lease(cluster, space, "b")
        rest = [event async for event in events]
    assert {event.type for event in rest} == {BOOKMARK}
    assert all(event.object is None and not event.problem for event in rest)
    assert int(rest[-1].resource_version) >= int(passed_over["metadata"]["resourceVersion"])
    # And from there it goes on.
    await label(cluster, space, "b", x="1")
    assert told(await take(cluster, space, rest[-1].resource_version, 1, labels="x=1")) == [(ADDED, "b")]


async def test_a_watch_that_is_left_early(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    start = await version(cluster, space)
    async with aclosing(cluster.api.watch(LEASES, resource_version=start, namespace=space)) as events:
        await lease(cluster, space, "a")
        assert (await anext(events)).type is ADDED
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_a_watch_from_too_old_a_version(cluster: Cluster) -> None:
    await cluster.make(NODECLAIMS, nodeclaim(cluster.unique("claim")))
    since = await cluster.too_old(NODECLAIMS)
    with pytest.raises(Gone) as caught:
        await only_bookmarks(cluster.api.watch(NODECLAIMS, resource_version=since, timeout_seconds=5))
    assert caught.value.code == 410
    assert caught.value.reason in ("Expired", "Gone")
    assert "too old resource version" in caught.value.message


async def test_a_version_of_the_future(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    since = str(int(await version(cluster, space)) + 1_000_000)
    await only_bookmarks(cluster.api.watch(LEASES, resource_version=since, namespace=space, timeout_seconds=2))


async def test_a_version_that_is_none(cluster: Cluster) -> None:
    with pytest.raises(InternalError, match='resourceVersion: Invalid value: "soon"'):
        await only_bookmarks(cluster.api.watch(LEASES, resource_version="soon", timeout_seconds=5))


# -- pages -------------------------------------------------------------------------------------------------------------


async def pages(cluster: Cluster, space: str, limit: int, labels: str = "") -> list[Page[Object]]:
    found = [await cluster.api.list(LEASES, namespace=space, limit=limit, labels=labels)]
    while more := found[-1].continue_:
        found.append(await cluster.api.list(LEASES, namespace=space, limit=limit, labels=labels, continue_=more))
    return found


def names(page: Page[Object]) -> list[str]:
    return [item["metadata"]["name"] for item in page.items]


async def leases(cluster: Cluster, space: str, letters: str, **labels: str) -> None:
    for name in letters:
        await lease(cluster, space, name, **labels)


async def test_lists_come_in_pages(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await leases(cluster, space, "abcdefg")
    found = await pages(cluster, space, 3)
    assert [names(page) for page in found] == [["a", "b", "c"], ["d", "e", "f"], ["g"]]
    assert len({page.resource_version for page in found}) == 1


async def test_a_page_that_holds_all_is_the_last(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await leases(cluster, space, "abc")
    assert [len(page.items) for page in await pages(cluster, space, 3)] == [3]
    assert [len(page.items) for page in await pages(cluster, space, 2)] == [2, 1]


async def test_pages_of_what_is_selected(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    for letter in "abcdef":
        await lease(cluster, space, letter, own="yes" if letter in "ace" else "no")
    assert [names(page) for page in await pages(cluster, space, 2, "own=yes")] == [["a", "c"], ["e"]]


async def test_the_last_page_of_what_is_selected_may_be_empty(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    for letter in "abc":
        await lease(cluster, space, letter, own="no" if letter == "c" else "yes")
    assert [names(page) for page in await pages(cluster, space, 2, "own=yes")] == [["a", "b"], []]


async def test_pages_of_all_namespaces(cluster: Cluster) -> None:
    spaces, own = sorted([await cluster.new_namespace(), await cluster.new_namespace()]), cluster.unique("own")
    for space in spaces:
        await leases(cluster, space, "ab", own=own)
    found, more = [], "first"
    while more:
        page = await cluster.api.list(LEASES, labels=f"own={own}", limit=3, continue_="" if more == "first" else more)
        found += [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in page.items]
        more = page.continue_
    assert found == [(space, name) for space in spaces for name in "ab"]


async def test_pages_show_one_moment_whatever_is_written(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await leases(cluster, space, "abdef", own="1")
    first = await cluster.api.list(LEASES, namespace=space, labels="own=1", limit=2)
    await leases(cluster, space, "cg", own="1")
    await cluster.api.write(Delete(LEASES, "e", namespace=space))
    await label(cluster, space, "d", new="1")
    await label(cluster, space, "f", own="2")
    rest = await cluster.api.list(LEASES, namespace=space, labels="own=1", limit=10, continue_=first.continue_)
    assert names(first) + names(rest) == ["a", "b", "d", "e", "f"]
    assert rest.resource_version == first.resource_version
    assert rest.items[0]["metadata"]["labels"] == {"own": "1"}
    # A watch from the version of the list tells what has happened since.
    seen = await take(cluster, space, rest.resource_version, 5, labels="own=1")
    assert told(seen) == [(ADDED, "c"), (ADDED, "g"), (DELETED, "e"), (MODIFIED, "d"), (DELETED, "f")]


async def test_an_expired_page_is_gone(cluster: Cluster) -> None:
    space = await cluster.new_namespace()
    await leases(cluster, space, "abc")
    first = await cluster.api.list(LEASES, namespace=space, limit=1)
    token = await cluster.outdated(first.continue_)
    with pytest.raises(Gone) as caught:
        await cluster.api.list(LEASES, namespace=space, limit=1, continue_=token)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")


async def test_a_token_that_is_none(cluster: Cluster) -> None:
    with pytest.raises(Invalid) as caught:
        await cluster.api.list(LEASES, limit=1, continue_="nonsense")
    assert caught.value.code == 400
