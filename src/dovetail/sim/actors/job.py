"""How many pods does a Job still need, when, and has it succeeded or failed?"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from dovetail.ports import Propagation
from dovetail.sim.actors.actor import ActorContext
from dovetail.sim.actors.wire import (
    JOBS,
    PODS,
    Raw,
    active,
    condition_status,
    deleting,
    finished,
    name_of,
    namespace_of,
    phase_of,
    pod_ready,
    status_of,
    uid_of,
    with_conditions,
)
from dovetail.sim.actors.workload import WorkloadActor, or_none, pod_from_template
from dovetail.values.timestamp import format_time, parse_time

FINALIZER = "batch.kubernetes.io/job-tracking"
_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 10, 600


class Tally(NamedTuple):
    """What a Job's pods have come to, those counted before included."""

    active: int
    succeeded: int
    failed: int


class JobOutcome(NamedTuple):
    """How a Job ended."""

    type: str
    reason: str
    message: str


def wanted_pods(spec: Raw, tally: Tally) -> int:
    """How many pods should be active now."""
    if spec.get("suspend"):
        return 0
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    if completions is None:  # a work queue: once one has succeeded, no more are started
        return tally.active if tally.succeeded else int(parallelism)
    return max(0, min(int(parallelism), int(completions) - tally.succeeded))


