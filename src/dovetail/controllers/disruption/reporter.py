"""Publishes events, metrics and log lines about disruption decisions (04)."""

import logging
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from dovetail.api.names import EventReason, Reason
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.writing import about_claim, about_node, about_pool, publish
from dovetail.model.refs import Sentence
from dovetail.observe.disruption_metrics import DisruptionMetrics
from dovetail.planning.disruption.assessment import DisruptionAssessment, PassOutcome
from dovetail.planning.disruption.board import CONSOLIDATING, Method, consolidation_type
from dovetail.planning.disruption.commands import Command
from dovetail.planning.disruption.validation import Rejection
from dovetail.rules.budgets import BUDGETED
from dovetail.rules.reasons import MARKED
from dovetail.runtime.events import DEDUPE_SECONDS
from dovetail.runtime.manager import Context
from dovetail.scheduling.placement import price_text

log = logging.getLogger(__name__)

V = TypeVar("V")

UNCONSOLIDATABLE_SECONDS: Final = 900.0
BUDGET_SECONDS: Final = 60.0
_FIGURES: Final = re.compile(r"[0-9][0-9.:TZ-]*")
_NODES_PER_PASS: Final = 100  # with events; the others follow in the next passes


class Rotation:
    """Selects a limited number of nodes at a time, and all nodes in turn."""

    def __init__(self, at_most: int = _NODES_PER_PASS) -> None:
        self._at_most = at_most
        self._last = ""

    def next(self, notes: Iterable[tuple[str, V]]) -> list[tuple[str, V]]:
        """The notes after the last selected one, by name of the node."""
        ordered = sorted(notes, key=lambda note: note[0])
        start = bisect_right(ordered, self._last, key=lambda note: note[0])
        turn = [*ordered[start:], *ordered[:start]][: self._at_most]
        if turn:
            self._last = turn[-1][0]
        return turn


class DisruptionReporter:
    def __init__(self, cluster: WatchedCluster, metrics: DisruptionMetrics) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._blocked_nodes = Rotation()
        self._refused_nodes = Rotation()
        self._logged: dict[str, str] = {}

    def pass_finished(self, context: Context, outcome: PassOutcome, seconds: float) -> None:
        assessment, decision = outcome.assessment, outcome.decision
        for reason in BUDGETED:
            self._metrics.eligible.labels(reason.lower()).set(len(assessment.candidates.get(reason, ())))
        method = decision.commands[0].method if decision.commands else Method.SINGLE_NODE
        reason = decision.commands[0].reason if decision.commands else Reason.UNDERUTILIZED
        self._metrics.evaluation_seconds.labels(reason.lower(), consolidation_type(method)).observe(seconds)
        if not decision.complete:
            self._metrics.timeouts.labels(consolidation_type(method)).inc()
        self._out_of_budget(context, assessment)
        # Consolidation refuses most nodes. What blocks a reason that a node has must not wait for these.
        refused = {node: why for node, why in outcome.staying.items() if decision.refused.get(node) is why}
        blocked = [(node, why) for node, why in outcome.staying.items() if node not in refused]
        self._log_blocked(assessment, dict(blocked))
        for node, why in self._blocked_nodes.next(blocked):
            self._on_node(context, node, EventReason.DISRUPTION_BLOCKED, str(why), cause_of(why))
        for node, why in self._refused_nodes.next(refused.items()):
            self._on_node(
                context, node, EventReason.UNCONSOLIDATABLE, str(why), dedupe_seconds=UNCONSOLIDATABLE_SECONDS
            )

    def _log_blocked(self, assessment: DisruptionAssessment, blocked: Mapping[str, Sentence]) -> None:
        """One line for each node that has drifted or expired and stays, when the cause changes."""
        wanted = {blocked_node.node for blocked_node in assessment.left if blocked_node.verdict.reason in MARKED}
        wanted |= {candidate.node for reason in MARKED for candidate in assessment.candidates.get(reason, ())}
        logged = {node: str(why) for node, why in sorted(blocked.items()) if node in wanted}
        for node, why in logged.items():
            if self._logged.get(node) != why:
                log.info("node stays", extra={"Node": node, "why": why})
        self._logged = logged

    def _out_of_budget(self, context: Context, assessment: DisruptionAssessment) -> None:
        for name, spent in assessment.spending.items():
            pool = assessment.read_pools[name].pool
            for reason, allowed in spent.allowances.items():
                if allowed.limit == 0 and spent.counts.nodes and assessment.candidates.get(reason):
                    about = about_pool(pool)
                    note = f"No allowed disruptions for disruption reason {reason.value} due to blocking budget"
                    event = EventReason.DISRUPTION_BLOCKED
                    publish(context.recorder, about, event, note, about.uid, reason, dedupe_seconds=BUDGET_SECONDS)

    def rejected(self, context: Context, command: Command, rejected: Rejection) -> None:
        """A command is no longer valid."""
        self._metrics.failed_validations.labels(consolidation_type(command.method)).inc(len(rejected.nodes))
        extra = {"command-id": command.id, "cause": rejected.cause, "why": str(rejected.message)}
        log.info("command rejected by validation", extra=extra)
        note = f"{rejected.cause}: {rejected.message}"
        for node in rejected.nodes:
            self._on_node(context, node, EventReason.CONSOLIDATION_REJECTED, note, command.id)

    def started(self, context: Context, command: Command) -> None:
        labels = (command.decision, command.reason.lower(), consolidation_type(command.method))
        self._metrics.decisions.labels(*labels).inc()
        for pool in {candidate.pool for candidate in command.candidates}:
            self._metrics.decisions_by_pool.labels(pool, *labels).inc()
        log.info("disrupting node(s)", extra=described(command))
        if command.replacements and command.method in CONSOLIDATING:
            for node in command.nodes:
                self._on_node(context, node, EventReason.CONSOLIDATION_CANDIDATE, one_line(command), command.id)

    def would_start(self, command: Command) -> None:
        """In a dry run."""
        log.info("would disrupt node(s)", extra=described(command))

    def _on_node(
        self,
        context: Context,
        node: str,
        reason: EventReason,
        note: str,
        *dedupe: str,
        dedupe_seconds: float = DEDUPE_SECONDS,
    ) -> None:
        """Publishes on the Node and its NodeClaim."""
        if (node_object := self._cluster.nodes.value(node)) is None:
            return
        claim = self._cluster.claim_of(node_object)
        for about in (about_node(node_object), *(() if claim is None else (about_claim(claim),))):
            publish(context.recorder, about, reason, note, about.uid, *dedupe, dedupe_seconds=dedupe_seconds)


