"""Keeps the board up to date, and sends pages what has changed.

The board is rebuilt when the source has changed or time alone changes it, and only while somebody reads it. Pages get
the rows that differ. A page that was away for long, or was served by another process, must read the whole board again.
"""

import asyncio
import gzip
import hashlib
import secrets
import shlex
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import msgspec

from dovetail.model.snapshot import ClusterNode, Snapshot
from dovetail.ports import Compute
from dovetail.runtime.tasks import happens_within
from dovetail.views.assessment import Assessment, assess
from dovetail.views.board.details import NodeDetails, make_details
from dovetail.views.board.maker import BoardMaker
from dovetail.views.board.rows import Board, NodeRow, next_change, redacted
from dovetail.views.explain.data import View
from dovetail.views.explain.verdicts import explain
from dovetail.web.sources import BoardSource, ClusterAt

AHEAD: Final = timedelta(days=7)
DELTAS_KEPT: Final = 256
FEEDS_KEPT: Final = 32
TICK_SECONDS: Final = 10.0
# A page must ask for access again after this, so that a reader who has lost a right stops reading.
STREAM_SECONDS: Final = 300.0
# The board is not rebuilt more often than this, nor for more than a fifth of the time.
GAP_SECONDS: Final = 0.25
GAP_FACTOR: Final = 4.0

NOTHING: Final = Board(at=0, end=0, assumption="", rows=(), pools=(), herds=(), problems=())


