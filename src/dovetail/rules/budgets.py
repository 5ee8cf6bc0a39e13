"""How many more nodes of a pool may be disrupted for a reason, and until when (R25–R30)."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from dovetail.api import objects
from dovetail.api.names import ConditionType, EventReason, Reason
from dovetail.model.finding import Finding, Severity
from dovetail.model.refs import Ref
from dovetail.model.rule_settings import DEFAULT_SETTINGS, BudgetSemantics, RuleSettings
from dovetail.model.snapshot import ClusterNode
from dovetail.rules.deadlines import node_deadline
from dovetail.rules.reasons import DISRUPTION_REASONS, is_budgeted
from dovetail.rules.states import IN_DISRUPTION, NodeState, state_of
from dovetail.values.duration import DurationError, parse_budget_duration, shown
from dovetail.values.mending import (
    is_length_of,
    is_unitless,
    meant_duration,
    meant_schedule,
    over_midnight,
    surplus_advice,
)
from dovetail.values.schedule.cron import CronError, parse_cron
from dovetail.values.schedule.instants import ALWAYS, NEVER, Instants, all_of, any_of, complement
from dovetail.values.schedule.window import Window
from dovetail.values.spelling import meant_word
from dovetail.values.timestamp import spoken_time

# The reasons a budget can name (R28). Other reasons ignore budgets.
BUDGETED = tuple(DISRUPTION_REASONS)
UNLIMITED = 2**31 - 1
# Node counts for warnings: a difference may only show when the pool has grown.
GROWN = (10, 100, 1000)
_NODES = re.compile(r"(?:(100|[0-9]{1,2})%|([0-9]+))")
_BY_NAME = {spelling: reason for reason in BUDGETED for spelling in (reason.value, reason.value.lower())}
# Names of the reasons in older documents. The API refuses such a budget, but it is clear which reason it must block.
FORMER_NAMES = {name: reason for reason, row in DISRUPTION_REASONS.items() for name in row.former_names}


class BudgetRule(msgspec.Struct, frozen=True, kw_only=True):
    """One parsed budget. A budget with a fault is always active and allows nothing (R29)."""

    index: int
    count: int = 0
    percent: int | None = None
    reasons: tuple[Reason, ...] = ()  # empty: the default budget
    active: Instants
    window: Window | None = None
    fault: str | None = None
    field: str = ""
    remedy: str = ""
    """What to write instead, if there is a fault."""

    def limit(self, nodes: int) -> int:
        """Percentages round up (R27)."""
        return self.count if self.percent is None else -(-nodes * self.percent // 100)


def read_budgets(
    budgets: Iterable[objects.Budget], settings: RuleSettings = DEFAULT_SETTINGS
) -> tuple[BudgetRule, ...]:
    """Parses the budgets of a pool. A budget that cannot be parsed blocks (fail-closed); the others still apply."""
    return tuple(_read_budget(index, budget, settings) for index, budget in enumerate(budgets))


def _read_budget(index: int, budget: objects.Budget, settings: RuleSettings) -> BudgetRule:
    unknown = next((name for name in budget.reasons if name not in _BY_NAME), None)
    meant = [_BY_NAME.get(name.lower()) or FORMER_NAMES.get(name.lower()) for name in budget.reasons]
    # An unknown name blocks every reason.
    reasons = () if None in meant else tuple(dict.fromkeys(filter(None, meant)))
    count, percent, fault, field = 0, None, None, ""
    window: Window | None = None
    count_or_percent = _NODES.fullmatch(str(budget.nodes))
    if count_or_percent is None:
        fault, field = f"nodes {shown(str(budget.nodes))} is neither a count nor a percentage up to 100%", "nodes"
    elif count_or_percent[1] is not None:
        percent = int(count_or_percent[1])
    else:
        digits = count_or_percent[2].lstrip("0") or "0"
        count = int(digits) if len(digits) <= 10 else UNLIMITED
    if unknown is not None:
        known = ", ".join(reason.value for reason in BUDGETED)
        fault, field = f"{shown(unknown)} is not a reason: want {known}", "reasons"
    if (budget.schedule is None) != (budget.duration is None):
        fault, field = "schedule and duration go together, and one is missing", "schedule"
    elif budget.schedule is not None and budget.duration is not None:
        try:
            window = Window([(parse_cron(budget.schedule), parse_budget_duration(budget.duration))])
        except CronError as error:
            fault, field = str(error), "schedule"
        except DurationError as error:
            fault, field = str(error), "duration"
    if fault is None and not settings.budget_zones and (budget.schedule or "").strip().startswith(_ZONES):
        fault, field = "Karpenter cannot read a schedule with a time zone, Dovetail can", "schedule"
    if fault is not None:
        remedy = _remedy(field, budget) if window is None else _IN_UTC
        return BudgetRule(index=index, reasons=reasons, active=ALWAYS, fault=fault, field=field, remedy=remedy)
    active = ALWAYS if window is None else window.instants
    return BudgetRule(index=index, count=count, percent=percent, reasons=reasons, active=active, window=window)


_ZONES = ("TZ=", "CRON_TZ=")
_IN_UTC = "write the times in UTC, without the time zone"


def _remedy(field: str, budget: objects.Budget) -> str:
    """What to write instead of a value that cannot be read (R29)."""
    if field == "nodes":
        return 'write a count such as "5" or a percentage up to "100%", in quotes'
    if field == "reasons":
        return _reasons_remedy(budget.reasons)
    if field == "duration":
        return budget_duration_remedy(budget.duration or "")
    if budget.schedule is None:
        return 'add a schedule, such as "0 22 * * *", or drop the duration for a budget that is always active'
    if budget.duration is None:
        if _is_every_minute(budget.schedule):
            return f'drop the schedule: a budget without one is always active, as "{budget.schedule}" is meant to be'
        return "add a duration, such as 8h, or drop the schedule for a budget that is always active"
    return _schedule_remedy(budget.schedule, budget.duration)


def _schedule_remedy(text: str, duration: str) -> str:
    meant = meant_schedule(text)
    if meant is None:
        form = 'write five cron fields, such as "0 22 * * *" or "CRON_TZ=Europe/Berlin 0 22 * * 1-5"'
        return surplus_advice([text]) + form
    try:
        span_ns = parse_budget_duration(meant_duration(duration) or duration)
    except DurationError:
        span_ns = None
    if not is_length_of(span_ns, meant):
        return over_midnight(meant, "duration")
    return f'write "{meant.text}"' + (f", which opens it from {meant.hours}" if meant.hours else "")


def budget_duration_remedy(text: str) -> str:
    """What to write instead of a duration that a budget cannot have. Budgets do not accept seconds."""
    near = meant_duration(text) or ""
    try:
        parse_budget_duration(near)
    except DurationError:
        number = text.strip()
        if is_unitless(number):
            return f"add the unit: {number}h or {number}m"
        return "write whole hours and minutes, such as 8h or 1h30m"
    return f"write {near}"


def _is_every_minute(text: str) -> bool:
    try:
        return parse_cron(text).minutely
    except CronError:
        return False


def meant_reason(name: str) -> str | None:
    """The reason of R28 that was meant, or None."""
    return FORMER_NAMES.get(name.lower()) or meant_word(name, [reason.value for reason in BUDGETED])


def _reasons_remedy(reasons: Sequence[str]) -> str:
    meant = [meant_reason(name) for name in reasons]
    if None in meant or len(meant) > 10:
        return f"name only {', '.join(reason.value for reason in BUDGETED)}"
    return f"write reasons: [{', '.join(dict.fromkeys(filter(None, meant)))}]"


# -- the limit --------------------------------------------------------------------------------------------------------


def limit_at(
    budgets: Sequence[BudgetRule],
    reason: Reason,
    now: datetime,
    nodes: int,
    reading: BudgetSemantics = BudgetSemantics.SEED,
) -> tuple[int, int | None]:
    """The lowest active budget that applies, and its index; else the node count of the pool (R25)."""
    named, default = _applicable(budgets, reason, reading)
    for group in (named, default):
        active = [(budget.limit(nodes), budget.index) for budget in group if budget.active.contains(now)]
        if active:
            return min(active)
    return nodes, None


def limit_below(
    budgets: Sequence[BudgetRule],
    reason: Reason,
    value: int,
    nodes: int,
    reading: BudgetSemantics = BudgetSemantics.SEED,
) -> Instants:
    """When the limit for the reason is below the value: `limit_at` for all instants."""
    named, default = _applicable(budgets, reason, reading)
    any_named, any_default = _any_active(named), _any_active(default)
    return any_of(
        [
            _any_active(budget for budget in named if budget.limit(nodes) < value),
            all_of([complement(any_named), _any_active(budget for budget in default if budget.limit(nodes) < value)]),
            all_of([complement(any_named), complement(any_default), ALWAYS if nodes < value else NEVER]),
        ]
    )


def _applicable(
    budgets: Sequence[BudgetRule], reason: Reason, reading: BudgetSemantics
) -> tuple[list[BudgetRule], list[BudgetRule]]:
    """The budgets that name the reason, and those that apply when none of these is active."""
    if reading is BudgetSemantics.UPSTREAM:
        if any(budget.fault for budget in budgets):  # in upstream, one bad budget blocks the whole pool (02 §5.2)
            return [budget for budget in budgets if budget.fault], []
        return [budget for budget in budgets if not budget.reasons or reason in budget.reasons], []
    # A budget with a fault that names no reason blocks every reason (R29).
    return (
        [budget for budget in budgets if reason in budget.reasons or (budget.fault and not budget.reasons)],
        [budget for budget in budgets if not budget.reasons and not budget.fault],
    )


def _any_active(budgets: Iterable[BudgetRule]) -> Instants:
    return any_of([budget.active for budget in budgets])


def readings_differ(budgets: Sequence[BudgetRule], reason: Reason, nodes: int) -> Instants:
    """When the two readings give different limits: a default budget is lower than those of the reason (R25).

    Limits above the number of nodes are equal.
    """
    named, default = _applicable([budget for budget in budgets if budget.fault is None], reason, BudgetSemantics.SEED)
    differing = []
    for budget in default:
        lower = min(budget.limit(nodes), nodes)
        as_low = [other for other in named if min(other.limit(nodes), nodes) <= lower]
        if len(as_low) < len(named):
            differing.append(all_of([budget.active, _any_active(named), complement(_any_active(as_low))]))
    return any_of(differing)


# -- usage ------------------------------------------------------------------------------------------------------------


class BudgetConsumer(msgspec.Struct, frozen=True, kw_only=True):
    """A node that counts for its pool's budgets, and why."""

    node: str
    state: NodeState
    unhealthy: bool
    since: datetime | None = None
    until: datetime | None = None
    """When its drain ends by force."""


class PoolCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The pool's initialized nodes, and those of them that count for its budgets (R26–R27)."""

    nodes: int
    consumers: tuple[BudgetConsumer, ...] = ()

    @property
    def disrupting(self) -> int:
        return sum(not consumer.unhealthy for consumer in self.consumers)

    @property
    def unhealthy(self) -> int:
        return sum(consumer.unhealthy for consumer in self.consumers)


def is_initialized(member: ClusterNode) -> bool:
    """By the Node's label, or without a Node by the claim's condition. Unmanaged nodes always are."""
    if member.node is not None:
        return member.node.initialized or not (member.pool or member.claim)
    return member.claim is not None and member.claim.is_true(ConditionType.INITIALIZED)


def pool_counts(members: Iterable[ClusterNode]) -> PoolCounts:
    """Count the nodes of one pool."""
    return counts_of((member, state_of(member)) for member in members)


def counts_of(members: Iterable[tuple[ClusterNode, NodeState]]) -> PoolCounts:
    """Counts nodes whose state is already known."""
    nodes, consumers = 0, []
    for member, state in members:
        if not is_initialized(member):
            continue
        nodes += 1
        if state in IN_DISRUPTION:
            since, until = _disrupted_since(member), None if member.claim is None else node_deadline(member.claim)
            consumers.append(BudgetConsumer(node=member.name, state=state, unhealthy=False, since=since, until=until))
        elif member.node is None or not member.node.ready:  # a claim without a Node is not Ready either
            since = None if member.node is None else member.node.ready_changed_at
            consumers.append(BudgetConsumer(node=member.name, state=state, unhealthy=True, since=since))
    return PoolCounts(nodes=nodes, consumers=tuple(consumers))


