"""`dovetail plan`: what the controller would do now, what it would save, and why other nodes stay."""

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import click
import msgspec

from dovetail.cli.common.completion import complete_nodes, complete_pools
from dovetail.cli.common.contexts import head
from dovetail.cli.common.dump_age import old_dump
from dovetail.cli.common.files import one_line_errors
from dovetail.cli.common.instance_types import BUILT_IN, INSTANCE_TYPES, catalogue_in
from dovetail.cli.common.named_objects import node_names
from dovetail.cli.common.options import CommonOptions, common_options
from dovetail.cli.common.output import Times, print_answer, without_cycle_search, working
from dovetail.cli.common.process import fail
from dovetail.cli.common.read_kinds import PLACING_KINDS, spread_kinds
from dovetail.cli.common.replacements import with_replacements
from dovetail.cli.common.scheduler_config import SCHEDULER_CONFIG, SchedulerConfig
from dovetail.cli.common.sources import ClusterInput, read_cluster
from dovetail.cli.text.plan import plan_lines
from dovetail.model.decider import Decider
from dovetail.model.finding import Finding, Severity
from dovetail.model.refs import Ref
from dovetail.model.snapshot import Snapshot
from dovetail.planning.disruption.board import blocked_sentence
from dovetail.planning.disruption.execution import execution_of
from dovetail.planning.disruption.methods import Decision, decide_pass
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.planning.timings import Timings
from dovetail.rules.budgets import BUDGETED
from dovetail.rules.states import IN_DISRUPTION, MEANING, NodeState
from dovetail.sim.scenarios.one_shot import OneShotResult, look
from dovetail.values.timestamp import spoken_time
from dovetail.views.assessment import Assessment, assess
from dovetail.views.explain.answers import answer
from dovetail.views.explain.data import AnswerView
from dovetail.views.explain.pending import PendingSummary, PendingView, pending_pods, pending_view
from dovetail.views.explain.problems import all_problems
from dovetail.views.explain.standings import NodeStanding
from dovetail.views.plan import (
    DrainedNode,
    NodeAnswer,
    NodeOutcome,
    PlanView,
    PriceView,
    RemovalView,
    plan_view,
    removal_view,
)

# Assumptions about the future, which a plan does not depend on.
_OF_TIME: Final = frozenset(("OwnersAssumed", "JobsGoOn"))


@click.command("plan")
@common_options(
    quiet="Leave out nodes that stay, and problems.",
    verbose="Name every pod that would move.",
)
@click.option(
    "--reason",
    type=click.Choice([reason.value for reason in BUDGETED], case_sensitive=False),
    help="Consider only this reason.",
)
@click.option("--nodepool", metavar="NAME", shell_complete=complete_pools, help="Consider only nodes of this NodePool.")
@click.option(
    "--remove",
    metavar="NODE",
    multiple=True,
    shell_complete=complete_nodes,
    help="Show what would happen if this node were drained. Can be repeated.",
)
@INSTANCE_TYPES
@SCHEDULER_CONFIG
@click.option("--spot-to-spot", is_flag=True, help="Plan as with the feature gate SpotToSpotConsolidation.")
@without_cycle_search()
def command(
    *,
    common: CommonOptions,
    reason: str | None,
    nodepool: str | None,
    remove: tuple[str, ...],
    instance_types: str | None,
    scheduler_config: SchedulerConfig,
    spot_to_spot: bool,
) -> None:
    """Say what the controller would do right now: the commands that it would start, where each pod would go, and what
    that would save; and why every other node stays.

    The controller's own engine decides, on the cluster as it is, and nothing is written. Reads the live cluster, which
    takes only the rights to get and list, or a dump with -f; `dovetail record` makes one. Conditions are taken as they
    are: a node has drifted if Karpenter says so.

    With --remove, the exit code is 1 if a pod would have no place.
    """
    with one_line_errors(), working("reading and planning …"):
        profiles = scheduler_config.profiles
        read = read_cluster(common.source, also=(*PLACING_KINDS, *spread_kinds(profiles)))
        read.problems.extend(old_dump(read.snapshot, common.at) if common.paths else ())
        remove = node_names(read.snapshot, remove)
        still = look(
            read.documents,
            common.at,
            settings=read.snapshot.settings,
            catalogue=catalogue_in(instance_types),
            drained=remove,
            scheduler_profiles=profiles,
        )
        removals = [_removal(still, drained, read.snapshot, common.at) for drained in still.drained]
        rules = execution_of(read.snapshot.settings.decider).options(spot_to_spot=spot_to_spot)
        assessment = with_replacements(assess(read.snapshot, still.board.at), still)
        plan = _planned(
            still,
            rules,
            nodepool=nodepool,
            reason=reason,
            answers=_answers(assessment, reason),
            removals=removals,
            decider=read.snapshot.settings.decider,
            prices=PriceView(instance_types or BUILT_IN, still.known_share),
            problems=all_problems(assessment, _given(read, still)),
            pending=PendingSummary() if removals else pending_pods(read.snapshot.pods, _pending(read.snapshot, still)),
        )
    if nodepool is not None and nodepool not in still.board.pools:
        fail(f"there is no NodePool {nodepool} in the input")
    if missing := next((name for name in remove if name not in {drained.node for drained in still.drained}), None):
        fail(f"there is no node {missing} of a NodePool in the input")
    times = Times(common.at, common.zone)
    lines = partial(plan_lines, plan, times, verbose=common.verbose, quiet=common.quiet)
    print_answer(plan, common.output, lines, heading=head(common.source, plan.decider, plan.problems, times))
    sys.exit(0 if all(removal.possible for removal in removals) else 1)


