"""Checks that replacements are initialized before a node is deleted (R23), and that consolidation saves money."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dovetail.api import names
from dovetail.api.names import ConditionType, Reason
from dovetail.model.instance_types import InstanceType, Offering
from dovetail.ports import NODECLAIMS
from dovetail.sim.actors.wire import Raw, condition_of, condition_status, created_at, deleting, labels_of
from dovetail.sim.checkers.checked_cluster import CheckedCluster
from dovetail.sim.checkers.records import CommandTracker, RecordedCommand, record_on
from dovetail.values.duration import DurationError, add, parse_nillable
from dovetail.values.timestamp import parse_time, spoken_time

FIRST: Final = "replacements-first"
CHEAPER: Final = "cheaper"
_FORCEFUL: Final = frozenset({Reason.EXPIRED, Reason.UNHEALTHY, Reason.INTERRUPTED})


class ReplacementChecker:
    """Checks a claim with a command when the program deletes it."""

    def __init__(self, scene: CheckedCluster, commands: CommandTracker, types: Sequence[InstanceType]) -> None:
        self._scene = scene
        self._commands = commands
        self._types = {type_.name: type_ for type_ in types}

    def claim_deleted(self, claim: Raw) -> None:
        """`claim`: right before its deletion."""
        record = record_on(claim)
        if record is None:
            return
        self._first(claim, record)
        command = self._commands.begun.get(record.id)
        if command is not None and command.is_done and record.reason == Reason.UNDERUTILIZED:
            self._cheaper(record, command.labels)

    # -- replacements first --------------------------------------------------------------------------------------------

    def _first(self, claim: Raw, record: RecordedCommand) -> None:
        if not record.replacements:
            return
        missing = [why for name in record.replacements if (why := self._missing(name, record))]
        if missing and (self._is_forced(claim, record) or any(map(self._has_just_gone, record.replacements))):
            self._scene.not_applied[FIRST] += 1
            return
        self._scene.applied[FIRST] += 1
        for why in missing:
            self._scene.report(FIRST, claim, f"was deleted ({record.reason}) though its replacement {why}")

    def _missing(self, name: str, record: RecordedCommand) -> str:
        replacement = self._scene.claim(name)
        if replacement is None:
            return f"{name} is not there"
        if deleting(replacement):
            return f"{name} is going itself"
        condition = condition_of(replacement, ConditionType.INITIALIZED)
        if condition is None or condition.get("status") != "True":
            return f"{name} is not initialized"
        if parse_time(condition["lastTransitionTime"]) > record.deadline:
            return f"{name} was initialized only after {spoken_time(record.deadline)}"
        return ""

    def _has_just_gone(self, name: str) -> bool:
        """Whether the replacement has been deleted since the decision."""
        replacement = self._scene.claim(name)
        gone = replacement is None or deleting(replacement)
        return gone and self._scene.is_news([(NODECLAIMS, name, "")])

    def _is_forced(self, claim: Raw, record: RecordedCommand) -> bool:
        """Whether it is deleted for another reason than its command: its Node goes or is gone, or a forceful method."""
        node = self._scene.member_of_claim(claim).node
        if node is None or deleting(node) or condition_status(node, "Ready") != "True":
            return True
        condition = condition_of(claim, ConditionType.DISRUPTION_REASON)
        if condition is not None and condition["reason"] in _FORCEFUL - {record.reason}:
            return True
        try:
            span_ns = parse_nillable(claim["spec"].get("expireAfter", names.NEVER))
        except DurationError:
            return False
        expires_at = None if span_ns is None else add(created_at(claim), span_ns)
        return expires_at is not None and self._scene.now() >= expires_at

    # -- the price -----------------------------------------------------------------------------------------------------

    def _cheaper(self, record: RecordedCommand, candidates: Mapping[str, Mapping[str, str]]) -> None:
        """All claims of the command are deleted: the replacements must cost less than all of them together."""
        if not record.replacements:
            return
        before = self._price(candidates.values())
        replacements = [self._scene.claim(name) for name in record.replacements]
        after = self._price([labels_of(claim) for claim in replacements if claim is not None])
        if before is None or after is None or None in replacements:
            self._scene.not_applied[CHEAPER] += 1
            return
        self._scene.applied[CHEAPER] += 1
        if after >= before:
            message = f"cost {before:.6f} an hour and were replaced by {', '.join(record.replacements)} for {after:.6f}"
            self._scene.report(CHEAPER, f"NodeClaim/{', '.join(sorted(candidates))}", message)

    def _price(self, machines: Iterable[Mapping[str, str]]) -> float | None:
        prices = [self._price_of(labels) for labels in machines]
        return None if None in prices else sum(filter(None, prices))

    def _price_of(self, labels: Mapping[str, str]) -> float | None:
        type_ = self._types.get(labels.get(names.INSTANCE_TYPE_LABEL, ""))
        bought = [] if type_ is None else [offering for offering in type_.offerings if _is_of(offering, labels)]
        return min((offering.price for offering in bought), default=None)


def _is_of(offering: Offering, labels: Mapping[str, str]) -> bool:
    """Whether the machine with these labels has this offering."""
    return all(
        labels.get(requirement.key) in requirement.values
        for requirement in offering.requirements
        if requirement.key in (names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL)
    )