def _disrupted_since(member: ClusterNode) -> datetime | None:
    gone = [part.deleted_at for part in (member.claim, member.node) if part is not None and part.deleted_at is not None]
    begun = None if member.claim is None else member.claim.true_since(ConditionType.DISRUPTION_REASON)
    return min(gone, default=begun)


# -- allowances -------------------------------------------------------------------------------------------------------


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool's budgets allow for one reason."""

    reason: Reason
    limit: int
    binding: int | None  # index of the lowest budget; None: unlimited
    allowed: int
    until: datetime | None  # when a budget window next changes the limit
    when: Instants  # when at least one disruption is allowed
    fault: str = ""  # why the budget that binds cannot be read, so that it counts as 0 (R29)
    busy: int = 0  # nodes that use it up
    opens_at: datetime | None = None  # when the limit is above 0; None: never


def allowance(
    budgets: Sequence[BudgetRule],
    *,
    reason: Reason,
    now: datetime,
    counts: PoolCounts,
    reading: BudgetSemantics = BudgetSemantics.SEED,
) -> Allowance:
    """The limit of the reason minus all nodes that are disrupted or unhealthy (R26)."""
    limit, binding = limit_at(budgets, reason, now, counts.nodes, reading)
    busy = len(counts.consumers)
    below = [limit_below(budgets, reason, value, counts.nodes, reading) for value in (limit, limit + 1, busy + 1)]
    unchanged = all_of([complement(below[0]), below[1]])
    return Allowance(
        reason=reason,
        limit=limit,
        binding=binding,
        allowed=max(0, limit - busy),
        until=unchanged.until(now),
        when=complement(below[2]),
        fault=next((budget.fault for budget in budgets if budget.index == binding and budget.fault), ""),
        busy=busy,
        opens_at=now if limit > 0 else complement(limit_below(budgets, reason, 1, counts.nodes, reading)).first(now),
    )


