"""The reflector's protocol, step by step and without any I/O."""

from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.objects import ObjectMeta, Pod
from dovetail.ports import ApiError, EventType, Gone, Page, TooManyRequests, Unavailable, WatchEvent
from dovetail.runtime.reflector import (
    PAGES_AT_MOST,
    WATCHES_BEFORE_RELIST,
    InBackoff,
    Listing,
    ReflectorInput,
    ReflectorState,
    WaitOver,
    WatchEnded,
    Watching,
    step,
)
from dovetail.state.store import Added, Change, Deleted, Key, StoredValue, Synced, UndecodableObject, Updated

Known = dict[Key, StoredValue[str]]


def pod(name: str, version: str = "1", *, uid: str = "", bad: bool = False) -> Pod:
    labels = {"bad": "yes"} if bad else {}
    return Pod(ObjectMeta(name=name, namespace="ns", uid=uid or f"uid-{name}", resource_version=version, labels=labels))


def keep(item: Pod) -> str:
    if item.metadata.labels:
        raise ValueError("bad label")
    return f"{item.metadata.name}@{item.metadata.resource_version}"


def kept(item: Pod) -> StoredValue[str]:
    return StoredValue(item.metadata.uid, item.metadata.resource_version, keep(item))


def known(*pods: Pod) -> Known:
    return {("ns", item.metadata.name): kept(item) for item in pods}


def key(name: str) -> Key:
    return "ns", name


def take(
    state: ReflectorState[str], seen: ReflectorInput[Pod], before: Known
) -> tuple[list[Change[str]], ReflectorState[str]]:
    changes, then = step(state, seen, MappingProxyType(before), keep)
    return list(changes), then


def page(*pods: Pod, **more: Any) -> Page[Pod]:
    return Page(list(pods), **{"resource_version": "100", **more})


def told(type_: str, item: Pod | None, version: str = "200", **more: Any) -> WatchEvent[Pod]:
    return WatchEvent(EventType(type_), version, item, **more)


# -- listing ----------------------------------------------------------------------------------------------------------


def test_the_first_list_is_marked_as_such() -> None:
    changes, state = take(Listing(initial=True), page(pod("a"), pod("b")), {})
    assert changes == [
        Added(key("a"), kept(pod("a"))),
        Added(key("b"), kept(pod("b"))),
        Synced(),
    ]
    assert state == Watching("100")


def test_a_later_list_shows_what_happened_in_the_gap() -> None:
    before = known(pod("gone"), pod("same"), pod("changed", "1"), pod("other", uid="old"))
    listed = page(pod("new", "9"), pod("same"), pod("changed", "8"), pod("other", "7", uid="new"))
    changes, _ = take(Listing(), listed, before)
    assert changes == [
        Deleted(key("gone"), before[key("gone")]),
        Added(key("new"), kept(pod("new", "9"))),
        Updated(key("changed"), before[key("changed")], kept(pod("changed", "8"))),
        Deleted(key("other"), before[key("other")]),
        Added(key("other"), kept(pod("other", "7", uid="new"))),
        Synced(),
    ]


def test_nothing_is_told_before_the_last_page() -> None:
    changes, state = take(Listing(initial=True, failures=2), page(pod("a"), continue_="more"), {})
    assert changes == []
    assert isinstance(state, Listing)
    assert state.continue_ == "more"
    # The first page's version is the one to go on from.
    changes, after = take(state, page(pod("b"), resource_version="101"), {})
    assert [type(change) for change in changes] == [Added, Added, Synced]
    assert after == Watching("100", failures=2)


def test_a_list_without_end_is_a_failure() -> None:
    state: ReflectorState[str] = Listing(pages=({},) * (PAGES_AT_MOST - 1), resource_version="100", continue_="more")
    changes, after = take(state, page(pod("a"), continue_="more"), known(pod("b")))
    assert changes == []
    assert after == InBackoff(Listing(failures=1), failures=1)


