"""Findings about the disruption budgets of a NodePool (R25–R30)."""

from collections.abc import Container, Iterator, Sequence
from datetime import datetime

import msgspec

from dovetail.api import names, objects
from dovetail.api.names import GRACEFUL_EXPIRE_AFTER, Reason
from dovetail.model.finding import Finding
from dovetail.model.pool_records import GRACEFUL_FIELD, MAX_BUDGETS
from dovetail.model.record_fields import nillable_ns
from dovetail.model.rule_settings import DEFAULT_SETTINGS, BudgetSemantics, GracefulExpiry, RuleSettings
from dovetail.rules.budgets import (
    BUDGETED,
    BudgetRule,
    budget_problems,
    limit_at,
    limit_below,
    read_budgets,
)
from dovetail.rules.protection import NOT_IN_FORCE
from dovetail.rules.reasons import is_budgeted
from dovetail.values.duration import MINUTE, short_duration, shown
from dovetail.values.schedule.cron import Cron
from dovetail.values.schedule.instants import ALWAYS, all_of, complement
from dovetail.values.schedule.window import Window
from dovetail.views.findings.pods import run_together
from dovetail.views.findings.subject import Subject

BUDGETS = "spec.disruption.budgets"
# Counts at which percentages round differently, up to the largest known pools. The message names the first count that
# shows a difference: a usual one comes first, and the smallest last, since a limit of 5 for 1 node would look odd.
NODE_COUNTS = (20, 50, 100, 200, 500, 1000, 5000, *range(10, 0, -1))
# A pool so large that every budget below 100% limits it.
_HUGE = 1_000_000
_WEEK = 7 * 24 * 60  # minutes
_DAY = 24 * 60


def budget_findings(
    subject: Subject, pool: objects.NodePool, at: datetime, *, graceful: bool, nodes: int | None, settings: RuleSettings
) -> Iterator[Finding]:
    """All findings about the budgets. `graceful`: the nodes expire gracefully, so budgets apply to expiration too.

    `nodes`: how many nodes the pool has, if that is known.
    """
    budgets = read_budgets(pool.spec.disruption.budgets[:MAX_BUDGETS], settings)
    counts = _possible_counts(pool, nodes)
    problems = budget_problems(
        subject.object,
        budgets,
        graceful_expiry=graceful,
        now=at,
        node_counts=_node_counts(budgets, counts),
        settings=settings,
    )
    for problem in problems:
        line = msgspec.UNSET if subject.line is None else subject.line
        yield msgspec.structs.replace(problem, file=subject.file, line=line)
    yield from limit_findings(subject, budgets, at, graceful=graceful, settings=settings)


def unread_graceful(subject: Subject, field: str) -> Finding:
    """The field of a pool asks for graceful expiry, and whoever decides does not know it (R20)."""
    why, how = "Karpenter does not read it", "use dovetail guard, drive or run"
    if field == GRACEFUL_FIELD:
        why = "Karpenter does not know it and its CRD drops it"
        how += f", with the annotation {GRACEFUL_EXPIRE_AFTER} beside Karpenter"
    message = f"not in force: {why}, so nodes expire by expireAfter alone, by force"
    return subject.warning(NOT_IN_FORCE, field, message, how)


def dropped_graceful(subject: Subject, pool: objects.NodePool, settings: RuleSettings) -> Iterator[Finding]:
    """A manifest asks for graceful expiry in a field that the CRD beside guard and drive drops (R20)."""
    by_annotation = GRACEFUL_EXPIRE_AFTER in pool.metadata.annotations
    dropped = settings.graceful_expiry is GracefulExpiry.ANNOTATION and not (by_annotation or pool.metadata.uid)
    span = pool.spec.disruption.graceful_expire_after
    if dropped and nillable_ns(span) is not None:
        yield subject.warning(
            NOT_IN_FORCE,
            GRACEFUL_FIELD,
            "not in force: Karpenter's CRD drops the field, so nodes expire by expireAfter alone, by force",
            f'write the annotation {GRACEFUL_EXPIRE_AFTER}: "{span}" instead',
        )


