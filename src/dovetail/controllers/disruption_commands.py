"""Carries out what was decided: replacements first, then the nodes go, or else all is as it was (S2→S3→S4; 02 §9, R23).

A command is written on each NodeClaim that it is about before anything else happens. From then on the objects alone say
how far it has come, and whoever leads carries it on (R24). Nothing is polled but the deadline.

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
from dovetail.api.names import Condition, EventReason
from dovetail.controllers.claim_creation import ClaimCreation
from dovetail.controllers.cluster import Cluster, Index
from dovetail.controllers.disrupted_marks import has_reason, is_going, is_tainted, lift_marks, taint
from dovetail.controllers.disruption_replacements import Failed, Planned, Refused, Replacements, awaits, is_of, is_true
from dovetail.controllers.keyed import Keyed, seconds_until
from dovetail.controllers.placing_state import PlacingState
from dovetail.controllers.reasons import write_reason
from dovetail.controllers.scheduling_decisions import about_pod
from dovetail.controllers.writing import (
    about_claim,
    about_node,
    delete_claim,
    disrupt,
    tell,
    tell_disrupted,
    warn,
)
from dovetail.observe.disruption_metrics import DisruptionMetrics
from dovetail.observe.metrics import Metrics
from dovetail.planning.disruption.board import STATIC, Candidate, Method
from dovetail.planning.disruption.commands import Command
from dovetail.planning.disruption.records import Recorded, record_of, record_on, written
from dovetail.planning.health import snake_case
from dovetail.planning.provisioning import nominated_note, nomination
from dovetail.planning.timings import Timings
from dovetail.ports import NODECLAIMS, ApiError, KubeApi
from dovetail.runtime.dry_run import WouldWrite
from dovetail.runtime.manager import Context
from dovetail.runtime.pace import Backoff
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.values.timestamp import format_time

log = logging.getLogger(__name__)

HELD_BACK: Final = Backoff(first_seconds=60.0, cap_seconds=1800.0)  # R23
_CONSOLIDATION: Final = frozenset({Method.EMPTINESS, Method.MULTI_NODE, Method.SINGLE_NODE})


class _Begun(msgspec.Struct):
    """A command that this process has started."""

    command: Command
    planned: dict[str, Planned]  # by the name that was chosen; gone once it is created
    landing: dict[str, str]  # the names of replacements by the UIDs of pods
    written: bool = False  # on all of its claims: nothing is done before
    nominated: bool = False


class _Held(msgspec.Struct, frozen=True):
    """How often in a row commands of a pool have failed, and until when it is left alone."""

    failures: int
    until: datetime


class DisruptionCommands(Keyed[str]):
    """Keys are ids of commands."""

    name = "disruption.queue"
    workers = 100

    def __init__(
        self,
        cluster: Cluster,
        state: PlacingState,
        creation: ClaimCreation,
        metrics: Metrics,
        timings: Timings,
        *,
        counts: DisruptionMetrics,
        nominated_for: timedelta = nomination(timedelta(seconds=10)),  # noqa: B008  frozen
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._state = state
        self._replacements = Replacements(cluster, state, creation)
        self._metrics = metrics
        self._timings = timings
        self._counts = counts
        self._nominated_for = nominated_for
        self._begun: dict[str, _Begun] = {}
        self._given_up: dict[str, str] = {}  # why: what was given up stays so, even if it would come right now
        self._awaited: dict[str, str] = {}  # ids by the names of replacements
        self._held: dict[str, _Held] = {}  # by pool
        self._claims_of = Index(cluster.claims, self._id_on)
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

    def _id_on(self, claim: objects.NodeClaim) -> str:
        record = record_on(claim) if self._cluster.manages(claim.spec.node_class_ref) else None
        return "" if record is None else record.id

    def _ids_of(self, claim: objects.NodeClaim) -> list[str]:
        """Of the command that is to take it, and of the one that it is a replacement of."""
        return list(filter(None, (self._id_on(claim), self._awaited.get(claim.metadata.name))))

    def _ids_of_node(self, node: objects.Node) -> list[str]:
        return list(filter(None, map(self._id_on, self._cluster.claims_with[node.spec.provider_id])))

    # -- the start -----------------------------------------------------------------------------------------------------

    async def start(self, context: Context, command: Command, pools: Mapping[str, objects.NodePool]) -> bool:
        """Write it down, and see to it from now on; False if it has not begun. `pools`: as read for the decision."""
        deadline = context.clock.now() + timedelta(seconds=self._timings.replacement_seconds)
        record = record_of(command, deadline)
        try:
            begun = self._prepared(command, record, pools)
        except Refused as error:
            log.warning("a disruption was not started: %s", error, extra={"command-id": command.id})
            return False
        self._begun[command.id] = begun
        text = written(record)
        errors = await _all([self._write_down(context.api, each, text) for each in command.candidates])
        _raise_first([error for error in errors if not isinstance(error, ApiError)])
        begun.written = True
        begins = len(errors) < (1 if command.replacements else len(command.candidates))
        if not begins:
            self._given_up[command.id] = f"it could not be written down: {errors[0]}"
            if not isinstance(errors[0], WouldWrite):
                log.warning("a disruption was not started: %s", errors[0], extra={"command-id": command.id})
        self.add(command.id)
        return begins

    def _prepared(self, command: Command, record: Recorded, pools: Mapping[str, objects.NodePool]) -> _Begun:
        """Raises Refused."""
        for each in command.candidates:
            kept = self._cluster.claims.get(("", each.claim))
            if kept is None or kept.uid != each.claim_uid or is_going(self._cluster, kept.value):
                raise Refused(f"NodeClaim {each.claim} is gone, or going")
            if self.holds(each.claim):
                raise Refused(f"NodeClaim {each.claim} is in a command already")
        both = list(zip(record.replacements, command.replacements, strict=True))
        planned = {name: self._replacements.plan(command, name, claim, pools) for name, claim in both}
        return _Begun(command, planned, {uid: name for name, claim in both for uid in claim.pods})

    async def _write_down(self, api: KubeApi, candidate: Candidate, text: str) -> None:
        """No lock: whoever else writes to the claim meanwhile, it is the same claim."""
        body = {"metadata": {"uid": candidate.claim_uid, "annotations": {names.DISRUPTION_COMMAND: text}}}
        claim = await api.patch(NODECLAIMS, candidate.claim, body)
        self._cluster.claims.wrote(claim)

    # -- on the way ----------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> Outcome:
        if key in self._begun and not self._begun[key].written:
            return Done()
        members = self._members(key)
        if not members:  # all are on their way, or somebody has taken the record off
            self._forget(key)
            return Done()
        record = record_on(members[0])
        assert record is not None
        self._awaited.update(dict.fromkeys(record.replacements, key))
        found = {name: self._cluster.claims.current(name) for name in record.replacements}
        if key not in self._given_up:
            try:
                return await self._carry_on(record, members, found)
            except Failed as failure:
                self._given_up[key] = str(failure)
        await self._roll_back(record, members, found)
        return Done()

    def _members(self, key: str) -> list[objects.NodeClaim]:
        """The claims that it is about and that nobody has sent off yet. Raises InFlight."""
        wanted = {claim.metadata.name for claim in self._claims_of[key]}
        if key in self._begun:
            wanted.update(each.claim for each in self._begun[key].command.candidates)
        claims = (self._cluster.claims.current(name) for name in sorted(wanted))
        return [each for each in claims if each and self._id_on(each) == key and not is_going(self._cluster, each)]

    async def _carry_on(
        self, record: Recorded, members: Sequence[objects.NodeClaim], found: Mapping[str, objects.NodeClaim | None]
    ) -> Outcome:
        """What is to be done next, as far as it goes. Raises Failed.

        Only its taint kept pods off a node while nobody was there: without it what was decided may no longer be right.
        """
        now, waits = self.clock.now(), [why for name in found if (why := awaits(name, found[name], record.deadline))]
        if record.id not in self._begun and not all(map(self._is_tainted, members)):
            raise Failed("whoever began it has ended before pods were kept off all of its nodes")
        if now >= record.deadline and (waits or not found):
            raise Failed(f"{'; '.join(waits) or 'it was not carried out'} by {format_time(record.deadline)}")
        if not found:
            _raise_first(await _all([self._send_off(claim, record) for claim in members]))
            self._succeeded(record, members)
            return Done()
        _raise_first(await _all([taint(self.api, self._cluster, claim) for claim in members]))
        if record.method in STATIC:  # else its pool has one too many for a while, and takes the new one
            members = await self._close_all(members, record)
        planned = self._begun[record.id].planned if record.id in self._begun else {}
        await self._replacements.create_missing(self.api, self.recorder, record, found, planned)
        members = await self._close_all(members, record)  # not before: its pods would be given nodes of their own
        self._nominate(record.id)
        if waits:
            self._tell_waiting(filter(None, found.values()))
            return Done(seconds_until(record.deadline, now))
        _raise_first(await _all([self._delete(claim, record) for claim in members]))
        self._succeeded(record, members)
        return Done()

    def _is_tainted(self, claim: objects.NodeClaim) -> bool:
        return all(map(is_tainted, self._cluster.nodes_of(claim)))

    async def _send_off(self, claim: objects.NodeClaim, record: Recorded) -> None:
        """All of it for one node that needs no replacement: it does not wait for the others."""
        await taint(self.api, self._cluster, claim)
        self._nominate(record.id)
        await self._delete(await self._close(claim, record), record)

    async def _close_all(self, members: Sequence[objects.NodeClaim], record: Recorded) -> list[objects.NodeClaim]:
        closed: dict[str, objects.NodeClaim] = {}

        async def close(claim: objects.NodeClaim) -> None:
            closed[claim.metadata.name] = await self._close(claim, record)

        _raise_first(await _all([close(claim) for claim in members]))
        return [closed[claim.metadata.name] for claim in members]

    async def _close(self, claim: objects.NodeClaim, record: Recorded) -> objects.NodeClaim:
        """S3: it takes no pods any more, and its own are to be placed elsewhere."""
        if has_reason(claim):
            return claim
        self._state.mark(claim.metadata.name)
        return await write_reason(self.api, self._cluster, claim, record.reason, self.clock.now())

    # -- the end -------------------------------------------------------------------------------------------------------

    async def _delete(self, claim: objects.NodeClaim, record: Recorded) -> None:
        number = len(record.replacements)
        why = f"{number} replacement{'s are' if number > 1 else ' is'} there" if number else "it needs no replacement"
        policy = self._policy(claim) if record.method in _CONSOLIDATION else ""
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

    def _succeeded(self, record: Recorded, members: Iterable[objects.NodeClaim]) -> None:
        """Pools are tried again at once if replacements have come up; what needed none says nothing about that."""
        if record.replacements:
            for pool in _pools_of(members):
                self._held.pop(pool, None)
        log.debug("command succeeded", extra={"command-id": record.id, "reason": record.reason})

    async def _roll_back(
        self, record: Recorded, members: Sequence[objects.NodeClaim], found: Mapping[str, objects.NodeClaim | None]
    ) -> None:
        """Back to S2, for now (R23). What has a Node already is ordinary capacity from now on."""
        why = self._given_up[record.id]
        there = [claim for claim in found.values() if claim and claim.metadata.deletion_timestamp is None]
        useless = [claim for claim in there if not is_true(claim, Condition.REGISTERED) and is_of(claim, record)]
        errors = await _all([delete_claim(self.api, self._cluster, claim) for claim in useless])
        errors += await _all([self._restore(claim, record, why) for claim in members])
        _raise_first(errors)
        failed = sum(claim is None or not is_true(claim, Condition.INITIALIZED) for claim in found.values())
        method = record.method.value if record.method in _CONSOLIDATION else ""
        decision = "replace" if found else "delete"
        self._counts.queue_failures.labels(decision, snake_case(record.reason), method).inc(failed)
        for pool in _pools_of(members):
            self._hold_back(pool, self.clock.now())
        log.warning("a disruption was given up: %s", why, extra={"command-id": record.id, "reason": record.reason})
        self._forget(record.id)

    def _hold_back(self, pool: str, now: datetime) -> None:
        """Longer each time; what fails while it is held back had begun before, and is no further attempt."""
        if self.held_back(pool, now) is None:
            failures = 1 if pool not in self._held else self._held[pool].failures + 1
            pause = timedelta(seconds=HELD_BACK.seconds(failures, Random(0)))
            self._held[pool] = _Held(failures, now + pause)

    async def _restore(self, claim: objects.NodeClaim, record: Recorded, why: str) -> None:
        await lift_marks(self.api, self._cluster, claim, self.clock.now())
        self._state.unmark(claim.metadata.name)
        note = f"Its disruption ({record.reason}) was given up, and it stays: {why}"
        for about in (about_claim(claim), *map(about_node, self._cluster.nodes_of(claim))):
            warn(self.recorder, about, EventReason.DISRUPTION_ROLLED_BACK, note)

    def _forget(self, key: str) -> None:
        self._begun.pop(key, None)
        self._given_up.pop(key, None)
        self._awaited = {name: of for name, of in self._awaited.items() if of != key}

    # -- what people are told ------------------------------------------------------------------------------------------

    def _tell_waiting(self, claims: Iterable[objects.NodeClaim]) -> None:
        for claim in claims:
            if not is_true(claim, Condition.INITIALIZED):
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
