"""Plans and creates the replacements of disrupted nodes, and reports their progress (02 §9, R24)."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import ConditionType, EventReason
from dovetail.controllers.base.claim_creation import ClaimCreation
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.writing import about_claim, publish
from dovetail.planning.conditions import TRUE
from dovetail.planning.disruption.board import STATIC
from dovetail.planning.disruption.commands import Command
from dovetail.planning.disruption.execution import BY_DOVETAIL, Execution
from dovetail.planning.disruption.records import CommandRecord, is_replacement
from dovetail.planning.provisioning.claims import claim_body, over_limits, static_claim_body, usage_by_pool
from dovetail.ports import ApiError, InternalError, KubeApi, OutcomeUnknown, TooManyRequests, Unavailable, WriteBody
from dovetail.runtime.dry_run import WouldWrite
from dovetail.runtime.events import EventRecorder
from dovetail.scheduling.placement import NewClaim
from dovetail.scheduling.requirements import RequirementError
from dovetail.scheduling.resources import NOTHING, Resources, total
from dovetail.state.scheduling import SchedulingState
from dovetail.values.duration import DurationError

_PROGRESS: Final = (ConditionType.LAUNCHED, ConditionType.REGISTERED, ConditionType.INITIALIZED)
_WORTH_ANOTHER_TRY: Final = (OutcomeUnknown, TooManyRequests, Unavailable, InternalError, WouldWrite)


class CommandRefused(Exception):
    """Why a command is not started."""


class CommandFailed(Exception):
    """Why a command is rolled back. `replacement`: a replacement failed, so the pool backs off (R23).

    `unneeded`: the replacements are useless without the command, and go with it.
    """

    def __init__(self, message: str, *, replacement: bool = True, unneeded: bool = False) -> None:
        super().__init__(message)
        self.replacement = replacement
        self.unneeded = unneeded


class PlannedReplacement(msgspec.Struct, frozen=True):
    """A replacement that is not created yet, and its pool as in the decision.

    `least`: the resources it adds to the pool at least, whichever of its types is launched.
    """

    pool: objects.NodePool
    body: WriteBody
    least: Resources


class Replacements:
    def __init__(
        self,
        cluster: WatchedCluster,
        state: SchedulingState,
        creation: ClaimCreation,
        execution: Execution = BY_DOVETAIL,
    ) -> None:
        self._execution = execution
        self._cluster = cluster
        self._state = state
        self._creation = creation

    def plan(
        self, command: Command, name: str, claim: NewClaim, pools: Mapping[str, objects.NodePool]
    ) -> PlannedReplacement:
        """Uses the pool as in the decision. Raises Refused."""
        pool, types, well_known = pools.get(claim.pool), self._state.places().types, self._cluster.well_known_labels
        is_static = command.method in STATIC
        if pool is None or not (is_static or claim.pool in types):
            raise CommandRefused(f"NodePool {claim.pool} cannot be used any more")
        try:
            if is_static:
                body = static_claim_body(pool, name=name, well_known=well_known)
            else:
                body = claim_body(
                    pool,
                    claim,
                    types[claim.pool],
                    name=name,
                    well_known=well_known,
                    names_types=self._execution.names_types,
                    infers_labels=self._execution.infers_labels,
                )
        except (DurationError, RequirementError) as error:
            raise CommandRefused(f"NodePool {claim.pool} cannot be read: {error}") from error
        body["metadata"]["annotations"] |= self._execution.hash_annotations(pool)
        body["metadata"]["annotations"][names.REPLACEMENT_OF] = command.id
        capacities = [type_.capacity for type_ in types.get(claim.pool, ()) if type_.name in claim.types]
        shared = {name: min(capacity[name] for capacity in capacities) for name in capacities[0]} if capacities else {}
        return PlannedReplacement(pool, body, Resources({**shared, names.NODES_RESOURCE: 1}))

    async def create_missing(
        self,
        api: KubeApi,
        recorder: EventRecorder,
        record: CommandRecord,
        found: Mapping[str, objects.NodeClaim | None],
        planned: dict[str, PlannedReplacement],
        *,
        leaving: Collection[str],
    ) -> None:
        """Creates what is in `planned`, and removes it from there: a created replacement is not created again.

        `leaving`: the Nodes of all commands. They do not count for limits, because their replacements do.

        Raises Failed if a replacement can never be created, else the first ApiError, after trying all.
        """
        missing = [name for name, claim in found.items() if claim is None]
        going = [name for name, claim in found.items() if claim and claim.metadata.deletion_timestamp is not None]
        if lost := [*going, *(name for name in missing if name not in planned)]:
            raise CommandFailed(f"replacement {', '.join(lost)} is gone")
        if not missing:
            return
        usage = usage_by_pool(node for node in self._state.places().nodes if node.name not in leaving)
        pools = {planned[name].pool.metadata.name: planned[name].pool for name in missing}
        for name, pool in pools.items():
            new = total(planned[missing_name].least for missing_name in missing if planned[missing_name].pool is pool)
            unseen = Resources({names.NODES_RESOURCE: self._creation.unseen_creates(name)})
            if why := self._why_not(pool, usage.get(name, NOTHING) + unseen + new):
                raise CommandFailed(f"NodePool {name} {why}")
        bodies = [planned[name].body for name in missing]
        outcomes = await self._creation.create(api, self._cluster.clock, bodies, reason=record.reason.lower())
        errors = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
        created = [outcome for outcome in outcomes if not isinstance(outcome, ApiError)]
        for claim in created:
            del planned[claim.metadata.name]
            _publish_launching(recorder, claim, record)
        if fatal := [error for error in errors if not isinstance(error, _WORTH_ANOTHER_TRY)]:
            raise CommandFailed(f"a replacement could not be created: {fatal[0]}")
        if strangers := [claim.metadata.name for claim in created if not is_replacement(claim, record)]:
            raise CommandFailed(f"there is a NodeClaim {strangers[0]} already, which is no replacement of ours")
        if errors:
            raise errors[0]

    def _why_not(self, pool: objects.NodePool, used: Resources) -> str:
        """Why no node of the pool may be created now; empty if it may. Uses the current limits."""
        now = self._cluster.pools.value(pool.metadata.name)
        if now is None or now.metadata.uid != pool.metadata.uid or now.metadata.deletion_timestamp is not None:
            return "is gone, or going"
        over = over_limits(now, used)
        return f"would be over its limits: {over}" if over else ""


def _publish_launching(recorder: EventRecorder, claim: objects.NodeClaim, record: CommandRecord) -> None:
    about, reason = about_claim(claim), record.reason
    publish(recorder, about, EventReason.DISRUPTION_LAUNCHING, f"Launching NodeClaim: {reason}", about.uid, reason)


def awaits(name: str, claim: objects.NodeClaim | None, deadline: datetime) -> str:
    """What the replacement still lacks; empty if it was initialized in time and is not being deleted."""
    if claim is None or claim.metadata.deletion_timestamp is not None:
        return f"replacement {name} is not there"
    conditions = {entry.type: entry for entry in claim.status.conditions}
    for wanted in _PROGRESS:
        condition = conditions.get(wanted)
        since = None if condition is None else condition.last_transition_time
        if condition is None or condition.status != TRUE or (since is not None and since > deadline):
            message = f" ({condition.message})" if condition is not None and condition.message else ""
            return f"replacement {name} was not {wanted.lower()}{message}"
    return ""
