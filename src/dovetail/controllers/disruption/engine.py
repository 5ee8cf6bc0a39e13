"""Decides which nodes go for a graceful reason, and has it done (02 §2).

Nothing is polled: a pass is made when something has changed that a decision reads, or when time alone changes what a
rule or a budget says. What was decided is kept for people, and of every node that is left alone, why.
"""

import logging
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.api import names
from dovetail.api.names import Reason
from dovetail.api.objects import NodePool
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.base.keyed import KeyedController
from dovetail.controllers.base.passes import PassController
from dovetail.controllers.disruption.candidate_marks import CandidateMarks
from dovetail.controllers.disruption.commands import DisruptionCommands
from dovetail.controllers.disruption.reporter import DisruptionReporter
from dovetail.model.records import PodRecord
from dovetail.model.refs import Sentence
from dovetail.planning.disruption.assessment import DisruptionAssessment, DisruptionInputs, DisruptionPlanner
from dovetail.planning.disruption.backoff import ConsolidationBackoff
from dovetail.planning.disruption.commands import Command, side_by_side
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.planning.disruption.validation import Rejection
from dovetail.planning.provisioning.batching import Batch
from dovetail.planning.timings import Timings
from dovetail.ports import Compute
from dovetail.runtime.manager import Context
from dovetail.state.scheduling import SchedulingState
from dovetail.state.store import Added, Change, Synced, Updated

log = logging.getLogger(__name__)

KEPT: Final = 200  # decisions, for people
_CHANGED: Final = "changed"


class PastDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision of the past; `rejected`: why it was not carried out after all."""

    command: Command
    rejected: Rejection | None = None


class _ValidationBatch(NamedTuple):
    """Commands of one pass; they may have to give up places to nobody but those that waited before them."""

    due: datetime
    commands: tuple[Command, ...]


class DisruptionController(PassController):
    """See the module."""

    name = "disruption"

    def __init__(
        self,
        cluster: WatchedCluster,
        state: SchedulingState,
        types: InstanceTypeSource,
        planner: DisruptionPlanner,
        commands: DisruptionCommands,
        *,
        judging: Sequence[KeyedController[str]],  # the writers of reasons
        marks: CandidateMarks,
        telling: DisruptionReporter,
        compute: Compute,
        rules: ConsolidationOptions,
        timings: Timings,
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._state = state
        self._types = types
        self._planner = planner
        self._commands = commands
        self._judging = judging
        self._judging_until: datetime | None = None
        self._marks = marks
        self._telling = telling
        self._compute = compute
        self._rules = rules
        self._timings = timings
        self.history: deque[PastDecision] = deque(maxlen=KEPT)
        self.left_alone: dict[str, Sentence] = {}  # by node: why it stays, of those that have a reason to go
        self._batch = Batch(
            idle=timedelta(seconds=timings.disruption_idle_seconds),
            longest=timedelta(seconds=timings.disruption_longest_seconds),
        )
        self._undone = ConsolidationBackoff()
        self._waiting: deque[_ValidationBatch] = deque()  # to be validated, in the order in which that is due
        self._wake_at: datetime | None = None
        self._looked_at = datetime.min.replace(tzinfo=UTC)
        self._besides = timedelta(seconds=timings.disruption_besides_seconds)
        for cache in (cluster.pods, cluster.nodes, cluster.claims, cluster.pdbs):
            cache.subscribe(self._changed)
        cluster.pools.subscribe(self._pool_changed)
        cluster.pods.subscribe(self._note_pod)

    def _note_pod(self, change: Change[PodRecord]) -> None:
        if self.context is not None and isinstance(change, Added | Updated):
            self._undone.saw(change.new.value, self.context.clock.now())

    def _pool_changed(self, change: Change[NodePool]) -> None:
        """What we count into its status after each change is no reason to look again."""
        if not (isinstance(change, Updated) and _decisive(change.old.value) == _decisive(change.new.value)):
            self._changed(change)

    def _changed(self, change: Change[Any]) -> None:
        if self.context is not None and not isinstance(change, Synced):
            self._batch.add(_CHANGED, self.context.clock.now())
            self.wake()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def begin(self, context: Context) -> None:
        """After a pass that failed, too: what it has left half done is not used again."""
        self._planner.forget()
        self._waiting.clear()
        self._batch.add(_CHANGED, context.clock.now())

    def due(self, now: datetime) -> datetime | None:  # noqa: ARG002
        """What waits to be validated does not keep others waiting; but each look costs one at that, too."""
        look_at = min((at for at in (self._batch.closes_at, self._wake_at) if at is not None), default=None)
        if not self._waiting:
            return look_at
        first, again = self._waiting[0].due, self._looked_at + self._besides
        return first if look_at is None else min(first, max(look_at, again))

    async def make_pass(self, context: Context, now: datetime) -> None:
        if self._put_off(now):
            self._batch.close()
            self._wake_at = now + timedelta(seconds=self._timings.disruption_unsynced_seconds)
            return
        await self._types.refresh(self._state.usable_pools())
        await self._cluster.settled()
        now = context.clock.now()  # the provider may have taken its time
        if self._state.unsynced(now) is not None:  # the claim that is waited for tells when it is there
            self._batch.close()
            self._wake_at = again = now + timedelta(seconds=self._timings.disruption_unsynced_seconds)
            self._waiting = deque(each._replace(due=max(each.due, again)) for each in self._waiting)
            return
        self._batch.close()
        inputs = self._inputs(now)
        if self._waiting and self._waiting[0].due <= now:
            await self._validate(context, inputs, self._waiting.popleft().commands)
            self._batch.add(_CHANGED, now)  # run another pass regardless of the outcome
        else:
            await self._pass(context, inputs)

    def _inputs(self, now: datetime) -> DisruptionInputs:
        """Pools whose last replacements did not come up wait a while (R23), and until these are gone (R52).

        Their nodes stay candidates (R22).
        """
        snapshot = self._state.snapshot(now)
        in_commands = self._commands.held()
        failed = self._commands.failed_replacements()
        waiting: dict[str, datetime | None] = {
            each.metadata.labels.get(names.NODEPOOL_LABEL, ""): None for each in failed
        }
        for pool in snapshot.pools:
            if (until := self._commands.held_back(pool.metadata.name, now)) is not None:
                waiting[pool.metadata.name] = until
        claims = (node.claim.metadata.name for node in snapshot.nodes.values() if node.claim is not None)
        return DisruptionInputs(
            snapshot=snapshot,
            in_commands=frozenset(filter(in_commands.__contains__, claims)),
            pools_in_backoff=waiting,
            pods_in_backoff=self._undone.at(now),
        )

    def _sleep_until_change(self, assessment: DisruptionAssessment, now: datetime) -> None:
        """At the next instant at which time alone changes an answer."""
        self._wake_at = assessment.wake_at
        if assessment.places.left_out:  # nobody tells that the provider has an answer again
            self._look_again(now, self._timings.instance_types_seconds)

    def _put_off(self, now: datetime) -> bool:
        """While reasons are still being written, the nodes that could go together are not all known yet.

        Not for longer than the longest pause, and what waits to be validated is not put off.
        """
        if not any(each.busy for each in self._judging):
            self._judging_until = None
            return False
        longest = timedelta(seconds=self._timings.disruption_longest_seconds)
        self._judging_until = self._judging_until or now + longest
        validating = bool(self._waiting) and self._waiting[0].due <= now
        return now < self._judging_until and not validating

    # -- one pass ------------------------------------------------------------------------------------------------------

    async def _pass(self, context: Context, inputs: DisruptionInputs) -> None:
        clock, stopping = context.clock, context.stopping
        self._looked_at = inputs.at
        began_at: float | None = None  # the assessment does not count

        def go_on() -> bool:
            nonlocal began_at
            began_at = clock.monotonic() if began_at is None else began_at
            return clock.monotonic() < began_at + self._timings.disruption_pass_seconds and not stopping.is_set()

        waiting = tuple(command for each in self._waiting for command in each.commands)
        outcome = await self._compute.run(self._planner.decide, inputs, self._rules, waiting, go_on)
        assessment, decision, self.left_alone = outcome.assessment, outcome.decision, dict(outcome.staying)
        self._sleep_until_change(assessment, inputs.at)
        if stopping.is_set():
            return
        self._marks.want(decision.standing.union(*(command.nodes for command in waiting)))
        seconds = 0.0 if began_at is None else clock.monotonic() - began_at
        self._telling.passed(context, assessment, decision, seconds)
        if not decision.commands:
            if not decision.complete:
                self._look_again(clock.now(), self._timings.disruption_longest_seconds)
            return
        if decision.validated_first:
            due = clock.now() + timedelta(seconds=self._timings.validation_seconds)
            self._waiting.append(_ValidationBatch(due, decision.commands))
            return
        await self._start(context, assessment, decision.commands)

    def _look_again(self, now: datetime, seconds: float) -> None:
        """Though nothing changes. Whoever waits for a budget needs no such look: a known instant opens it (R1)."""
        again = now + timedelta(seconds=seconds)
        self._wake_at = again if self._wake_at is None else min(self._wake_at, again)

    async def _validate(self, context: Context, inputs: DisruptionInputs, commands: tuple[Command, ...]) -> None:
        outcome = await self._compute.run(self._planner.validate, inputs, self._rules, commands)
        self._sleep_until_change(outcome.assessment, inputs.at)
        for command, each in zip(commands, outcome.results, strict=True):
            if each.rejected is not None:
                self.history.append(PastDecision(command=command, rejected=each.rejected))
                self._telling.rejected(context, command, each.rejected)
        started = (each.started for each in outcome.results if each.started is not None)
        await self._start(context, outcome.assessment, side_by_side(started, outcome.results[-1].board))

    async def _start(self, context: Context, assessment: DisruptionAssessment, commands: tuple[Command, ...]) -> None:
        pools = {name: read.pool for name, read in assessment.read_pools.items()}
        for command in commands:
            if await self._commands.start(context, command, pools):
                self._undone.moved(command, context.clock.now())
                self.history.append(PastDecision(command=command))
                self._telling.started(context, command)
        if any(command.reason is not Reason.EMPTY for command in commands):
            self._batch.add(_CHANGED, context.clock.now())


def _decisive(pool: NodePool) -> tuple[Any, ...]:
    meta = pool.metadata
    return meta.generation, meta.deletion_timestamp, meta.annotations, pool.spec, pool.status.conditions