def allowances(
    budgets: Sequence[BudgetRule], *, now: datetime, counts: PoolCounts, reading: BudgetSemantics = BudgetSemantics.SEED
) -> dict[Reason, Allowance]:
    """For every reason that a budget can name."""
    return {reason: allowance(budgets, reason=reason, now=now, counts=counts, reading=reading) for reason in BUDGETED}


# -- problems ---------------------------------------------------------------------------------------------------------


def budget_problems(
    object_: Ref,
    budgets: Sequence[BudgetRule],
    *,
    graceful_expiry: bool,
    now: datetime,
    node_counts: Iterable[int],
    settings: RuleSettings = DEFAULT_SETTINGS,
) -> list[Finding]:
    """Problems for the pool's owner: invalid budgets (R29), budgets without effect (R28), two readings (R25)."""
    problems = [
        _problem(
            EventReason.INVALID_BUDGET,
            object_,
            f"spec.disruption.budgets[{budget.index}].{budget.field}",
            f"{budget.fault}; this budget counts as 0 for {_named(budget.reasons)}",
            budget.remedy,
            severity=Severity.ERROR,
        )
        for budget in budgets
        if budget.fault is not None
    ]
    problems += [
        _problem(
            EventReason.BUDGET_WITHOUT_EFFECT,
            object_,
            f"spec.disruption.budgets[{budget.index}].reasons",
            "Expired has no effect: expireAfter is forceful and asks no budget"
            if settings.expired_budgets
            else "Karpenter does not know Expired, and its CRD refuses the NodePool: nothing expires under budgets",
            "set spec.disruption.gracefulExpireAfter to let nodes expire under budgets, or drop the reason"
            if settings.expired_budgets
            else "drop the reason; dovetail drive and run read it",
            severity=Severity.WARNING if settings.expired_budgets else Severity.ERROR,
        )
        for budget in budgets
        if Reason.EXPIRED in budget.reasons and not (graceful_expiry and settings.expired_budgets)
    ]
    reasons = [reason for reason in BUDGETED if is_budgeted(reason, graceful_expiry=graceful_expiry)]
    differing = _first_difference(budgets, reasons, now, node_counts)
    if differing is not None:
        reason, nodes, at = differing
        ours, theirs = (limit_at(budgets, reason, at, nodes, reading)[0] for reading in BudgetSemantics)
        since = "" if at == now else f" from {spoken_time(at)} on"
        limit = f"with {nodes} {'node' if nodes == 1 else 'nodes'} the limit for {reason.value} is"
        problems.append(
            _problem(
                EventReason.BUDGET_READING_DIFFERS,
                object_,
                "spec.disruption.budgets",
                f"{limit} {ours} here but {theirs} in Karpenter{since}, {_UPSTREAM}"
                if settings.decider.own_budgets
                else f"{limit} {theirs}{since} in Karpenter, {_UPSTREAM}; {ours} where Dovetail decides",
                "give every budget its reasons"
                + (", or run with --budget-reading=upstream" if settings.decider.own_budgets else ""),
            )
        )
    return problems


_UPSTREAM = "which applies a budget without reasons to every reason"


def _first_difference(
    budgets: Sequence[BudgetRule], reasons: Sequence[Reason], now: datetime, node_counts: Iterable[int]
) -> tuple[Reason, int, datetime] | None:
    for nodes in node_counts:
        for reason in reasons:
            at = readings_differ(budgets, reason, nodes).first(now)
            if at is not None:
                return reason, nodes, at
    return None


def _named(reasons: Sequence[Reason]) -> str:
    return ", ".join(reason.value for reason in reasons) or "every reason"


def _problem(
    rule: str, object_: Ref, field: str, message: str, remedy: str, *, severity: Severity = Severity.WARNING
) -> Finding:
    return Finding(severity=severity, rule=rule, object=object_, field=field, message=message, remedy=remedy)
