"""Checks that no pod is evicted or deleted while it is protected (R2–R17), with an implementation of its own."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from dovetail.api import names
from dovetail.ports import EventType
from dovetail.sim.actors.wire import Raw, annotations_of, created_at, deleting, finished, node_of
from dovetail.sim.checkers.checked_cluster import CheckedCluster, begins_to_go
from dovetail.sim.server.store import Change
from dovetail.state.store import Key
from dovetail.values.duration import DAY, HOUR, MINUTE, SECOND, DurationError, add, parse_duration, parse_simple
from dovetail.values.schedule.cron import CronError, parse_cron
from dovetail.values.schedule.window import Window
from dovetail.values.timestamp import TimeError, parse_time, spoken_time

RULE: Final = "protected-pods"
_MAX_EXPRESSIONS: Final = 64
_MAX_TEXT: Final = 4096
_SECOND: Final = timedelta(seconds=1)


class ProtectionChecker:
    """Evictions respect annotations until the node's deadline; only that deadline allows deletions."""

    def __init__(self, scene: CheckedCluster) -> None:
        self._scene = scene
        self._annotated: dict[Key, tuple[datetime, Mapping[str, str]]] = {}  # last change, annotations before it

    def pod_changed(self, change: Change) -> None:
        old, new = change.old, change.new.body
        if old is None:
            return
        key = (new["metadata"]["namespace"], new["metadata"]["name"])
        if change.type is EventType.DELETED:
            self._annotated.pop(key, None)
        elif annotations_of(old.body) != annotations_of(new):
            self._annotated[key] = (self._scene.now(), annotations_of(old.body))
        if not self._scene.by_us or finished(old.body):  # R4
            return
        if begins_to_go(change):
            self._scene.applied[RULE] += 1
            self._taken_off(old.body, new)
        elif deleting(old.body) and deleting(new) and _ends_at(new) < _ends_at(old.body):
            self._scene.applied[RULE] += 1
            self._shortened(old.body)

    def _taken_off(self, pod: Raw, after: Raw) -> None:
        assert self._scene.asked is not None
        now, deadline = self._scene.now(), self._deadline(pod)
        forced_at = None if deadline is None else add(deadline, -_grace_seconds(pod) * SECOND) or deadline
        if self._scene.asked.request.verb == "delete":
            if forced_at is None:
                self._scene.report(RULE, pod, "was deleted, and not evicted, though its node has no deadline")
            elif now < forced_at:
                message = f"was deleted before {spoken_time(forced_at)}, its node's deadline less its grace"
                self._scene.report(RULE, pod, message)
            else:
                self._grace(pod, after, deadline)
        elif forced_at is None or now < forced_at:
            why = self._protected(pod)
            if why:
                self._scene.report(RULE, pod, f"was evicted though it is protected: {why}")

    def _grace(self, pod: Raw, after: Raw, deadline: datetime | None) -> None:
        """R17: the pod's own grace, limited to the seconds until the deadline, and at least one."""
        assert self._scene.asked is not None
        assert deadline is not None
        least, most = (
            max(1, min((deadline - at) // _SECOND, _grace_seconds(pod)))
            for at in (self._scene.now(), self._scene.asked.at)
        )
        given = after["metadata"].get("deletionGracePeriodSeconds", 0)
        bound = pod["spec"].get("nodeName") and not finished(pod)
        if bound and not least <= given <= most:
            self._scene.report(RULE, pod, f"was deleted with a grace of {given} s where {least} s are due")

    def _shortened(self, pod: Raw) -> None:
        deadline = self._deadline(pod)
        if deadline is None or _ends_at(pod) <= deadline:
            message = "was terminating, and its grace was cut though it would have ended in time"
            self._scene.report(RULE, pod, message)

    def _deadline(self, pod: Raw) -> datetime | None:
        """The deadline of the drain of its node (R15, R41); a recorded one that is invalid does not count."""
        node = self._scene.node(node_of(pod))
        claim = None if node is None else self._scene.member_of_node(node).claim
        if claim is None or not deleting(claim):
            return None
        recorded = annotations_of(claim).get(names.TERMINATION_TIMESTAMP)
        period = claim["spec"].get("terminationGracePeriod")
        if recorded is not None:
            with suppress(TimeError):
                return parse_time(recorded)
        try:
            return None if period is None else add(_deleted_at(claim), parse_simple(period))
        except DurationError:
            return None

    def _protected(self, pod: Raw) -> str:
        """Why it is protected, with all annotations that the program could know, at sending and at arrival."""
        assert self._scene.asked is not None
        meta, sent_at, now = pod["metadata"], self._scene.decided_at, self._scene.now()
        changed_at, before = self._annotated.get((meta.get("namespace", ""), meta["name"]), (None, {}))
        annotations = [annotations_of(pod), *([before] if changed_at is not None and changed_at >= sent_at else [])]
        reasons = [protection(kept, created_at(pod), at) for kept in annotations for at in (sent_at, now)]
        return reasons[1] if all(reasons) else ""


def _grace_seconds(pod: Raw) -> int:
    return max(0, int(pod["spec"].get("terminationGracePeriodSeconds", 30)))


def _deleted_at(body: Raw) -> datetime:
    return parse_time(body["metadata"]["deletionTimestamp"])


_ends_at = _deleted_at  # the deletionTimestamp of a pod is the end of its grace period


# -- annotations -------------------------------------------------------------------------------------------------------


def protection(annotations: Mapping[str, str], created: datetime, at: datetime) -> str:
    """Why a pod with these annotations is protected at the instant; empty if it is not (R2–R12)."""
    value = annotations.get(names.DO_NOT_DISRUPT)
    if value is not None and value != "false":
        until = _protected_until(value, created)
        if until is None:
            return f"{names.DO_NOT_DISRUPT} is {value!r}"
        if at < until:
            return f"{names.DO_NOT_DISRUPT} holds until {spoken_time(until)}"
    allowed = _window(annotations, names.DISRUPTION_SCHEDULE, names.DISRUPTION_SCHEDULE_DURATION, blocks=False)
    if allowed is not None and not allowed.instants.contains(at):
        return f"it is outside the window of {names.DISRUPTION_SCHEDULE}"
    blocked = _window(annotations, names.DISRUPTION_BLOCK_SCHEDULE, names.DISRUPTION_BLOCK_DURATION, blocks=True)
    if blocked is not None and blocked.instants.contains(at):
        return f"it is inside the window of {names.DISRUPTION_BLOCK_SCHEDULE}"
    return ""


def _protected_until(value: str, created: datetime) -> datetime | None:
    """None: indefinitely, as for an invalid value."""
    try:
        span_ns = parse_duration(value)
    except DurationError:
        return None
    return add(created, span_ns) if span_ns > 0 else None


def _window(annotations: Mapping[str, str], schedule: str, duration: str, *, blocks: bool) -> Window | None:
    text = annotations.get(schedule)
    return None if text is None else _read_window(text, annotations.get(duration), blocks=blocks)


@lru_cache(maxsize=256)
def _read_window(text: str, durations: str | None, *, blocks: bool) -> Window | None:
    """R8, R11: invalid expressions are dropped; without a valid one there is no schedule."""
    expressions = text.split(";")
    if len(expressions) > _MAX_EXPRESSIONS or len(text) > _MAX_TEXT:
        return None
    given = durations.split(";") if durations else []
    if len(given) not in (1, len(expressions)) or len(durations or "") > _MAX_TEXT:
        given = ["1h"]
    spans = [_span_ns(span.strip(), blocks=blocks) for span in given] * (len(expressions) if len(given) == 1 else 1)
    parts = []
    for expression, span_ns in zip(expressions, spans, strict=True):
        try:
            parts.append((parse_cron(expression.strip()), span_ns))
        except CronError:
            continue
    return Window(parts) if parts else None


def _span_ns(text: str, *, blocks: bool) -> int:
    try:
        span_ns = parse_duration(text)
    except DurationError:
        return HOUR
    if blocks and span_ns > 7 * DAY:
        return 7 * DAY
    return span_ns if MINUTE <= span_ns <= 7 * DAY else HOUR
