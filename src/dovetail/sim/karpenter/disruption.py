"""How Karpenter decides to disrupt nodes, and carries it out (10 §1).

A loop looks every 10 s, and again at once after it has acted. It looks a second time 15 s after it has chosen empty or
underutilized nodes, and never at drift. Nothing stops a command that has begun but the end of its time. All of it is in
memory only: after a restart it is forgotten, and the marks on the nodes are removed.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import ConditionType
from dovetail.api.objects import is_true
from dovetail.controllers.base.claim_creation import ClaimCreation
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.controllers.base.keyed import KeyedController, seconds_until
from dovetail.controllers.base.passes import PassController
from dovetail.controllers.base.writing import delete_claim, write_reason
from dovetail.controllers.disruption.commands import NOMINATED_FOR
from dovetail.controllers.disruption.disrupted_marks import is_going, lift_marks, taint
from dovetail.controllers.disruption.replacements import CommandRefused, Replacements, awaits
from dovetail.planning.disruption.assessment import DisruptionInputs, DisruptionPlanner
from dovetail.planning.disruption.commands import Command
from dovetail.planning.disruption.records import record_of
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.planning.timings import Timings
from dovetail.ports import ApiError, Compute, WriteBody
from dovetail.rules.states import has_disrupted_taint
from dovetail.runtime.manager import Context
from dovetail.runtime.tasks import within
from dovetail.runtime.work_queue import Done, Outcome
from dovetail.sim.karpenter.view import KarpenterView
from dovetail.state.scheduling import SchedulingState
from dovetail.state.store import Change

IDLE_SECONDS: Final = 10.0
AT_ONCE_SECONDS: Final = 1.0  # the objects show by then what has begun
STRAY_SECONDS: Final = 2.0
_RULES: Final = ConsolidationOptions()


class _KarpenterCommand(msgspec.Struct):
    """A command under way. `bodies`: its replacements that are not created yet, by name."""

    of: Command
    deadline: datetime
    replacements: tuple[str, ...]
    bodies: dict[str, WriteBody]


class KarpenterCommands(KeyedController[str]):
    """The part of Karpenter that carries commands out. Keys are ids of commands."""

    name = "disruption.queue"

    def __init__(
        self, cluster: KarpenterView, state: SchedulingState, creation: ClaimCreation, timings: Timings
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._state = state
        self._creation = creation
        self._replacements = Replacements(cluster, state, creation)
        self._lasts = timedelta(seconds=timings.replacement_seconds)
        self._begun: dict[str, _KarpenterCommand] = {}
        self.follow(cluster.claims, self._ids_of)

    def claims(self) -> frozenset[str]:
        """The claims that are disrupted."""
        return frozenset(candidate.claim for begun in self._begun.values() for candidate in begun.of.candidates)

    def start(self, command: Command, pools: Mapping[str, objects.NodePool]) -> None:
        deadline = self.clock.now() + self._lasts
        replacements, bodies = record_of(command, deadline).replacements, {}
        for name, claim in zip(replacements, command.replacements, strict=True):
            try:
                bodies[name] = self._replacements.plan(command, name, claim, pools).body
            except CommandRefused:
                return
            del bodies[name]["metadata"]["annotations"][names.REPLACEMENT_OF]  # Karpenter has no such mark
        self._begun[command.id] = _KarpenterCommand(command, deadline, replacements, bodies)
        self.add(command.id)

    def _ids_of(self, claim: objects.NodeClaim) -> list[str]:
        name = claim.metadata.name
        return [
            id_
            for id_, begun in self._begun.items()
            if name in begun.replacements or any(candidate.claim == name for candidate in begun.of.candidates)
        ]

    async def reconcile(self, key: str) -> Outcome:
        begun = self._begun.get(key)
        if begun is None:
            return Done()
        candidate_claims = (self._cluster.claims.get_consistent(candidate.claim) for candidate in begun.of.candidates)
        claims = [claim for claim in candidate_claims if claim is not None and not is_going(self._cluster, claim)]
        now = self.clock.now()
        for claim in claims:
            await taint(self.api, self._cluster, claim)
        created = await self._create(begun)
        for claim in claims:
            self._state.mark(claim.metadata.name)
            await write_reason(self.api, self._cluster, claim, begun.of.reason, now)
        replacements = {name: self._cluster.claims.get_consistent(name) for name in begun.replacements}
        gone = any(
            replacement is None or replacement.metadata.deletion_timestamp is not None
            for replacement in replacements.values()
        )
        lacking = [
            why for name, replacement in replacements.items() if (why := awaits(name, replacement, begun.deadline))
        ]
        if created and not gone and lacking and now < begun.deadline:
            return Done(seconds_until(begun.deadline, now))
        if not created or lacking:
            await self._roll_back(claims, replacements.values())
        else:
            self._nominate(begun)
            for claim in claims:
                await delete_claim(self.api, self._cluster, claim)
        del self._begun[key]
        return Done()

    async def _create(self, begun: _KarpenterCommand) -> bool:
        """Returns False if a replacement could not be created."""
        bodies, begun.bodies = begun.bodies, {}
        outcomes = await self._creation.create(self.api, self.clock, list(bodies.values()), reason="disruption")
        return not any(isinstance(outcome, ApiError) for outcome in outcomes)

    async def _roll_back(
        self, claims: Iterable[objects.NodeClaim], replacements: Iterable[objects.NodeClaim | None]
    ) -> None:
        for claim in replacements:
            if claim is not None and not is_true(claim, ConditionType.INITIALIZED):
                await delete_claim(self.api, self._cluster, claim)
        for claim in claims:
            await lift_marks(self.api, self._cluster, claim, self.clock.now())
            self._state.unmark(claim.metadata.name)

    def _nominate(self, begun: _KarpenterCommand) -> None:
        """Keeps the nodes that get the pods."""
        landing = {where.node for where in begun.of.landing.values() if where.node}
        claims = (self._cluster.claims.value(name) for name in begun.replacements)
        nodes = (name for claim in claims if claim is not None for name in self._cluster.node_names(claim))
        for node in sorted({*landing, *nodes}):
            self._state.nominate(node, self.clock.now() + NOMINATED_FOR)


class KarpenterDisruption(PassController):
    """The loop."""

    name = "disruption"

    def __init__(
        self,
        cluster: KarpenterView,
        state: SchedulingState,
        types: InstanceTypeSource,
        planner: DisruptionPlanner,
        commands: KarpenterCommands,
        *,
        compute: Compute,
        timings: Timings,
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._state = state
        self._types = types
        self._planner = planner
        self._commands = commands
        self._compute = compute
        self._timings = timings
        self._pass_at: datetime | None = None
        self._looked_at: datetime | None = None  # when nothing was to be done, until something changes
        self._changes = 0
        for store in (cluster.pods, cluster.nodes, cluster.claims, cluster.pdbs, cluster.pools):
            store.subscribe(self._changed)

    def _changed(self, change: Change[Any]) -> None:  # noqa: ARG002
        """A look at what has not changed would find the same: the next one is the first after the change."""
        self._changes += 1
        if self._looked_at is not None and self.context is not None:
            self._look_by(self.context.clock.now())
            self.wake()

    def _look_by(self, at: datetime) -> None:
        """Look at the next of its usual instants."""
        if self._looked_at is not None:
            looks = max(1, -((self._looked_at - at) // timedelta(seconds=IDLE_SECONDS)))
            at = self._looked_at + timedelta(seconds=looks * IDLE_SECONDS)
            self._pass_at = at if self._pass_at is None else min(self._pass_at, at)

    def begin(self, context: Context) -> None:
        self._planner.forget()
        self._looked_at = None
        self._pass_at = context.clock.now()

    def due(self, now: datetime) -> datetime | None:  # noqa: ARG002
        return self._pass_at

    async def make_pass(self, context: Context, now: datetime) -> None:
        self._looked_at = None
        self._pass_at = now + timedelta(seconds=IDLE_SECONDS)
        inputs = await self._inputs(context)
        if inputs is None:
            self._pass_at = now + timedelta(seconds=AT_ONCE_SECONDS)
            return
        seen = self._changes
        outcome = await self._compute.run(self._planner.decide, inputs, _RULES)
        commands, pools = outcome.decision.commands, outcome.assessment.read_pools
        if not commands and outcome.decision.complete and seen == self._changes:
            self._rest(now, outcome.assessment.wake_at)
            return
        if commands and outcome.decision.validated_first:
            with suppress(TimeoutError):
                await within(context.clock, self._timings.validation_seconds, context.stopping.wait())
            commands = await self._still_valid(context, commands)
        for command in commands:
            self._commands.start(command, {name: read.pool for name, read in pools.items()})
        seconds = AT_ONCE_SECONDS if commands else IDLE_SECONDS
        self._pass_at = context.clock.now() + timedelta(seconds=seconds)

    def _rest(self, now: datetime, wake_at: datetime | None) -> None:
        """No event says that a provider has types again."""
        self._looked_at, self._pass_at = now, None
        self._look_by(now + timedelta(seconds=self._timings.instance_types_seconds))
        if wake_at is not None:
            self._look_by(wake_at)

    async def _still_valid(self, context: Context, commands: tuple[Command, ...]) -> tuple[Command, ...]:
        """The second look."""
        inputs = None if context.stopping.is_set() else await self._inputs(context)
        if inputs is None:
            return ()
        validated = await self._compute.run(self._planner.validate, inputs, _RULES, commands)
        return tuple(result.started for result in validated.results if result.started is not None)

    async def _inputs(self, context: Context) -> DisruptionInputs | None:
        """Returns None while new NodeClaims are not launched yet."""
        await self._types.refresh(self._state.usable_pools())
        await self._cluster.settled()
        now = context.clock.now()
        if self._state.unsynced(now) is not None:
            return None
        return DisruptionInputs(snapshot=self._state.snapshot(now), in_commands=self._commands.claims())


class KarpenterStrays(KeyedController[str]):
    """Removes the marks of nodes that none of its commands disrupts. Keys are names of claims."""

    name = "disruption.strays"

    def __init__(self, cluster: KarpenterView, state: SchedulingState, commands: KarpenterCommands) -> None:
        super().__init__()
        self._cluster = cluster
        self._state = state
        self._commands = commands
        self.own(cluster.claims, lambda claim: [claim.metadata.name], after_seconds=STRAY_SECONDS)
        self.follow(cluster.nodes, cluster.claim_names, after_seconds=STRAY_SECONDS)

    async def reconcile(self, key: str) -> Outcome:
        claim = self._cluster.claims.get_consistent(key)
        if claim is None or key in self._commands.claims() or is_going(self._cluster, claim):
            return Done()
        tainted = any(map(has_disrupted_taint, self._cluster.nodes_of(claim)))
        if tainted or is_true(claim, ConditionType.DISRUPTION_REASON):
            await lift_marks(self.api, self._cluster, claim, self.clock.now())
            self._state.unmark(key)
        return Done()
