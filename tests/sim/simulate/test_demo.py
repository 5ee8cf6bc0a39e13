"""The demo: what it shows, what its keys do, and that it starts, pauses and ends cleanly in a real terminal."""

import asyncio
import json
import re
import signal
from datetime import UTC, datetime, timedelta
from http.client import HTTPResponse
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from rich.console import Console, Group
from rich.text import Text

from dovetail.api.documents import read_documents
from dovetail.cli.demo.pace import Pace
from dovetail.cli.demo.player import Player
from dovetail.cli.top.keys import ViewState
from dovetail.cli.top.screen import ScreenContent, draw
from dovetail.sim.scenarios.player import Play
from dovetail.sim.scenarios.reading import read_scenario
from dovetail.views.assessment import assess
from dovetail.views.board.maker import BoardMaker
from dovetail.web.sources import ClusterAt
from tests.unit.cli.terminals import GIVEN_BACK, WHOLE_SCREEN, Terminal, terminal

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 3, 2, tzinfo=UTC)
WEEK = files("dovetail.sim.scenarios").joinpath("week.yaml").read_bytes()


async def look_at(player: Player) -> ClusterAt:
    return player.source.look()


def test_the_screen_shows_nodes_budgets_and_what_happened() -> None:
    documents = list(read_documents(WEEK, "week.yaml"))
    scenario = read_scenario(documents, now=NOW, span=timedelta(hours=1))
    with Play(scenario, checked=False) as play:
        player = Player(scenario, Pace(600), UTC)
        player.address = "http://127.0.0.1:1/"
        play.advance(scenario.start + timedelta(minutes=5))
        player.show(play)
        seen = asyncio.run(look_at(player))
    assert len(seen.take().nodes) > 20
    assessment = assess(seen.take(), seen.at)
    board = BoardMaker().make(assessment, scenario.end, decisions=seen.decisions)
    scene = ScreenContent(
        title=player.source.title, now=seen.at, board=board, status=player.status(), happened=player.happened
    )
    text = "\n".join(line.plain for line in draw(scene, ViewState(), 170, 60).lines)
    for words in (
        "dovetail demo  Mon 2026-03-02 00:05:00",
        "http://127.0.0.1:1/",
        "S1 steady",
        "services",
        "Drifted",
        "2/2",
    ):
        assert words in text
    for words in ("takes pods", "an hour", "×600"):
        assert words in text


def test_a_small_terminal_has_the_address_the_savings_and_how_many_are_left_out() -> None:
    """And what is in brackets is no markup."""
    documents = list(read_documents(WEEK, "week.yaml"))
    scenario = read_scenario(documents, now=NOW, span=timedelta(hours=6))
    with Play(scenario, checked=False) as play:
        player = Player(scenario, Pace(600), UTC)
        player.address = "http://127.0.0.1:12345/"
        play.advance(scenario.start + timedelta(minutes=31))
        player.show(play)
        decided = printed(*player.happened, width=300)
        while not play.disruption.accounts.totals.commands and play.now < scenario.end:
            play.advance(play.now + timedelta(minutes=15))
        player.show(play)
        seen = asyncio.run(look_at(player))
        totals = play.disruption.accounts.totals
    assert "nodepools=[services]: [sim-services-" in decided
    board = BoardMaker().make(assess(seen.take(), seen.at), scenario.end, decisions=seen.decisions)
    scene = ScreenContent(
        title=player.source.title, now=seen.at, board=board, status=player.status(), happened=player.happened
    )
    lines = draw(scene, ViewState(), 80, 40).lines
    text = printed(*lines, width=80)
    assert f"saved ${totals.realised / 1e9:.2f} of the promised ${totals.promised / 1e9:.2f}" in text
    assert "dashboard: http://127.0.0.1:12345/" in text
    left_out = re.search(r"^… and (\d+) more nodes: ↑↓", text, re.MULTILINE)
    assert left_out is not None
    shown = sum(re.match(r"[▸ ][! ]\S.* S[1-6] ", line.plain) is not None for line in lines)
    assert shown + int(left_out[1]) == len(board.rows)


def printed(*lines: Text, width: int) -> str:
    console = Console(width=width, color_system=None, file=StringIO())
    with console.capture() as captured:
        console.print(Group(*lines))
    return captured.get()


def test_keys() -> None:
    pace = Pace(600)
    assert pace.press("+")
    assert pace.speed == 1_800
    assert pace.press("-")
    assert pace.press("-")
    assert pace.speed == 300
    assert pace.press(" ")
    assert (pace.paused, pace.speed_now, pace.due()) == (True, 0.0, timedelta())
    assert pace.press(" ")
    assert pace.press("n")
    assert (pace.paused, pace.jumping) == (False, True)
    pace.landed()
    assert not pace.jumping
    assert not pace.press("q")  # for the screen


def test_the_copy_among_the_examples_is_the_same() -> None:
    assert (ROOT / "examples/scenarios/week.yaml").read_bytes() == WEEK


DEMO = ("-m", "dovetail", "demo", "-q")
LARGE = (50, 160)
ADDRESS = re.compile(r"http://127\.0\.0\.1:[0-9]+/")


@pytest.mark.parametrize("signalled", [False, True])
def test_in_a_terminal(signalled: bool) -> None:
    """What is written to it is what a person would see."""
    with terminal(*DEMO, "--no-dashboard", "--speed", "60", size=LARGE) as screen:
        screen.until("takes pods")
        screen.type(" ")
        screen.until("paused")
        if signalled:
            screen.process.terminate()
        else:
            screen.type("q")
        ended_cleanly(screen)
        assert ADDRESS.search(screen.seen) is None


def test_its_dashboard_is_served_while_it_runs() -> None:
    with terminal(*DEMO, size=LARGE) as screen:
        screen.until("takes pods")
        found = ADDRESS.search(screen.seen)
        assert found is not None
        with urlopen(found[0], timeout=60) as answer:
            assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
            assert b"<title>" in answer.read()
        with urlopen(f"{found[0]}api/stream", timeout=60) as stream:  # which begins with what makes a reader ask
            assert stream.readline() == b"event: reset\n"
        board = read_board(found[0])
        assert board["title"] == "dovetail demo"
        while len(board["rows"]) <= 20:  # the first board may be older than the first nodes; each is asked for anew
            version = board["version"]
            with urlopen(f"{found[0]}api/stream?after={version}", timeout=60) as stream:
                stream.readline()  # comes with the next board
            board = read_board(found[0])
        with urlopen(f"{found[0]}api/stream?after={board['version']}", timeout=60) as stream:
            first = read_tick(stream)
            screen.until("2026-03-02 00:2")
            while read_tick(stream) == first:  # what was sent meanwhile is read first
                pass
            screen.process.send_signal(signal.SIGINT)  # while somebody looks
            ended_cleanly(screen)
        with pytest.raises(URLError):
            urlopen(found[0], timeout=60)


def read_board(address: str) -> dict[str, Any]:
    with urlopen(f"{address}api/board", timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def read_tick(stream: HTTPResponse) -> int:
    """What time it is in the demo, by the next event that tells."""
    while (line := stream.readline()) != b"event: tick\n":
        assert line, "the stream has ended"
    return int(json.loads(stream.readline().removeprefix(b"data: "))["at"])


def ended_cleanly(screen: Terminal) -> None:
    """With its report, and the terminal as it was before."""
    assert screen.end() == 0
    assert screen.seen.rindex("Violations") > screen.seen.rindex(GIVEN_BACK) > screen.seen.rindex(WHOLE_SCREEN)
    assert screen.attributes == screen.before
    assert "Traceback" not in screen.seen
