"""The Job controller: pods, retries, completion and expiry."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from dovetail.ports import Propagation
from dovetail.sim.actors import wire
from dovetail.sim.actors.actor import ActorContext
from dovetail.sim.actors.wire import JOBS, PODS, Raw, active
from dovetail.sim.actors.workload import WorkloadActor, pod_from_template
from dovetail.values.timestamp import format_time, parse_time

FINALIZER = "batch.kubernetes.io/job-tracking"
_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 10, 600


class Tally(NamedTuple):
    """The pods of a Job, including those that were counted before."""

    active: int
    succeeded: int
    failed: int


class JobOutcome(NamedTuple):
    """How a Job ended."""

    type: str
    reason: str
    message: str


def wanted_pods(spec: Raw, tally: Tally) -> int:
    """The number of pods that should be active now."""
    if spec.get("suspend"):
        return 0
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    if completions is None:  # a work queue starts no pods after the first success
        return tally.active if tally.succeeded else int(parallelism)
    return max(0, min(int(parallelism), int(completions) - tally.succeeded))


def outcome(spec: Raw, tally: Tally, started_at: datetime | None, now: datetime) -> JobOutcome | None:
    """The outcome of the Job, if it is over."""
    deadline = spec.get("activeDeadlineSeconds")
    if tally.failed > spec.get("backoffLimit", 6):
        return JobOutcome("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    if deadline is not None and started_at is not None and now >= started_at + timedelta(seconds=deadline):
        return JobOutcome("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
    completions = spec.get("completions")
    done = tally.succeeded >= completions if completions is not None else tally.succeeded and not tally.active
    return JobOutcome("Complete", "CompletionsReached", "Reached expected number of succeeded pods") if done else None


def retry_at(failures: int, last_failed_at: datetime | None) -> datetime | None:
    """The end of the back-off after so many failures."""
    if not failures or last_failed_at is None:
        return None
    return last_failed_at + timedelta(seconds=min(_MAX_BACKOFF_SECONDS, _BACKOFF_SECONDS * 2 ** min(failures - 1, 10)))


def is_over(job: Raw) -> bool:
    return wire.condition_status(job, "Complete") == "True" or wire.condition_status(job, "Failed") == "True"


def _failed(pod: Raw) -> bool:
    """A pod that is deleted before it ends counts as failed."""
    return wire.phase_of(pod) == "Failed" or (wire.deleting(pod) and wire.phase_of(pod) != "Succeeded")


def _uncounted(pods: Iterable[Raw]) -> list[Raw]:
    return [pod for pod in pods if FINALIZER in (pod["metadata"].get("finalizers") or ()) and not active(pod)]


class Jobs(WorkloadActor):
    """The Job controller."""

    kind = JOBS

    def __init__(self, world: ActorContext) -> None:
        super().__init__(world)
        self._failed_at: dict[str, datetime] = {}  # by UID of the job: its pods may be gone before it tries again

    async def sync(self, obj: Raw) -> None:
        if is_over(obj):
            self._failed_at.pop(wire.uid_of(obj), None)
            await self._release(_uncounted(self.pods_of(obj)))
            await self._expire(obj)
            return
        now, spec, status = self.world.now(), obj["spec"], wire.status_of(obj)
        pods = self.pods_of(obj)
        uncounted = _uncounted(pods)
        ends = [_ended_at(pod) or now for pod in uncounted if _failed(pod)]
        if ends:
            self._failed_at[wire.uid_of(obj)] = max(ends)
        tally = Tally(
            active=sum(map(active, pods)),
            succeeded=(status.get("succeeded") or 0) + sum(wire.phase_of(pod) == "Succeeded" for pod in uncounted),
            failed=(status.get("failed") or 0) + sum(map(_failed, uncounted)),
        )
        started_at = None if spec.get("suspend") else parse_time(status.get("startTime") or wire.timestamp(now))
        over = None if wire.deleting(obj) else outcome(spec, tally, started_at, now)
        if not wire.deleting(obj):
            wanted = 0 if over is not None else wanted_pods(spec, tally)
            await self._scale(obj, pods, wanted, tally, now)
        await self._write(obj, None, tally, started_at)
        await self._release(uncounted)
        if over is not None:  # only after every pod is counted and released
            await self._write(obj, over, tally, started_at)
        deadline = spec.get("activeDeadlineSeconds")
        if over is None and started_at is not None and deadline is not None:
            self.enqueue_at(wire.key_of(obj), started_at + timedelta(seconds=deadline))

    async def _scale(self, obj: Raw, pods: Sequence[Raw], wanted: int, tally: Tally, now: datetime) -> None:
        live = [pod for pod in pods if active(pod)]
        if wanted > len(live):
            later = retry_at(tally.failed, self._failed_at.get(wire.uid_of(obj)))
            if later is not None and later > now and not tally.succeeded:
                self.enqueue_at(wire.key_of(obj), later)
                return
        for _ in range(wanted - len(live)):
            await self.world.create(PODS, job_pod(obj))
        surplus = sorted(live, key=wire.pod_ready)[: max(0, len(live) - wanted)]
        for pod in surplus:
            await self.world.delete(PODS, pod)

    async def _write(self, obj: Raw, over: JobOutcome | None, tally: Tally, started_at: datetime | None) -> None:
        now, pods = self.world.now(), self.pods_of(obj)
        live = [pod for pod in pods if active(pod)]
        status: dict[str, Any] = {
            "active": len(live) or None,
            "ready": sum(map(wire.pod_ready, live)),
            "succeeded": tally.succeeded or None,
            "failed": tally.failed or None,
            "terminating": sum(wire.deleting(pod) and not wire.finished(pod) for pod in pods),
        }
        if started_at is not None:
            status["startTime"] = format_time(started_at)
        if over is not None:
            condition = {"status": "True", "reason": over.reason, "message": over.message}
            types = ["SuccessCriteriaMet" if over.type == "Complete" else "FailureTarget"]
            if all(map(wire.finished, pods)):  # not while a pod still runs
                types.append(over.type)
            changes = [{"type": type_, **condition, "lastProbeTime": wire.timestamp(now)} for type_ in types]
            status["conditions"] = wire.with_conditions(obj, changes, now)
            if "Complete" in types:
                status["completionTime"] = wire.timestamp(now)
        await self.write_status(obj, status)

    async def _release(self, pods: Sequence[Raw]) -> None:
        """Remove the finalizer, which keeps pods until they are counted."""
        for pod in pods:
            latest = self.pods.get(wire.key_of(pod))
            if latest is not None and wire.uid_of(latest) == wire.uid_of(pod):
                left = [one for one in latest["metadata"].get("finalizers") or () if one != FINALIZER]
                await self.world.patch(PODS, latest, {"metadata": {"finalizers": left or None}})
                await self.world.refresh(PODS, latest)

    async def _expire(self, obj: Raw) -> None:
        seconds = obj["spec"].get("ttlSecondsAfterFinished")
        if seconds is None or wire.deleting(obj):
            return
        ended = [entry for entry in wire.status_of(obj)["conditions"] if entry["type"] in ("Complete", "Failed")]
        at = parse_time(ended[0]["lastTransitionTime"]) + timedelta(seconds=seconds)
        if self.world.now() >= at:
            await self.world.delete(JOBS, obj, propagation=Propagation.FOREGROUND)
        else:
            self.enqueue_at(wire.key_of(obj), at)


def job_pod(job: Raw) -> dict[str, Any]:
    """A pod of the Job, with its labels."""
    named = {"job-name": wire.name_of(job), "controller-uid": wire.uid_of(job)}
    labels = {**named, **{f"batch.kubernetes.io/{key}": value for key, value in named.items()}}
    return pod_from_template(JOBS, job, job["spec"]["template"], labels=labels, finalizers=(FINALIZER,))


def _ended_at(pod: Raw) -> datetime | None:
    ends = [
        parse_time(state["state"]["terminated"]["finishedAt"])
        for state in wire.status_of(pod).get("containerStatuses") or ()
        if "terminated" in state.get("state", {})
    ]
    return max(ends, default=None)
