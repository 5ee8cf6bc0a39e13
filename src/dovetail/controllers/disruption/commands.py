"""Executes commands: create the replacements, then delete the claims, or else roll back (S2→S3→S4; 02 §9, R23).

A command is first recorded on each of its NodeClaims. From then on the objects show its progress, and a new leader
continues it (R24). A record that not all of its claims carry is removed, and nothing is deleted for it (R54). Right
before the nodes are drained, the rules are checked again (R50): a window may have closed while a replacement started.

Only memory has the bodies of the replacements: if the process ends before it creates them, the next leader rolls the
command back. Only memory has the back-off of pools: after a restart the worst case is one early attempt.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final, TypeVar

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import ConditionType, EventReason
from dovetail.api.objects import is_true
from dovetail.controllers.base.claim_creation import ClaimCreation
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.keyed import KeyedController, seconds_until
from dovetail.controllers.base.writing import (
    about_claim,
    about_node,
    about_pod,
    about_pool,
    delete_claim,
    disrupt,
    publish,
    publish_disrupted,
    warn,
    write_reason,
)
from dovetail.controllers.disruption.disrupted_marks import is_going, lift_marks, taint
from dovetail.controllers.disruption.recheck import Recheck
from dovetail.controllers.disruption.replacements import (
    CommandFailed,
    CommandRefused,
    PlannedReplacement,
    Replacements,
    awaits,
)
from dovetail.observe.disruption_metrics import DisruptionMetrics
from dovetail.observe.metrics import Metrics
from dovetail.planning.disruption.board import CONSOLIDATING, STATIC, Candidate, consolidation_type
from dovetail.planning.disruption.commands import Command
from dovetail.planning.disruption.execution import BY_DOVETAIL, Execution
from dovetail.planning.disruption.records import (
    CommandRecord,
    is_carried_by_all,
    is_replacement,
    record_of,
    record_on,
    uninitialized_replacement_of,
    written,
)
from dovetail.planning.node.health import snake_case
from dovetail.planning.provisioning.claims import nominated_note, nomination
from dovetail.planning.timings import Timings
from dovetail.ports import NODECLAIMS, ApiError, KubeApi, Patch
from dovetail.rules.states import has_disrupted_taint
from dovetail.runtime.dry_run import WouldWrite
from dovetail.runtime.manager import Context
from dovetail.runtime.pace import Backoff
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.state.scheduling import SchedulingState
from dovetail.state.store import Index
from dovetail.values.timestamp import spoken_time

log = logging.getLogger(__name__)

BACKOFF: Final = Backoff(first_seconds=60.0, cap_seconds=1800.0)  # R23
NOMINATED_FOR: Final = nomination(timedelta(seconds=10))
T = TypeVar("T")
_MOST_NAMED: Final = 3
ROOM_SECONDS: Final = 5.0


class _StartedCommand(msgspec.Struct):
    """A command that this process has started."""

    command: Command
    record: CommandRecord
    planned: dict[str, PlannedReplacement]  # replacements that are not created yet, by name
    landing: dict[str, str]  # by pod UID: the replacement for the pod
    carriers: tuple[str, ...] = ()  # the claims that the record was written to
    written: bool = False  # whether the record is written; the command waits for that
    nominated: bool = False


class _PoolBackoff(msgspec.Struct, frozen=True):
    """The number of failures in a row of a pool's commands, and when the next one may start."""

    failures: int
    until: datetime


