"""`dovetail top`: what is drawn, what keys do, and that the program leaves the terminal as it found it."""

import json
import re
import shlex
import signal
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random

import msgspec
import pytest
from rich.cells import cell_len

from dovetail.cli.common.keys import keys_in
from dovetail.cli.common.tree import ManifestTree
from dovetail.cli.text.forecast_bars import LEGEND
from dovetail.cli.top.fitting import instant
from dovetail.cli.top.keys import KeyTargets, ViewState, press
from dovetail.cli.top.rows import DAY, Order, causes_at, figures, free_at, matching, ordered
from dovetail.cli.top.screen import DrawnScreen, ScreenContent, draw, printed
from dovetail.model.finding import Finding, Severity
from dovetail.model.refs import Ref
from dovetail.model.snapshot import Snapshot
from dovetail.state.intake import take_in
from dovetail.views.assessment import assess
from dovetail.views.board.details import NodeDetails, make_details
from dovetail.views.board.maker import BoardMaker
from dovetail.views.board.rows import Board, BoardBurst, NodeRow
from dovetail.views.explain.verdicts import explain
from dovetail.views.leading import NO_CONTROLLER
from tests.browser.clusters import NOW, cluster
from tests.harness import builders
from tests.unit.cli.running import Program
from tests.unit.cli.terminals import CURSOR, GIVEN_BACK, HIDDEN, TOP, WHOLE_SCREEN, terminal

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "top.md"
CLUSTER, AT = "examples/cluster.yaml", "2026-03-06T16:20:00Z"
SHOWN = re.compile(r"<!-- shown: dovetail (.*?) -->\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WEEK = timedelta(days=7)
SECONDS = int(NOW.timestamp())  # which is also the instant AT


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")


@cache
def some_board(nodes: int = 60, seed: int = 1) -> tuple[Snapshot, Board]:
    snapshot = cluster(nodes, seed)
    return snapshot, board_of(snapshot)


@cache
def example(hours: int = 0) -> Board:
    """Of the example, so many hours later."""
    snapshot, *_ = take_in(ManifestTree([str(ROOT / CLUSTER)]))
    return board_of(snapshot, NOW + timedelta(hours=hours))


def board_of(snapshot: Snapshot, at: datetime = NOW) -> Board:
    return BoardMaker().make(assess(snapshot, at), at + WEEK)


def details_of(snapshot: Snapshot, key: str) -> NodeDetails:
    member = next(member for member in snapshot.nodes if str(member.object) == key)
    return make_details(member, explain(assess(snapshot, NOW)), commands=["dovetail explain node/x"])


def drawn(view: ViewState, size: tuple[int, int] = (80, 24), board: Board | None = None) -> DrawnScreen:
    return draw(ScreenContent(title="a cluster", now=NOW, board=board or example()), view, *size)


def texts(shown: DrawnScreen) -> list[str]:
    return [line.plain for line in shown.lines]


def names(rows: list[NodeRow]) -> set[str]:
    return {row.name for row in rows}


# -- what is drawn -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (30, 8), (9, 3), (1, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_a_screen_fills_its_size_and_no_more(size: tuple[int, int], seed: int) -> None:
    snapshot, board = some_board(40, seed)
    chance = Random(seed)
    for _ in range(12):
        key = chance.choice(board.rows).key
        view = ViewState(
            ahead=chance.choice([DAY, 7 * DAY]),
            order=chance.choice(list(Order)),
            grouped=chance.random() < 0.5,
            filter=chance.choice(["", "is:blocked", "nobody has this"]),
            typed=chance.choice([None, "x"]),
            selected=key,
            details=chance.random() < 0.5,
            scrolled=chance.randrange(50),
        )
        details = details_of(snapshot, key) if chance.random() < 0.3 else None
        shown = draw(ScreenContent(title="t" * 300, now=NOW, board=board, details=details), view, *size)
        assert len(shown.lines) == size[1]
        assert all(line.cell_len <= size[0] for line in shown.lines)
        assert shown.selected in {*shown.reach.rows, ""}


def test_a_small_screen_has_head_pools_nodes_and_keys() -> None:
    lines = texts(drawn(ViewState()))
    assert lines[0] == "dovetail top  a cluster  Fri 2026-03-06 16:20:00 UTC"
    assert lines[1] == "Dovetail decides"
    assert lines[2] == "12 nodes + 1 of no NodePool: 1 stuck, 4 waiting, 2 leaving, 1 starting, 1 may go"
    assert lines[3] == "free: 3 now, 4 within 24h, 0 never.  Next 24h: 0 end by force, 0 expire"
    assert lines[4] == "1 pod is pending: it has found no node yet"
    assert lines[5].startswith("4 problems, such as Pod/ci/deploy-agent-")
    assert " ".join(lines[6].split()) == "POOL NODES USED Empty Drifted Underutil. Expired NEXT CHANGE"
    assert " ".join(lines[8].split()).startswith("general 5 1 2/3 0/0 0/0 forceful 17:00 Drifted")
    assert " ".join(lines[11].split()) == "NODE ST PODS FREE BLOCKED BY 00:00 12:00"
    assert lines[12] == "batch  3 nodes"
    assert lines[13].startswith("▸ batch-9dwlm    S4    4 leaving  do-not-disrupt ml/n… ▒▒▒▒")
    assert lines[15].startswith("  batch-2fp8k    S1    4 9h40m    window ml/trainer +1 ██████████······█████████")
    assert lines[-1] == "↑↓ move  ⏎ details  / filter  s sort: pressing  g ungroup  1/7 days  q quit"


def test_pools_without_nodes_are_counted() -> None:
    board = example()
    spare = tuple(msgspec.structs.replace(board.pools[0], name=f"spare-{number}", nodes=0) for number in range(4))
    lines = texts(drawn(ViewState(), board=msgspec.structs.replace(board, pools=(*spare, *board.pools))))
    assert "… and 4 pools without nodes" in lines
    assert not any("spare-" in line for line in lines)


def test_a_wide_screen_says_what_comes_next() -> None:
    assert "4 match is:waiting" in texts(drawn(ViewState(filter="is:waiting"), (140, 40)))[2]
    lines = texts(drawn(ViewState(grouped=False, ahead=7 * DAY), (140, 40)))
    heading = next(number for number, line in enumerate(lines) if line.startswith("  NODE"))
    first = lines[heading + 1].rstrip()
    assert first.startswith("▸ batch-9dwlm     batch     S4 draining       4  leaving   do-not-disrupt ml/no")
    assert re.search(r"▒+F +forced 03-09 09:00$", first)
    assert "  ~expires 03-11 13:20" in next(line for line in lines if "general-8vtqz" in line)


def test_time_passes_without_a_new_board() -> None:
    """Until the board itself says that it is over."""
    row = next(row for row in example().rows if row.name == "batch-2fp8k")
    opens = next(span[0] for span in row.spans if span[1] == 0)
    told = {}
    for now in (SECONDS, opens - 60, opens):
        shown = draw(ScreenContent(title="", now=instant(now), board=example()), ViewState(filter=row.name), 80, 24)
        (line,) = [text for text in texts(shown) if text.startswith("▸")]
        told[now] = line.split()[4], line.split()[-1][0]
    assert told == {SECONDS: ("9h40m", "█"), opens - 60: ("1m", "·"), opens: ("now", "·")}


def test_the_selected_row_is_always_in_sight() -> None:
    _, board = some_board()
    for grouped in (True, False):
        for row in board.rows:
            lines = texts(drawn(ViewState(selected=row.key, grouped=grouped), board=board))
            assert sum(line.startswith("▸") for line in lines) == 1
            assert next(line for line in lines if line.startswith("▸"))[2:].startswith(row.name[:10])


def test_details_tell_every_rule_and_can_be_scrolled() -> None:
    snapshot, board = some_board()
    key = next(row.key for row in board.rows if row.stuck is not None and row.causes)
    scene = ScreenContent(title="", now=NOW, board=board, details=details_of(snapshot, key))
    view, lines = ViewState(selected=key, details=True), []
    shown = draw(scene, view, 100, 30)
    assert shown.reach.deepest > 0
    while True:
        shown = draw(scene, view, 100, 30)
        lines += texts(shown)
        following = press(view, "page-down", shown.reach)
        if following == view:
            break
        view = following
    text = "\n".join(lines)
    for told in (
        "Ahead",
        "Rules",
        "Pods",
        "History",
        "Commands",
        "dovetail explain node/x",
        "✓",
        "✗",
        "has been stuck (",
    ):
        assert told in text
    for reason in ("Empty: ", "Drifted: ", "Underutilized: ", "Expired: "):
        assert reason in text
    waiting = draw(msgspec.structs.replace(scene, details=None), ViewState(selected=key, details=True), 100, 30)
    assert "checking every rule …" in texts(waiting)


def hostile_board(name: str) -> tuple[Snapshot, Board]:
    pods = [builders.pod(f"{name}-pod", node=name, do_not_disrupt="true", labels={"app": name})]
    member = builders.member(builders.claim(f"{name}-claim", provider_id=f"kwok://{name}"), builders.node(name), pods)
    snapshot = Snapshot(nodes=(member,), pods=tuple(pods))
    return snapshot, board_of(snapshot)


@pytest.mark.parametrize(
    "name",
    [
        "\x1b[31mred\x1b[0m",
        "bell\x07\r\nline",
        "[bold red]markup[/]",
        "a" * 300,
        "数据库" * 30,
        "\u202eevil\u200b",
        "tab\tbed\x9b31m",
    ],
)
@pytest.mark.parametrize("width", [80, 140])
def test_names_do_no_harm(name: str, width: int) -> None:
    snapshot, board = hostile_board(name)
    key = board.rows[0].key
    for grouped in (True, False):
        view = ViewState(grouped=grouped, details=True, filter=name[:3], typed=name)
        scene = ScreenContent(title=name, now=NOW, board=board, details=details_of(snapshot, key))
        for view_ in (view, msgspec.structs.replace(view, typed=None, filter="")):
            shown = draw(scene, view_, width, 60)
            assert all(line.plain.isprintable() for line in shown.lines)
            assert all(cell_len(line.plain) <= width for line in shown.lines)
    lines = printed(scene, ViewState(), width, {key: scene.details} if scene.details else {})
    assert all(line.plain.isprintable() for line in lines)
    if name.startswith("[bold"):  # it is shown as it is
        assert any("[bold red]markup[/]" in line.plain for line in lines)


def test_without_nodes_it_says_so() -> None:
    shown = drawn(ViewState(details=True), board=board_of(Snapshot()))
    assert "There are no nodes." in texts(shown)
    assert texts(shown)[2] == "0 nodes"
    assert (shown.selected, list(shown.reach.rows)) == ("", [])
    assert "No node matches the filter." in texts(drawn(ViewState(filter="nobody")))
    (said,) = (line for line in texts(drawn(ViewState(filter="is:foo"))) if line.startswith("No node matches"))
    assert said.startswith("No node matches: the filter knows no is:foo, only is:free, is:blocked")
    unmade = draw(ScreenContent(title="x", now=NOW), ViewState(), 80, 24)
    assert texts(unmade)[1] == "looking ahead …"


def test_problems_and_herds_stand_above() -> None:
    board = example()
    herd = BoardBurst(
        SECONDS + 60, SECONDS + 90, "expires", "batch", 3, "3 nodes of batch expire at 2026-03-06T16:21:00Z"
    )
    board = msgspec.structs.replace(board, problems=board.problems * 50, herds=(herd,))
    lines = texts(drawn(ViewState(), board=board))
    assert lines[5] == herd.message
    assert lines[6].startswith("200+ problems, such as Pod/ci/deploy-agent-")


def test_a_controller_that_does_not_run_stands_above_all_and_whole() -> None:
    message = (
        "no controller has held the Lease kube-system/karpenter-leader-election; nothing is decided until one runs"
    )
    stopped = Finding(
        severity=Severity.ERROR, rule=NO_CONTROLLER, object=Ref("Lease"), field="spec", message=message, remedy="run it"
    )
    board = msgspec.structs.replace(example(), problems=(stopped, *example().problems))
    lines = texts(drawn(ViewState(), board=board))
    assert " ".join(line.strip() for line in lines[2:5]) == f"N{message[1:]} → run it"
    assert lines[8].startswith("4 problems, such as Pod/ci/deploy-agent-")
    alone = texts(drawn(ViewState(), board=msgspec.structs.replace(board, problems=(stopped,))))
    assert not any("problem" in line for line in alone)


# -- which rows, in which order ----------------------------------------------------------------------------------------


def test_filters_choose_what_the_figures_count() -> None:
    board, now = example(41), SECONDS + 41 * 60 * 60
    found = figures(board.rows, now)
    for word, number in {
        "is:free": found.free,
        "is:stuck": found.standings["stuck"],
        "is:waiting": found.standings["waiting"],
        "is:never": found.never,
        "is:free-soon": found.become_free,
        "is:expiring": found.expire,
        "is:forced": found.forced,
    }.items():
        assert len(matching(board.rows, word, now)) == number
    assert sum(found.standings.values()) == sum(row.managed for row in board.rows)  # each node counts once
    assert (found.free, found.forced, found.pods_forced) == (5, 1, 1)


def test_a_deadline_forces_only_what_is_still_there() -> None:
    leaving = next(row for row in example().rows if row.state == "S4")
    deadline = (SECONDS + 3600, "deadline", "", True)
    draining, gone = (SECONDS - 60, 2), (SECONDS + 600, 3)
    late = msgspec.structs.replace(leaving, spans=(draining,), events=(deadline,))
    early = msgspec.structs.replace(leaving, spans=(draining, gone), events=(deadline,))
    forced = msgspec.structs.replace(early, events=((SECONDS + 3600, "forced", "", True),))
    assert [figures([row], SECONDS).forced for row in (late, early, forced)] == [1, 0, 1]
    assert [len(matching([row], "is:forced", SECONDS)) for row in (late, early, forced)] == [1, 0, 1]


def test_every_word_of_a_filter_must_hold() -> None:
    _, board = some_board()
    of_pool = matching(board.rows, "pool:general", SECONDS)
    assert {row.pool for row in of_pool} == {"general"}
    blocked = matching(board.rows, "POOL:general is:blocked", SECONDS)
    assert names(blocked) == names(matching(of_pool, "is:blocked", SECONDS)) < names(of_pool)
    by = matching(board.rows, 'by:"pay/ledger" rule:pod-disruption-budget', SECONDS)
    assert by
    assert all(any(cause[2] == "pay/ledger" for cause in row.causes) for row in by)
    assert matching(board.rows, "is:nonsense", SECONDS) == []
    assert matching(board.rows, board.rows[3].name[2:], SECONDS) == [board.rows[3]]


def test_who_blocks_longest_comes_first() -> None:
    row = next(row for row in example().rows if row.name == "batch-2fp8k")
    assert [(rule, str(ref), workload) for rule, ref, workload, _ in causes_at(row, SECONDS)] == [
        ("disruption-schedule", "Pod/ml/trainer-0", "ml/trainer"),
        ("do-not-disrupt", "Pod/ci/e2e-4821-tq2zb", "ci/e2e"),
    ]
    assert causes_at(row, free_at(row, SECONDS) or 0) == []


def test_orders() -> None:
    _, board = some_board()
    by_name = [row.name for row in ordered(board.rows, Order.NAME, SECONDS)]
    assert by_name == sorted(by_name)
    pods = [row.pods for row in ordered(board.rows, Order.PODS, SECONDS)]
    assert pods == sorted(pods, reverse=True)
    expiring = [row.expires for row in ordered(board.rows, Order.EXPIRY, SECONDS) if row.expires and not row.graceful]
    assert expiring == sorted(expiring)
    pressing = ordered(board.rows, Order.PRESSING, SECONDS)
    assert pressing[-1].free == 0
    of_example = [row.name for row in ordered(example().rows, Order.PRESSING, SECONDS)]
    assert of_example[0] == "batch-9dwlm"  # a drain that ends by force
    assert {row.name for row in example().rows if row.stuck is not None} == {of_example[1]}
    assert of_example[2] == "general-8vtqz"  # it expires
    # It becomes free; it is free and stays so; no NodePool owns it.
    assert of_example[-3:] == ["batch-2fp8k", "general-n9s4b", "system-0"]


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("jk", ["j", "k"]),
        ("\x1b[A\x1b[B\x1bOA", ["up", "down", "up"]),
        ("\x1b[5~\x1b[6~\x1b[1;5H\x1b[F", ["page-up", "page-down", "home", "end"]),
        ("\r\n\x7f\x1b", ["enter", "enter", "backspace", "escape"]),
        ("\x1b[200~é\x00\x1b[99~/", ["é", "/"]),
    ],
)
def test_keys_have_names(typed: str, keys: list[str]) -> None:
    assert list(keys_in(typed)) == keys


