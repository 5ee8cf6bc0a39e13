"""Decides which nodes to disrupt gracefully, and starts the commands (02 §2)."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.api import names
from dovetail.api.names import Reason
from dovetail.api.objects import NodePool
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.base.keyed import KeyedController
from dovetail.controllers.base.passes import PassController
from dovetail.controllers.disruption.accounts import DisruptionAccounts
from dovetail.controllers.disruption.candidate_marks import CandidateMarks
from dovetail.controllers.disruption.commands import DisruptionCommands
from dovetail.controllers.disruption.reporter import DisruptionReporter
from dovetail.model.pod_records import PodRecord
from dovetail.model.refs import Sentence
from dovetail.planning.disruption.assessment import (
    ClosedPool,
    DisruptionAssessment,
    DisruptionInputs,
    DisruptionPlanner,
)
from dovetail.planning.disruption.backoff import ConsolidationBackoff
from dovetail.planning.disruption.commands import Command, with_final_landing
from dovetail.planning.disruption.replaceable import ReplacementVerdicts
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.planning.disruption.validation import Rejection
from dovetail.planning.timings import Timings
from dovetail.ports import Compute
from dovetail.runtime.dry_run import REMEMBERED_AT_MOST, WouldWrite
from dovetail.runtime.manager import Context
from dovetail.state.scheduling import SchedulingState
from dovetail.state.store import Added, Change, Synced, Updated

KEPT: Final = 200  # decisions, for people


class PastDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A past decision. `rejected`: why it was not started after all."""

    command: Command
    rejected: Rejection | None = None


class _ValidationBatch(NamedTuple):
    """Commands that are validated together."""

    due: datetime
    commands: tuple[Command, ...]