def limit_findings(
    subject: Subject,
    budgets: Sequence[BudgetRule],
    at: datetime,
    *,
    graceful: bool,
    settings: RuleSettings = DEFAULT_SETTINGS,
) -> Iterator[Finding]:
    """Findings about budgets that can be read, but hardly are what was meant."""
    if not budgets:
        yield subject.warning(
            "UnboundedBudgets",
            BUDGETS,
            "an empty list of budgets sets no limit: all nodes may be disrupted at once",
            'leave the field out for the default of 10%, or write - nodes: "10%"',
        )
        return
    sound = [budget for budget in budgets if budget.fault is None]
    reasons = [reason for reason in BUDGETED if is_budgeted(reason, graceful_expiry=graceful)]
    for budget in sound:
        yield from _schedule(subject, budget, at)
    reported_reasons: set[Reason] = set()
    reported_budgets: set[int] = set()
    yield from _false_windows(
        subject,
        sound,
        reasons,
        at,
        reported_reasons=reported_reasons,
        reported_budgets=reported_budgets,
        settings=settings,
    )
    yield from _blocked(subject, sound, reasons, reported_reasons, at)
    yield from _shadowed(subject, sound, reported_budgets)


def _possible_counts(pool: objects.NodePool, nodes: int | None) -> list[int]:
    """How many nodes the pool can have: first what it has, then other counts up to its limit."""
    spec = pool.spec
    if spec.replicas is not None:
        return [spec.replicas]
    most = spec.limits.get(names.NODES_RESOURCE) if spec.limits else None
    limit = int(most) if most is not None and str(most).isdigit() else max(NODE_COUNTS)
    likely = [nodes] if nodes else []
    return [*likely, *(count for count in NODE_COUNTS if count <= limit)]


def _node_counts(budgets: Sequence[BudgetRule], possible: Sequence[int]) -> list[int]:
    """The node counts at which the two readings of R25 can differ, one for each order of the limits.

    They differ only where a budget without reasons allows less than a budget with reasons, capped at the node count.
    Equal orders have equal answers, and each answer is a search over years.
    """
    by_order: dict[tuple[int, ...], int] = {}
    for nodes in possible:
        limits = [min(budget.limit(nodes), nodes) for budget in budgets]
        named = [limit for budget, limit in zip(budgets, limits, strict=True) if budget.reasons]
        default = [limit for budget, limit in zip(budgets, limits, strict=True) if not budget.reasons]
        if named and default and min(default) < max(named):
            order = sorted(set(limits))
            by_order.setdefault(tuple(order.index(limit) for limit in limits), nodes)
    return list(by_order.values())


# -- windows ----------------------------------------------------------------------------------------------------------


def _schedule(subject: Subject, budget: BudgetRule, at: datetime) -> Iterator[Finding]:
    """Scheduled budgets that are never or always active (R9, R10)."""
    window = budget.window
    if window is None:
        return
    (cron, span_ns), place = window.parts[0], f"{BUDGETS}[{budget.index}]"
    if window.never and span_ns == 0:
        yield subject.warning(
            "ScheduleNeverFires",
            f"{place}.duration",
            "a window of no length never opens: this budget limits nothing",
            "give the window a length, such as 8h",
        )
    elif window.never:
        yield subject.warning(
            "ScheduleNeverFires",
            f"{place}.schedule",
            f"{shown(cron.text)} names a day that does not exist and never fires: this budget limits nothing",
            "name a day that exists, such as 28 for a day of every month",
        )
    elif window.stays_open(at):
        yield subject.warning(
            "ScheduleAlwaysOpen",
            f"{place}.duration",
            f"the window of {short_duration(span_ns)} opens again before it closes: this budget is always active",
            "drop schedule and duration if it is meant to be, or shorten the duration",
        )
    elif window.runs_together(at):
        yield subject.warning(
            "WindowsRunTogether",
            f"{place}.duration",
            *run_together(window, at),
        )


# -- windows that do not do what they look like -----------------------------------------------------------------------

_FALSE_WINDOW = "BudgetIsNoAllowWindow"


