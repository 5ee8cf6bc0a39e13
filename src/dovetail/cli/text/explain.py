"""Shows an explanation as lines: nodes, protected pods, budgets, changes and problems."""

from collections import defaultdict
from datetime import datetime

import click
from msgspec import UNSET

from dovetail.cli.common.output import Times, problem_lines, sections, table
from dovetail.model.refs import Ref
from dovetail.rules.states import IN_DISRUPTION, MEANING, NodeState
from dovetail.rules.verdict import Rule
from dovetail.values.foreign_text import plain
from dovetail.views.explain.verdicts import Explanation, NodeView, PodView, PoolView, ReasonView, VerdictView

# In one line; JSON has all.
_MOST_TURNS = 6


def explanation_lines(explanation: Explanation, times: Times, *, verbose: bool, quiet: bool) -> list[str]:
    """The whole explanation. Verbose shows every rule that was checked, quiet only what is blocked."""
    text = _ExplainText(times, verbose=verbose, quiet=quiet)
    bodies = {
        "Nodes": text.nodes(explanation.nodes),
        "Pods": text.pods(explanation.pods, {node.name for node in explanation.nodes}),
        "Budgets": text.pools(explanation.nodepools),
        "Changes": text.changes(explanation),
        "Problems": [] if quiet else problem_lines(explanation.problems, times),
    }
    lines = [f"At {times.stamp(explanation.at)}"]
    if not (explanation.nodes or explanation.pods or explanation.nodepools):
        lines.append("The input has no Node, NodeClaim, NodePool or Pod, so there is nothing to explain.")
        lines.append("To check manifests before they are applied, use `dovetail lint`.")
    return lines + sections(bodies)


class _ExplainText:
    def __init__(self, times: Times, *, verbose: bool, quiet: bool) -> None:
        self.times = times
        self.verbose = verbose
        self.quiet = quiet

    def nodes(self, nodes: tuple[NodeView, ...]) -> list[str]:
        shown = [node for node in nodes if not self.quiet or node.free_at != self.times.now]
        if not shown:
            return []
        rows = [["NODE", "POOL", "STATE", "PODS", "FREE", "EXPIRES", "FORCED BY"]]
        for node in shown:
            leaving = node.state in IN_DISRUPTION
            free = "leaving" if leaving else self.times.full(node.free_at, none="never")
            rows.append(
                [
                    plain(node.name),
                    plain(node.nodepool or "-"),
                    f"{node.state} {MEANING[NodeState(node.state)]}" + (", NotReady" if node.ready is False else ""),
                    str(node.pods),
                    _coloured(free, good=leaving or node.free_at == self.times.now),
                    self.times.distance(node.expires_at) or "never",
                    self.times.full(node.deadline, none="-"),
                ]
            )
        lines = table(rows)
        for node in shown:
            detail = self._node_detail(node)
            if detail:
                lines += ["", click.style(plain(node.name), bold=True), *detail]
        return lines

    def _node_detail(self, node: NodeView) -> list[str]:
        """The rules that block each reason; for a node that is leaving, the pods that its drain waits for."""
        if node.nodepool is None and not self.verbose:
            return []
        if node.state in IN_DISRUPTION and not self.verbose:
            pods = next(verdict for verdict in node.reasons[0].verdicts if verdict.rule == Rule.PODS)
            return [*(["  waits for"] if pods.blockers else []), *self._blockers(pods), *self._deletions(node)]
        # Most reasons are blocked by the same rules, so each blocker is shown once.
        lines: list[str] = []
        shown_verdicts: set[str] = set()
        for reason in node.reasons:
            shown = [
                verdict
                for verdict in reason.verdicts
                if self.verbose or not verdict.allowed or (reason.wanted and verdict.blockers)
            ]
            if not shown and not reason.wanted:
                continue
            lines.append(f"  {self._reason(reason)}")
            for verdict in shown:
                text = f"    {self._verdict(verdict)}"
                if text not in shown_verdicts:
                    lines += [text, *self._blockers(verdict)]
                    shown_verdicts.add(text)
        return lines + self._deletions(node)

    def _blockers(self, verdict: VerdictView) -> list[str]:
        return [f"      {plain(str(blocker.object))}  {self._verdict(blocker)}" for blocker in verdict.blockers]

    def _deletions(self, node: NodeView) -> list[str]:
        if not node.forced_deletions:
            return []
        return [
            f"  ends by force {self.times.full(node.deadline)}; pods still there are deleted",
            *(
                f"      {plain(str(each.pod))}  {self.times.full(each.at)}, with {each.grace_seconds}s of grace"
                for each in node.forced_deletions
            ),
        ]

    def _reason(self, reason: ReasonView) -> str:
        wanted = "wanted, " if reason.wanted else ""
        if reason.allowed:
            return f"{reason.reason}: {wanted}" + _coloured(f"allowed{self._until(reason.until)}", good=True)
        by = ", ".join(verdict.rule for verdict in reason.verdicts if not verdict.allowed)
        return f"{reason.reason}: {wanted}" + _coloured(self._blocked(f"blocked by {by}", reason.until), good=False)

    def _blocked(self, word: str, until: datetime | None) -> str:
        return word + (self._until(until) or "; time alone does not change that")

    def _until(self, until: datetime | None) -> str:
        return "" if until is None else f" until {self.times.full(until)}"

    def _verdict(self, verdict: VerdictView) -> str:
        mark = _coloured("✓" if verdict.allowed else "✗", good=verdict.allowed)
        message = self.times.localised(plain(verdict.message))
        # Most messages name their instant; it is added to the others.
        stamp = None if verdict.until is None else self.times.stamp(verdict.until)
        if stamp is None:
            return f"{mark} {verdict.rule}: {message}"
        if stamp in message:
            return f"{mark} {verdict.rule}: {message} ({self.times.distance(verdict.until)})"
        return f"{mark} {verdict.rule}: {message};{self._until(verdict.until)}"

    def pods(self, pods: tuple[PodView, ...], shown_nodes: set[str]) -> list[str]:
        """Protected pods that are not shown with a node above; verbose: all pods."""
        lines = []
        for pod in pods:
            if not self.verbose and (pod.allowed or pod.node in shown_nodes):
                continue
            name = click.style(f"{plain(pod.namespace)}/{plain(pod.name)}", bold=True)
            node = f"on {plain(pod.node)}" if pod.node else "on no node"
            state = (
                f"can be disrupted{self._until(pod.until)}" if pod.allowed else self._blocked("protected", pod.until)
            )
            lines.append(f"{name} {node}: {_coloured(state, good=pod.allowed)}")
            lines += [f"  {self._verdict(verdict)}" for verdict in pod.verdicts if self.verbose or not verdict.allowed]
        return lines

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
        for pool in pools:
            rows += [
                [
                    plain(pool.name),
                    str(pool.nodes),
                    budget.reason,
                    str(budget.limit) if budget.binding is not None else f"{budget.limit} (all)",
                    str(budget.disrupting),
                    str(budget.unhealthy),
                    "forceful" if budget.forceful else _coloured(str(budget.allowed), good=budget.allowed > 0),
                    self.times.full(budget.until, none="-"),
                ]
                for budget in pool.budgets
            ]
        return table(rows) if pools else []


def _coloured(text: str, *, good: bool) -> str:
    return click.style(text, fg="green" if good else "red")