REACH = KeyTargets(["a", "b", "c", "d", "e"], 3, 10)


def pressed(view: ViewState, *keys: str) -> ViewState:
    for key in keys:
        view = press(view, key, REACH)
    return view


def test_moving_stays_within_the_rows() -> None:
    assert pressed(ViewState(), "j").selected == "b"
    assert pressed(ViewState(), "down", "down", "up").selected == "b"
    assert pressed(ViewState(), "k").selected == "a"
    assert pressed(ViewState(), "end").selected == pressed(ViewState(), "G").selected == "e"
    assert pressed(ViewState(), "end", "j").selected == "e"
    assert pressed(ViewState(), "page-down").selected == "d"
    assert pressed(ViewState(selected="e"), "page-up", "home").selected == "a"
    assert pressed(ViewState(selected="gone"), "j").selected == "b"
    assert press(ViewState(), "j", KeyTargets()) == ViewState()


def test_details_open_scroll_and_close() -> None:
    opened = pressed(ViewState(selected="b"), "enter")
    assert opened.details
    scrolled = pressed(opened, " ", "page-down")
    assert (scrolled.selected, scrolled.scrolled) == ("b", 6)
    assert pressed(scrolled, " ", " ").scrolled == 10
    assert pressed(scrolled, "b").scrolled == 3
    assert pressed(scrolled, "j") == ViewState(selected="c", details=True)
    assert pressed(scrolled, "escape") == pressed(scrolled, "enter") == ViewState(selected="b")
    assert not press(ViewState(), "enter", KeyTargets()).details


