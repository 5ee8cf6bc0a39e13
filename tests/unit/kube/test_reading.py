"""What is read from lists and watch lines, well-formed or not?"""

from typing import Any

import msgspec
import pytest

from dovetail.kube.reading import ErrorEvent, UnreadableAnswer, read_event, read_object, read_page
from dovetail.ports import EVENTS, NODES, PODS, ApiError, EventType, Page
from dovetail.state.store import UndecodableObject


def pod(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": "5"}, "spec": {"nodeName": "a"}, **more}


def page_of(*items: Any, **metadata: Any) -> bytes:
    metadata = {"resourceVersion": "7", **metadata}
    return msgspec.json.encode({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items})


def names(page: Page[Any]) -> list[str]:
    return [item.metadata.name for item in page.items]


def test_a_page() -> None:
    page = read_page(page_of(pod("a"), pod("b"), **{"continue": "more", "remainingItemCount": 3}), PODS)
    assert names(page) == ["a", "b"]
    assert (page.resource_version, page.continue_, page.undecodable) == ("7", "more", 0)


@pytest.mark.parametrize("odd", [pod("b", status=None), pod("b", spec={"tolerations": None, "nodeName": None})])
def test_null_is_absent(odd: dict[str, Any]) -> None:
    page = read_page(page_of(pod("a"), odd), PODS)
    assert names(page) == ["a", "b"]
    assert page.undecodable == 0
    assert page.items[1].spec.tolerations == []


def test_what_cannot_be_decoded_is_counted() -> None:
    page = read_page(page_of(pod("a"), pod("b", spec={"nodeName": 5}), 7, None, pod("c"), **{"continue": "x"}), PODS)
    assert names(page) == ["a", "c"]
    assert (page.undecodable, page.resource_version, page.continue_) == (3, "7", "x")
    assert page.unread == (UndecodableObject("spec.nodeName: expected a string, got an integer", "", "b"),)


@pytest.mark.parametrize(
    "data",
    [
        b'{"metadata": {"resourceVersion": "7"}, "items": null}',
        b'{"metadata": {"resourceVersion": "7", "continue": null}}',
    ],
)
def test_an_empty_list(data: bytes) -> None:
    assert read_page(data, NODES) == Page([], "7")


@pytest.mark.parametrize("data", [b"", b"null", b"<html>", b'{"items": 5}', b'{"items": [', b"[" * 100_000])
def test_no_list_at_all(data: bytes) -> None:
    with pytest.raises(UnreadableAnswer):
        read_page(data, PODS)


def line(type_: Any, object_: Any) -> bytes:
    return msgspec.json.encode({"type": type_, "object": object_})


@pytest.mark.parametrize("type_", [EventType.ADDED, EventType.MODIFIED, EventType.DELETED])
def test_events(type_: EventType) -> None:
    event = read_event(line(type_, pod("a")), PODS)
    assert (event.type, event.resource_version, event.problem) == (type_, "5", "")
    assert event.object is not None
    assert event.object.metadata.name == "a"


def test_objects_without_a_struct() -> None:
    event = read_event(line("ADDED", pod("a")), EVENTS)
    assert (event.resource_version, event.object) == ("5", pod("a"))


def test_bookmark() -> None:
    event = read_event(
        line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "9"}, "spec": {"containers": None}}), PODS
    )
    assert (event.type, event.resource_version, event.object, event.problem) == (EventType.BOOKMARK, "9", None, "")


def test_an_undecodable_object_says_why_and_moves_the_version_on() -> None:
    event = read_event(line("MODIFIED", pod("a", spec={"nodeName": 5})), PODS)
    assert (event.resource_version, event.object) == ("5", None)
    assert event.problem == "spec.nodeName: expected a string, got an integer"
    assert event.unread == UndecodableObject(event.problem, "", "a")


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"name": "a", "namespace": "n", "labels": 5}, ("n", "a")),
        ({"name": "a", "namespace": 5}, ("", "a")),
        ({"name": 5}, None),
        (5, None),
    ],
)
def test_an_undecodable_object_is_named_if_it_can_be(metadata: Any, named: tuple[str, str] | None) -> None:
    event = read_event(line("DELETED", {"metadata": metadata}), PODS)
    assert event.problem
    assert (event.unread and (event.unread.namespace, event.unread.name)) == named


@pytest.mark.parametrize(
    "object_", [{}, {"metadata": None}, {"metadata": {"resourceVersion": None}}, {"metadata": 5}, 5, None]
)
def test_an_event_without_a_version(object_: Any) -> None:
    assert read_event(line("ADDED", object_), PODS).resource_version == ""


def test_error_event() -> None:
    with pytest.raises(ErrorEvent) as caught:
        read_event(line("ERROR", {"kind": "Status", "code": 410}), PODS)
    assert msgspec.json.decode(caught.value.status) == {"kind": "Status", "code": 410}


@pytest.mark.parametrize(
    "data", [b"x", b"{}", b"null", line("RENAMED", {}), line(5, {}), b'{"type": "ADDED"}', b"[" * 100_000]
)
def test_no_event_at_all(data: bytes) -> None:
    with pytest.raises(UnreadableAnswer):
        read_event(data, PODS)


DEEP = b"[" * 100_000 + b"]" * 100_000


def test_deep_nesting_is_only_unreadable() -> None:
    event = b'{"type": "ADDED", "object": {"metadata": {"name": %b}}}' % DEEP
    with pytest.raises(UnreadableAnswer):
        read_event(event, PODS)
    with pytest.raises(UnreadableAnswer):
        read_page(b'{"items": [{"metadata": %b}]}' % DEEP, PODS)


def test_an_unreadable_answer_is_an_error() -> None:
    with pytest.raises(ApiError, match="Pod in the answer is unreadable: metadata: expected a mapping, got a list"):
        read_object(b'{"metadata": []}', PODS)