def test_a_continuation_that_is_too_old_starts_the_list_anew() -> None:
    _, state = take(Listing(initial=True), page(pod("a"), continue_="more"), {})
    _, state = take(state, Gone("too old"), {})
    assert state == Listing(initial=True, failures=1)


# -- watching ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (told("ADDED", pod("b", "7")), [Added(key("b"), kept(pod("b", "7")))]),
        (told("MODIFIED", pod("b", "7")), [Added(key("b"), kept(pod("b", "7")))]),
        (told("MODIFIED", pod("a", "7")), [Updated(key("a"), kept(pod("a")), kept(pod("a", "7")))]),
        (told("ADDED", pod("a", "7")), [Updated(key("a"), kept(pod("a")), kept(pod("a", "7")))]),
        (told("MODIFIED", pod("a", "1")), []),
        (
            told("ADDED", pod("a", "7", uid="new")),
            [Deleted(key("a"), kept(pod("a"))), Added(key("a"), kept(pod("a", "7", uid="new")))],
        ),
        (told("DELETED", pod("a", "7")), [Deleted(key("a"), kept(pod("a")))]),
        (told("DELETED", pod("a", "7", uid="another")), []),
        (told("DELETED", pod("b", "7")), []),
        (told("BOOKMARK", None), []),
    ],
)
def test_what_the_watch_tells(event: WatchEvent[Pod], expected: list[Any]) -> None:
    changes, state = take(Watching("100", failures=3), event, known(pod("a")))
    assert changes == expected
    # On from the event's version, not the object's; and a watch that talks has not failed.
    assert state == Watching("200")


def test_an_end_is_ordinary_but_not_in_vain() -> None:
    assert take(Watching("100", failures=1), WatchEnded(), {}) == ([], Watching("100"))
    assert take(Watching("100"), WatchEnded(in_vain=True), {}) == ([], InBackoff(Watching("100", 1, 1), 1))


def test_an_expired_version_is_listed_anew_and_then_more_slowly() -> None:
    _, state = take(Watching("100"), Gone("too old"), {})
    assert state == Listing(failures=1)
    # The list went well, but its version cannot be watched either.
    _, state = take(state, page(pod("a")), {})
    _, state = take(state, Gone("too old"), {})
    assert state == InBackoff(Listing(failures=2), failures=2)
    assert take(state, WaitOver(), {}) == ([], Listing(failures=2))


def test_failures_are_waited_out_from_where_we_were() -> None:
    _, state = take(Watching("100"), Unavailable("no connection"), {})
    assert state == InBackoff(Watching("100", failures=1, failed_watches=1), failures=1)
    _, state = take(Listing(initial=True), ApiError("?"), {})
    assert state == InBackoff(Listing(initial=True, failures=1), failures=1)


def test_after_many_failures_the_version_itself_is_in_doubt() -> None:
    state: ReflectorState[str] = Watching("100")
    for _ in range(WATCHES_BEFORE_RELIST):
        assert isinstance(state, Watching)
        _, waiting = take(state, Unavailable("no connection"), {})
        _, state = take(waiting, WaitOver(), {})
    assert state == Listing(failures=WATCHES_BEFORE_RELIST)
    # The new version has failed nobody yet; only the waits stay long until the watch tells something.
    _, state = take(state, page(), {})
    _, state = take(state, Unavailable("no connection"), {})
    failures = WATCHES_BEFORE_RELIST + 1
    assert state == InBackoff(Watching("100", failures, failed_watches=1), failures)


def test_the_server_may_ask_for_time() -> None:
    _, state = take(Watching("100"), TooManyRequests("busy", retry_after=7), {})
    assert state == InBackoff(Watching("100", failures=1, failed_watches=1), failures=1, at_least_seconds=7)


# -- what cannot be read ----------------------------------------------------------------------------------------------