class Visibility(msgspec.Struct, frozen=True):
    """The namespaces of which a reader may see the names of pods; None: all."""

    namespaces: frozenset[str] | None = None

    def may_see(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces


EVERYTHING: Final = Visibility()


class BoardDelta(View, frozen=True, kw_only=True, omit_defaults=True):
    """The changes; absent parts have not changed."""

    version: str
    at: int
    end: int
    pace: float
    rows: Sequence[msgspec.Raw] = ()
    gone: Sequence[str] = ()
    pools: Sequence[msgspec.Raw] | None = None
    rest: msgspec.Raw | None = None


class Feed:
    """The board for readers with the same rights, and its last changes."""

    def __init__(self, sight: Visibility, boot: str) -> None:
        self.sight = sight
        self._boot = boot
        self._number = 0
        self._board: Board | None = None
        self._rows: dict[str, tuple[NodeRow, bytes]] = {}
        self._pools: list[bytes] = []
        self._rest = b""
        self._deltas: deque[tuple[int, bytes]] = deque(maxlen=DELTAS_KEPT)
        self._news = asyncio.Event()
        self._body: tuple[bytes, bytes, str] | None = None

    @property
    def version(self) -> str:
        return f"{self._boot}-{self._number}"

    def take(self, board: Board, pace: float) -> None:
        """Replace the board."""
        if self.sight.namespaces is not None:
            board = redacted(board, self.sight.may_see)
        encode = partial(msgspec.json.encode, enc_hook=str)
        rows: dict[str, tuple[NodeRow, bytes]] = {}
        changed = []
        for row in board.rows:
            entry = self._rows.get(row.key)
            # Comparing is many times faster than encoding.
            if entry is None or (entry[0] is not row and entry[0] != row):
                entry = row, encode(row)
                changed.append(msgspec.Raw(entry[1]))
            rows[row.key] = entry
        pools = [encode(pool) for pool in board.pools]
        parts = {"herds": board.herds, "problems": board.problems, "decisions": board.decisions}
        rest = encode(parts | {"savings": board.savings})
        gone = [key for key in self._rows if key not in rows]
        first = self._board is None
        new_pools, new_rest = pools != self._pools, rest != self._rest
        self._board, self._rows, self._pools, self._rest, self._body = board, rows, pools, rest, None
        if first or not (changed or gone or new_pools or new_rest):
            return
        self._number += 1
        delta = BoardDelta(
            version=self.version,
            at=board.at,
            end=board.end,
            pace=pace,
            rows=changed,
            gone=gone,
            pools=[msgspec.Raw(pool) for pool in pools] if new_pools else None,
            rest=msgspec.Raw(rest) if new_rest else None,
        )
        self._deltas.append((self._number, encode(delta)))
        self._news.set()
        self._news = asyncio.Event()

    def whole(self, title: str, pace: float, at: int) -> tuple[bytes, bytes, str]:
        """The whole board as JSON, the same compressed, and its tag: the answer of `/api/board`."""
        assert self._board is not None
        if self._body is None:
            board = self._board
            body = msgspec.json.encode(
                {
                    "version": self.version,
                    "title": title,
                    "decides": board.decider.sentence,
                    "pace": pace,
                    "at": at,
                    "end": board.end,
                    "assumption": board.assumption,
                    "restricted": board.restricted,
                    "rows": [msgspec.Raw(text) for _, text in self._rows.values()],
                    "pools": [msgspec.Raw(pool) for pool in self._pools],
                    "rest": msgspec.Raw(self._rest),
                }
            )
            tag = hashlib.sha256(body).hexdigest()[:20]
            self._body = body, gzip.compress(body, compresslevel=4, mtime=0), f'"{tag}"'
        return self._body

    def since(self, version: str) -> list[tuple[str, bytes]] | None:
        """The changes after this version, each with its version; None: they are no longer kept."""
        boot, _, number = version.rpartition("-")
        if boot != self._boot or not number.isdecimal() or int(number) > self._number:
            return None
        missing = self._number - int(number)
        if missing > len(self._deltas):
            return None
        return [(f"{boot}-{n}", body) for n, body in list(self._deltas)[len(self._deltas) - missing :]]

    async def wait(self, version: str, seconds: float) -> None:
        """Wait for a change after this version, but no longer than these seconds."""
        if version == self.version:
            await happens_within(seconds, self._news)


class Stream:
    """The board and its readers. `run` it in a TaskGroup."""

    def __init__(self, source: BoardSource, compute: Compute) -> None:
        self.source = source
        self._compute = compute
        self._boot = secrets.token_hex(4)
        self._feeds: OrderedDict[Visibility, Feed] = OrderedDict()
        self._lock = asyncio.Lock()
        self._readers = 0
        self._read = asyncio.Event()  # set while somebody reads
        self._seen: ClusterAt | None = None
        self.assessment = source.assessed or assess(Snapshot(), datetime.min.replace(tzinfo=UTC))
        self._boards = BoardMaker()
        self.board: Board = NOTHING
        self._until: datetime | None = None

    async def run(self) -> None:
        """Keep the board up to date while somebody reads it."""
        loop = asyncio.get_running_loop()
        while True:
            await self._read.wait()
            began = loop.time()
            await self.refresh()
            await asyncio.sleep(max(GAP_SECONDS, GAP_FACTOR * (loop.time() - began)))
            if self._seen is not None and self._read.is_set():
                await self.source.changed(self._seen, self._until)

    async def refresh(self) -> None:
        """Rebuild the board, unless it is still valid."""
        async with self._lock:
            now = self.source.look()
            over = self._until is not None and now.at >= self._until
            if self._seen is not None and now.version == self._seen.version and not over:
                return
            self.show(now, *await self._compute.run(self._made, now))

    def show(self, seen: ClusterAt, assessment: Assessment, board: Board) -> None:
        """Replace the board, and what it was made of."""
        following = next_change(board)
        self._seen, self.assessment, self.board = seen, assessment, board
        self._until = _whole_hour(seen.at) + timedelta(hours=1)
        if following is not None:
            self._until = min(self._until, datetime.fromtimestamp(following, UTC))
        for feed in self._feeds.values():
            feed.take(board, self.source.pace)

    def _made(self, seen: ClusterAt) -> tuple[Assessment, Board]:
        assessment = assess(seen.take(), seen.at, before=self.assessment, replacements=seen.replacements)
        # The end moves by whole hours, so that rows do not change because of it.
        end = _whole_hour(seen.at) + AHEAD + timedelta(hours=1)
        board = self._boards.make(
            assessment,
            end,
            problems=seen.problems,
            decisions=seen.decisions,
            savings=seen.savings,
        )
        return assessment, board

    # -- what readers get ----------------------------------------------------------------------------------------------

    async def feed(self, sight: Visibility) -> Feed:
        """The board for these rights, up to date."""
        await self.refresh()
        feed = self._feeds.get(sight)
        if feed is None:
            feed = self._feeds[sight] = Feed(sight, self._boot if sight == EVERYTHING else secrets.token_hex(4))
            feed.take(self.board, self.source.pace)
        self._feeds.move_to_end(sight)
        if len(self._feeds) > FEEDS_KEPT:
            self._feeds.popitem(last=False)
        return feed

    async def whole(self, sight: Visibility) -> tuple[bytes, bytes, str]:
        feed = await self.feed(sight)
        return feed.whole(self.source.title, self.source.pace, self.board.at)

    async def events(self, after: str, sight: Visibility) -> AsyncGenerator[bytes, None]:
        """Server-sent events after this version, for a while."""
        ends_at = asyncio.get_running_loop().time() + STREAM_SECONDS
        self._readers += 1
        self._read.set()
        try:
            feed = await self.feed(sight)
            while asyncio.get_running_loop().time() < ends_at:
                changes = feed.since(after)
                if changes is None or self._feeds.get(sight) is not feed:  # it gets no more changes
                    yield b"event: reset\ndata: {}\n\n"
                    return
                for version, body in changes:
                    after = version
                    yield b"event: delta\nid: " + version.encode() + b"\ndata: " + body + b"\n\n"
                yield self._tick()
                await feed.wait(after, TICK_SECONDS)
        finally:
            self._readers -= 1
            if not self._readers:
                self._read.clear()

    def _tick(self) -> bytes:
        """The time of the source: clocks differ."""
        at = round(self.source.look().at.timestamp())
        return b"event: tick\ndata: " + msgspec.json.encode({"at": at, "pace": self.source.pace}) + b"\n\n"

    async def namespaces(self) -> frozenset[str]:
        """The namespaces that have pods."""
        await self.refresh()
        return frozenset(pod.namespace for pod in self.assessment.snapshot.pods)

    async def details(self, key: str, sight: Visibility) -> NodeDetails:
        """Everything about one node. Raises LookupError."""
        await self.refresh()
        seen, assessment = self._seen, self.assessment
        assert seen is not None
        member = next((member for member in assessment.snapshot.nodes if str(member.object) == key), None)
        if member is None:
            raise LookupError(key)
        return make_details(
            member,
            explain(assessment, problems=seen.problems, only={member.name}),
            decisions=seen.decisions,
            left_alone=seen.left_alone.get(member.name),
            commands=_commands_about(member, self.source.asking),
            may_see=None if sight.namespaces is None else sight.may_see,
        )


def _whole_hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _commands_about(member: ClusterNode, asking: str) -> list[str]:
    """Commands to learn more about a node. Names are quoted: those in files can be anything."""
    explain = " ".join(filter(None, ("dovetail explain", asking)))
    commands = [f"{explain} {shlex.quote(f'{member.object.kind.lower()}/{member.object.name}')}"]
    if member.node is not None:
        name = member.node.name
        commands.append(f"kubectl describe node {shlex.quote(name)}")
        commands.append(f"kubectl get pods -A -o wide --field-selector {shlex.quote(f'spec.nodeName={name}')}")
    if member.claim is not None:
        commands.append(f"kubectl get nodeclaim {shlex.quote(member.claim.name)} -o yaml")
    if member.pool:
        commands.append(f"kubectl get nodepool {shlex.quote(member.pool)} -o yaml")
    return commands
