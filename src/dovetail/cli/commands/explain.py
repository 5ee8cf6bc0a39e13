"""`dovetail explain`: whether pods and nodes may be disrupted now, and which rules block them until when."""

import sys
from functools import partial

import click
import msgspec

from dovetail.cli.common.files import one_line_errors
from dovetail.cli.common.named_objects import named_objects, refs_of
from dovetail.cli.common.options import BUDGET_READING, CommonOptions, common_options
from dovetail.cli.common.output import Times, print_answer, without_cycle_search, working
from dovetail.cli.common.sources import read_cluster
from dovetail.cli.text.explain import explanation_lines
from dovetail.model.refs import Ref
from dovetail.rules.budgets import BudgetSemantics
from dovetail.views.assessment import assess
from dovetail.views.explain.verdicts import Explanation, NodeView, PodView, PoolView, explain


@click.command("explain")
@click.argument("objects", nargs=-1, metavar="[KIND/NAME]...")
@common_options(
    ahead="Look ahead: also say what becomes free or blocked within this span, and when.",
    namespace="Only pods of this namespace; and the namespace of pods named without one.  [default: default]",
    quiet="Leave out problems and what is not blocked.",
    verbose="Show every rule that was checked, not only those that block.",
)
@BUDGET_READING
@without_cycle_search()
def command(*, objects: tuple[str, ...], common: CommonOptions, reading: BudgetSemantics) -> None:
    """Say whether pods and nodes may be disrupted now, and if not, which rules block them and until when.

    Reads the live cluster, which takes only the rights to get and list, or a dump of it:

    \b
      kubectl get nodepools,nodeclaims,nodes,pdb,pods -A -o yaml > cluster.yaml
      dovetail explain -f cluster.yaml

    Name objects to see only these (pod/shop/cart-0, node/n1, nodeclaim/default-x1, nodepool/default). The exit code is
    then 1 if one of them is blocked.
    """
    with one_line_errors(), working("reading and judging …"):
        read = read_cluster(common.source)
        assessment = assess(read.snapshot, common.at, reading)
        explanation = explain(assessment, end=common.end, problems=read.problems)
    if objects:
        explanation = _select(explanation, objects, common.namespace or "default")
    elif common.namespace is not None:
        explanation = _only(explanation, common.namespace)
    times, verbose = Times(common.at, common.zone), common.verbose or bool(objects)
    lines = partial(explanation_lines, explanation, times, verbose=verbose, quiet=common.quiet)
    print_answer(explanation, common.output, lines)
    sys.exit(1 if objects and not explanation.all_allowed else 0)


def _only(explanation: Explanation, namespace: str) -> Explanation:
    """Only pods and problems of the namespace; nodes and pools are not namespaced."""
    return msgspec.structs.replace(
        explanation,
        pods=tuple(pod for pod in explanation.pods if pod.namespace == namespace),
        problems=tuple(problem for problem in explanation.problems if problem.object.namespace in ("", namespace)),
    )


def _select(explanation: Explanation, objects: tuple[str, ...], namespace: str) -> Explanation:
    """Only the named objects, and the problems about them or about a whole kind."""
    known: dict[str, PodView | NodeView | PoolView] = {
        **{f"pod/{pod.namespace}/{pod.name}": pod for pod in explanation.pods},
        **{f"node/{node.name}": node for node in explanation.nodes},
        **{f"nodeclaim/{node.node_claim}": node for node in explanation.nodes if node.node_claim},
        **{f"nodepool/{pool.name}": pool for pool in explanation.nodepools},
    }
    chosen = {id(view): view for view in named_objects(known, objects, namespace)}.values()
    pods = tuple(view for view in chosen if isinstance(view, PodView))
    nodes = tuple(view for view in chosen if isinstance(view, NodeView))
    pools = tuple(view for view in chosen if isinstance(view, PoolView))
    named = {Ref("Pod", pod.namespace, pod.name) for pod in pods} | {Ref("NodePool", "", pool.name) for pool in pools}
    named |= {ref for node in nodes for ref in refs_of(node)}
    return msgspec.structs.replace(
        explanation,
        pods=pods,
        nodes=nodes,
        nodepools=pools,
        problems=tuple(
            problem for problem in explanation.problems if problem.object in named or problem.object.is_kind
        ),
    )