def cause_of(why: Sentence) -> str:
    """What the sentence says without figures, instants and names of objects, which change while the cause stays."""
    text = str(why)
    for ref in why.refs:
        text = text.replace(ref.path, "")
    return _FIGURES.sub("", text)


def one_line(command: Command) -> str:
    """The command in upstream's format (04 §2.1)."""
    pools = ",".join(sorted({candidate.pool for candidate in command.candidates}))
    nodes = ", ".join(command.nodes[:10]) + (", ..." if len(command.nodes) > 10 else "")
    number = len(command.replacements)
    arrow = f" -> [{number} replacement{'s' if number > 1 else ''}]" if number else ""
    savings = "" if command.savings is None else f" (savings: ${price_text(command.savings)})"
    return f"{command.reason}/{command.id}: {command.decision}: nodepools=[{pools}]: [{nodes}]{arrow}{savings}"


def described(command: Command) -> dict[str, object]:
    """The whole command, for the log, people and scripts."""
    return {
        "command-id": command.id,
        "decision": command.decision,
        "reason": command.reason.value,
        "method": command.method.value,
        "disrupted-node-count": len(command.candidates),
        "replacement-node-count": len(command.replacements),
        "pod-count": sum(len(candidate.pods) for candidate in command.candidates),
        "disrupted-nodes": [
            {
                "Node": candidate.node,
                "NodeClaim": candidate.claim,
                "NodePool": candidate.pool,
                "instance-type": candidate.type,
                "capacity-type": candidate.capacity_type,
                "price": None if candidate.price is None else price_text(candidate.price),
            }
            for candidate in command.candidates
        ],
        "replacement-nodes": [
            {"NodePool": claim.pool, "instance-types": list(claim.types[:5]), "pods": len(claim.pods)}
            for claim in command.replacements
        ],
        "savings": None if command.savings is None else price_text(command.savings),
        "landing": {uid: str(where) for uid, where in command.landing.items()},
        "budgets": {
            pool: {"limit": used.limit, "allowed": used.allowed, "takes": used.takes}
            for pool, used in command.budgets.items()
        },
    }
