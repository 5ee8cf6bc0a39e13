"""`dovetail explain`: may it be disrupted now; if not, every rule that blocks it, and until when."""

import sys

import click
import msgspec

from dovetail.cli.common.files import one_line_errors
from dovetail.cli.common.named_objects import object_key, refs_of
from dovetail.cli.common.options import BUDGET_READING, CommonOptions, common_options
from dovetail.cli.common.output import Times, print_data, print_lines, without_cycle_search, working
from dovetail.cli.common.process import fail
from dovetail.cli.common.sources import read_cluster
from dovetail.cli.text.explain import explanation_lines
from dovetail.model.refs import Ref
from dovetail.rules.budgets import BudgetSemantics
from dovetail.views.assessment import assess
from dovetail.views.explain.verdicts import Explanation, NodeView, PodView, PoolView, explain


@click.command("explain")
@click.argument("objects", nargs=-1, metavar="[KIND/NAME]...")
@common_options(
    ahead="Look ahead: say also what becomes free or blocked within this span, and when.",
    namespace="Only pods of this namespace. For pods named without one, theirs; else it is default.",
    quiet="Leave out problems and what is not blocked.",
    verbose="Show every rule that was asked, not only those that block.",
)
@BUDGET_READING
@without_cycle_search()
def command(*, objects: tuple[str, ...], common: CommonOptions, budget_reading: str) -> None:
    """Say whether pods and nodes may be disrupted now, and if not, which rules block them and until when.

    Reads the live cluster, for which the rights to get and list are enough, or a dump of it:

    \b
      kubectl get nodepools,nodeclaims,nodes,pdb,pods -A -o yaml > cluster.yaml
      dovetail explain -f cluster.yaml

    Name objects to ask about these only (pod/shop/cart-0, node/n1, nodeclaim/default-x1, nodepool/default); then the
    exit code is 1 if one of them is blocked.
    """
    with one_line_errors(), working("reading and judging …"):
        read = read_cluster(common)
        assessment = assess(read.snapshot, common.at, BudgetSemantics(budget_reading))
        explanation = explain(assessment, end=common.end, problems=read.problems)
    if objects:
        explanation = _select(explanation, objects, common.namespace or "default")
    elif common.namespace is not None:
        explanation = _only(explanation, common.namespace)
    if common.output == "table":
        times = Times(common.at, common.zone)
        print_lines(explanation_lines(explanation, times, verbose=common.verbose or bool(objects), quiet=common.quiet))
    else:
        print_data(explanation, common.output)
    sys.exit(1 if objects and not explanation.all_allowed else 0)


def _only(explanation: Explanation, namespace: str) -> Explanation:
    """Only the namespace's pods, and no problems of others' pods and budgets; nodes and pools are everybody's."""
    return msgspec.structs.replace(
        explanation,
        pods=tuple(pod for pod in explanation.pods if pod.namespace == namespace),
        problems=tuple(problem for problem in explanation.problems if problem.object.namespace in ("", namespace)),
    )


def _select(explanation: Explanation, objects: tuple[str, ...], namespace: str) -> Explanation:
    """Only the named objects, and the problems that name them, or a whole kind that is missing."""
    known: dict[str, PodView | NodeView | PoolView] = {
        **{f"pod/{pod.namespace}/{pod.name}": pod for pod in explanation.pods},
        **{f"node/{node.name}": node for node in explanation.nodes},
        **{f"nodeclaim/{node.node_claim}": node for node in explanation.nodes if node.node_claim},
        **{f"nodepool/{pool.name}": pool for pool in explanation.nodepools},
    }
    chosen: dict[int, PodView | NodeView | PoolView] = {}
    for text in objects:
        key = object_key(text, namespace)
        found = known.get(key)
        if found is None:
            fail(f"{text}: not found in the input, which holds no {key}")
        chosen[id(found)] = found
    pods = tuple(view for view in chosen.values() if isinstance(view, PodView))
    nodes = tuple(view for view in chosen.values() if isinstance(view, NodeView))
    pools = tuple(view for view in chosen.values() if isinstance(view, PoolView))
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