def outcome(spec: Raw, tally: Tally, started_at: datetime | None, now: datetime) -> JobOutcome | None:
    """Whether the Job is over."""
    deadline = spec.get("activeDeadlineSeconds")
    if tally.failed > spec.get("backoffLimit", 6):
        return JobOutcome("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    if deadline is not None and started_at is not None and now >= started_at + timedelta(seconds=deadline):
        return JobOutcome("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
    completions = spec.get("completions")
    done = tally.succeeded >= completions if completions is not None else tally.succeeded and not tally.active
    return JobOutcome("Complete", "CompletionsReached", "Reached expected number of succeeded pods") if done else None


def retry_at(failures: int, last_failed_at: datetime | None) -> datetime | None:
    """Before when no pod is started, after so many failures in a row."""
    if not failures or last_failed_at is None:
        return None
    return last_failed_at + timedelta(seconds=min(_MAX_BACKOFF_SECONDS, _BACKOFF_SECONDS * 2 ** min(failures - 1, 10)))


def is_over(job: Raw) -> bool:
    return condition_status(job, "Complete") == "True" or condition_status(job, "Failed") == "True"


def _failed(pod: Raw) -> bool:
    """A pod that is deleted before its end has failed."""
    return phase_of(pod) == "Failed" or (deleting(pod) and phase_of(pod) != "Succeeded")


def _uncounted(pods: Iterable[Raw]) -> list[Raw]:
    return [
        pod
        for pod in pods
        if FINALIZER in (pod["metadata"].get("finalizers") or ()) and (finished(pod) or deleting(pod))
    ]


class Jobs(WorkloadActor):
    """The Job controller."""

    kind = JOBS

    def __init__(self, world: ActorContext) -> None:
        super().__init__(world)
        self._failed_at: dict[str, datetime] = {}  # by UID of the job: its pods may be gone before it tries again

    async def sync(self, obj: Raw) -> None:
        if is_over(obj):
            self._failed_at.pop(uid_of(obj), None)
            await self._release(_uncounted(self.pods_of(obj)))
            await self._expire(obj)
            return
        now, spec, status = self.world.now(), obj["spec"], status_of(obj)
        pods = self.pods_of(obj)
        uncounted = _uncounted(pods)
        ends = [_ended_at(pod) or now for pod in uncounted if _failed(pod)]
        if ends:
            self._failed_at[uid_of(obj)] = max(ends)
        tally = Tally(
            active=sum(map(active, pods)),
            succeeded=(status.get("succeeded") or 0) + sum(phase_of(pod) == "Succeeded" for pod in uncounted),
            failed=(status.get("failed") or 0) + sum(map(_failed, uncounted)),
        )
        started_at = None if spec.get("suspend") else parse_time(status.get("startTime") or format_time(_whole(now)))
        over = None if deleting(obj) else outcome(spec, tally, started_at, now)
        if not deleting(obj):
            wanted = 0 if over is not None else wanted_pods(spec, tally)
            await self._scale(obj, pods, wanted, tally, now)
        await self._write(obj, None, tally, started_at)
        await self._release(uncounted)
        if over is not None:  # said only when every pod has been counted and released
            await self._write(obj, over, tally, started_at)
        deadline = spec.get("activeDeadlineSeconds")
        if over is None and started_at is not None and deadline is not None:
            self.enqueue_at(f"{namespace_of(obj)}/{name_of(obj)}", started_at + timedelta(seconds=deadline))

    async def _scale(self, obj: Raw, pods: Sequence[Raw], wanted: int, tally: Tally, now: datetime) -> None:
        live = [pod for pod in pods if active(pod)]
        if wanted > len(live):
            later = retry_at(tally.failed, self._failed_at.get(uid_of(obj)))
            if later is not None and later > now and not tally.succeeded:
                self.enqueue_at(f"{namespace_of(obj)}/{name_of(obj)}", later)
                return
        for _ in range(wanted - len(live)):
            await self.world.create(PODS, job_pod(obj))
        surplus = sorted(live, key=pod_ready)[: max(0, len(live) - wanted)]
        for pod in surplus:
            await self.world.delete(PODS, pod)

    async def _write(self, obj: Raw, over: JobOutcome | None, tally: Tally, started_at: datetime | None) -> None:
        now = self.world.now()
        pods = self.pods_of(obj)
        live = [pod for pod in pods if active(pod)]
        status: dict[str, Any] = {
            "active": or_none(len(live)),
            "ready": sum(map(pod_ready, live)),
            "succeeded": or_none(tally.succeeded),
            "failed": or_none(tally.failed),
            "terminating": sum(deleting(pod) and not finished(pod) for pod in pods),
        }
        if started_at is not None:
            status["startTime"] = format_time(started_at)
        if over is not None:
            said = {"status": "True", "reason": over.reason, "message": over.message}
            types = ["SuccessCriteriaMet" if over.type == "Complete" else "FailureTarget"]
            if all(map(finished, pods)):  # the end is not said while a pod still runs
                types.append(over.type)
            changes = [{"type": type_, **said, "lastProbeTime": format_time(_whole(now))} for type_ in types]
            status["conditions"] = with_conditions(obj, changes, now)
            if "Complete" in types:
                status["completionTime"] = format_time(_whole(now))
        await self.write_status(obj, status)

    async def _release(self, pods: Sequence[Raw]) -> None:
        """The finalizer kept them until they were counted."""
        for pod in pods:
            latest = self.pods.get(f"{namespace_of(pod)}/{name_of(pod)}")
            if latest is not None and uid_of(latest) == uid_of(pod):
                left = [one for one in latest["metadata"].get("finalizers") or () if one != FINALIZER]
                await self.world.patch(PODS, latest, {"metadata": {"finalizers": left or None}})
                await self.world.refresh(PODS, latest)

    async def _expire(self, obj: Raw) -> None:
        seconds = obj["spec"].get("ttlSecondsAfterFinished")
        if seconds is None or deleting(obj):
            return
        ended = [entry for entry in status_of(obj)["conditions"] if entry["type"] in ("Complete", "Failed")]
        at = parse_time(ended[0]["lastTransitionTime"]) + timedelta(seconds=seconds)
        if self.world.now() >= at:
            await self.world.delete(JOBS, obj, propagation=Propagation.FOREGROUND)
        else:
            self.enqueue_at(f"{namespace_of(obj)}/{name_of(obj)}", at)


def job_pod(job: Raw) -> dict[str, Any]:
    """A pod of the Job, with the labels by which people find it."""
    named = {"job-name": name_of(job), "controller-uid": uid_of(job)}
    labels = {**named, **{f"batch.kubernetes.io/{key}": value for key, value in named.items()}}
    return pod_from_template(JOBS, job, job["spec"]["template"], labels=labels, finalizers=(FINALIZER,))


def _ended_at(pod: Raw) -> datetime | None:
    ends = [
        parse_time(state["state"]["terminated"]["finishedAt"])
        for state in status_of(pod).get("containerStatuses") or ()
        if "terminated" in state.get("state", {})
    ]
    return max(ends, default=None)


def _whole(at: datetime) -> datetime:
    return at.replace(microsecond=0)