def _false_windows(
    subject: Subject,
    budgets: Sequence[BudgetRule],
    reasons: Sequence[Reason],
    at: datetime,
    *,
    reported_reasons: set[Reason],
    reported_budgets: set[int],
    settings: RuleSettings,
) -> Iterator[Finding]:
    """Windows that look like "only then": a budget limits, and never allows (seed 001, alternative 1).

    Adds the reasons and the indexes of budgets that the findings cover to the two sets.
    """
    unlimited = {reason: complement(limit_below(budgets, reason, _HUGE, _HUGE)) for reason in reasons}
    open_ended = [
        reason for reason in reasons if never_blocks(budgets, reason) and unlimited[reason].first(at) is not None
    ]
    for budget in budgets:
        if budget.window is None or budget.window.stays_open(at) or budget.window.never or budget.limit(_HUGE) == 0:
            continue
        place = f"{BUDGETS}[{budget.index}]"
        governed = [reason for reason in budget.reasons or reasons if reason in reasons]
        blocked, by = _blocked_by(budgets, budget, governed, at)
        if by is not None:
            yield subject.warning(
                _FALSE_WINDOW,
                place,
                f"this window allows nothing: the least of all active budgets counts, and budgets[{by.index}] "
                f"allows none at any time, so no node is ever disrupted for {_named(blocked, reasons)}",
                _only_in_window(budget, by, settings),
            )
            reported_reasons.update(blocked)
            reported_budgets.update((budget.index, by.index))
        elif open_ended and any(
            all_of([unlimited[reason], complement(budget.active)]).first(at) is not None
            for reason in governed
            if reason in open_ended
        ):
            yield subject.warning(
                _FALSE_WINDOW,
                place,
                "outside this window no budget is active, so there is no limit at all: "
                "a window does not say that nodes are disrupted only then",
                f"if only then is meant, add {inverse_budget(budget, settings)}; else add a budget without a schedule, "
                'such as nodes: "10%"',
            )
            open_ended = []  # one such finding for each pool


def _blocked_by(
    budgets: Sequence[BudgetRule], budget: BudgetRule, governed: Sequence[Reason], at: datetime
) -> tuple[list[Reason], BudgetRule | None]:
    """The reasons of this window that another budget never allows, and that budget."""
    for other in budgets:
        if other.active is ALWAYS and other.limit(_HUGE) == 0 and bool(other.reasons) == bool(budget.reasons):
            blocked = [
                reason
                for reason in governed
                if (reason in other.reasons or not other.reasons) and _always_blocked(budgets, reason, at)
            ]
            if blocked:
                return blocked, other
    return [], None


def _always_blocked(budgets: Sequence[BudgetRule], reason: Reason, at: datetime) -> bool:
    nothing = limit_below(budgets, reason, 1, _HUGE)
    return nothing.contains(at) and nothing.until(at) is None


def never_blocks(budgets: Sequence[BudgetRule], reason: Reason) -> bool:
    """Whether no budget blocks the reason at any time. The owner of one that does knows how to block."""
    return not any(budget.limit(_HUGE) == 0 and (reason in budget.reasons or not budget.reasons) for budget in budgets)


def _named(some: Sequence[Reason], reasons: Sequence[Reason]) -> str:
    return "any reason" if len(some) == len(reasons) else ", ".join(reason.value for reason in some)


def _only_in_window(budget: BudgetRule, by: BudgetRule, settings: RuleSettings) -> str:
    """How to allow in the window what this budget says, and nothing outside it, where `by` never allows anything."""
    inverse = inverse_window(budget.window) if budget.window is not None else None
    if set(budget.reasons) != set(by.reasons):  # each goes on to govern its own reasons
        when = "the time outside this window"
        if inverse is not None:
            when = f'schedule: "{inverse[0]}" with duration: {inverse[1]}, {when}'
        return f"limit budgets[{by.index}] to {when}"
    limit = str(budget.count) if budget.percent is None else f"{budget.percent}%"
    at_all_times = "" if limit == "100%" else f'- {{nodes: "{limit}"{_reasons_words(budget)}}} and '
    return f"write instead of both: {at_all_times}{inverse_budget(budget, settings)}"


