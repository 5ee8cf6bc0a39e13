"""What do people get to read in `kubectl describe`, without flooding the API server or holding up a controller?

An event that was published within its dedupe time is dropped (04 §1). One that comes again later becomes a series: the
count and the time of the event that is already there are patched, as long as the text is the same.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from random import Random
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from dovetail.api import names
from dovetail.ports import (
    EVENTS,
    AlreadyExists,
    ApiError,
    Body,
    Clock,
    Conflict,
    Forbidden,
    Invalid,
    KubeApi,
    NotFound,
)
from dovetail.runtime.lease import micro_time
from dovetail.runtime.pace import Backoff
from dovetail.runtime.tasks import within
from dovetail.values.rate import Rate, TokenBucket

log = logging.getLogger(__name__)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

DEDUPE_SECONDS: Final = 120.0
# Servers keep an event for an hour after its last change; a series must not be patched when it may be gone.
SERIES_SECONDS: Final = 1800.0
NAMESPACE_OF_CLUSTER_SCOPED: Final = "default"
DEFAULT_RATES: Final[Mapping[str, Rate]] = MappingProxyType({names.EventReason.NOMINATED: Rate(per_second=5, burst=10)})

NOTE_BYTES_AT_MOST: Final = 1024
NAME_LENGTH_AT_MOST: Final = 253
INSTANCE_LENGTH_AT_MOST: Final = 128
WAITING_AT_MOST: Final = 10_000  # a drain of a thousand nodes tells every pod
REMEMBERED_AT_MOST: Final = 20_000
SEND_SECONDS: Final = 10.0
ATTEMPTS_AT_MOST: Final = 4
_NAMESPACE_IS_GOING: Final = "because it is being terminated"
RETRIES: Final = Backoff(first_seconds=0.5, cap_seconds=5.0, jitter=0.5)


class Regarding(msgspec.Struct, frozen=True):
    """The object an event is about."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that people should know. Without `dedupe` values it is never dropped as a repetition."""

    regarding: Regarding
    reason: str
    note: str
    type: str = NORMAL
    action: str = ""  # what was done or tried; the reason if there is no better word
    dedupe: tuple[str, ...] = ()
    dedupe_seconds: float = DEDUPE_SECONDS


class Counts(msgspec.Struct):
    """What became of the events, for the metrics. Every published one is counted once, when its fate is known."""

    sent: int = 0
    repeated: int = 0  # within the dedupe time
    limited: int = 0  # by their class's rate
    dropped: int = 0  # because too many were waiting, or it was too late
    ignored: int = 0  # because what they are about is going
    failed: int = 0


class _Series(msgspec.Struct):
    """An event on the server that repetitions are added to."""

    name: str
    count: int
    last_at: float


_Waiting: TypeAlias = tuple[Event, datetime]
_SeriesKey: TypeAlias = tuple[Regarding, str, str, str, str]


