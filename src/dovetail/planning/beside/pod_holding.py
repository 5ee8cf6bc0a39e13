"""What guard writes on pods with `--hold-pods`, so that a drain of Karpenter waits for their window (10 §I.3)."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from dovetail.api import names
from dovetail.model.beside import PodHold, at_second, read_pod_hold, written_mark
from dovetail.model.pod_records import PodRecord
from dovetail.rules.protection import disruption_block_schedule, disruption_schedule, own_hold

FOR_GOOD: Final = "true"
_NO_END: Final = datetime(9999, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)


class PodHoldChange(msgspec.Struct, frozen=True):
    """The annotations to merge into a pod, or the hold to write; and when time alone changes that."""

    annotations: Mapping[str, str | None] | None = None
    hold_until: datetime | None = None
    due_at: datetime | None = None


def blocked_until(pod: PodRecord, now: datetime) -> tuple[bool, datetime | None]:
    """Whether a schedule of the pod blocks, and when time alone changes that."""
    verdicts = [disruption_schedule(pod, now), disruption_block_schedule(pod, now)]
    blocking = [verdict for verdict in verdicts if not verdict.allowed]
    ends = [verdict.until for verdict in (blocking or verdicts)]
    if not blocking:
        return False, min((at for at in ends if at is not None), default=None)
    return True, None if None in ends else max(at for at in ends if at is not None)


def pod_hold_change(pod: PodRecord, now: datetime, *, in_scope: bool, durations: bool) -> PodHoldChange:
    """What is to be changed on the pod. `durations`: Karpenter reads them on pods, from their start."""
    blocked, until = blocked_until(pod, now) if in_scope and pod.active else (False, None)
    mark, hold = pod.annotations.get(names.POD_HOLD), own_hold(pod.annotations)
    if hold is None and mark is not None:
        # A user has changed what it marked. A mark that cannot be read is not ours.
        return PodHoldChange({names.POD_HOLD: None} if read_pod_hold(mark) is not None else None, due_at=until)
    if not blocked:
        gone = None if hold is None else {names.POD_HOLD: None, names.DO_NOT_DISRUPT: None}
        return PodHoldChange(gone, due_at=until)
    if hold is None and names.DO_NOT_DISRUPT in pod.annotations:
        return PodHoldChange(due_at=until)
    ends_at = _NO_END if until is None else until
    ends_alone = durations and until is not None and pod.phase == "Running"
    if hold is not None and hold.until == at_second(ends_at) and (hold.value != FOR_GOOD or not ends_alone):
        return PodHoldChange(due_at=until)
    return PodHoldChange(hold_until=ends_at, due_at=until)


def pod_hold_annotations(until: datetime, started_at: datetime | None, *, durations: bool) -> dict[str, str]:
    """With the start known, and a Karpenter that reads durations, the hold ends alone, also if we are gone."""
    value = FOR_GOOD
    if durations and started_at is not None and until < _NO_END:
        value = f"{-((started_at - until) // _SECOND)}s"
    hold = PodHold(until=at_second(until), value=value)
    return {names.DO_NOT_DISRUPT: value, names.POD_HOLD: written_mark(hold)}