class DisruptionCommands(KeyedController[str]):
    """The controller of commands. Keys are ids of commands."""

    name = "disruption.queue"
    workers = 100

    def __init__(
        self,
        cluster: WatchedCluster,
        state: SchedulingState,
        creation: ClaimCreation,
        metrics: Metrics,
        timings: Timings,
        *,
        recheck: Recheck,
        counts: DisruptionMetrics,
        execution: Execution = BY_DOVETAIL,
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._state = state
        self._execution = execution
        self._replacements = Replacements(cluster, state, creation, execution)
        self._metrics = metrics
        self._timings = timings
        self._recheck = recheck
        self._counts = counts
        self._begun: dict[str, _StartedCommand] = {}
        self._given_up: dict[str, CommandFailed] = {}  # a failed command is rolled back even if it could succeed now
        self._awaited: dict[str, str] = {}  # command ids, by replacement
        self._backoffs: dict[str, _PoolBackoff] = {}  # by pool
        self._one_by_one = asyncio.Lock()
        self._let_go: set[str] = set()  # names of claims that have had their last look
        # Which claims are managed may follow from NodePools, which may be read after the claims.
        self._recorded = Index(cluster.claims, _recorded_id)
        self._uninitialized = Index(cluster.claims, uninitialized_replacement_of)
        self._claims_of_others = Index(cluster.claims, lambda claim: _key(execution.is_claim_of_another(claim)))
        self._nodes_of_others = Index(cluster.nodes, lambda node: _key(execution.is_node_of_another(node)))
        self.follow(cluster.claims, self._ids_of)
        self.follow(cluster.nodes, self._ids_of_node)

    # -- commands and claims -------------------------------------------------------------------------------------------

    def keys(self) -> Iterable[str]:
        return dict.fromkeys([*self._begun, *filter(None, map(self._id_on, self._cluster.claims.values()))])

    def owns_claim(self, claim: str) -> bool:
        """Whether the claim is in a command, also before its node shows that."""
        return claim in self.claims_in_commands()

    def claims_in_commands(self) -> frozenset[str]:
        """The names of all claims that `owns_claim` is true for, and those that another controller disrupts."""
        begun = (candidate.claim for begun in self._begun.values() for candidate in begun.command.candidates)
        recorded = (claim.metadata.name for claim in self._recorded.values() if self._cluster.manages_claim(claim))
        tainted = (name for node in self._nodes_of_others.values() for name in self._cluster.claim_names(node))
        others = (*(claim.metadata.name for claim in self._claims_of_others.values()), *tainted)
        return frozenset((*begun, *recorded, *others))

    def backoff_until(self, pool: str, now: datetime) -> datetime | None:
        """When replacements for the pool may be created again; None: now (R23)."""
        backoff = self._backoffs.get(pool)
        return None if backoff is None or now >= backoff.until else backoff.until

    def failed_replacements(self) -> list[objects.NodeClaim]:
        """Uninitialized replacements of finished commands. No others are created until they are gone (R52)."""
        return [claim for claim in self._uninitialized.values() if self.is_failed_replacement(claim)]

    def is_failed_replacement(self, claim: objects.NodeClaim) -> bool:
        command = uninitialized_replacement_of(claim)
        return bool(command) and command not in self._begun and not self._recorded[command]

    def _id_on(self, claim: objects.NodeClaim) -> str:
        return _recorded_id(claim) if self._cluster.manages_claim(claim) else ""

    def _ids_of(self, claim: objects.NodeClaim) -> list[str]:
        """The command that disrupts the claim, and the command that it is a replacement of."""
        return list(filter(None, (self._id_on(claim), self._awaited.get(claim.metadata.name))))

    def _ids_of_node(self, node: objects.Node) -> list[str]:
        return list(filter(None, map(self._id_on, self._cluster.claims_of(node))))

    # -- the start -----------------------------------------------------------------------------------------------------

    async def start(self, context: Context, command: Command, pools: Mapping[str, objects.NodePool]) -> bool:
        """Records the command and begins to execute it. Returns False if that failed. `pools`: as in the decision.

        Raises WouldWrite in a dry run.
        """
        deadline = context.clock.now() + timedelta(seconds=self._timings.replacement_seconds)
        record = record_of(command, deadline)
        try:
            begun = self._prepared(command, record, pools)
        except CommandRefused as error:
            log.warning("a disruption was not started: %s", error, extra={"command-id": command.id})
            return False
        self._begun[command.id] = begun
        work = [self._write_record(context.api, candidate, written(record)) for candidate in command.candidates]
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
        if bugs := [
            outcome for outcome in outcomes if isinstance(outcome, BaseException) and not isinstance(outcome, ApiError)
        ]:
            raise bugs[0]
        begun.carriers, begun.written = tuple(sorted(outcome for outcome in outcomes if isinstance(outcome, str))), True
        if errors and isinstance(errors[0], WouldWrite):
            self._forget(command.id)
            raise errors[0]
        begins = len(errors) < (1 if command.replacements else len(command.candidates))
        if not begins:
            self._given_up[command.id] = CommandFailed(f"it could not be written down: {errors[0]}")
            log.warning("a disruption was not started: %s", errors[0], extra={"command-id": command.id})
        self.add(command.id)
        return begins

    def _prepared(
        self, command: Command, record: CommandRecord, pools: Mapping[str, objects.NodePool]
    ) -> _StartedCommand:
        """Raises Refused."""
        for candidate in command.candidates:
            claim = self._cluster.claims.value(candidate.claim)
            if claim is None or claim.metadata.uid != candidate.claim_uid or is_going(self._cluster, claim):
                raise CommandRefused(f"NodeClaim {candidate.claim} is gone, or going")
            if self.owns_claim(candidate.claim):
                raise CommandRefused(f"NodeClaim {candidate.claim} is in a command already")
        both = list(zip(record.replacements, command.replacements, strict=True))
        planned = {name: self._replacements.plan(command, name, claim, pools) for name, claim in both}
        return _StartedCommand(command, record, planned, {uid: name for name, claim in both for uid in claim.pods})

    async def _write_record(self, api: KubeApi, candidate: Candidate, text: str) -> str:
        """Returns the name of the claim. The UID is the only precondition, so other writers cause no conflict."""
        body = {"metadata": {"uid": candidate.claim_uid, "annotations": {names.DISRUPTION_COMMAND: text}}}
        claim = await api.write(Patch(NODECLAIMS, candidate.claim, body))
        self._cluster.claims.note_write(claim)
        return candidate.claim

    # -- execution -----------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> Outcome:
        begun = self._begun.get(key)
        if begun is not None and not begun.written:
            return Done()
        claims = self._claims_with_id(key)
        record = self._carried(claims) if begun is None else begun.record
        named = [claim for claim in claims if record and claim.metadata.name in record.claims]
        members = [claim for claim in named if record_on(claim) == record]
        strangers = [claim for claim in claims if claim not in members]
        await _all([self._dismiss(claim) for claim in strangers])
        if record is None or not members:  # all claims are being deleted, or somebody removed the record
            self._forget(key)
            return Done()
        self._awaited.update(dict.fromkeys(record.replacements, key))
        replacements = {name: self._cluster.claims.get_consistent(name) for name in record.replacements}
        if key not in self._given_up:
            try:
                self._refuse_edited(record)
                return await self._continue(record, members, replacements)
            except CommandFailed as failure:
                self._given_up[key] = failure
        await self._roll_back(record, members, replacements)
        return Done()

    def _claims_with_id(self, key: str) -> list[objects.NodeClaim]:
        """The claims with a record that has the id and that are not being deleted. Raises InFlight."""
        wanted = {claim.metadata.name for claim in self._recorded[key]}
        if key in self._begun:
            wanted.update(candidate.claim for candidate in self._begun[key].command.candidates)
        claims = (self._cluster.claims.get_consistent(name) for name in sorted(wanted))
        return [claim for claim in claims if claim and self._id_on(claim) == key and not is_going(self._cluster, claim)]

    def _carried(self, claims: Iterable[objects.NodeClaim]) -> CommandRecord | None:
        """The record that all of its claims carry (R54), if there is one."""
        records = filter(None, map(record_on, claims))
        return next(
            (record for record in records if is_carried_by_all(record, self._cluster.claims.get_consistent)), None
        )

    def _refuse_edited(self, record: CommandRecord) -> None:
        """Raises Failed if somebody has edited or removed the record that this process wrote."""
        begun = self._begun.get(record.id)
        for name in () if begun is None else begun.carriers:
            claim = self._cluster.claims.get_consistent(name)
            if claim is not None and not is_going(self._cluster, claim) and record_on(claim) != record:
                raise CommandFailed(f"its record on NodeClaim {name} was edited", replacement=False)

    async def _dismiss(self, claim: objects.NodeClaim) -> None:
        """Removes a record that somebody wrote, copied or edited (R54)."""
        note = f"The annotation {names.DISRUPTION_COMMAND} was edited or copied; it is removed, and the node stays"
        self._warn(claim, EventReason.INVALID_DISRUPTION_COMMAND, note)
        log.warning("a disruption command was forged or edited", extra={"NodeClaim": claim.metadata.name})
        self._state.unmark(claim.metadata.name)
        await lift_marks(self.api, self._cluster, claim, self.clock.now(), self._execution)

    async def _continue(
        self, record: CommandRecord, members: Sequence[objects.NodeClaim], found: Mapping[str, objects.NodeClaim | None]
    ) -> Outcome:
        """Executes the next steps as far as possible. Raises Failed.

        After a restart a node without the taint may have new pods, so its command is rolled back.
        """
        now, waits = self.clock.now(), [why for name in found if (why := awaits(name, found[name], record.deadline))]
        if record.id not in self._begun and not all(map(self._is_tainted, members)):
            raise CommandFailed(
                "the process that began it ended before all of its nodes were tainted", replacement=False
            )
        if strangers := [name for name, claim in found.items() if claim and not is_replacement(claim, record)]:
            raise CommandFailed(f"NodeClaim {strangers[0]} is no replacement of this command", replacement=False)
        if now >= record.deadline and (waits or not found):
            late = "; ".join(waits) or "it was not carried out"
            raise CommandFailed(f"{late} by {spoken_time(record.deadline)}", replacement=bool(waits))
        if not found:
            over = await self._over_budget(members, record)
            await _all([self._disrupt_without_replacement(claim, record, over) for claim in members])
            self._succeeded(record, members)
            return Done()
        await _all([taint(self.api, self._cluster, claim, self._execution) for claim in members])
        if record.method in STATIC:  # before the create: else the pool would have a surplus node and delete the new one
            members = await _all([self._mark_disrupting(claim, record) for claim in members])
        planned = self._begun[record.id].planned if record.id in self._begun else {}
        await self._replacements.create_missing(
            self.api, self.recorder, record, found, planned, leaving=self._leaving_nodes()
        )
        # After the create: before it, the provisioner would create further nodes for the pods.
        members = await _all([self._mark_disrupting(claim, record) for claim in members])
        self._nominate(record.id)
        if waits:
            self._publish_waiting(filter(None, found.values()), members)
            return Done(seconds_until(record.deadline, now))
        over = await self._over_budget(members, record)
        now = self.clock.now()
        if blocked := list(filter(None, (self._recheck.why_not(claim, record.reason, over, now) for claim in members))):
            raise CommandFailed(blocked[0], replacement=False)
        if (halted := self._recheck.halted()) is not None:
            if now < record.deadline:
                return Done(ROOM_SECONDS)
            raise CommandFailed(halted, replacement=False)
        async with self._one_by_one:  # each look counts on what the one before has let go
            lost = await self._why_no_room(record, members, now)
            if lost is None:
                there = {name for name in self._let_go if self._cluster.claims.value(name) is not None}
                self._let_go = there.union(claim.metadata.name for claim in members)
        if lost is not None:
            if self._execution.shares_room and now < record.deadline:
                return Done(ROOM_SECONDS)
            raise CommandFailed(lost, unneeded=True)
        self._expect_pods(record)
        await _all([self._delete(claim, record) for claim in members])
        self._succeeded(record, members)
        return Done()

    def _expect_pods(self, record: CommandRecord) -> None:
        """Keeps the replacements, which the command no longer protects, until the drain has moved pods there."""
        until = self.clock.now() + NOMINATED_FOR
        for claim in map(self._cluster.claims.value, record.replacements):
            for node in () if claim is None else self._cluster.node_names(claim):
                self._state.nominate(node, until)

    async def _why_no_room(
        self, record: CommandRecord, members: Sequence[objects.NodeClaim], now: datetime
    ) -> str | None:
        """Why the pods would find no room now, where that is asked again.

        Consolidation commands were planned together. Others do not know of each other: were each to leave room for all,
        none could go first.
        """
        if record.method not in self._execution.lands_again:
            return None
        staying = [] if record.method in CONSOLIDATING else self._not_let_go(record)
        return await self._recheck.landing.why_not(members, record.waves, now, staying)

    def _not_let_go(self, record: CommandRecord) -> list[objects.NodeClaim]:
        """The claims of other commands whose drain has not begun."""
        others = (claim for claim in self._recorded.values() if self._id_on(claim) not in ("", record.id))
        return [
            claim for claim in others if claim.metadata.name not in self._let_go and not is_going(self._cluster, claim)
        ]

    def _leaving_nodes(self) -> frozenset[str]:
        """The Nodes of all claims in commands."""
        claims = map(self._cluster.claims.value, self.claims_in_commands())
        return frozenset(name for claim in claims if claim is not None for name in self._cluster.node_names(claim))

    def _is_tainted(self, claim: objects.NodeClaim) -> bool:
        disrupted = self._execution.disrupted
        return all(has_disrupted_taint(node, disrupted) for node in self._cluster.nodes_of(claim))

    async def _disrupt_without_replacement(
        self, claim: objects.NodeClaim, record: CommandRecord, over_budget: Mapping[str, str]
    ) -> None:
        """All steps for one node. Nodes without replacement do not wait for each other."""
        await taint(self.api, self._cluster, claim, self._execution)
        if why := self._recheck.why_not(claim, record.reason, over_budget, self.clock.now()):
            await self._restore(claim, record, why)
            return
        self._nominate(record.id)
        await self._delete(await self._mark_disrupting(claim, record), record)

    async def _over_budget(self, members: Iterable[objects.NodeClaim], record: CommandRecord) -> Mapping[str, str]:
        in_command = self.claims_in_commands().__contains__
        return await self._recheck.over_budget(_pools_of(members), record.reason, self.clock.now(), in_command)

    async def _mark_disrupting(self, claim: objects.NodeClaim, record: CommandRecord) -> objects.NodeClaim:
        """Moves the claim to S3: the node takes no new pods, and places are sought for its pods."""
        if self._execution.writes_reason and is_true(claim, ConditionType.DISRUPTION_REASON):
            return claim
        self._state.mark(claim.metadata.name)
        if not self._execution.writes_reason:
            return claim
        return await write_reason(self.api, self._cluster, claim, record.reason, self.clock.now())

    # -- the end -------------------------------------------------------------------------------------------------------

    async def _delete(self, claim: objects.NodeClaim, record: CommandRecord) -> None:
        new = record.replacements
        named = f"{', '.join(new[:_MOST_NAMED])}{' …' if len(new) > _MOST_NAMED else ''}"
        why = f"replacement{'s' if len(new) > 1 else ''} {named} {'are' if len(new) > 1 else 'is'} ready"
        why = why if new else "it needs no replacement"
        reason, policy = record.reason.lower(), self._policy(claim) if record.method in CONSOLIDATING else ""
        await disrupt(
            self.api, self._cluster, self._metrics, claim, reason=reason, why=why, consolidation_policy=policy
        )
        publish_disrupted(self.recorder, self._cluster, claim, record.reason, why)

    def _policy(self, claim: objects.NodeClaim) -> str:
        pool = self._cluster.pools.value(claim.metadata.labels.get(names.NODEPOOL_LABEL, ""))
        return "" if pool is None else snake_case(pool.spec.disruption.consolidation_policy)

    def _succeeded(self, record: CommandRecord, members: Iterable[objects.NodeClaim]) -> None:
        """Ends the back-off of the pools, if the command had replacements."""
        if record.replacements:
            for pool in _pools_of(members):
                self._backoffs.pop(pool, None)
        log.debug("command succeeded", extra={"command-id": record.id, "reason": record.reason})

    async def _roll_back(
        self, record: CommandRecord, members: Sequence[objects.NodeClaim], found: Mapping[str, objects.NodeClaim | None]
    ) -> None:
        """Moves the claims back to S2 (R23). A registered replacement stays as capacity, unless nobody needs it."""
        failure = self._given_up[record.id]
        why = str(failure)
        there = [claim for claim in found.values() if claim and claim.metadata.deletion_timestamp is None]
        useless = [
            claim
            for claim in there
            if is_replacement(claim, record)
            and (not is_true(claim, ConditionType.REGISTERED) or (failure.unneeded and self._is_empty(claim)))
        ]
        deletes = [delete_claim(self.api, self._cluster, claim) for claim in useless]
        deleted = await asyncio.gather(*deletes, return_exceptions=True)
        # Before the marks go: if the answer to the last write is lost, the retry finds no record, and forgets the rest.
        # A forged record starts no back-off: the command had replacements, or this process began it.
        ours = record.id in self._begun or any(claim and is_replacement(claim, record) for claim in found.values())
        if failure.replacement and ours:
            for pool in sorted(_pools_of((*members, *filter(None, found.values())))):
                self._back_off(pool, self.clock.now(), why)
        await _all([self._restore(claim, record, why) for claim in members])
        if errors := [error for error in deleted if error is not None]:
            raise errors[0]
        failed = sum(claim is None or not is_true(claim, ConditionType.INITIALIZED) for claim in found.values())
        decision, type_ = "replace" if found else "delete", consolidation_type(record.method)
        self._counts.queue_failures.labels(decision, snake_case(record.reason), type_).inc(failed)
        log.warning("a disruption was given up: %s", why, extra={"command-id": record.id, "reason": record.reason})
        self._forget(record.id)

    def _is_empty(self, claim: objects.NodeClaim) -> bool:
        pods = (pod for node in self._cluster.node_names(claim) for pod in self._cluster.pods_on[node])
        return not any(pod.reschedulable for pod in pods)

    def _back_off(self, pool: str, now: datetime, why: str) -> None:
        """The delay doubles each time. Failures during the back-off belong to earlier commands and do not count."""
        if self.backoff_until(pool, now) is not None:
            return
        failures = 1 if pool not in self._backoffs else self._backoffs[pool].failures + 1
        until = now + timedelta(seconds=BACKOFF.seconds(failures, Random(0)))
        self._backoffs[pool] = _PoolBackoff(failures, until)
        if (nodepool := self._cluster.pools.value(pool)) is not None:
            times, about = "1 time" if failures == 1 else f"{failures} times in a row", about_pool(nodepool)
            note = f"Replacements failed {times}: {why}; no other is tried before {spoken_time(until)}"
            warn(self.recorder, about, EventReason.REPLACEMENT_FAILED, note, about.uid, str(failures))

    async def _restore(self, claim: objects.NodeClaim, record: CommandRecord, why: str) -> None:
        self._let_go.discard(claim.metadata.name)
        self._state.unmark(claim.metadata.name)  # the objects show it, until the marks are gone
        await lift_marks(self.api, self._cluster, claim, self.clock.now(), self._execution)
        note = f"Its disruption ({record.reason}) was given up, and it stays: {why}"
        self._warn(claim, EventReason.DISRUPTION_ROLLED_BACK, note)

    def _warn(self, claim: objects.NodeClaim, reason: EventReason, note: str) -> None:
        for about in (about_claim(claim), *map(about_node, self._cluster.nodes_of(claim))):
            warn(self.recorder, about, reason, note)

    def _forget(self, key: str) -> None:
        self._begun.pop(key, None)
        self._given_up.pop(key, None)
        self._awaited = {name: of for name, of in self._awaited.items() if of != key}

    # -- events --------------------------------------------------------------------------------------------------------

    def _publish_waiting(self, claims: Iterable[objects.NodeClaim], old: Sequence[objects.NodeClaim]) -> None:
        more = f" and {len(old) - _MOST_NAMED} more" if len(old) > _MOST_NAMED else ""
        named = ", ".join(claim.metadata.name for claim in old[:_MOST_NAMED])
        note = f"Replacement for {named}{more}: waiting until it is ready"
        for claim in claims:
            if not is_true(claim, ConditionType.INITIALIZED):
                publish(self.recorder, about_claim(claim), EventReason.DISRUPTION_WAITING_READINESS, note)

    def _nominate(self, key: str) -> None:
        """Nominates the target nodes of the pods, so that they are not disrupted, and publishes events. Runs once."""
        begun = self._begun.get(key)
        if begun is None or begun.nominated:
            return
        begun.nominated = True
        until = self.clock.now() + NOMINATED_FOR
        for pod in (pod for candidate in begun.command.candidates for pod in candidate.pods):
            claim, node = begun.landing.get(pod.uid, ""), ""
            where = begun.command.landing.get(pod.uid)
            if not claim and where is not None and where.node:
                self._state.nominate(where.node, until)
                place = self._state.place(where.node)
                if place is not None:
                    claim, node = "" if place.claim is None else place.claim.metadata.name, place.pods_are_on
            if claim or node:
                publish(self.recorder, about_pod(pod), EventReason.NOMINATED, nominated_note(claim, node))


def _recorded_id(claim: objects.NodeClaim) -> str:
    record = record_on(claim)
    return "" if record is None else record.id


def _key(found: bool) -> str:
    """The key of an index that holds those for which something is true."""
    return "found" if found else ""


def _pools_of(claims: Iterable[objects.NodeClaim]) -> set[str]:
    return {claim.metadata.labels.get(names.NODEPOOL_LABEL, "") for claim in claims}


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Runs everything concurrently. Raises the first error after all have finished."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    if errors := [outcome for outcome in outcomes if isinstance(outcome, BaseException)]:
        raise errors[0]
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
