"""Forecasts one node: when it is free or blocked and by which rules, and when and how it goes."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise

from dovetail.api.names import Reason
from dovetail.model.pod_records import PodRecord
from dovetail.planning.node.drain import failing_evictions
from dovetail.rules.budgets import BUDGETED
from dovetail.rules.nodes import ReasonVerdict, is_empty, is_wanted, standing_rules
from dovetail.rules.protection import POD_RULES, protection
from dovetail.rules.states import IN_DISRUPTION, NodeState
from dovetail.rules.verdict import Rule, Verdict
from dovetail.values.duration import add
from dovetail.values.schedule.instants import NEVER, Instants, all_of
from dovetail.values.timestamp import spoken_time
from dovetail.views.assessment import Assessment, NodeAssessment, is_undated, limited_by_deadline
from dovetail.views.drained import drained_pods
from dovetail.views.explain.answers import answer
from dovetail.views.explain.badges import badges
from dovetail.views.explain.data import AnswerView
from dovetail.views.forecast.data import (
    Blocker,
    Certainty,
    ForecastEvent,
    ForecastEventType,
    NodeForecast,
    NodeSpan,
    ReasonForecast,
    ReasonSpan,
    SpanKind,
)
from dovetail.views.forecast.drains import Drain, drain
from dovetail.views.forecast.moves import Moves, may_go
from dovetail.views.turns import MAX_TURNS, turns

MOST_CAUSES = 10
_JUDGES = {each.rule: each.judge for each in POD_RULES}
# The reasons that rules decide alone; whether a node is underutilized takes a scheduling simulation.
_BY_RULES = tuple(reason for reason in BUDGETED if reason is not Reason.UNDERUTILIZED)


class ForecastContext:
    """The span of the forecast, and answers that nodes share."""

    def __init__(self, assessment: Assessment, end: datetime) -> None:
        self.assessment = assessment
        self.at = assessment.at
        self.end = end
        self._cache: dict[Instants, tuple[bool, tuple[datetime, ...]]] = {}
        self._told: dict[int, AnswerView] = {}  # by the `id` of the node, which the assessment keeps

    def answer(self, node: NodeAssessment) -> AnswerView:
        """What `explain` says of the node."""
        told = self._told.get(id(node))
        if told is None:
            judged = list(self.assessment.reasons(node).values())
            told = self._told[id(node)] = answer(self.assessment, node, judged)
        return told

    def turns(self, when: Instants) -> tuple[datetime, ...]:
        """The instants in the span, after its beginning, at which the answer changes."""
        return self._answers(when)[1]

    def holds(self, when: Instants, at: datetime) -> bool:
        """The answer at an instant of the span. It flips at each turn."""
        first, turns_ = self._answers(when)
        return first != bool(bisect_right(turns_, at) & 1)

    def _answers(self, when: Instants) -> tuple[bool, tuple[datetime, ...]]:
        known = self._cache.get(when)
        if known is None:
            known = self._cache[when] = (when.contains(self.at), tuple(turns(when, self.at, self.end)))
        return known

    def begun(self, node: NodeAssessment) -> Drain | None:
        """The drain of a node that is draining now."""
        if node.state is not NodeState.DRAINING:
            return None
        member = node.member
        deleted = member.claim is not None and member.claim.deleted_at is not None
        return drain(
            member.object,
            member.pods,
            self.assessment.pdbs,
            begins_at=self.at,
            deadline=node.deadline,
            end=self.end,
            begun=True,
            failing=bool(failing_evictions(member.claim)),
            sure=deleted and member.node is not None and member.node.ready,
            settings=self.assessment.settings,
        )


def node_forecast(
    node: NodeAssessment, future: ForecastContext, moves: Moves, begun: Drain | None, *, by_reason: bool = True
) -> NodeForecast:
    """The forecast of one node; `by_reason`: also of each reason."""
    return _NodeForecaster(node, future, moves, begun).forecast(by_reason=by_reason)


def wanted_now(forecast: NodeForecast, node: NodeAssessment, future: ForecastContext) -> tuple[Reason, ...]:
    """The reasons for which a node that is not leaving should go now."""
    if forecast.spans and forecast.spans[0].kind in {SpanKind.DRAINING, SpanKind.GONE}:
        return ()
    reasons = future.assessment.reasons(node)
    return tuple(reason for reason in BUDGETED if _is_wanted(node, reasons[reason], future.at))


class _NodeForecaster:
    def __init__(self, node: NodeAssessment, future: ForecastContext, moves: Moves, begun: Drain | None) -> None:
        self.node = node
        self.future = future
        self.assessment = future.assessment
        self.reasons = self.assessment.reasons(node)
        self.at, self.end = future.at, future.end
        self.unreplaced = self._unreplaced()
        self.free = node.free if self.unreplaced is None else all_of([node.free, self.unreplaced.when])
        self.moves = moves
        self.events: list[ForecastEvent] = []
        self.leaves_at, self.drain = self._departure(begun)

    def forecast(self, *, by_reason: bool) -> NodeForecast:
        node, member, machine = self.node, self.node.member, self.node.member.machine
        spans = tuple(self._spans())
        self._add_changes(spans)
        self._add_windows()
        if self.drain is not None:
            self.events += [event for event in self.drain.events if event.at <= self.end]
        self.events.sort(key=lambda event: event.at)
        deadline = node.deadline if self.drain is None else self.drain.deadline
        return NodeForecast(
            name=member.name,
            nodepool=member.pool or None,
            node_claim=None if member.claim is None else member.claim.name,
            state=node.state,
            instance_type=machine.instance_type,
            capacity_type=machine.capacity_type,
            zone=machine.zone,
            managed=member.managed,
            badges=badges(member, self.at),
            undated=is_undated(node, self.at),
            pods=len(member.pods),
            free_at=self.free.first(self.at),
            expires_at=node.expires_at,
            gracefully_expires_at=node.gracefully_expires_at,
            deadline=deadline,
            spans=spans,
            reasons=tuple(self._reason(reason) for reason in BUDGETED) if by_reason else (),
            events=tuple(self.events),
            standing=self.future.answer(node).standing,
            cut_at=self._cut_at(),
        )

    def _unreplaced(self) -> Verdict | None:
        """Why the node cannot be replaced for the reasons that it has."""
        wanted = [judged for judged in self.reasons.values() if judged.wanted]
        if self.node.state in IN_DISRUPTION or any(judged.allowed for judged in wanted):
            return None
        verdicts = (verdict for judged in wanted for verdict in judged.verdicts)
        return next((each for each in verdicts if each.rule is Rule.REPLACEMENT and not each.allowed), None)

    # -- departure -----------------------------------------------------------------------------------------------------

    def _departure(self, begun: Drain | None) -> tuple[datetime | None, Drain | None]:
        """When the node starts to go, if that is certain, and its drain."""
        node = self.node
        if node.state in IN_DISRUPTION:
            return self.at, begun
        self._add_graceful_expiry()
        goes = self._add_disruption()
        expires_at = node.expires_at
        if expires_at is None or expires_at > self.end:
            return (None, None) if goes is None else (goes, self._drained(goes, sure=True))
        at = max(self.at, expires_at)
        # An overdue expiration did not happen, for an unknown reason.
        sure = expires_at > self.at and self.moves.stays_until(node, at)
        if goes is None or at < goes:
            overdue = "" if expires_at > self.at else f", overdue since {spoken_time(expires_at)}"
            self._add(
                at,
                ForecastEventType.EXPIRES,
                f"expireAfter has passed: the node drains, regardless of budgets{overdue}",
                sure,
            )
            return at, self._drained(at, sure=sure)
        return goes, self._drained(goes, sure=True)

    def _drained(self, at: datetime, *, sure: bool) -> Drain:
        member = self.node.member
        grace_ns = None if member.claim is None else member.claim.grace_period_ns
        return drain(
            member.object,
            drained_pods(member.pods, self.assessment.settings),
            self.assessment.pdbs,
            begins_at=at,
            deadline=None if grace_ns is None else add(at, grace_ns),
            end=self.end,
            begun=False,
            sure=sure and self.moves.has_pods_until(self.node, at),
            settings=self.assessment.settings,
        )

    def _add_graceful_expiry(self) -> None:
        at, hard = self.node.gracefully_expires_at, self.node.expires_at
        if at is not None and self.at < at <= self.end and (hard is None or at < hard):
            message = "gracefulExpireAfter has passed: the node is replaced, within budgets"
            self._add(at, ForecastEventType.GRACEFULLY_EXPIRES, message, self.moves.stays_until(self.node, at))

    def _add_disruption(self) -> datetime | None:
        """Report when the engine may take the node for a reason it has; return it only if that is certain."""
        node = self.node
        firsts = [
            (first, reason)
            for reason in _BY_RULES
            if (goes := may_go(self.assessment, node, reason)) is not NEVER
            and (first := goes.first(self.at)) is not None
        ]
        at, reason = min(firsts, default=(None, Reason.EMPTY))
        if at is None or at > self.end or (node.expires_at is not None and at >= node.expires_at):
            return None
        placed = not is_empty(node.member)
        static = node.record is not None and node.record.replicas is not None
        sure = self.moves.is_alone(at) and not placed and not static
        needs = ", if its pods have a place elsewhere" if placed else ""
        self._add(at, ForecastEventType.DISRUPTS, f"may be disrupted for {reason.value}{needs}", sure)
        return at if sure else None

    # -- free or blocked -----------------------------------------------------------------------------------------------

    def _spans(self) -> Iterator[NodeSpan]:
        """The spans, without gaps, from the beginning to the end."""
        leaves_at = self.end if self.leaves_at is None else min(self.leaves_at, self.end)
        free = self.free
        edges = [self.at, *(turn for turn in self.future.turns(free) if turn < leaves_at), leaves_at]
        for start, end in pairwise(edges):
            if start == end:
                continue
            if self.future.holds(free, start):
                yield NodeSpan(start, end, SpanKind.FREE)
            else:
                yield NodeSpan(start, end, SpanKind.BLOCKED, self._causes(start, end))
        if self.leaves_at is None or self.leaves_at >= self.end:
            return
        gone_at = None if self.drain is None else self.drain.gone_at
        over = self.end if gone_at is None else min(gone_at, self.end)
        if leaves_at < over:
            yield NodeSpan(leaves_at, over, SpanKind.DRAINING, self._waited_for(leaves_at))
        if over < self.end:
            yield NodeSpan(over, self.end, SpanKind.GONE)

    def _causes(self, start: datetime, end: datetime) -> tuple[Blocker, ...]:
        """The rules that block from start to end, in order."""
        found: list[Blocker] = []
        at: datetime | None = start
        while at is not None and at < end:
            causes = _grouped([*self._node_blockers(at), *self._pod_blockers(at)], at)
            if not causes:
                break
            found += causes
            reaches = [cause.until for cause in causes]
            at = None if None in reaches else max(filter(None, reaches))
        return tuple(found[:MOST_CAUSES])

    def _waited_for(self, at: datetime) -> tuple[Blocker, ...]:
        blockers = list(self._drain_blockers(at))
        deadline = None if self.drain is None else self.drain.deadline
        if deadline is not None and self.node.deadline is None:  # else the verdicts include it
            pods = {pod.object: pod for pod in self.node.member.pods}
            limited = [limited_by_deadline(pods[each.object], each, deadline, at) for each in blockers]
            blockers = [verdict for verdict in limited if not verdict.allowed]
        return tuple(_grouped(blockers, at)[:MOST_CAUSES])

    def _drain_blockers(self, at: datetime) -> Iterator[Verdict]:
        """In the reading of who drains the node."""
        settings = self.assessment.settings
        if self.node.state in IN_DISRUPTION or settings.in_drains == settings:
            yield from self._pod_blockers(at)
            return
        limiting = {pod.object: pod for pod, _ in self.node.limiting}
        for pod in drained_pods(limiting.values(), settings):
            verdicts = (*protection(pod, at), self.assessment.pdbs.verdict(pod))
            yield from (verdict for verdict in verdicts if not verdict.allowed)

    def _node_blockers(self, at: datetime) -> Iterator[Verdict]:
        node = self.node
        own = node.own if at == self.at else None
        for verdict in standing_rules(node.member, node.record, Reason.DRIFTED, at, own):
            if not verdict.allowed:
                yield verdict
        if self.unreplaced is not None and not self.unreplaced.when.contains(at):
            yield self.unreplaced

    def _pod_blockers(self, at: datetime) -> Iterator[Verdict]:
        for pod, verdict in self.node.limiting:
            if not self.future.holds(verdict.when, at):
                yield verdict if at == self.at else _again(pod, verdict, at)

    def _reason(self, reason: Reason) -> ReasonForecast:
        """The reason over time, until the node goes."""
        node, judged = self.node, self.reasons[reason]
        end = self.end if self.leaves_at is None else min(self.leaves_at, self.end)
        ends = (node.expires_at, node.gracefully_expires_at) if reason is Reason.EXPIRED else ()
        changes = {*self.future.turns(judged.when), *(at for at in ends if at is not None and at > self.at)}
        spans: list[ReasonSpan] = []
        for start, stop in pairwise([self.at, *sorted(change for change in changes if change < end), end]):
            wanted, allowed = _is_wanted(node, judged, start), self.future.holds(judged.when, start)
            if spans and (spans[-1].wanted, spans[-1].allowed) == (wanted, allowed):
                spans[-1] = ReasonSpan(spans[-1].start, stop, wanted, allowed)
            elif start < stop:
                spans.append(ReasonSpan(start, stop, wanted, allowed))
        return ReasonForecast(reason, judged.wanted, tuple(spans))

    def _cut_at(self) -> datetime | None:
        sets = (self.free, *(judged.when for judged in self.reasons.values()))
        cut = [turns_[-1] for when in sets if len(turns_ := self.future.turns(when)) == MAX_TURNS]
        return min(cut, default=None)

    # -- events --------------------------------------------------------------------------------------------------------

    def _add_changes(self, spans: Sequence[NodeSpan]) -> None:
        for before, span in pairwise(spans):
            if span.kind is SpanKind.FREE:
                self._add(span.start, ForecastEventType.FREE, "no rule blocks it", self.moves.is_exact(span.start))
            elif span.kind is SpanKind.BLOCKED and before.kind is SpanKind.FREE:
                by = ", ".join(dict.fromkeys(cause.rule for cause in span.causes))
                self._add(span.start, ForecastEventType.BLOCKED, f"blocked by {by}", self.moves.is_exact(span.start))

    def _add_windows(self) -> None:
        """The windows of its pods, one event for all that are alike."""
        alike: dict[tuple[Rule, Instants], list[PodRecord]] = {}
        for pod, verdict in self.node.limiting:
            if verdict.rule in (Rule.DISRUPTION_SCHEDULE, Rule.DISRUPTION_BLOCK_SCHEDULE):
                alike.setdefault((verdict.rule, verdict.when), []).append(pod)
        end = self.end if self.leaves_at is None else self.leaves_at
        for (rule, when), pods in alike.items():
            block = rule is Rule.DISRUPTION_BLOCK_SCHEDULE
            whose = f"of {len(pods)} pods" if len(pods) > 1 else "of the pod"
            name = f"{'block' if block else 'disruption'} window {whose}"
            for turn in self.future.turns(when):
                if turn > end:
                    break
                opens = self.future.holds(when, turn) != block
                type_ = ForecastEventType.WINDOW_OPENS if opens else ForecastEventType.WINDOW_CLOSES
                certainty = Certainty.EXACT if self.moves.is_exact(turn) else Certainty.ASSUMED
                message = f"{name} {'opens' if opens else 'closes'}"
                self.events.append(ForecastEvent(turn, type_, pods[0].object, message, certainty))

    def _add(self, at: datetime, type_: ForecastEventType, message: str, exact: bool) -> None:
        certainty = Certainty.EXACT if exact else Certainty.ASSUMED
        self.events.append(ForecastEvent(at, type_, self.node.member.object, message, certainty))


def _is_wanted(node: NodeAssessment, judged: ReasonVerdict, at: datetime) -> bool:
    """Time alone adds only Expired, which may end other reasons."""
    if not judged.wanted and judged.reason is not Reason.EXPIRED:
        return False
    return is_wanted(node.member, node.record, judged.reason, at)


def _again(pod: PodRecord, verdict: Verdict, at: datetime) -> Verdict:
    """The verdict of the rule at that instant. PDBs do not depend on time."""
    judge = _JUDGES.get(verdict.rule)
    return verdict if judge is None else judge(pod, at)


def _grouped(verdicts: Sequence[Verdict], at: datetime) -> list[Blocker]:
    """One cause for verdicts with the same message, the longest first."""
    alike: dict[tuple[Rule, str], list[Verdict]] = {}
    for verdict in verdicts:
        alike.setdefault((verdict.rule, verdict.message), []).append(verdict)
    causes = [
        Blocker(
            rule,
            group[0].object,
            message if len(group) == 1 else f"{message} (and {len(group) - 1} more like it)",
            at,
            group[0].until,
        )
        for (rule, message), group in alike.items()
    ]
    return sorted(causes, key=lambda cause: (cause.until is not None, -(cause.until or at).timestamp()))
