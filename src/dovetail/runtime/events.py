"""Publishes Kubernetes events without flooding the API server and without making a controller wait.

An event that repeats within its dedupe time is dropped (04 §1). One that repeats later becomes a series: the recorder
patches the count and the time of the existing event, as long as the text is the same. The name of an event is derived
from its content, so that a new leader finds the events of its predecessor.
"""

import asyncio
import hashlib
import logging
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from random import Random
from typing import Any, Final, TypeAlias

import msgspec

from dovetail.api import names
from dovetail.ports import (
    EVENTS,
    AlreadyExists,
    ApiError,
    Clock,
    Conflict,
    Create,
    Forbidden,
    Invalid,
    KubeApi,
    NotFound,
    Patch,
    WriteBody,
)
from dovetail.runtime.lease import micro_time
from dovetail.runtime.pace import Backoff
from dovetail.runtime.tasks import within
from dovetail.values.foreign_text import plain
from dovetail.values.rate import Rate, TokenBucket
from dovetail.values.timestamp import TimeError, parse_time

log = logging.getLogger(__name__)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

DEDUPE_SECONDS: Final = 120.0
NAMESPACE_OF_CLUSTER_SCOPED: Final = "default"
RATES: Final[dict[str, Rate]] = {names.EventReason.NOMINATED: Rate(per_second=5, burst=10)}

NOTE_BYTES_AT_MOST: Final = 1024
NAME_LENGTH_AT_MOST: Final = 253
DIGEST_LENGTH: Final = 16
INSTANCE_LENGTH_AT_MOST: Final = 128
WAITING_AT_MOST: Final = 10_000  # a drain of a thousand nodes publishes an event for every pod
REMEMBERED_AT_MOST: Final = 20_000
SEND_SECONDS: Final = 10.0
ATTEMPTS_AT_MOST: Final = 4
_NAMESPACE_IS_GOING: Final = "because it is being terminated"
RETRIES: Final = Backoff(first_seconds=0.5, cap_seconds=5.0, jitter=0.5)


class ObjectReference(msgspec.Struct, frozen=True, rename="camel"):
    """The object that an event is about."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event to publish. Without `dedupe` values it is never dropped as a repetition."""

    regarding: ObjectReference
    reason: str
    note: str
    type: str = NORMAL
    action: str = ""  # the reason if empty
    dedupe: tuple[str, ...] = ()
    dedupe_seconds: float = DEDUPE_SECONDS


class EventCounts(msgspec.Struct):
    """The number of events by outcome, for the metrics. Each published event counts once."""

    sent: int = 0
    repeated: int = 0  # within the dedupe time, by this process or by the leader before
    limited: int = 0  # by the rate of their reason
    dropped: int = 0  # because the queue was full or closed
    ignored: int = 0  # because their object or its namespace is being deleted
    failed: int = 0


class _Series(msgspec.Struct):
    """An event on the server, to which repetitions are added."""

    count: int
    last_at: datetime


_QueuedEvent: TypeAlias = tuple[Event, datetime]


