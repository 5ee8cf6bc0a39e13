"""Carries out what was decided: replacements first, then the nodes go, or else all is as it was (S2→S3→S4; 02 §9, R23).

A command is written on each NodeClaim that it is about before anything else happens. From then on the objects alone say
how far it has come, and whoever leads carries it on (R24). Nothing is polled but the deadline. A record that not all of
its claims carry is removed, and nothing is deleted for it (R54). Right before nodes are drained, the rules are asked
once more (R50): a window may have closed while a replacement was booting.

What is to be created is only in memory: a process that dies before that leaves a command without replacements, which
the next one gives up. So does memory alone know how long pools are held back after failures: at worst a restart tries
once too early, and a NodePool has no field of ours that this could be written to.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

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
    tell,
    tell_disrupted,
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
from dovetail.planning.disruption.records import (
    CommandRecord,
    is_carried_by_all,
    is_replacement,
    record_of,
    record_on,
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
from dovetail.values.timestamp import format_time

log = logging.getLogger(__name__)

HELD_BACK: Final = Backoff(first_seconds=60.0, cap_seconds=1800.0)  # R23


class _StartedCommand(msgspec.Struct):
    """A command that this process has started."""

    command: Command
    record: CommandRecord
    planned: dict[str, PlannedReplacement]  # by the name that was chosen; gone once it is created
    landing: dict[str, str]  # the names of replacements by the UIDs of pods
    carriers: tuple[str, ...] = ()  # the claims that the record was written on
    written: bool = False  # nothing is done before
    nominated: bool = False


class _PoolBackoff(msgspec.Struct, frozen=True):
    """How often in a row commands of a pool have failed, and until when it is left alone."""

    failures: int
    until: datetime


class DisruptionCommands(KeyedController[str]):
    """Keys are ids of commands."""

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
        nominated_for: timedelta = nomination(timedelta(seconds=10)),  # noqa: B008  frozen
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._state = state
        self._replacements = Replacements(cluster, state, creation)
        self._metrics = metrics
        self._timings = timings
        self._recheck = recheck
        self._counts = counts
        self._nominated_for = nominated_for
        self._begun: dict[str, _StartedCommand] = {}
        self._given_up: dict[str, CommandFailed] = {}  # what was given up stays so, even if it would come right now
        self._awaited: dict[str, str] = {}  # ids by the names of replacements
        self._held: dict[str, _PoolBackoff] = {}  # by pool
        self._claims_of = Index(cluster.claims, self._id_on)
        self._uninitialized = Index(cluster.claims, _uninitialized_replacement_of)
        self.follow(cluster.claims, self._ids_of)
        self.follow(cluster.nodes, self._ids_of_node)

    # -- which commands there are --------------------------------------------------------------------------------------

    def keys(self) -> Iterable[str]:
        return dict.fromkeys([*self._begun, *filter(None, map(self._id_on, self._cluster.claims.values()))])

    def holds(self, claim: str) -> bool:
        """Whether the claim is in a command, from the moment of its start on: its node may not show it yet."""
        return claim in self.held()

    def held(self) -> frozenset[str]:
        """All claims that `holds` is true of."""
        begun = (each.claim for begun in self._begun.values() for each in begun.command.candidates)
        return frozenset((*begun, *(claim.metadata.name for claim in self._claims_of.values())))

    def held_back(self, pool: str, now: datetime) -> datetime | None:
        """Until when no more replacements should be tried for nodes of the pool, if so (R23)."""
        held = self._held.get(pool)
        return None if held is None or now >= held.until else held.until

    def failed_replacements(self) -> list[objects.NodeClaim]:
        """Replacements that are not initialized, and whose command is over: no others are bought beside them (R52)."""
        return [claim for claim in self._uninitialized.values() if self.is_failed_replacement(claim)]

    def is_failed_replacement(self, claim: objects.NodeClaim) -> bool:
        command = _uninitialized_replacement_of(claim)
        return bool(command) and command not in self._begun and not self._claims_of[command]

    def _id_on(self, claim: objects.NodeClaim) -> str:
        record = record_on(claim) if self._cluster.manages(claim.spec.node_class_ref) else None
        return "" if record is None else record.id

    def _ids_of(self, claim: objects.NodeClaim) -> list[str]:
        """Of the command that is to take it, and of the one that it is a replacement of."""
        return list(filter(None, (self._id_on(claim), self._awaited.get(claim.metadata.name))))

    def _ids_of_node(self, node: objects.Node) -> list[str]:
        return list(filter(None, map(self._id_on, self._cluster.claims_of(node))))

    # -- the start -----------------------------------------------------------------------------------------------------

    async def start(self, context: Context, command: Command, pools: Mapping[str, objects.NodePool]) -> bool:
        """Write it down, and see to it from now on; False if it has not begun. `pools`: as read for the decision."""
        deadline = context.clock.now() + timedelta(seconds=self._timings.replacement_seconds)
        record = record_of(command, deadline)
        try:
            begun = self._prepared(command, record, pools)
        except CommandRefused as error:
            log.warning("a disruption was not started: %s", error, extra={"command-id": command.id})
            return False
        self._begun[command.id] = begun
        text = written(record)
        carriers: list[str] = []

        async def write_down(candidate: Candidate) -> None:
            await self._write_down(context.api, candidate, text)
            carriers.append(candidate.claim)

        errors = await _all([write_down(each) for each in command.candidates])
        _raise_first([error for error in errors if not isinstance(error, ApiError)])
        begun.carriers, begun.written = tuple(sorted(carriers)), True
        begins = len(errors) < (1 if command.replacements else len(command.candidates))
        if not begins:
            self._given_up[command.id] = CommandFailed(f"it could not be written down: {errors[0]}")
            if not isinstance(errors[0], WouldWrite):
                log.warning("a disruption was not started: %s", errors[0], extra={"command-id": command.id})
        self.add(command.id)
        return begins

    def _prepared(
        self, command: Command, record: CommandRecord, pools: Mapping[str, objects.NodePool]
    ) -> _StartedCommand:
        """Raises Refused."""
        for each in command.candidates:
            kept = self._cluster.claims.get(("", each.claim))
            if kept is None or kept.uid != each.claim_uid or is_going(self._cluster, kept.value):
                raise CommandRefused(f"NodeClaim {each.claim} is gone, or going")
            if self.holds(each.claim):
                raise CommandRefused(f"NodeClaim {each.claim} is in a command already")
        both = list(zip(record.replacements, command.replacements, strict=True))
        planned = {name: self._replacements.plan(command, name, claim, pools) for name, claim in both}
        return _StartedCommand(command, record, planned, {uid: name for name, claim in both for uid in claim.pods})

    async def _write_down(self, api: KubeApi, candidate: Candidate, text: str) -> None:
        """No lock: whoever else writes to the claim meanwhile, it is the same claim."""
        body = {"metadata": {"uid": candidate.claim_uid, "annotations": {names.DISRUPTION_COMMAND: text}}}
        claim = await api.write(Patch(NODECLAIMS, candidate.claim, body))
        self._cluster.claims.wrote(claim)

    # -- on the way ----------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> Outcome:
        begun = self._begun.get(key)
        if begun is not None and not begun.written:
            return Done()
        claims = self._claims_with_id(key)
        record = self._carried(claims) if begun is None else begun.record
        members = [claim for claim in claims if record and claim.metadata.name in record.claims]
        members = [claim for claim in members if record_on(claim) == record]
        strangers = [claim for claim in claims if claim not in members]
        _raise_first(await _all([self._dismiss(claim) for claim in strangers]))
        if record is None or not members:  # all are on their way, or somebody has taken the record off
            self._forget(key)
            return Done()
        self._awaited.update(dict.fromkeys(record.replacements, key))
        found = {name: self._cluster.claims.current(name) for name in record.replacements}
        if key not in self._given_up:
            try:
                self._refuse_edited(record)
                return await self._carry_on(record, members, found)
            except CommandFailed as failure:
                self._given_up[key] = failure
        await self._roll_back(record, members, found)
        return Done()

    def _claims_with_id(self, key: str) -> list[objects.NodeClaim]:
        """The claims that carry a record with the id, whatever else it says, and are not deleted. Raises InFlight."""
        wanted = {claim.metadata.name for claim in self._claims_of[key]}
        if key in self._begun:
            wanted.update(each.claim for each in self._begun[key].command.candidates)
        claims = (self._cluster.claims.current(name) for name in sorted(wanted))
        return [each for each in claims if each and self._id_on(each) == key and not is_going(self._cluster, each)]

    def _carried(self, claims: Iterable[objects.NodeClaim]) -> CommandRecord | None:
        """The record that all of its claims carry (R54); None: there is none."""
        records = filter(None, map(record_on, claims))
        return next((each for each in records if is_carried_by_all(each, self._cluster.claims.current)), None)

    def _refuse_edited(self, record: CommandRecord) -> None:
        """Raises Failed if somebody has edited what this process wrote, or removed it."""
        begun = self._begun.get(record.id)
        for name in () if begun is None else begun.carriers:
            claim = self._cluster.claims.current(name)
            if claim is not None and not is_going(self._cluster, claim) and record_on(claim) != record:
                raise CommandFailed(f"its record on NodeClaim {name} was edited", replacement=False)

    async def _dismiss(self, claim: objects.NodeClaim) -> None:
        """Somebody has written or edited a record: the claim is in no command of ours (R54)."""
        note = f"The annotation {names.DISRUPTION_COMMAND} was edited or copied; it is removed, and the node stays"
        self._warn(claim, EventReason.INVALID_DISRUPTION_COMMAND, note)
        log.warning("a disruption command was forged or edited", extra={"NodeClaim": claim.metadata.name})
        await lift_marks(self.api, self._cluster, claim, self.clock.now())
        self._state.unmark(claim.metadata.name)

    async def _carry_on(
        self, record: CommandRecord, members: Sequence[objects.NodeClaim], found: Mapping[str, objects.NodeClaim | None]
    ) -> Outcome:
        """What is to be done next, as far as it goes. Raises Failed.

        Only its taint kept pods off a node while nobody was there: without it what was decided may no longer be right.
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
            raise CommandFailed(f"{late} by {format_time(record.deadline)}", replacement=bool(waits))
        if not found:
            over = await self._over_budget(members, record)
            _raise_first(await _all([self._send_off(claim, record, over) for claim in members]))
            self._succeeded(record, members)
            return Done()
        _raise_first(await _all([taint(self.api, self._cluster, claim) for claim in members]))
        if record.method in STATIC:  # else its pool has one too many for a while, and takes the new one
            members = await self._close_all(members, record)
        planned = self._begun[record.id].planned if record.id in self._begun else {}
        await self._replacements.create_missing(
            self.api, self.recorder, record, found, planned, leaving=self._leaving_nodes()
        )
        members = await self._close_all(members, record)  # not before: its pods would be given nodes of their own
        self._nominate(record.id)
        if waits:
            self._tell_waiting(filter(None, found.values()))
            return Done(seconds_until(record.deadline, now))
        over = await self._over_budget(members, record)
        if blocked := list(filter(None, (self._why_not(claim, record, over) for claim in members))):
            raise CommandFailed(blocked[0], replacement=False)
        _raise_first(await _all([self._delete(claim, record) for claim in members]))
        self._succeeded(record, members)
        return Done()

    def _leaving_nodes(self) -> frozenset[str]:
        """The Nodes of all claims that are in commands."""
        kept = (self._cluster.claims.get(("", name)) for name in self.held())
        nodes = (node for each in kept if each is not None for node in self._cluster.nodes_of(each.value))
        return frozenset(node.metadata.name for node in nodes)

    def _is_tainted(self, claim: objects.NodeClaim) -> bool:
        return all(map(has_disrupted_taint, self._cluster.nodes_of(claim)))

    async def _send_off(self, claim: objects.NodeClaim, record: CommandRecord, over_budget: Mapping[str, str]) -> None:
        """All of it for one node that needs no replacement: it does not wait for the others, nor keep them."""
        await taint(self.api, self._cluster, claim)
        if why := self._why_not(claim, record, over_budget):
            await self._restore(claim, record, why)
            return
        self._nominate(record.id)
        await self._delete(await self._close(claim, record), record)

    async def _over_budget(self, members: Iterable[objects.NodeClaim], record: CommandRecord) -> Mapping[str, str]:
        in_command = self.held().__contains__
        return await self._recheck.over_budget(_pools_of(members), record.reason, self.clock.now(), in_command)

    def _why_not(self, claim: objects.NodeClaim, record: CommandRecord, over_budget: Mapping[str, str]) -> str | None:
        return self._recheck.why_not(claim, record.reason, over_budget, self.clock.now())

    async def _close_all(self, members: Sequence[objects.NodeClaim], record: CommandRecord) -> list[objects.NodeClaim]:
        closed: dict[str, objects.NodeClaim] = {}

        async def close(claim: objects.NodeClaim) -> None:
            closed[claim.metadata.name] = await self._close(claim, record)

        _raise_first(await _all([close(claim) for claim in members]))
        return [closed[claim.metadata.name] for claim in members]

    async def _close(self, claim: objects.NodeClaim, record: CommandRecord) -> objects.NodeClaim:
        """S3: it takes no pods any more, and its own are to be placed elsewhere."""
        if is_true(claim, ConditionType.DISRUPTION_REASON):
            return claim
        self._state.mark(claim.metadata.name)
        return await write_reason(self.api, self._cluster, claim, record.reason, self.clock.now())

    # -- the end -------------------------------------------------------------------------------------------------------

    async def _delete(self, claim: objects.NodeClaim, record: CommandRecord) -> None:
        number = len(record.replacements)
        why = f"{number} replacement{'s are' if number > 1 else ' is'} there" if number else "it needs no replacement"
        policy = self._policy(claim) if record.method in CONSOLIDATING else ""
        await disrupt(
            self.api,
            self._cluster,
            self._metrics,
            claim,
            reason=record.reason.lower(),
            why=why,
            consolidation_policy=policy,
        )
        tell_disrupted(self.recorder, self._cluster, claim, record.reason, why)

    def _policy(self, claim: objects.NodeClaim) -> str:
        pool = self._cluster.pools.get(("", claim.metadata.labels.get(names.NODEPOOL_LABEL, "")))
        return "" if pool is None else snake_case(pool.value.spec.disruption.consolidation_policy)

    def _succeeded(self, record: CommandRecord, members: Iterable[objects.NodeClaim]) -> None:
        """Pools are tried again at once if replacements have come up; what needed none says nothing about that."""
        if record.replacements:
            for pool in _pools_of(members):
                self._held.pop(pool, None)
        log.debug("command succeeded", extra={"command-id": record.id, "reason": record.reason})

    async def _roll_back(
        self, record: CommandRecord, members: Sequence[objects.NodeClaim], found: Mapping[str, objects.NodeClaim | None]
    ) -> None:
        """Back to S2, for now (R23). What has a Node already is ordinary capacity from now on."""
        failure = self._given_up[record.id]
        why = str(failure)
        there = [claim for claim in found.values() if claim and claim.metadata.deletion_timestamp is None]
        useless = [
            claim for claim in there if not is_true(claim, ConditionType.REGISTERED) and is_replacement(claim, record)
        ]
        errors = await _all([delete_claim(self.api, self._cluster, claim) for claim in useless])
        errors += await _all([self._restore(claim, record, why) for claim in members])
        _raise_first(errors)
        failed = sum(claim is None or not is_true(claim, ConditionType.INITIALIZED) for claim in found.values())
        decision, type_ = "replace" if found else "delete", consolidation_type(record.method)
        self._counts.queue_failures.labels(decision, snake_case(record.reason), type_).inc(failed)
        # A forged record makes no pool wait: the command had replacements, or this process began it.
        ours = record.id in self._begun or any(claim and is_replacement(claim, record) for claim in found.values())
        if failure.replacement and ours:
            for pool in sorted(_pools_of((*members, *filter(None, found.values())))):
                self._hold_back(pool, self.clock.now(), why)
        log.warning("a disruption was given up: %s", why, extra={"command-id": record.id, "reason": record.reason})
        self._forget(record.id)

    def _hold_back(self, pool: str, now: datetime, why: str) -> None:
        """Longer each time; what fails while it is held back had begun before, and is no further attempt."""
        if self.held_back(pool, now) is not None:
            return
        failures = 1 if pool not in self._held else self._held[pool].failures + 1
        held = self._held[pool] = _PoolBackoff(
            failures, now + timedelta(seconds=HELD_BACK.seconds(failures, Random(0)))
        )
        kept = self._cluster.pools.get(("", pool))
        if kept is not None:
            times = "1 time" if failures == 1 else f"{failures} times in a row"
            note = f"Replacements failed {times}: {why}; no other is tried before {format_time(held.until)}"
            warn(self.recorder, about_pool(kept.value), EventReason.REPLACEMENT_FAILED, note, kept.uid, str(failures))

    async def _restore(self, claim: objects.NodeClaim, record: CommandRecord, why: str) -> None:
        await lift_marks(self.api, self._cluster, claim, self.clock.now())
        self._state.unmark(claim.metadata.name)
        note = f"Its disruption ({record.reason}) was given up, and it stays: {why}"
        self._warn(claim, EventReason.DISRUPTION_ROLLED_BACK, note)

    def _warn(self, claim: objects.NodeClaim, reason: EventReason, note: str) -> None:
        for about in (about_claim(claim), *map(about_node, self._cluster.nodes_of(claim))):
            warn(self.recorder, about, reason, note)

    def _forget(self, key: str) -> None:
        self._begun.pop(key, None)
        self._given_up.pop(key, None)
        self._awaited = {name: of for name, of in self._awaited.items() if of != key}

    # -- what people are told ------------------------------------------------------------------------------------------

    def _tell_waiting(self, claims: Iterable[objects.NodeClaim]) -> None:
        for claim in claims:
            if not is_true(claim, ConditionType.INITIALIZED):
                note = "Waiting for it to be initialized, to disrupt what it replaces"
                tell(self.recorder, about_claim(claim), EventReason.DISRUPTION_WAITING_READINESS, note)

    def _nominate(self, key: str) -> None:
        """Once: nodes that are to take pods are not themselves taken meanwhile, and the pods' owners are told."""
        begun = self._begun.get(key)
        if begun is None or begun.nominated:
            return
        begun.nominated = True
        until = self.clock.now() + self._nominated_for
        for pod in (pod for each in begun.command.candidates for pod in each.pods):
            claim, node = begun.landing.get(pod.uid, ""), ""
            where = begun.command.landing.get(pod.uid, "")
            if not claim and where.startswith("node/"):
                self._state.nominate(where.removeprefix("node/"), until)
                place = self._state.place(where.removeprefix("node/"))
                if place is not None:
                    claim, node = "" if place.claim is None else place.claim.metadata.name, place.pods_are_on
            if claim or node:
                tell(self.recorder, about_pod(pod), EventReason.NOMINATED, nominated_note(claim, node))


def _uninitialized_replacement_of(claim: objects.NodeClaim) -> str:
    """The id of the command that it was made for, as long as it is neither initialized nor being deleted."""
    if claim.metadata.deletion_timestamp is not None or is_true(claim, ConditionType.INITIALIZED):
        return ""
    return claim.metadata.annotations.get(names.REPLACEMENT_OF, "")


def _pools_of(claims: Iterable[objects.NodeClaim]) -> set[str]:
    return {claim.metadata.labels.get(names.NODEPOOL_LABEL, "") for claim in claims}


# -- several at once ---------------------------------------------------------------------------------------------------


async def _all(work: Sequence[Coroutine[Any, Any, None]]) -> list[Exception]:
    """Each is tried, whatever becomes of the others; what went wrong."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    return [outcome for outcome in outcomes if isinstance(outcome, Exception)]


def _raise_first(errors: Sequence[Exception]) -> None:
    if errors:
        raise errors[0]