def _planned(
    still: OneShotResult,
    rules: ConsolidationOptions,
    *,
    nodepool: str | None,
    reason: str | None,
    answers: Mapping[str, NodeAnswer],
    removals: list[RemovalView],
    decider: Decider,
    prices: PriceView,
    problems: Sequence[Finding],
    pending: PendingSummary,
) -> PlanView:
    """The plan; with removals, it has nothing else."""
    board, pools = still.board, still.pools
    candidates = {
        cause: tuple(candidate for candidate in every if nodepool in (None, candidate.pool))
        for cause, every in board.candidates.items()
        if reason in (None, cause.value)
    }
    board = msgspec.structs.replace(board, candidates=candidates)
    if nodepool is not None:
        pools = {node: pool for node, pool in pools.items() if pool == nodepool}
    decision = Decision() if removals else decide_pass(board, rules)
    return plan_view(
        board,
        decision,
        pools={} if removals else pools,
        left=[blocked for blocked in still.assessment.left if reason in (None, blocked.verdict.reason.value)],
        answers=answers,
        validation_seconds=Timings().validation_seconds,
        removals=removals,
        decider=decider,
        prices=prices,
        problems=problems,
        pending=pending,
    )


def _given(read: ClusterInput, still: OneShotResult) -> list[Finding]:
    """The problems of reading and simulating."""
    return [
        *read.problems_beside_scenario,
        *(problem for problem in still.problems if problem.rule not in _OF_TIME),
        *_put_off(still),
    ]


def _pending(snapshot: Snapshot, still: OneShotResult) -> dict[tuple[str, str], PendingView]:
    """Why pods are on no node, as the simulation finds."""
    if not still.unbound:
        return {}
    facts = still.pending({member.name: member.claim for member in snapshot.nodes if member.claim is not None})
    return {key: pending_view(pod, facts) for key, pod in still.unbound.items()}


def _answers(assessment: Assessment, reason: str | None) -> dict[str, NodeAnswer]:
    """What `explain` says of the nodes that leave, wait or are stuck, so that both commands agree."""
    nodes = ((node, answer(assessment, node, list(assessment.reasons(node).values()))) for node in assessment.nodes)
    return {
        node.member.name: _answer(node.state, view)
        for node, view in nodes
        if node.state in IN_DISRUPTION
        or view.standing == NodeStanding.STARTING
        or (view.standing in (NodeStanding.WAITING, NodeStanding.STUCK) and reason in (None, view.reason))
    }


def _answer(state: NodeState, view: AnswerView) -> NodeAnswer:
    is_leaving, is_stuck = state in IN_DISRUPTION, view.standing == NodeStanding.STUCK
    fate = NodeOutcome.STUCK if is_stuck else NodeOutcome.LEAVING if is_leaving else NodeOutcome.WAITS
    if view.standing == NodeStanding.STARTING:
        fate = NodeOutcome.STAYS
    since = "" if view.since is None else f" since {spoken_time(view.since)}"
    cause = str(view.cause)
    until = "" if view.until is None or is_leaving or spoken_time(view.until) in cause else spoken_time(view.until)
    named = f"{state} {MEANING[state]}" if is_leaving else view.reason or "starting"
    return NodeAnswer(fate, f"{named}{since}{until and f' until {until}'}: {cause}")


def _put_off(still: OneShotResult) -> list[Finding]:
    """The reason why the controller would not decide anything yet."""
    if still.unsynced is None:
        return []
    return [
        Finding(
            severity=Severity.INFO,
            rule="NothingIsDecidedYet",
            object=Ref("NodeClaim"),
            field="status.providerID",
            message=f"the controller would wait before it decides anything: {still.unsynced}",
        )
    ]


def _removal(still: OneShotResult, drained: DrainedNode, snapshot: Snapshot, at: datetime) -> RemovalView:
    board = still.board
    solution = board.world.what_if(drained.pods, [drained.node], owed=board.owed, explain=True)
    assessment = assess(snapshot, at)
    pods = (pod for member in snapshot.nodes if member.name == drained.node for pod in member.pods)
    refusals = (verdict for pod in pods for verdict in assessment.verdicts(pod) if not verdict.allowed)
    blockers = [str(blocked_sentence(verdict)) for verdict in refusals]
    return removal_view(board, drained, solution, pool=still.pools[drained.node], blockers=blockers)