class EventRecorder:
    """Queues events; the task `run` sends them."""

    def __init__(
        self, api: KubeApi, clock: Clock, *, instance: str, waiting_at_most: int = WAITING_AT_MOST, seed: int = 0
    ) -> None:
        assert instance, "an event needs a reporting instance"
        self.counts = EventCounts()
        self._api = api
        self._clock = clock
        self._instance = instance[:INSTANCE_LENGTH_AT_MOST]
        self._buckets = {reason: TokenBucket(rate, at=clock.monotonic()) for reason, rate in RATES.items()}
        self._waiting_at_most = waiting_at_most
        self._waiting: deque[_QueuedEvent] = deque()
        self._published: dict[str, float] = {}  # by dedupe key: when it may be published again; oldest first
        self._series: dict[str, _Series] = {}  # by namespace and name; least recently used first
        self._chance = Random(seed)
        self._closed = False
        self._changed = asyncio.Event()

    def publish(self, event: Event) -> None:
        """Queue the event unless it is a repetition, exceeds its rate, or the queue is full. Does not wait or raise."""
        now = self._clock.monotonic()
        key = dedupe_key(event)
        if key and now < self._published.get(key, now):
            self.counts.repeated += 1
            return
        bucket = self._buckets.get(event.reason)
        if bucket and not bucket.take(now):
            self.counts.limited += 1
            return
        if self._closed or len(self._waiting) >= self._waiting_at_most:
            self.counts.dropped += 1
            return
        if key:
            self._remember(key, now, event.dedupe_seconds)
        self._waiting.append((event, self._clock.now()))
        self._changed.set()

    def close(self) -> None:
        """Accept no more events. `run` returns when it has sent the queued ones."""
        self._closed = True
        self._changed.set()

    async def run(self) -> None:
        while True:
            while self._waiting:
                event, at = self._waiting.popleft()
                await self._send(event, at)
            if self._closed:
                return
            self._changed.clear()
            await self._changed.wait()

    def _remember(self, key: str, now: float, seconds: float) -> None:
        self._published.pop(key, None)
        self._published[key] = now + seconds
        if len(self._published) > REMEMBERED_AT_MOST:
            self._published = {key: until for key, until in self._published.items() if until > now}
        # Still too many: the oldest may be repeated.
        while len(self._published) > REMEMBERED_AT_MOST:
            del self._published[next(iter(self._published))]

    async def _send(self, event: Event, at: datetime) -> None:
        for attempt in range(1, ATTEMPTS_AT_MOST + 1):
            try:
                news = await within(self._clock, SEND_SECONDS, self._write(event, at))
            except (Conflict, NotFound, Forbidden, Invalid) as error:
                if isinstance(error, Conflict | NotFound) or namespace_is_going(error):  # the object is going
                    self.counts.ignored += 1
                else:
                    self._give_up(event, error)
                return
            except (ApiError, TimeoutError) as error:
                if attempt == ATTEMPTS_AT_MOST:
                    self._give_up(event, error)
                    return
                await self._clock.sleep(RETRIES.seconds(attempt, self._chance))
            else:
                self.counts.sent += news
                self.counts.repeated += not news
                return

    def _give_up(self, event: Event, error: Exception) -> None:
        self.counts.failed += 1
        about = f"{event.regarding.kind}/{event.regarding.name}"
        log.warning("failed to send event", extra={"reason": event.reason, "regarding": about, "error": str(error)})

    async def _write(self, event: Event, at: datetime) -> bool:
        """Create the event or add it to its series. False: another process has sent it within its dedupe time."""
        body = event_body(event, at=at, instance=self._instance)
        key = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
        series = self._series.get(key)
        if series is not None:
            with suppress(NotFound):  # the server has dropped it
                await self._add_to(key, body, series, at)
                return True
        try:
            await self._api.write(Create(EVENTS, body, namespace=body["metadata"]["namespace"]))
        except AlreadyExists:
            return await self._join(key, event, body, at)
        self._keep(key, _Series(1, at))
        return True

    async def _join(self, key: str, event: Event, body: WriteBody, at: datetime) -> bool:
        """The event exists: this process has sent it and lost the answer, or the leader before has sent it."""
        # An empty patch returns the event, and needs no right beyond those for sending events.
        meta = body["metadata"]
        there = await self._api.write(Patch(EVENTS, meta["name"], {}, namespace=meta["namespace"]))
        series = _series_of(there)
        ours = series.last_at == at
        if ours or (event.dedupe and (at - series.last_at).total_seconds() < event.dedupe_seconds):
            self._keep(key, series)
            return ours
        await self._add_to(key, body, series, at)
        return True

    async def _add_to(self, key: str, body: WriteBody, series: _Series, at: datetime) -> None:
        patch = {"series": {"count": series.count + 1, "lastObservedTime": micro_time(at)}}
        await self._api.write(Patch(EVENTS, body["metadata"]["name"], patch, namespace=body["metadata"]["namespace"]))
        self._keep(key, _Series(series.count + 1, at))

    def _keep(self, key: str, series: _Series) -> None:
        self._series.pop(key, None)
        self._series[key] = series
        if len(self._series) > REMEMBERED_AT_MOST:
            del self._series[next(iter(self._series))]


def _series_of(event: WriteBody) -> _Series:
    """The count and the last time of an event on the server; long ago if it has no time."""
    series = event.get("series") or {}
    text = series.get("lastObservedTime") or event.get("eventTime") or ""
    try:
        last_at = parse_time(text)
    except TimeError:
        last_at = datetime.min.replace(tzinfo=UTC)
    return _Series(series.get("count", 1), last_at)


def namespace_is_going(error: ApiError) -> bool:
    """Whether a create failed because the namespace is being deleted; only the message says so."""
    return isinstance(error, Forbidden) and _NAMESPACE_IS_GOING in error.message


def dedupe_key(event: Event) -> str:
    """The reason and the dedupe values, without the text. Empty: never dropped."""
    return "-".join((event.reason.lower(), *event.dedupe)) if event.dedupe else ""


def namespace_of(regarding: ObjectReference) -> str:
    """The namespace of an event: that of its object, or `default`."""
    return regarding.namespace or NAMESPACE_OF_CLUSTER_SCOPED


def event_body(event: Event, *, at: datetime, instance: str) -> dict[str, Any]:
    reference: dict[str, str] = msgspec.to_builtins(event.regarding)
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": _event_name(event), "namespace": namespace_of(event.regarding)},
        "eventTime": micro_time(at),
        "reportingController": names.COMPONENT,
        "reportingInstance": instance,
        "regarding": {key: value for key, value in reference.items() if value},
        "reason": event.reason,
        "action": event.action or event.reason,
        "type": event.type,
        "note": cut(plain(event.note), NOTE_BYTES_AT_MOST),
    }


def _event_name(event: Event) -> str:
    """The name of the object and a digest of the event's content."""
    about = event.regarding
    parts = (about.api_version, about.kind, about.name, about.uid, event.reason, event.action, event.type, event.note)
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    suffix = f".{digest[:DIGEST_LENGTH]}"
    return about.name[: NAME_LENGTH_AT_MOST - len(suffix)].rstrip(".-") + suffix


def cut(text: str, bytes_at_most: int) -> str:
    """The text, cut at a whole character if its UTF-8 is too long."""
    encoded = text.encode()
    if len(encoded) <= bytes_at_most:
        return text
    ellipsis = "…"
    return encoded[: bytes_at_most - len(ellipsis.encode())].decode(errors="ignore") + ellipsis