def test_a_filter_is_typed_kept_or_dropped() -> None:
    typing = pressed(ViewState(filter="old"), "/", *("backspace",) * 3, *"is:q j")
    assert (typing.filter, typing.filter_now, typing.ended) == ("old", "is:q j", False)
    assert pressed(typing, "up", "enter").filter == "is:q j"
    assert pressed(typing, "escape") == ViewState(filter="old")
    assert pressed(typing, "clear").typed == ""
    assert pressed(ViewState(filter="old"), "escape").filter == ""
    assert len(pressed(ViewState(), "/", *"x" * 500).filter_now) == 200


def test_other_keys() -> None:
    orders = [pressed(ViewState(), *"s" * times).order for times in range(len(Order) + 1)]
    assert orders == [*Order, Order.PRESSING]
    assert not pressed(ViewState(), "g").grouped
    assert (pressed(ViewState(), "7").ahead, pressed(ViewState(ahead=5), "1").ahead) == (7 * DAY, DAY)
    assert pressed(ViewState(), "q").ended
    assert pressed(ViewState(), "x", "é") == ViewState()


# -- printed once ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "shown"), SHOWN.findall(PAGE.read_text()))
def test_the_page_shows_what_is_printed(
    dovetail: Program, arguments: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOVETAIL_DECIDER")
    assert dovetail(*shlex.split(arguments)).out == shown


def test_the_page_shows_something() -> None:
    assert len(SHOWN.findall(PAGE.read_text())) == 1


def test_an_old_dump_is_said_to_be_old(dovetail: Program) -> None:
    assert (
        "nothing in the dump is younger than 2026-03-06T16:18:52Z" not in dovetail("top", "-f", CLUSTER, "--at", AT).out
    )
    late = dovetail("top", "-f", CLUSTER, "--at", "2026-11-18T00:00:00Z", "-o", "json").out
    assert "nothing in the dump is younger than 2026-03-06T16:18:52Z" in late


def test_in_a_pipe_it_is_printed_once(dovetail: Program) -> None:
    lines = dovetail("top", "-f", CLUSTER, "--at", AT).out.splitlines()
    assert lines[0].startswith("dovetail top  examples/cluster.yaml")
    assert lines[-1] == LEGEND
    assert max(map(len, lines)) <= 100
    assert sum("services-" in line for line in lines) == 4
    assert dovetail("top", "-f", CLUSTER, "--at", AT, "--once").out.splitlines() == lines


def test_a_file_gets_whole_names(dovetail: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of one pool often differ at their ends only."""
    long = "ip-10-123-145-1.eu-central-1.compute.internal"
    file = dovetail.file((ROOT / CLUSTER).read_text().replace("general-8vtqz", long))
    monkeypatch.delenv("COLUMNS")
    for command in (("top",), ("forecast", "-v")):
        whole = dovetail(*command, "-f", file, "--at", AT).out
        assert any(line.split()[0] == long for line in whole.splitlines() if line.strip())
        assert "…" not in whole
    monkeypatch.setenv("COLUMNS", "80")
    assert "  ip-10-123-145-1 " in dovetail("top", "-f", file, "--at", AT).out
    assert "\nip-10-123-145-1 " in dovetail("forecast", "-f", file, "--at", AT).out


def test_details_filters_zones_and_data(dovetail: Program) -> None:
    verbose = dovetail("top", "-f", CLUSTER, "--at", AT, "-v", "--filter", "general-pd7cj", "--tz", "Europe/Berlin").out
    assert "1 match general-pd7cj" in verbose
    assert "Fri 2026-03-06 17:20:00 CET" in verbose
    assert verbose.count("Commands") == 1
    assert f"dovetail explain -f {CLUSTER} --at {AT} --decider dovetail node/general-pd7cj" in verbose
    of_ml = dovetail("top", "-f", CLUSTER, "--at", AT, "-n", "ml").out
    assert ("batch-9dwlm" in of_ml, "general-4xk9d" in of_ml) == (True, False)
    data = json.loads(dovetail("top", "-f", CLUSTER, "--at", AT, "-o", "json").out)
    assert data == json.loads(dovetail("forecast", "-f", CLUSTER, "--at", AT, "-o", "json").out)


def test_wrong_usage_is_one_line(dovetail: Program) -> None:
    for arguments, says in {
        ("-f", "nowhere.yaml"): "nowhere.yaml",
        ("-f", CLUSTER, "--for", "8d"): "at most 7d ahead",
        ("--once",): "give -f FILE",
    }.items():
        outcome = dovetail("top", *arguments)
        assert (outcome.code, outcome.out) == (2, "")
        assert says in outcome.err
        assert len(outcome.err.splitlines()) == 1


# -- the real program on a real terminal -------------------------------------------------------------------------------


def test_the_program_draws_obeys_keys_and_gives_the_terminal_back() -> None:
    with terminal(*TOP, "-f", CLUSTER, "--at", AT) as screen:
        screen.until("q quit")
        assert WHOLE_SCREEN in screen.seen
        assert screen.attributes != screen.before
        screen.until("batch-9dwlm")
        screen.type("j")
        screen.type("\r")
        screen.until("Rules")
        screen.until("PgUp/PgDn scroll")
        screen.type("\x1b/is:stuck\r")
        screen.until("1 match is:stuck")
        screen.resize(40, 140)
        screen.until("NEXT\x1b")
        screen.type("q")
        assert screen.end() == 0
        assert screen.seen.rindex(GIVEN_BACK) > screen.seen.rindex(WHOLE_SCREEN)
        assert screen.seen.rindex(CURSOR) > screen.seen.rindex(HIDDEN)
        assert screen.attributes == screen.before
        assert "Traceback" not in screen.seen


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it_cleanly(number: int, code: int) -> None:
    with terminal(*TOP, "-f", CLUSTER) as screen:
        screen.until("batch-9dwlm")
        screen.process.send_signal(number)
        assert screen.end() == code
        assert screen.seen.rindex(GIVEN_BACK) > screen.seen.rindex(WHOLE_SCREEN)
        assert screen.attributes == screen.before
        assert "Traceback" not in screen.seen


# Shows a cluster of one node; another one comes with the one signal, and what no board can be made of with the other.
PUSHED = """
import asyncio, signal
from datetime import UTC
from dovetail.cli.top.keys import ViewState
from dovetail.cli.top.live import LiveScreen
from tests.harness.snapshots import take_snapshot
from dovetail.runtime.compute import ThreadCompute
from dovetail.web.sources import PushedSource
from dovetail.web.stream import Stream
from tests.harness import builders
from tests.browser.clusters import NOW

async def main():
    source = PushedSource(title="pushed")
    nodes = [builders.node("first-node")]
    source.push(NOW, take_snapshot(nodes=nodes))
    another = take_snapshot(nodes=[*nodes, builders.node("second-node")])
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, lambda: source.push(NOW, another))
    loop.add_signal_handler(signal.SIGUSR2, lambda: source.push(NOW, None))
    await LiveScreen(Stream(source, ThreadCompute()), ViewState(details=True), zone=UTC).run()

asyncio.run(main())
"""


def test_it_is_drawn_anew_when_the_cluster_changes_and_errors_give_the_terminal_back() -> None:
    with terminal("-c", PUSHED) as screen:
        screen.until("first-node")
        screen.until("Rules")
        assert "second-node" not in screen.seen
        screen.process.send_signal(signal.SIGUSR1)
        screen.until("second-node")
        assert screen.attributes != screen.before
        screen.process.send_signal(signal.SIGUSR2)
        assert screen.end() == 1
        assert screen.seen.index("Traceback") > screen.seen.rindex(GIVEN_BACK) > screen.seen.rindex(WHOLE_SCREEN)
        assert screen.attributes == screen.before