class EventRecorder:
    """Takes events from anybody at any time; one task, `run`, sends them."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        *,
        instance: str,
        rates: Mapping[str, Rate] = DEFAULT_RATES,
        waiting_at_most: int = WAITING_AT_MOST,
        seed: int = 0,
    ) -> None:
        assert instance, "an event must say which process reports it"
        self.counts = Counts()
        self._api = api
        self._clock = clock
        self._instance = instance[:INSTANCE_LENGTH_AT_MOST]
        self._buckets = {reason: TokenBucket(rate, at=clock.monotonic()) for reason, rate in rates.items()}
        self._waiting_at_most = waiting_at_most
        self._waiting: deque[_Waiting] = deque()
        self._published: dict[str, float] = {}  # dedupe key to when it may be published again, oldest first
        self._series: dict[_SeriesKey, _Series] = {}  # the one used longest ago first
        self._sequence = 0
        self._chance = Random(seed)
        self._closed = False
        self._changed = asyncio.Event()

    def publish(self, event: Event) -> None:
        """Have it sent, unless it is a repetition, over its rate, or one too many. Never waits and never raises."""
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
        """Take no more; `run` returns when what is waiting has been sent."""
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

    # -- inside ---------------------------------------------------------------------------------------------------

    def _remember(self, key: str, now: float, seconds: float) -> None:
        self._published.pop(key, None)
        self._published[key] = now + seconds
        if len(self._published) > REMEMBERED_AT_MOST:
            self._published = {key: until for key, until in self._published.items() if until > now}
        # Still too many: a repetition of the oldest is the lesser evil.
        while len(self._published) > REMEMBERED_AT_MOST:
            del self._published[next(iter(self._published))]

    async def _send(self, event: Event, at: datetime) -> None:
        self._sequence += 1
        # Made once, so that an attempt after a lost answer asks for the same and not for a second event.
        body = event_body(event, at=at, instance=self._instance, sequence=self._sequence)
        for attempt in range(1, ATTEMPTS_AT_MOST + 1):
            try:
                await within(self._clock, SEND_SECONDS, self._write(event, at, body))
            except (Conflict, NotFound, Forbidden, Invalid) as error:
                if _is_going(error):
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
                self.counts.sent += 1
                return

    def _give_up(self, event: Event, error: Exception) -> None:
        self.counts.failed += 1
        log.warning("event %s on %s %s: %s", event.reason, event.regarding.kind, event.regarding.name, error)

    async def _write(self, event: Event, at: datetime, body: Body) -> None:
        """Add it to its series, or else create it."""
        key = (event.regarding, event.reason, event.type, event.action, event.note)
        now = self._clock.monotonic()
        series = self._series.get(key)
        if series and now - series.last_at < SERIES_SECONDS:
            try:
                await self._add_to(series, event, at)
            except NotFound:
                pass  # the server has dropped it
            else:
                self._keep_series(key, _Series(series.name, series.count + 1, now))
                return
        with suppress(AlreadyExists):
            await self._api.create(EVENTS, body, namespace=body["metadata"]["namespace"])
        self._keep_series(key, _Series(body["metadata"]["name"], 1, now))

    async def _add_to(self, series: _Series, event: Event, at: datetime) -> None:
        patch = {"series": {"count": series.count + 1, "lastObservedTime": micro_time(at)}}
        await self._api.patch(EVENTS, series.name, patch, namespace=namespace_of(event.regarding))

    def _keep_series(self, key: _SeriesKey, series: _Series) -> None:
        self._series.pop(key, None)
        self._series[key] = series
        if len(self._series) > REMEMBERED_AT_MOST:
            del self._series[next(iter(self._series))]


def _is_going(error: ApiError) -> bool:
    """Whether it is refused because what it is about is going, or its namespace, which only the text tells."""
    return isinstance(error, Conflict | NotFound) or _NAMESPACE_IS_GOING in error.message


# -- what is sent -----------------------------------------------------------------------------------------------------


def dedupe_key(event: Event) -> str:
    """Reason and values; the text does not matter. Empty: never dropped."""
    return "-".join((event.reason.lower(), *event.dedupe)) if event.dedupe else ""


def namespace_of(regarding: Regarding) -> str:
    """Where an event lives: what has no namespace has its events in `default`."""
    return regarding.namespace or NAMESPACE_OF_CLUSTER_SCOPED


def event_body(event: Event, *, at: datetime, instance: str, sequence: int) -> dict[str, Any]:
    """The Event object."""
    regarding = event.regarding
    reference = {
        "apiVersion": regarding.api_version,
        "kind": regarding.kind,
        "name": regarding.name,
        "uid": regarding.uid,
        "namespace": regarding.namespace,
    }
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": _event_name(regarding.name, at, sequence), "namespace": namespace_of(regarding)},
        "eventTime": micro_time(at),
        "reportingController": names.COMPONENT,
        "reportingInstance": instance,
        "regarding": {key: value for key, value in reference.items() if value},
        "reason": event.reason,
        "action": event.action or event.reason,
        "type": event.type,
        "note": cut(event.note, NOTE_BYTES_AT_MOST),
    }


def _event_name(name: str, at: datetime, sequence: int) -> str:
    """The object's name and a number nobody else uses: the instant, and a counter within it."""
    suffix = f".{int(at.timestamp() * 1_000_000):x}{sequence % 0x1000:03x}"
    return name[: NAME_LENGTH_AT_MOST - len(suffix)].rstrip(".-") + suffix


def cut(text: str, bytes_at_most: int) -> str:
    """The text, shortened at a whole character if its UTF-8 is too long."""
    encoded = text.encode()
    if len(encoded) <= bytes_at_most:
        return text
    ellipsis = "…"
    return encoded[: bytes_at_most - len(ellipsis.encode())].decode(errors="ignore") + ellipsis