class DisruptionController(PassController):
    """Runs disruption passes: take a snapshot, decide on a worker thread, start the commands.

    A pass runs when something that a decision reads has changed, and at the instant at which time alone changes an
    answer: a window opens, a protection ends. Nothing is polled. The controller keeps its recent decisions for people,
    and for each node that has a reason to be disrupted and stays, why.
    """

    name = "disruption"

    def __init__(
        self,
        cluster: WatchedCluster,
        state: SchedulingState,
        types: InstanceTypeSource,
        planner: DisruptionPlanner,
        commands: DisruptionCommands,
        *,
        condition_writers: Sequence[KeyedController[str]],
        marks: CandidateMarks,
        accounts: DisruptionAccounts,
        telling: DisruptionReporter,
        compute: Compute,
        rules: ConsolidationOptions,
        timings: Timings,
        closed: Callable[[datetime], Mapping[str, ClosedPool]] = lambda _: {},
    ) -> None:
        """`closed`: the NodePools in which no command begins."""
        super().__init__()
        self._closed = closed
        self._cluster = cluster
        self._state = state
        self._types = types
        self._planner = planner
        self._commands = commands
        self._condition_writers = condition_writers
        self._postponed_until: datetime | None = None
        self._marks = marks
        self.accounts = accounts
        self._reporter = telling
        self._compute = compute
        self._rules = rules
        self._timings = timings
        self.history: deque[PastDecision] = deque(maxlen=KEPT)
        self.left_alone: dict[str, Sentence] = {}  # by node: why it stays
        self.not_replaced: ReplacementVerdicts = {}  # by node and reason: why it cannot be replaced
        self.observers: list[Callable[[], None]] = []  # called when that has changed
        self._backoff = ConsolidationBackoff()
        self._would_start: dict[tuple[Any, ...], None] = {}  # the commands that a dry run has reported
        self._waiting: deque[_ValidationBatch] = deque()  # for validation, in the order in which it is due
        self._pass_at: datetime | None = None
        self._last_pass_at = datetime.min.replace(tzinfo=UTC)
        for store in (cluster.pods, cluster.nodes, cluster.claims, cluster.pdbs):
            store.subscribe(self._changed)
        cluster.pools.subscribe(self._pool_changed)
        cluster.pods.subscribe(self._pod_changed)

    def _pod_changed(self, change: Change[PodRecord]) -> None:
        if self.context is not None and isinstance(change, Added | Updated):
            self._backoff.on_pod_changed(change.new.value, self.context.clock.now())

    def _pool_changed(self, change: Change[NodePool]) -> None:
        """Ignores our own writes to the status, which follow each change."""
        if not (isinstance(change, Updated) and _decisive(change.old.value) == _decisive(change.new.value)):
            self._changed(change)

    def _changed(self, change: Change[Any]) -> None:
        if self.context is not None and not isinstance(change, Synced):
            self._schedule(self.context.clock.now(), self._timings.disruption_idle_seconds)
            self.wake()

    def look_again(self) -> None:
        """Something that decisions read besides objects has changed."""
        if self.context is not None:
            self._schedule(self.context.clock.now(), self._timings.disruption_idle_seconds)
            self.wake()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def begin(self, context: Context) -> None:
        """Also runs after a failed pass, whose intermediate state is dropped."""
        self._planner.forget()
        self._waiting.clear()
        self._schedule(context.clock.now(), self._timings.disruption_idle_seconds)

    def due(self, now: datetime) -> datetime | None:  # noqa: ARG002
        """Commands under validation do not delay new passes, but passes are then at least
        `disruption_besides_seconds` apart, because each one validates these commands again."""
        if not self._waiting:
            return self._pass_at
        first, again = (
            self._waiting[0].due,
            self._last_pass_at + timedelta(seconds=self._timings.disruption_besides_seconds),
        )
        return first if self._pass_at is None else min(first, max(self._pass_at, again))

    async def make_pass(self, context: Context, now: datetime) -> None:
        # Conditions are written one by one. A decision made in between would miss nodes that can go together.
        if self._conditions_are_being_written(now):
            self._pass_at = now + timedelta(seconds=self._timings.disruption_unsynced_seconds)
            return
        await self._types.refresh(self._state.usable_pools())
        await self._cluster.settled()
        now = context.clock.now()  # the provider may have taken its time
        # A NodeClaim that we have just created may not be in the store yet. Deciding without it would buy it twice.
        if self._state.unsynced(now) is not None:
            self._pass_at = again = now + timedelta(seconds=self._timings.disruption_unsynced_seconds)
            self._waiting = deque(each._replace(due=max(each.due, again)) for each in self._waiting)
            return
        self._pass_at = None
        inputs = self._inputs(now)
        if self._waiting and self._waiting[0].due <= now:
            await self._validate(context, inputs, self._waiting.popleft().commands)
            self._schedule_next_pass(now)  # regardless of the outcome
        else:
            await self._decide(context, inputs)

    def _conditions_are_being_written(self, now: datetime) -> bool:
        """For `disruption_longest_seconds` at most. A due validation is not postponed."""
        if not any(writer.busy for writer in self._condition_writers):
            self._postponed_until = None
            return False
        longest = timedelta(seconds=self._timings.disruption_longest_seconds)
        self._postponed_until = self._postponed_until or now + longest
        validating = bool(self._waiting) and self._waiting[0].due <= now
        return now < self._postponed_until and not validating

    def _inputs(self, now: datetime) -> DisruptionInputs:
        """Pools whose last replacements failed wait for a while (R23), and until these replacements are gone (R52).

        Their nodes stay candidates (R22).
        """
        snapshot = self._state.snapshot(now)
        in_commands = self._commands.claims_in_commands()
        failed = self._commands.failed_replacements()
        pools = {claim.metadata.labels.get(names.NODEPOOL_LABEL, ""): None for claim in failed}
        backoffs = {
            pool.metadata.name: self._commands.backoff_until(pool.metadata.name, now) for pool in snapshot.pools
        }
        claims = (node.claim.metadata.name for node in snapshot.nodes.values() if node.claim is not None)
        return DisruptionInputs(
            snapshot=snapshot,
            in_commands=frozenset(filter(in_commands.__contains__, claims)),
            pools_in_backoff=pools | {name: until for name, until in backoffs.items() if until is not None},
            pods_in_backoff=self._backoff.active(now),
            savings_backoffs=self.accounts.backoffs(now),
            closed_pools=self._closed(now),
        )

    def _schedule(self, now: datetime, seconds: float) -> None:
        """Runs the next pass after so many seconds, or earlier."""
        at = now + timedelta(seconds=seconds)
        self._pass_at = at if self._pass_at is None else min(self._pass_at, at)

    def _schedule_next_change(self, assessment: DisruptionAssessment) -> None:
        """Runs the next pass when time alone changes an answer. No event says that a failed provider answers again."""
        if assessment.wake_at is not None:
            self._pass_at = min(assessment.wake_at, self._pass_at or assessment.wake_at)
        if assessment.places.left_out:
            self._schedule(assessment.at, self._timings.instance_types_seconds)

    # -- one pass ------------------------------------------------------------------------------------------------------

    async def _decide(self, context: Context, inputs: DisruptionInputs) -> None:
        clock, stopping = context.clock, context.stopping
        self._last_pass_at = inputs.at
        began_at: float | None = None  # of the search; the assessment of the nodes does not count

        def go_on() -> bool:
            nonlocal began_at
            began_at = clock.monotonic() if began_at is None else began_at
            return clock.monotonic() < began_at + self._timings.disruption_pass_seconds and not stopping.is_set()

        waiting = tuple(command for each in self._waiting for command in each.commands)
        outcome = await self._compute.run(self._planner.decide, inputs, self._rules, waiting, go_on)
        assessment, decision, self.left_alone = outcome.assessment, outcome.decision, dict(outcome.staying)
        if outcome.replacements != self.not_replaced:
            self.not_replaced = outcome.replacements
            for notify in self.observers:
                notify()
        self._schedule_next_change(assessment)
        if stopping.is_set():
            return
        self._marks.want(decision.standing.union(*(command.nodes for command in waiting)))
        seconds = 0.0 if began_at is None else clock.monotonic() - began_at
        self._reporter.pass_finished(context, outcome, seconds)
        if decision.commands and decision.validated_first:
            self._validate_when_quiet(clock.now(), decision.commands, outcome.changed_at)
        elif decision.commands:
            await self._start(context, assessment, decision.commands)
        elif not decision.complete:
            self._schedule(clock.now(), self._timings.disruption_longest_seconds)

    def _validate_when_quiet(self, now: datetime, commands: Sequence[Command], changed_at: Sequence[datetime]) -> None:
        """Each command is due when nothing that it reads has changed for `validation_seconds`, at the earliest now."""
        quiet = timedelta(seconds=self._timings.validation_seconds)
        due: dict[datetime, list[Command]] = {}
        for command, last in zip(commands, changed_at, strict=True):
            due.setdefault(max(now, last + quiet), []).append(command)
        batches = (_ValidationBatch(at, tuple(together)) for at, together in due.items())
        self._waiting = deque(sorted((*self._waiting, *batches), key=attrgetter("due")))

    async def _validate(self, context: Context, inputs: DisruptionInputs, commands: tuple[Command, ...]) -> None:
        outcome = await self._compute.run(self._planner.validate, inputs, self._rules, commands)
        self._schedule_next_change(outcome.assessment)
        for command, result in zip(commands, outcome.results, strict=True):
            if result.rejected is not None:
                self.history.append(PastDecision(command=command, rejected=result.rejected))
                self._reporter.rejected(context, command, result.rejected)
        started = (result.started for result in outcome.results if result.started is not None)
        await self._start(context, outcome.assessment, with_final_landing(started, outcome.results[-1].board))

    async def _start(self, context: Context, assessment: DisruptionAssessment, commands: tuple[Command, ...]) -> None:
        pools = {name: read.pool for name, read in assessment.read_pools.items()}
        for command in commands:
            if _content(command) in self._would_start:
                continue
            try:
                started = await self._commands.start(context, command, pools)
            except WouldWrite:  # the same is decided again in each pass, because nothing follows from it
                self._would_start[_content(command)] = None
                if len(self._would_start) > REMEMBERED_AT_MOST:
                    del self._would_start[next(iter(self._would_start))]
                self._reporter.would_start(command)
                continue
            if started:
                self._backoff.on_command_started(command, context.clock.now())
                self.accounts.started(command, context.clock.now())
                self.history.append(PastDecision(command=command))
                self._reporter.started(context, command)
        if any(command.reason is not Reason.EMPTY for command in commands):
            self._schedule_next_pass(context.clock.now())

    def _schedule_next_pass(self, now: datetime) -> None:
        """A dry run changes nothing, so that its next pass would decide the same."""
        if not self._would_start:
            self._schedule(now, self._timings.disruption_idle_seconds)


def _content(command: Command) -> tuple[Any, ...]:
    """What the same command has in common in all passes."""
    return command.method, frozenset(candidate.claim_uid for candidate in command.candidates), len(command.replacements)


def _decisive(pool: NodePool) -> tuple[Any, ...]:
    """What decisions read of a pool."""
    meta = pool.metadata
    return meta.generation, meta.deletion_timestamp, meta.annotations, pool.spec, pool.status.conditions
