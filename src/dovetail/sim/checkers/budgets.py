"""Checks that no pool disrupts more nodes at once than its budgets allow (R25–R30), with a count of its own."""

import re
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from dovetail.api import names
from dovetail.api.names import ConditionType, Reason, TaintEffect
from dovetail.sim.actors.wire import Raw, condition_status, deleting
from dovetail.sim.checkers.checked_cluster import CheckedCluster, ClaimAndNode, own_parts
from dovetail.sim.checkers.records import RecordedCommand, record_on
from dovetail.sim.server.store import Change
from dovetail.values.duration import DurationError, parse_budget_duration
from dovetail.values.schedule.cron import CronError, parse_cron
from dovetail.values.schedule.window import Window

RULE: Final = "budgets"
BY_REASON, UPSTREAM = "by-reason", "upstream"  # the two readings of R25
_NODES: Final = re.compile(r"(?:(100|[0-9]{1,2})%|([0-9]+))")
_REASONS: Final = {reason.lower() for reason in Reason} - {Reason.UNHEALTHY.lower(), Reason.INTERRUPTED.lower()}  # R28
_REMEMBERED: Final = 100


class BudgetChecker:
    """Checks a command when the program writes it on a claim."""

    def __init__(self, scene: CheckedCluster, reading: str) -> None:
        assert reading in (BY_REASON, UPSTREAM), reading
        self._scene = scene
        self._reading = reading
        self._edited: dict[str, tuple[datetime, Raw]] = {}  # by pool: the last edit, and the version before it
        self._left: deque[tuple[datetime, str]] = deque(maxlen=_REMEMBERED)  # pools of deleted initialized claims

    def pool_changed(self, change: Change) -> None:
        if change.old is not None and change.old.body["spec"] != change.new.body["spec"]:
            self._edited[change.new.body["metadata"]["name"]] = (self._scene.now(), change.old.body)

    def claim_gone(self, claim: Raw) -> None:
        if condition_status(claim, ConditionType.INITIALIZED) == "True":
            self._left.append((self._scene.now(), ClaimAndNode(claim, None).pool))

    def begun(self, claim: Raw, record: RecordedCommand) -> None:
        """The program has written the command on the claim."""
        pool_name = self._scene.member_of_claim(claim).pool
        pool = self._scene.pool(pool_name)
        if pool is None:
            self._scene.not_applied[RULE] += 1
            return
        self._scene.applied[RULE] += 1
        members = [member for member in self._scene.members(pool_name) if member.initialized]
        busy = sorted(member.name for member in members if self._is_busy(member))
        decided_at = self._scene.decided_at
        nodes = len(members) + sum(at >= decided_at and pool == pool_name for at, pool in self._left)
        edited_at, before = self._edited.get(pool_name, (None, pool))
        pools = [pool, *([before] if edited_at is not None and edited_at >= decided_at else [])]
        limit = max(
            limit_at(budgets_of(pool), record.reason, at, nodes, self._reading)
            for pool in pools
            for at in (decided_at, self._scene.now())
        )
        if len(busy) > limit:
            message = f"was taken for {record.reason} as number {len(busy)} where the budgets of NodePool {pool_name}"
            message += f" allow {limit} of its {nodes} nodes; busy are {', '.join(busy)}"
            self._scene.report(RULE, claim, message)

    def _is_busy(self, member: ClaimAndNode) -> bool:
        """R26: in S3–S6 for any reason, or not ready. Changes of this very instant do not count."""
        if member.claim is not None and record_on(member.claim) is not None:
            return True
        if not (member.deleting or is_disrupting(member) or _is_unhealthy(member)):
            return False
        return not self._scene.is_news(own_parts(member))


def is_tainted(node: Raw, key: str = names.DISRUPTED_TAINT, effect: str = TaintEffect.NO_SCHEDULE) -> bool:
    return any(taint["key"] == key and taint["effect"] == effect for taint in node["spec"].get("taints") or ())


def is_disrupting(member: ClaimAndNode) -> bool:
    """Whether the member has the marks of S3 (R23)."""
    claim, node = member.claim, member.node
    if claim is None or node is None or deleting(claim):
        return False
    return condition_status(claim, ConditionType.DISRUPTION_REASON) == "True" and is_tainted(node)


def _is_unhealthy(member: ClaimAndNode) -> bool:
    """Whether the node is not Ready, or has lost its Node object."""
    return member.node is None or condition_status(member.node, "Ready") != "True"


# -- the limit ---------------------------------------------------------------------------------------------------------


def budgets_of(pool: Raw) -> Sequence[Raw]:
    """The budgets of the pool; if the field is absent, one of 10 % (R30)."""
    budgets: Sequence[Raw] = (pool["spec"].get("disruption") or {}).get("budgets", [{"nodes": "10%"}])
    return budgets


def limit_at(budgets: Iterable[Raw], reason: str, at: datetime, nodes: int, reading: str = BY_REASON) -> int:
    """How many of the nodes may be busy when one is disrupted for the reason (R25, R27, R29)."""
    reason = reason.lower()
    everything: list[int] = []
    named: list[int] = []
    others: list[int] = []
    for budget in budgets:
        reasons = [str(reason).lower() for reason in budget.get("reasons") or ()]
        limit, active = _read(budget, reasons, at, nodes)
        if limit is None:
            if reading == UPSTREAM:
                return 0  # upstream, one bad budget stops the whole pool
            if reason in reasons or not _REASONS.issuperset(reasons) or not reasons:
                named.append(0)
        elif active and (reason in reasons or not reasons):
            everything.append(limit)
            (named if reasons else others).append(limit)
    return min(everything if reading == UPSTREAM else named or others, default=nodes)


def _read(budget: Raw, reasons: Iterable[str], at: datetime, nodes: int) -> tuple[int | None, bool]:
    """The limit of the budget, None if it is invalid, and whether it is active."""
    value = _NODES.fullmatch(str(budget.get("nodes", "10%")))
    schedule, duration = budget.get("schedule"), budget.get("duration")
    if value is None or not _REASONS.issuperset(reasons) or (schedule is None) != (duration is None):
        return None, True
    limit = -(-nodes * int(value[1]) // 100) if value[1] is not None else int(value[2])
    if schedule is None or duration is None:
        return limit, True
    try:
        return limit, Window([(parse_cron(schedule), parse_budget_duration(duration))]).instants.contains(at)
    except (CronError, DurationError):
        return None, True
