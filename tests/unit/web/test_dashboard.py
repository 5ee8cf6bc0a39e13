"""The dashboard over HTTP, asked by a real client."""

import asyncio
import gzip
import json
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import msgspec
import pytest

from dovetail.model.refs import Sentence
from dovetail.model.snapshot import Snapshot
from dovetail.runtime.compute import ThreadCompute
from dovetail.views.board.rows import SavingsView
from dovetail.web.app import board_served
from dovetail.web.readers import is_loopback
from dovetail.web.sources import FileSource, PushedSource
from dovetail.web.stream import EVERYTHING, Stream
from tests.harness import builders
from tests.harness.builders import at
from tests.harness.stage import gives, real_time, stage

NOW = at("2026-03-06T16:20:00Z")


def snapshot(*names: str) -> Snapshot:
    pods = {
        name: builders.pod(f"web-{name}", node=name, do_not_disrupt="2h", created="2026-03-06T16:00:00Z")
        for name in names
    }
    members = tuple(
        builders.member(
            builders.claim(f"claim-{name}", provider_id=f"kwok://{name}"), builders.node(name), [pods[name]]
        )
        for name in names
    )
    return Snapshot(nodes=members, pods=tuple(pods.values()), pools={"default": builders.pool()})


@gives("session", "source")
def asked(questions: Callable[[aiohttp.ClientSession, PushedSource], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        source = PushedSource(title="test", pace=0.0)
        source.push(NOW, snapshot("n1", "n2"))
        async with (
            board_served(source) as port,
            aiohttp.ClientSession(f"http://127.0.0.1:{port}", auto_decompress=False) as session,
        ):
            await questions(session, source)

    asyncio.run(main())


pytestmark = stage(asked)


async def board(session: aiohttp.ClientSession) -> dict[str, Any]:
    async with session.get("/api/board") as response:
        found: dict[str, Any] = json.loads(gzip.decompress(await response.read()))
        return found


async def events(response: aiohttp.ClientResponse, number: int) -> list[tuple[str, Any]]:
    """So many events, ticks left out."""
    found: list[tuple[str, Any]] = []
    while len(found) < number:
        text = (await response.content.readuntil(b"\n\n")).decode()
        fields = dict(line.split(": ", 1) for line in text.strip().splitlines())
        if fields["event"] != "tick":
            found.append((fields["event"], json.loads(fields["data"])))
    return found


async def test_the_board_is_compressed_and_tagged(session: aiohttp.ClientSession, source: PushedSource) -> None:
    async with session.get("/api/board") as response:
        assert response.headers["Content-Encoding"] == "gzip"
        tag = response.headers["ETag"]
        found = json.loads(gzip.decompress(await response.read()))
    assert [row["name"] for row in found["rows"]] == ["n1", "n2"]
    assert found["rows"][0]["spans"] == [[0, 1, 0], [round(at("2026-03-06T18:00:00Z").timestamp()), 0]]
    assert found["rows"][0]["causes"] == [["do-not-disrupt", "Pod/default/web-n1", "default", 0]]
    async with session.get("/api/board", headers={"If-None-Match": f'W/{tag}, "x"'}) as response:
        assert (response.status, await response.read()) == (304, b"")
    async with session.get("/api/board", headers={"Accept-Encoding": "identity"}) as response:
        assert json.loads(await response.read()) == found
    source.push(NOW, snapshot("n1"))
    async with session.get("/api/board", headers={"If-None-Match": tag}) as response:
        assert response.status == 200


async def test_the_stream_tells_what_changed_since_the_version_that_is_known(
    session: aiohttp.ClientSession, source: PushedSource
) -> None:
    version = (await board(session))["version"]
    async with session.get("/api/stream", headers={"Last-Event-ID": version}) as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        source.push(NOW, snapshot("n1", "n3"))
        ((kind, delta),) = await events(stream, 1)
    assert (kind, [row["name"] for row in delta["rows"]], delta["gone"]) == ("delta", ["n3"], ["Node/n2"])
    assert "pools" not in delta
    source.push(NOW, snapshot("n1"))
    assert len((await board(session))["rows"]) == 1
    # Whoever comes back with an older version is told everything since.
    async with session.get("/api/stream", headers={"Last-Event-ID": version}) as stream:
        told = await events(stream, 2)
    assert [delta.get("gone") for _, delta in told] == [["Node/n2"], ["Node/n3"]]


async def test_what_consolidation_saved_is_on_the_board(session: aiohttp.ClientSession, source: PushedSource) -> None:
    counts: dict[str, Any] = {"commands": 3, "promised": 0.38, "realised": 0.03, "moved": 9, "unplanned": 1}
    moved: dict[str, Any] = {"moved_today": 7, "moved_again": 2, "moved_in_vain": 6}
    first = await board(session)
    assert first["rest"]["savings"] is None
    saved = SavingsView(**counts, **moved, backoffs=(("default", 5, "why"),))
    source.push(NOW, snapshot("n1", "n2"), savings=saved)
    async with session.get("/api/stream", headers={"Last-Event-ID": first["version"]}) as stream:
        ((_, delta),) = await events(stream, 1)
    assert (await board(session))["rest"]["savings"] == delta["rest"]["savings"]
    shown = {"movedToday": 7, "movedAgain": 2, "movedInVain": 6, "backoffs": [["default", 5, "why"]]}
    assert delta["rest"]["savings"] == {**counts, **shown}


@pytest.mark.parametrize("version", ["", "nonsense", "0badc0de-0", "-5"])
async def test_a_version_of_another_process_is_told_to_read_anew(session: aiohttp.ClientSession, version: str) -> None:
    async with session.get("/api/stream", headers={"Last-Event-ID": version}) as stream:
        assert await events(stream, 1) == [("reset", {})]
        assert await stream.content.read() == b""


async def test_details_of_one_node(session: aiohttp.ClientSession, source: PushedSource) -> None:
    async with session.get("/api/node/Node/n1") as response:
        found = await response.json()
    assert found["key"] == "Node/n1"
    assert [reason["reason"] for reason in found["node"]["reasons"]] == [
        "Empty",
        "Drifted",
        "Underutilized",
        "Expired",
    ]
    assert [pod["name"] for pod in found["pods"]] == ["web-n1"]
    assert found["commands"][0] == "dovetail explain node/n1"
    async with session.get("/api/node/Node/n9") as response:
        assert response.status == 404
        assert await response.json() == {"message": "Node/n9 does not exist"}
    source.push(NOW, msgspec.structs.replace(snapshot("n1"), nodes=()), left_alone={"n1": Sentence("Drifted: because")})
    async with session.get("/api/node/Node/n1") as response:
        assert response.status == 404


@stage(real_time)
async def test_details_are_read_off_the_assessment_that_the_board_was_made_of() -> None:
    class CountedCompute(ThreadCompute):
        def __init__(self) -> None:
            self.runs = 0

        async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            self.runs += 1
            return await super().run(function, *args, **kwargs)

    source, compute = PushedSource(title="test", pace=0.0), CountedCompute()
    source.push(NOW, snapshot("n1", "n2"))
    stream = Stream(source, compute)
    await stream.refresh()
    found = await asyncio.gather(*(stream.details(f"Node/{name}", EVERYTHING) for name in ("n1", "n2") * 10))
    assert len(found) == 20
    assert compute.runs == 1


@stage(real_time)
async def test_commands_quote_what_a_shell_would_read() -> None:
    source = PushedSource(title="test", asking="-f 'a b.yaml'", pace=0.0)
    source.push(NOW, snapshot("$(reboot) '"))
    async with (
        board_served(source) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        session.get("/api/node/Node/$(reboot)%20'") as response,
    ):
        commands = (await response.json())["commands"]
    assert commands[0] == """dovetail explain -f 'a b.yaml' 'node/$(reboot) '"'"''"""


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:80", 200),
        ("localhost:1234", 200),
        ("[::1]:1", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:80", 403),
        ("169.254.169.254", 403),
        ("[", 403),
        ("", 403),
    ],
)
async def test_only_names_of_this_machine_are_served(session: aiohttp.ClientSession, host: str, status: int) -> None:
    """A page elsewhere whose name leads here must not read along."""
    for path in ("/", "/api/board", "/api/node/Node/n1"):
        async with session.get(path, headers={"Host": host}) as response:
            assert response.status == status
            assert response.headers["Content-Security-Policy"].startswith("default-src 'self'")


async def test_other_sites_are_refused_and_nothing_can_be_written(session: aiohttp.ClientSession) -> None:
    async with session.get("/api/board", headers={"Sec-Fetch-Site": "cross-site"}) as response:
        assert response.status == 403
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        async with session.request(method, "/api/board") as response:
            assert response.status == 405


async def test_files_of_the_page_and_no_others(session: aiohttp.ClientSession) -> None:
    async with session.get("/static/app.js") as response:
        assert response.headers["Content-Type"] == "text/javascript; charset=utf-8"
        tag = response.headers["ETag"]
    async with session.get("/static/app.js", headers={"If-None-Match": tag}) as response:
        assert response.status == 304
    for path in ("/static/..%2fapp.py", "/static/nothing.js", "/static/", "/app.py"):
        async with session.get(path) as response:
            assert response.status == 404


@stage(real_time)
async def test_without_access_control_only_this_machine_is_served() -> None:
    with pytest.raises(ValueError, match=r"0\.0\.0\.0: without access control"):
        async with board_served(PushedSource(title="test"), address="0.0.0.0"):
            pass
    assert [is_loopback(name) for name in ("127.0.0.1", "::1", "localhost", "10.0.0.1", "0.0.0.0", "x")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


class SteppedClock:
    """Stands where it is put."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> Any:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)


@stage(real_time)
async def test_time_alone_changes_the_board_of_files() -> None:
    clock = SteppedClock()
    source = FileSource(snapshot("n1"), clock, title="files")
    async with (
        board_served(source) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}", auto_decompress=False) as session,
    ):
        first = await board(session)
        clock.at = at("2026-03-06T16:59:59Z")
        assert await board(session) == first
        clock.at = at("2026-03-06T18:00:00Z")
        then = await board(session)
        assert (first["rows"][0]["free"], then["rows"][0]["free"]) == (first["rows"][0]["spans"][1][0], 0)
        assert then["rows"][0]["spans"] == [[0, 0]]