def test_an_unreadable_object_in_a_list_is_not_gone() -> None:
    before = known(pod("a"), pod("b"), pod("c"))
    unread = UndecodableObject("no idea", "ns", "a")
    changes, _ = take(Listing(), page(pod("b", bad=True), undecodable=1, unread=[unread]), before)
    assert changes == [
        unread,
        UndecodableObject("bad label", "ns", "b"),
        Deleted(key("c"), before[key("c")]),
        Synced(),
    ]


def test_without_its_name_anything_absent_may_be_the_unreadable_one() -> None:
    before = known(pod("a"), pod("b"))
    changes, _ = take(Listing(), page(pod("b", "9"), undecodable=1), before)
    assert changes == [
        UndecodableObject("1 objects could not be decoded, nor their names"),
        Updated(key("b"), before[key("b")], kept(pod("b", "9"))),
        Synced(),
    ]


def test_an_unreadable_change_leaves_what_was_known() -> None:
    assert take(Watching("100"), told("MODIFIED", None, problem="?"), known(pod("a"))) == (
        [UndecodableObject("?")],
        Watching("200"),
    )
    assert take(Watching("100"), told("MODIFIED", pod("a", "7", bad=True)), known(pod("a"))) == (
        [UndecodableObject("bad label", "ns", "a")],
        Watching("200"),
    )


def test_a_version_that_cannot_be_read_moves_nothing() -> None:
    assert take(Watching("100"), told("MODIFIED", None, "", problem="?"), {}) == (
        [UndecodableObject("?")],
        Watching("100"),
    )


def test_an_unreadable_deletion_is_one_if_it_has_a_name() -> None:
    unread = UndecodableObject("?", "ns", "a")
    changes, state = take(Watching("100"), told("DELETED", None, problem="?", unread=unread), known(pod("a")))
    assert changes == [unread, Deleted(key("a"), kept(pod("a")))]
    assert state == Watching("200")
    assert take(Watching("100"), told("DELETED", None, problem="?", unread=unread), {}) == ([unread], Watching("200"))


def test_an_unreadable_deletion_without_a_name_needs_a_list() -> None:
    changes, state = take(Watching("100"), told("DELETED", None, problem="?"), known(pod("a")))
    assert changes == [UndecodableObject("?")]
    assert state == Listing(failures=1)


# -- laws -------------------------------------------------------------------------------------------------------------

pods = st.builds(
    lambda name, version, uid: pod(name, version, uid=uid),
    st.sampled_from("abcd"),
    st.sampled_from("123"),
    st.sampled_from(["x", "y"]),
)


def apply(before: Known, changes: list[Any]) -> Known:
    after = dict(before)
    for change in changes:
        match change:
            case Added(key=at, new=new):
                assert at not in after
                after[at] = new
            case Updated(key=at, old=old, new=new):
                assert after[at] == old
                assert old.uid == new.uid
                after[at] = new
            case Deleted(key=at, old=old):
                assert after.pop(at) == old
    return after


@given(before=st.lists(pods, max_size=6), listed=st.lists(pods, max_size=6, unique_by=lambda item: item.metadata.name))
def test_after_a_list_exactly_the_listed_is_known(before: list[Pod], listed: list[Pod]) -> None:
    """Where UID and version are the same, so is the object."""
    changes, _ = take(Listing(), page(*listed), known(*before))
    assert apply(known(*before), changes) == known(*listed)


@given(events=st.lists(st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), pods), max_size=20))
def test_changes_always_fit_what_is_known(events: list[tuple[str, Pod]]) -> None:
    """Whatever a server says, in whatever order: nothing is added twice, and nothing unknown is deleted."""
    now: Known = {}
    state: ReflectorState[str] = Watching("0")
    for number, (type_, item) in enumerate(events):
        changes, state = take(state, told(type_, item, str(number)), now)
        now = apply(now, changes)
        assert state == Watching(str(number))


def test_a_state_never_meets_what_it_did_not_ask_for() -> None:
    with pytest.raises(AssertionError, match="Listing cannot meet WatchEnded"):
        take(Listing(), WatchEnded(), {})
