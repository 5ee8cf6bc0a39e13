"""Shows an explanation as lines: nodes, protected pods, budgets, changes and problems."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime

import click
from msgspec import UNSET

from dovetail.cli.common.output import Times, count, pending_lines, pools_shown, problem_lines, sections, table
from dovetail.model.refs import Ref
from dovetail.rules.budgets import BudgetConsumer
from dovetail.rules.states import IN_DISRUPTION, MEANING, NodeState
from dovetail.rules.verdict import Remark, Rule
from dovetail.values.foreign_text import plain
from dovetail.views.explain.badges import Badge, BadgeKind
from dovetail.views.explain.blocking import BlockerView
from dovetail.views.explain.data import AnswerView
from dovetail.views.explain.pending import PendingSummary, PendingView
from dovetail.views.explain.standings import LEAVING, NOW, NodeStanding, counted, free_word, standing_word
from dovetail.views.explain.verdicts import (
    DRAIN,
    BudgetView,
    Explanation,
    NodeView,
    PodView,
    PoolView,
    ReasonView,
    VerdictView,
)
from dovetail.views.explain.workloads import WorkloadView

# In one line; JSON has all.
_MOST_TURNS = 6
_MOST_USERS = 10
_MOST_BLOCKERS = 3
_BLOCKED = frozenset({NodeStanding.WAITING.value, NodeStanding.STUCK.value})
_NOTED = frozenset({BadgeKind.NOT_READY, BadgeKind.CORDONED})
# Rules of the pool, which say the same of all its nodes.
_OF_POOLS = frozenset({Rule.BUDGET, Rule.NODEPOOL, Rule.SCALE_OUT})


def explanation_lines(
    explanation: Explanation,
    times: Times,
    *,
    verbose: bool,
    quiet: bool,
    named: bool = False,
    namespace: str | None = None,
) -> list[str]:
    """The whole explanation. Verbose shows every rule that was checked, quiet only what is blocked.

    `named`: it is about objects that the user has named. Their answers come first, and the rules about reasons that
    they have. `namespace`: it is about the pods of this namespace, which come first, and about their nodes. Only nodes
    with a reason to go are explained.
    """
    text = _ExplainText(times, verbose=verbose, quiet=quiet, named=named, brief=namespace is not None)
    nodes, pods = explanation.nodes, explanation.pods
    of_namespace: list[str] = []
    if namespace is not None:
        none = f"no pod of namespace {plain(namespace)} is protected"
        of_namespace = text.pod_table(pods) or [none if pods else f"there are no pods in namespace {plain(namespace)}"]
    workloads = explanation.workloads or ()
    owned = {(workload.namespace, name) for workload in workloads for name in workload.pods}
    if not verbose:
        pods = tuple(pod for pod in pods if (pod.namespace, pod.name) not in owned)
    bodies = {
        f"Pods of {plain(namespace or '')}": of_namespace,
        **{f"Pods of {_named(workload)}": text.pods_of(workload, explanation.pods) for workload in workloads},
        "Nodes": text.nodes(nodes),
        "Nodes without a NodePool": text.unmanaged(nodes),
        "Pods": [] if of_namespace and not verbose else text.pods(pods, {node.name for node in nodes}),
        "Budgets": text.pools(explanation.nodepools),
        "Changes": text.changes(explanation),
        "Problems": [] if quiet else problem_lines(explanation.problems, times, below_head=True),
    }
    lines = [f"At {times.stamp(explanation.at)}"]
    if named:
        lines += [text.workload(workload, explanation.pods) for workload in workloads]
        for node in explanation.nodes:
            lines += ["", *text.answer(node)]
    elif namespace is None:
        lines += text.summary(nodes, explanation.blockers or ()) if nodes else []
        lines += pending_lines(explanation.pending or PendingSummary())
    if namespace is None and not (explanation.nodes or explanation.pods or explanation.nodepools or workloads):
        lines.append("There is no Node, NodeClaim, NodePool or Pod, so there is nothing to explain.")
        lines.append("To check manifests before they are applied, use `dovetail lint`.")
    return lines + sections(bodies)


def answer_lines(node: NodeView, times: Times) -> list[str]:
    """The answer for the node in one sentence, and the next step."""
    return _ExplainText(times, verbose=False, quiet=False, named=True).answer(node)


def badge_lines(node: NodeView, times: Times) -> list[str]:
    """What is the matter with the node, since when, and why."""
    text = _ExplainText(times, verbose=False, quiet=False, named=True)
    return [text.badge(badge) for badge in node.badges]


class _ExplainText:
    def __init__(self, times: Times, *, verbose: bool, quiet: bool, named: bool, brief: bool = False) -> None:
        self.times = times
        self.verbose = verbose
        self.quiet = quiet
        self.named = named
        self.brief = brief

    def summary(self, nodes: tuple[NodeView, ...], blockers: Sequence[BlockerView]) -> list[str]:
        """Each node once by what it needs in order to go, and who blocks most of those that should."""
        own = [node for node in nodes if node.managed]
        if not own:
            return [f"{count(len(nodes), 'node')} without a NodePool"]
        standings = Counter(standing_word(node.answer.standing, node.state) for node in own if node.answer is not UNSET)
        lines = [f"{count(len(own), 'node')}: {', '.join(counted(standings).values())}"]
        if blockers:
            shown = blockers if self.verbose else blockers[:_MOST_BLOCKERS]
            named = [f"{plain(str(top.owner))} ({top.rule}) {count(top.nodes, 'node')}" for top in shown]
            more = len(blockers) - len(shown)
            lines.append(f"blocked most by: {', '.join(named)}{f' and {more} more (-v)' if more else ''}")
        return lines

    def answer(self, node: NodeView) -> list[str]:
        """The answer for the node in one sentence, and the next step."""
        assert node.answer is not UNSET
        lines = [f"{click.style(plain(node.name), bold=True)} {self._sentence(node, node.answer)}"]
        if node.answer.next_step:
            lines.append(f"  → {plain(str(node.answer.next_step))}")
        return lines + self._marks(node)

    def _marks(self, node: NodeView) -> list[str]:
        """What Dovetail has written on the node."""
        marks = [mark for mark in (node.held, node.rolled) if mark is not UNSET]
        return [f"  {self.times.localised(plain(mark.sentence))}" for mark in marks]

    def _sentence(self, node: NodeView, answer: AnswerView) -> str:
        cause = self.times.localised(plain(str(answer.cause)))
        noted = "".join(
            f"{'is' if badge.since is None else 'has been'} {self.badge(badge)}; "
            for badge in node.badges
            if badge.kind in _NOTED
        )
        if answer.standing in (NodeStanding.FREE, NodeStanding.STEADY):
            return noted + (click.style(cause, fg="green") if answer.standing == NodeStanding.FREE else cause)
        is_stuck, is_leaving = answer.standing == NodeStanding.STUCK, node.state in IN_DISRUPTION
        state = "stuck" if is_stuck else LEAVING if is_leaving else answer.standing
        state = f"{'is' if answer.since is None else 'has been'} {state}"
        why = answer.reason or ("starting" if is_stuck and not is_leaving else "")
        if is_leaving:
            why = f"{why + ', ' if why else ''}{node.state} {MEANING[NodeState(node.state)]}"
        until = "" if answer.until is None or is_leaving else self._until(answer.until)
        if answer.until is not None and self.times.stamp(answer.until) in cause:
            until, cause = "", self._with_distance(cause, answer.until)
        if node.managed and answer.standing == NodeStanding.STARTING and answer.until is not None:
            until = ""
        since = "" if answer.since is None else f" since {self.times.full(answer.since)}{',' if until else ''}"
        state = f"{state} ({why})" if why else state
        return noted + f"{click.style(state, fg='red' if is_stuck else 'yellow')}{since}{until}: {cause}"

    def badge(self, badge: Badge) -> str:
        """`NotReady since 2026-11-17T05:04:00Z (4h56m ago): Kubelet stopped posting node status.`"""
        since = "" if badge.since is None else f" since {self.times.full(badge.since)}"
        why = self.times.localised(plain(badge.why)).rstrip(".")
        return f"{badge.kind.value}{since}{f': {why}' if why else ''}"

    def _with_distance(self, text: str, at: datetime) -> str:
        """The text with the distance from now after the first mention of the instant."""
        return text.replace(self.times.stamp(at), self.times.full(at), 1)

    def nodes(self, nodes: tuple[NodeView, ...]) -> list[str]:
        shown = [node for node in nodes if self._is_shown(node)]
        if not shown:
            return []
        rows = [["NODE", "POOL", "STATE", "TYPE", "ZONE", "PODS", "FREE", "EXPIRES", "FORCED BY"]]
        for node in shown:
            free = self._free(node)
            machine = " ".join(filter(None, (node.instance_type, node.capacity_type)))
            rows.append(
                [
                    plain(node.name),
                    plain(node.nodepool or "-"),
                    self._state(node),
                    plain(machine or "-"),
                    plain(node.zone or "-"),
                    str(node.pods),
                    _coloured(free, good=free in (NOW, LEAVING)),
                    self.times.distance(node.expires_at) or "never",
                    self.times.full(node.deadline, none="-"),
                ]
            )
        lines = table(_without_empty(rows, "TYPE", "ZONE"), spare=("POOL", "PODS", "TYPE", "ZONE"))
        for node in shown:
            detail = self._node_detail(node)
            if detail:
                lines += ["", click.style(plain(node.name), bold=True), *detail]
        return lines

    def _is_shown(self, node: NodeView) -> bool:
        if not node.managed:
            return self.named or self.verbose
        return not self.quiet or node.free_at != self.times.now or _is_stuck(node)

    def _state(self, node: NodeView) -> str:
        """`S1 steady, NotReady 4h56m`."""
        badges = [f"{badge.kind.value} {self.times.age(badge.since)}".rstrip() for badge in node.badges]
        if any(badge.kind is BadgeKind.STARTING for badge in node.badges):
            return f"{node.state} {', '.join(badges)}"
        return ", ".join([f"{node.state} {MEANING[NodeState(node.state)]}", *badges])

    def _free(self, node: NodeView) -> str:
        standing = "" if node.answer is UNSET else standing_word(node.answer.standing, node.state)
        word = free_word(standing, node.free_at, self.times.now, undated=node.undated, managed=node.managed)
        return word or self.times.full(node.free_at)

    def unmanaged(self, nodes: tuple[NodeView, ...]) -> list[str]:
        """Other nodes of the cluster by who made them. No rule here is about them."""
        if self.named or self.quiet or self.brief or self.verbose:
            return []
        groups: dict[str, list[NodeView]] = defaultdict(list)
        for node in nodes:
            if not node.managed:
                groups[node.group or "other"].append(node)
        rows = [["GROUP", "NODES", "PODS", "STATE"]]
        for group, members in sorted(groups.items()):
            badges = Counter(badge.kind.value for node in members for badge in node.badges)
            state = ", ".join(f"{number} {kind}" for kind, number in sorted(badges.items()))
            rows.append([plain(group), str(len(members)), str(sum(node.pods for node in members)), state or "-"])
        return table(rows) if groups else []

    def _node_detail(self, node: NodeView) -> list[str]:
        """The rules that block each reason; for a node that is leaving, the pods that its drain waits for."""
        if node.nodepool is None and not self.verbose:
            return []
        if node.state in IN_DISRUPTION and not self.verbose:
            pods = next(verdict for verdict in node.reasons[0].verdicts if verdict.rule == Rule.PODS)
            sentence = [] if self.named or node.answer is UNSET else [f"  {self._sentence(node, node.answer)}"]
            waits = ["  waits for", *self._blockers(pods)] if pods.blockers and not self._is_told(pods, node) else []
            return [*sentence, *waits, *self._deletions(node)]
        # Most reasons are blocked by the same rules, so each blocker is shown once.
        lines = [] if self.named else self._marks(node)
        if not self.named and node.answer is not UNSET and node.answer.standing in _BLOCKED:
            lines.append(f"  {self._sentence(node, node.answer)}")
        if any(badge.kind is BadgeKind.STARTING for badge in node.badges) and not (self.named or self.verbose):
            return lines or [f"  {self._sentence(node, node.answer)}"] if node.answer is not UNSET else lines
        shown_verdicts: set[str] = set()
        only_wanted = self.brief or any(reason.wanted for reason in node.reasons)
        reasons = [reason for reason in node.reasons if reason.wanted or self.verbose or not only_wanted]
        for reason in sorted(reasons, key=lambda reason: not reason.wanted):
            every = self.verbose or (self.named and reason.wanted)
            shown = [
                verdict
                for verdict in reason.verdicts
                if every or not verdict.allowed or (reason.wanted and verdict.blockers)
                if every or self.named or reason.wanted or verdict.rule not in _OF_POOLS
            ]
            if not shown and not reason.wanted:
                continue
            lines.append(f"  {self._reason(reason, node)}")
            for rules, verdict in _alike(shown):
                text = f"    {self._verdict(verdict, rules)}"
                if not (text in shown_verdicts or self._is_told(verdict, node)):
                    lines += [text, *self._blockers(verdict)]
                    shown_verdicts.add(text)
        return lines + self._deletions(node)

    def _is_told(self, verdict: VerdictView, node: NodeView) -> bool:
        """Whether the sentence above says all of it. A node that the user has named has every rule below."""
        if self.verbose or verdict.allowed or node.answer is UNSET:
            return False
        if node.state not in IN_DISRUPTION and (self.named or node.answer.standing not in _BLOCKED):
            return False
        told = str(node.answer.cause)
        return all(each.message in told for each in verdict.blockers or (verdict,))

    def _blockers(self, verdict: VerdictView) -> list[str]:
        return [f"      {plain(str(blocker.object))}  {self._verdict(blocker)}" for blocker in verdict.blockers]

    def _deletions(self, node: NodeView) -> list[str]:
        if not node.forced_deletions:
            return []
        return [
            f"  forced removal {self.times.full(node.deadline)}: pods still running are deleted",
            *(
                f"      {plain(str(end.pod))}  {self.times.full(end.at)}, with {end.grace_seconds}s of grace"
                for end in node.forced_deletions
            ),
        ]

    def _reason(self, reason: ReasonView, node: NodeView) -> str:
        waits = node.answer is not UNSET and node.answer.standing == NodeStanding.WAITING
        wanted = "wanted, " if reason.wanted else ""
        if reason.allowed:
            return f"{reason.reason}: {wanted}" + _coloured(f"allowed{self._until(reason.until)}", good=True)
        by = ", ".join(verdict.rule for verdict in reason.verdicts if not verdict.allowed)
        blocked = f"blocked by {by}"
        until = self._until(reason.until) if reason.wanted and waits else self._ends(reason.until)
        return f"{reason.reason}: {wanted}" + _coloured(blocked + until, good=False)

    def _ends(self, until: datetime | None) -> str:
        return self._until(until) or ", with no end date"

    def _until(self, until: datetime | None) -> str:
        return "" if until is None else f" until {self.times.full(until)}"

    def _verdict(self, verdict: VerdictView, rules: str = "") -> str:
        mark = _mark(verdict)
        details = f"; {verdict.details}" if verdict.details and self.verbose else ""
        message = self.times.localised(plain(verdict.message + details))
        # Most messages name their instant; it is added to the others.
        stamp = None if verdict.until is None else self.times.stamp(verdict.until)
        if verdict.until is not None and stamp is not None and stamp in message:
            return f"{mark} {rules or verdict.rule}: {self._with_distance(message, verdict.until)}"
        return f"{mark} {rules or verdict.rule}: {message}{';' if stamp else ''}{self._until(verdict.until)}"

    def pods(self, pods: tuple[PodView, ...], shown_nodes: set[str]) -> list[str]:
        """Protected pods that are not shown with a node above; all pods if verbose, or if they are named."""
        lines = []
        every = self.verbose or self.named
        for pod in pods:
            if not every and (pod.allowed or pod.node in shown_nodes):
                continue
            name = click.style(f"{plain(pod.namespace)}/{plain(pod.name)}", bold=True)
            node = f"on {plain(pod.node)}" if pod.node else "on no node"
            ends = "" if pod.until is not None and pod.until == pod.forced_at else self._ends(pod.until)
            state = f"can be disrupted{self._until(pod.until)}" if pod.allowed else f"protected{ends}"
            if pod.terminating is not UNSET:
                state = self.times.localised(plain(pod.terminating))
            forced = "" if pod.forced_at is UNSET else f"; deleted by force {self.times.full(pod.forced_at)}"
            lines.append(f"{name} {node}: {_coloured(state, good=pod.allowed)}{_holds_back(pod)}{forced}")
            if pod.next_step is not UNSET and pod.next_step:
                lines.append(f"  → {plain(pod.next_step)}")
            if pod.pending is not UNSET:
                lines.append(f"  pending: {self._pending(pod.pending)}")
            lines += [f"  {self._verdict(verdict)}" for verdict in pod.verdicts if every or not verdict.allowed]
        return lines

    def _pending(self, pending: PendingView) -> str:
        details = f"; {pending.details}" if pending.details is not UNSET and self.verbose else ""
        cause = self.times.localised(plain(pending.cause + details))
        return cause if pending.until is None else self._with_distance(cause, pending.until)

    def workload(self, workload: WorkloadView, pods: tuple[PodView, ...]) -> str:
        """How many pods it has, how many are protected, and what is missing."""
        own = _pods_of(workload, pods)
        protected = sum(not pod.allowed for pod in own)
        of = "" if workload.replicas is None else f" of {workload.replicas}"
        missing = "" if workload.known else f"; the {workload.kind} is not in the input, only its pods are"
        state = _coloured(f"{protected} protected", good=not protected)
        pods_ = f"{len(own)}{of} {'pod' if len(own) == 1 and not of else 'pods'}"
        return f"{click.style(_named(workload), bold=True)}: {pods_}, {state}{missing}"

    def pods_of(self, workload: WorkloadView, pods: tuple[PodView, ...]) -> list[str]:
        return self.pod_table(_pods_of(workload, pods))

    def pod_table(self, pods: tuple[PodView, ...]) -> list[str]:
        """A line for each pod: whether it can be disrupted, until when, and what protects it."""
        shown = [pod for pod in pods if not (self.quiet and pod.allowed)]
        rows = [["POD", "NODE", "DISRUPTION", "UNTIL", "FORCED", "BLOCKS", "WHY"]]
        for pod in sorted(shown, key=lambda pod: (pod.allowed, pod.name)):
            blocking = [
                f"{verdict.rule}: {self.times.localised(plain(verdict.message))}"
                for verdict in pod.verdicts
                if not verdict.allowed
            ]
            if pod.pending is not UNSET:
                blocking.insert(0, f"pending: {self._pending(pod.pending)}")
            if pod.terminating is not UNSET:
                blocking.insert(0, self.times.localised(plain(pod.terminating)))
            rows.append(
                [
                    plain(pod.name),
                    plain(pod.node or "-"),
                    _coloured("allowed" if pod.allowed else "protected", good=pod.allowed),
                    self.times.distance(pod.until) or ("-" if pod.allowed else "no end"),
                    "-" if pod.forced_at is UNSET else self.times.distance(pod.forced_at),
                    "-" if pod.blocks is UNSET else ", ".join(pod.blocks),
                    self.times.localised("; ".join(blocking)),
                ]
            )
        return table(rows, spare=("DISRUPTION", "BLOCKS", "FORCED", "NODE")) if shown else []

    def changes(self, explanation: Explanation) -> list[str]:
        """A line for each node and pod whose answer changes within the span."""
        if explanation.end is UNSET:
            return []
        changes = {Ref("Node", "", node.name): self._node_changes(node) for node in explanation.nodes}
        changes |= {Ref("Pod", pod.namespace, pod.name): self._pod_changes(pod) for pod in explanation.pods}
        lines = []
        for name, turns in changes.items():
            if turns:
                more = [f"and {len(turns) - _MOST_TURNS} more"] if len(turns) > _MOST_TURNS else []
                lines.append(f"{click.style(plain(str(name)), bold=True)}: {'; '.join(turns[:_MOST_TURNS] + more)}")
        return [f"until {self.times.full(explanation.end)}", *(lines or ["none, if nothing but time changes"])]

    def _node_changes(self, node: NodeView) -> list[str]:
        """The changes at each instant, with reasons that change alike together."""
        at: dict[datetime, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for change in node.changes or ():
            allowed = _coloured("allowed" if change.allowed else "blocked", good=change.allowed)
            wanted = f"wanted {'and' if change.allowed else 'but'} " if change.wanted else ""
            at[change.at][wanted + allowed].append(change.reason)
        return [
            f"{self.times.full(turn)} " + ", ".join(f"{' and '.join(reasons[what])} {what}" for what in reasons)
            for turn, reasons in at.items()
        ]

    def _pod_changes(self, pod: PodView) -> list[str]:
        return [
            f"{self.times.full(change.at)} "
            + _coloured("can be disrupted" if change.allowed else "protected", good=change.allowed)
            for change in pod.changes or ()
        ]

    def pools(self, pools: tuple[PoolView, ...]) -> list[str]:
        rows = [["POOL", "NODES", "REASON", "LIMIT", "DISRUPTING", "UNHEALTHY", "ALLOWED", "LIMIT CHANGES"]]
        shown, left_out = pools_shown(pools, every=self.verbose or self.named)
        for pool in shown:
            alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
            for budget in pool.budgets:
                alike[self._amounts(budget)].append(budget.reason)
            rows += [[plain(pool.name), str(pool.nodes), ", ".join(alike[key]), *key] for key in alike]
        lines = [*(table(rows, spare=("UNHEALTHY", "DISRUPTING")) if shown else []), *left_out]
        for pool in pools:
            if users := pool.budgets[0].consumers if pool.budgets else ():
                lines.append(f"{plain(pool.name)}: {count(len(users), 'node uses', 'nodes use')} its budgets")
                lines += [f"  {self._user(user)}" for user in users[: None if self.verbose else _MOST_USERS]]
                more = len(users) - _MOST_USERS
                lines += [f"  … and {more} more; -v shows all"] if more > 0 and not self.verbose else []
        return lines

    def _amounts(self, budget: BudgetView) -> tuple[str, ...]:
        return (
            str(budget.limit) if budget.binding is not None else f"{budget.limit} (all)",
            str(budget.disrupting),
            str(budget.unhealthy),
            "forceful" if budget.forceful else _coloured(str(budget.allowed), good=budget.allowed > 0),
            self.times.full(budget.until, none="-"),
        )

    def _user(self, user: BudgetConsumer) -> str:
        forced = "" if user.until is None else f"; ends by force {self.times.full(user.until)}"
        since = "" if user.since is None else f" since {self.times.full(user.since)}"
        state = "NotReady" if user.unhealthy else MEANING[user.state]
        return f"{plain(user.node)}: {state}{since}{forced}"


def _without_empty(rows: list[list[str]], *columns: str) -> list[list[str]]:
    """Without those of the columns that no row fills."""
    places = [rows[0].index(column) for column in columns]
    empty = {place for place in places if all(row[place] == "-" for row in rows[1:])}
    return [[cell for place, cell in enumerate(row) if place not in empty] for row in rows]


def _is_stuck(node: NodeView) -> bool:
    return node.answer is not UNSET and node.answer.standing == NodeStanding.STUCK


def _pods_of(workload: WorkloadView, pods: tuple[PodView, ...]) -> tuple[PodView, ...]:
    return tuple(pod for pod in pods if pod.namespace == workload.namespace and pod.name in workload.pods)


def _named(workload: WorkloadView) -> str:
    return plain(f"{workload.kind}/{workload.namespace}/{workload.name}")


def _holds_back(pod: PodView) -> str:
    if pod.blocks is UNSET:
        return ""
    return (
        "; the drain of its node waits for it"
        if pod.blocks == DRAIN
        else f"; blocks {', '.join(pod.blocks)} of its node"
    )


def _alike(verdicts: Sequence[VerdictView]) -> list[tuple[str, VerdictView]]:
    """Rules that say the same, together."""
    by_answer: dict[tuple[str, bool], list[VerdictView]] = {}
    for verdict in verdicts:
        by_answer.setdefault((verdict.message, verdict.allowed), []).append(verdict)
    return [(", ".join(verdict.rule for verdict in alike), alike[0]) for alike in by_answer.values()]


def _mark(verdict: VerdictView) -> str:
    if verdict.remark == Remark.UNCHECKED:
        return click.style("–", dim=True)
    if verdict.remark in (Remark.MISTAKE, Remark.NOT_IN_FORCE):
        return click.style("!", fg="yellow")
    return _coloured("✓" if verdict.allowed else "✗", good=verdict.allowed)


def _coloured(text: str, *, good: bool) -> str:
    return click.style(text, fg="green" if good else "red")
