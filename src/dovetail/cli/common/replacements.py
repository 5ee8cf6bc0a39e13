"""Answers that take a scheduling simulation: can a node be replaced, and what does a pending pod wait for?

The simulation runs only if a node has a reason to go that nothing but its budget and this rule can block, or if the
user names a pending pod.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from dovetail.api.documents import InputError
from dovetail.cli.common.live import live_documents
from dovetail.cli.common.options import ClusterSource
from dovetail.cli.common.read_kinds import PLACING_KINDS
from dovetail.cli.common.sources import ClusterInput
from dovetail.model.finding import Finding, Severity
from dovetail.model.instance_types import InstanceType
from dovetail.model.refs import Ref, Sentence
from dovetail.planning.disruption.replaceable import ReplacementVerdicts
from dovetail.rules.reasons import MARKED
from dovetail.rules.states import IN_DISRUPTION
from dovetail.rules.verdict import Rule
from dovetail.views.assessment import Assessment, NodeAssessment, assess, identity

if TYPE_CHECKING:
    from dovetail.sim.scenarios.one_shot import OneShotResult
    from dovetail.views.explain.pending import PendingView


_SPOT_STEP: Final = "see what the feature gate would do: dovetail plan --spot-to-spot"


class ConsolidationAnswer(NamedTuple):
    """Whether a node would be consolidated, in words, and what to do. `waits`: only its budgets keep it."""

    words: str
    waits: bool
    step: str


def assessed(
    read: ClusterInput,
    source: ClusterSource,
    at: datetime,
    *,
    catalogue: Sequence[InstanceType] | None = None,
    named: Collection[str] = (),
) -> Assessment:
    """The assessment of the cluster. Adds to the problems of the cluster if the simulation is not possible.

    Ends the program if a live cluster cannot be reached any more. `catalogue` None: the built-in one. `named`: if the
    user has named objects, their names; no other nodes are simulated.
    """
    plain = assess(read.snapshot, at)
    replacements = found_replacements(plain, read, source, catalogue, named)
    return assess(read.snapshot, at, before=plain, replacements=replacements) if replacements else plain


def with_replacements(plain: Assessment, simulated: "OneShotResult") -> Assessment:
    """The assessment with what the simulation says of replacements."""
    replacements = simulated.replacements({node.member.name for node in plain.nodes if _asks(plain, node)})
    if not replacements:
        return plain
    return assess(plain.snapshot, plain.at, before=plain, replacements=replacements)


def found_replacements(
    plain: Assessment,
    read: ClusterInput,
    source: ClusterSource,
    catalogue: Sequence[InstanceType] | None = None,
    named: Collection[str] = (),
) -> ReplacementVerdicts:
    """Whether nodes can be replaced, by node and reason: what `assessed` finds out besides the rules."""
    nodes = (node for node in plain.nodes if not named or not _names(node).isdisjoint(named))
    asked = {node.member.name for node in nodes if _asks(plain, node)}
    simulated = _simulated(read, source, plain.at, catalogue, asked) if asked else None
    return {} if simulated is None else simulated.replacements(asked)


def _names(node: NodeAssessment) -> set[str]:
    """What users call the node: also by its host, without the domain."""
    names = identity(node.member)
    return {*names, names[0].partition(".")[0]}


def pending_views(
    read: ClusterInput,
    source: ClusterSource,
    at: datetime,
    *,
    catalogue: Sequence[InstanceType] | None,
    pods: Collection[tuple[str, str]],
) -> "dict[tuple[str, str], PendingView]":
    """Why these pods, by namespace and name, are on no node. Adds to the problems if the simulation is not possible."""
    simulated = _simulated(read, source, at, catalogue, ()) if pods else None
    if simulated is None:
        return {}
    from dovetail.views.explain.pending import pending_view  # noqa: PLC0415  (as above)

    claims = {member.name: member.claim for member in read.snapshot.nodes if member.claim is not None}
    facts = simulated.pending(claims)
    return {key: pending_view(simulated.unbound[key], facts) for key in pods if key in simulated.unbound}


def consolidation_of(
    read: ClusterInput,
    source: ClusterSource,
    at: datetime,
    *,
    catalogue: Sequence[InstanceType] | None,
    nodes: Collection[str],
) -> dict[str, ConsolidationAnswer]:
    """Whether each of these nodes alone would be consolidated now, and why not: the answer of `plan`."""
    simulated = _simulated(read, source, at, catalogue) if nodes else None
    if simulated is None:
        return {}
    from dovetail.planning.disruption.execution import execution_of  # noqa: PLC0415  (as above)
    from dovetail.planning.disruption.methods import decide_pass  # noqa: PLC0415
    from dovetail.planning.disruption.replacing import SPOT_TO_SPOT  # noqa: PLC0415
    from dovetail.views.plan import NodeOutcome, node_outcomes  # noqa: PLC0415

    answers = {}
    for name in sorted(nodes & simulated.pools.keys()):
        board = simulated.board
        candidates = {
            reason: tuple(candidate for candidate in every if candidate.node == name)
            for reason, every in board.candidates.items()
        }
        if not any(candidates.values()):
            continue
        board = msgspec.structs.replace(board, candidates=candidates)
        decision = decide_pass(board, execution_of(read.snapshot.settings.decider).options())
        pools = {name: simulated.pools[name]}
        (node,) = node_outcomes(board, decision, pools, (), {})
        goes = node.fate is NodeOutcome.GOES
        answers[name] = ConsolidationAnswer(
            f"it would be consolidated now ({', '.join(node.reasons)}); dovetail plan says where its pods go"
            if goes
            else f"it is not consolidated: {'; '.join(node.why)}",
            waits=node.fate is NodeOutcome.WAITS,
            step=_SPOT_STEP if decision.refused.get(name) == Sentence(SPOT_TO_SPOT) else "",
        )
    return answers


def _simulated(
    read: ClusterInput,
    source: ClusterSource,
    at: datetime,
    catalogue: Sequence[InstanceType] | None,
    only: Collection[str] | None = None,
) -> "OneShotResult | None":
    """The cluster as scheduling sees it; None if the places of pods are not known. `only`: as in `look`."""
    if any(problem.rule == "NotPermitted" for problem in read.problems):
        return None
    from dovetail.sim.scenarios.one_shot import look  # noqa: PLC0415  (the engine takes long to import)

    documents = list(read.documents)
    if not source.paths:
        documents += live_documents(source, PLACING_KINDS, read.problems)
    try:
        return look(documents, at, settings=read.snapshot.settings, catalogue=catalogue, pods=read.pods, only=only)
    except InputError as error:
        read.problems.append(_unknown(error))
        return None


def _asks(assessment: Assessment, node: NodeAssessment) -> bool:
    claim = node.member.claim
    if claim is None or node.state in IN_DISRUPTION or not any(map(claim.is_true, MARKED.values())):
        return False
    return any(
        reason.wanted
        and reason.reason in MARKED
        and all(verdict.allowed or verdict.rule is Rule.BUDGET for verdict in reason.verdicts)
        for reason in assessment.judge(node)
    )


def _unknown(error: InputError) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        rule="ReplacementUnknown",
        object=Ref("Node"),
        field="kind",
        message=f"whether pods have another place is not known, because the input cannot be simulated: {error}",
        remedy="correct the object",
    )
