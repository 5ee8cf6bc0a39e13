"""`dovetail plan`: what the controller would do right now, what it would save, and why each other node stays."""

import sys
from datetime import datetime
from typing import Final

import click
import msgspec

from dovetail.cli.common.files import one_line_errors
from dovetail.cli.common.instance_types import INSTANCE_TYPES, catalogue_in
from dovetail.cli.common.options import BUDGET_READING, CommonOptions, common_options
from dovetail.cli.common.output import Times, print_data, print_lines, without_cycle_search, working
from dovetail.cli.common.process import fail
from dovetail.cli.common.read_kinds import PLACING_KINDS
from dovetail.cli.common.sources import read_cluster
from dovetail.cli.text.plan import plan_lines
from dovetail.model.finding import Finding, Severity
from dovetail.model.refs import Ref
from dovetail.model.snapshot import Snapshot
from dovetail.planning.disruption.board import blocked_sentence
from dovetail.planning.disruption.methods import Decision, decide_pass
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.planning.timings import Timings
from dovetail.rules.budgets import BUDGETED, BudgetSemantics
from dovetail.sim.scenarios.one_shot import OneShotResult, look
from dovetail.sim.scenarios.reading import read_scenario
from dovetail.views.assessment import assess
from dovetail.views.plan import DrainedNode, PlanView, RemovalView, plan_view, removal_view

# Assumptions about what happens later, which nothing depends on here.
_OF_TIME: Final = frozenset(("OwnersAssumed", "JobsGoOn"))


@click.command("plan")
@common_options(
    quiet="Leave out nodes that stay, and problems.",
    verbose="Name every pod that would move.",
)
@click.option(
    "--reason",
    type=click.Choice([reason.value for reason in BUDGETED], case_sensitive=False),
    help="As if this were the only reason for which nodes may go.",
)
@click.option("--nodepool", metavar="NAME", help="As if only nodes of this NodePool could go.")
@click.option("--remove", metavar="NODE", multiple=True, help="What if this node were drained? May be repeated.")
@INSTANCE_TYPES
@BUDGET_READING
@click.option("--spot-to-spot", is_flag=True, help="As with the feature gate SpotToSpotConsolidation.")
@without_cycle_search()
def command(
    *,
    common: CommonOptions,
    reason: str | None,
    nodepool: str | None,
    remove: tuple[str, ...],
    instance_types: str | None,
    budget_reading: str,
    spot_to_spot: bool,
) -> None:
    """Say what the controller would do right now: the commands it would begin, where each pod would go, what that
    would save; and of every other node why it stays.

    It is the controller's own engine that decides, on the cluster as it is, and nothing is written. Reads the live
    cluster, for which the rights to get and list are enough, or a dump of it with -f; `dovetail record` makes one.
    Conditions are taken as they are: what Karpenter says has drifted has drifted.

    With --remove the exit code is 1 if a pod would be left without a place.
    """
    with one_line_errors(), working("reading and planning …"):
        read = read_cluster(common, also=PLACING_KINDS)
        scenario = read_scenario(read.documents, now=common.at, start=common.at)
        still = look(
            scenario, catalogue=catalogue_in(instance_types), reading=BudgetSemantics(budget_reading), drained=remove
        )
        removals = [_removal(still, each, read.snapshot, common.at) for each in still.drained]
        rules = ConsolidationOptions(spot_to_spot=spot_to_spot)
        plan = _planned(
            still, rules, nodepool=nodepool, reason=reason, removals=removals, problems=read.problems_beside_scenario
        )
    if nodepool is not None and nodepool not in still.board.pools:
        fail(f"there is no NodePool {nodepool} in the input")
    if missing := next((name for name in remove if name not in {each.node for each in still.drained}), None):
        fail(f"there is no node {missing} of a NodePool in the input")
    if common.output == "table":
        times = Times(common.at, common.zone)
        print_lines(plan_lines(plan, times, verbose=common.verbose, quiet=common.quiet))
    else:
        print_data(plan, common.output)
    sys.exit(0 if all(each.possible for each in removals) else 1)


def _planned(
    still: OneShotResult,
    rules: ConsolidationOptions,
    *,
    nodepool: str | None,
    reason: str | None,
    removals: list[RemovalView],
    problems: list[Finding],
) -> PlanView:
    """Who asks about removals is told of these alone."""
    board, pools = still.board, still.pools
    candidates = {
        each: tuple(one for one in found if nodepool in (None, one.pool))
        for each, found in board.candidates.items()
        if reason in (None, each.value)
    }
    board = msgspec.structs.replace(board, candidates=candidates)
    if nodepool is not None:
        pools = {node: pool for node, pool in pools.items() if pool == nodepool}
    decision = Decision() if removals else decide_pass(board, rules)
    return plan_view(
        board,
        decision,
        pools={} if removals else pools,
        left=[each for each in still.assessment.left if reason in (None, each.verdict.reason.value)],
        validation_seconds=Timings().validation_seconds,
        removals=removals,
        problems=[*problems, *(each for each in still.problems if each.rule not in _OF_TIME), *_put_off(still)],
    )


def _put_off(still: OneShotResult) -> list[Finding]:
    """What would keep the controller from deciding anything at all for the moment."""
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
    blockers = [str(blocked_sentence(verdict.object, verdict.message, verdict.until)) for verdict in refusals]
    return removal_view(board, drained, solution, blockers=blockers)