def inverse_budget(budget: BudgetRule, settings: RuleSettings) -> str:
    """A budget of 0 outside the window. Without reasons it would keep even empty nodes where it is for every reason."""
    if settings.budgets is BudgetSemantics.UPSTREAM and not budget.reasons:
        budget = msgspec.structs.replace(budget, reasons=(Reason.DRIFTED, Reason.UNDERUTILIZED))
    inverse = inverse_window(budget.window) if budget.window is not None else None
    if inverse is None:
        return 'budgets with nodes: "0" whose windows cover the time outside this one'
    schedule, duration = inverse
    return f'- {{nodes: "0", schedule: "{schedule}", duration: {duration}{_reasons_words(budget)}}}'


def _reasons_words(budget: BudgetRule) -> str:
    return f", reasons: [{', '.join(reason.value for reason in budget.reasons)}]" if budget.reasons else ""


def inverse_window(window: Window) -> tuple[str, str] | None:
    """The schedule and duration of the time outside a window that opens once a day or once a week."""
    if len(window.parts) != 1:
        return None
    cron, span_ns = window.parts[0]
    period = _period(cron)
    if period is None or span_ns % MINUTE or not 0 < span_ns // MINUTE < period:
        return None
    minutes = span_ns // MINUTE
    opens = (cron.week & -cron.week).bit_length() - 1
    closes = (opens + minutes) % period
    day, of_day = divmod(closes, _DAY)
    hour, minute = divmod(of_day, 60)
    weekday = str(day) if period == _WEEK else "*"
    zone = "" if cron.zone.key == "UTC" else f"CRON_TZ={cron.zone.key} "
    return f"{zone}{minute} {hour} * * {weekday}", short_duration((period - minutes) * MINUTE)


def _period(cron: Cron) -> int | None:
    """The period in minutes of a schedule that fires once a day or once a week; else None."""
    if not cron.weekly:
        return None
    hits = cron.week
    if hits.bit_count() == 1:
        return _WEEK
    first = (hits & -hits).bit_length() - 1
    daily = sum(1 << first + _DAY * day for day in range(7)) if first < _DAY else 0
    return _DAY if hits == daily else None


# -- budgets that block, and budgets that do nothing ------------------------------------------------------------------


def _blocked(
    subject: Subject,
    budgets: Sequence[BudgetRule],
    reasons: Sequence[Reason],
    reported: Container[Reason],
    at: datetime,
) -> Iterator[Finding]:
    """Reasons that are never allowed and that no other finding covers."""
    stopped = [reason for reason in reasons if reason not in reported and _always_blocked(budgets, reason, at)]
    if stopped:
        _, by = limit_at(budgets, stopped[0], at, _HUGE)
        yield subject.warning(
            "BudgetBlocksForever",
            BUDGETS if by is None else f"{BUDGETS}[{by}]",
            f"no node may ever be disrupted for {_named(stopped, reasons)}",
            'give the block a window, such as schedule: "0 9 * * 1-5" with duration: 8h, or allow at least "1"',
        )


def _shadowed(subject: Subject, budgets: Sequence[BudgetRule], reported: Container[int]) -> Iterator[Finding]:
    """Budgets without effect: another budget is active whenever they are, and never allows more."""
    for budget in budgets:
        by = next((other for other in budgets if other is not budget and _covers(other, budget)), None)
        if by is not None and budget.index not in reported:
            yield subject.info(
                "BudgetNeverBinding",
                f"{BUDGETS}[{budget.index}]",
                f"budgets[{by.index}] is active whenever this one is and never allows more: it limits nothing",
                f"remove it, or make it stricter than budgets[{by.index}]",
            )


def _covers(other: BudgetRule, budget: BudgetRule) -> bool:
    if set(other.reasons) != set(budget.reasons) and not (budget.reasons and set(budget.reasons) < set(other.reasons)):
        return False
    if other.window is not None and other.active is not budget.active:
        return False
    if other.percent is None and budget.percent is None:
        less, equal = other.count < budget.count, other.count == budget.count
    elif other.percent is not None and budget.percent is not None:
        less, equal = other.percent < budget.percent, other.percent == budget.percent
    else:
        less, equal = other.limit(_HUGE) == 0, False
    # Of two equal budgets only the later one is pointless.
    alike = equal and other.active is budget.active and set(other.reasons) == set(budget.reasons)
    return less or (equal and (not alike or other.index < budget.index))
