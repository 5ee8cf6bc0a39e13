"""`dovetail explain`: may it be disrupted now; if not, every rule that blocks it, and until when."""

import sys
from datetime import datetime, tzinfo

import click
import msgspec

from dovetail.cli.explain_text import explanation_lines
from dovetail.cli.failing import fail
from dovetail.cli.files import documents_of, one_line_errors
from dovetail.cli.options import at_option, files_option, instant_or_now, output_option, zone_option
from dovetail.cli.output import Times, print_data, print_lines, without_cycle_search, working
from dovetail.model.intake import take_in
from dovetail.rules.budgets import Reading
from dovetail.views.explain import Explanation, NodeView, PodView, PoolView, explain


@click.command("explain")
@click.argument("objects", nargs=-1, metavar="[KIND/NAME]...")
@files_option
@output_option
@at_option
@zone_option
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of pods named without one.")
@click.option(
    "--budget-reading",
    type=click.Choice([reading.value for reading in Reading]),
    default=Reading.SEED.value,
    show_default=True,
    help="Whether a budget without reasons holds only for reasons that no active budget names, or for all of them.",
)
@click.option("-q", "--quiet", is_flag=True, help="Leave out problems and what is not blocked.")
@click.option("-v", "--verbose", is_flag=True, help="Show every rule that was asked, not only those that block.")
def command(
    *,
    objects: tuple[str, ...],
    paths: tuple[str, ...],
    output: str,
    at: datetime | None,
    zone: tzinfo,
    namespace: str,
    budget_reading: str,
    quiet: bool,
    verbose: bool,
) -> None:
    """Say whether pods and nodes may be disrupted now, and if not, which rules block them and until when.

    Reads a dump of the cluster:

    \b
      kubectl get nodepools,nodeclaims,nodes,pdb,pods -A -o yaml > cluster.yaml
      dovetail explain -f cluster.yaml

    Name objects to ask about these only (pod/shop/cart-0, node/n1, nodeclaim/default-x1, nodepool/default); then the
    exit code is 1 if one of them is blocked.
    """
    if not paths:
        fail("no input: give -f FILE, such as what `kubectl get nodepools,nodeclaims,nodes,pdb,pods -A -o yaml` prints")
    at = instant_or_now(at)
    with one_line_errors(), working("reading and judging …"), without_cycle_search():
        snapshot, problems = take_in(documents_of(paths))
        explanation = explain(snapshot, at, reading=Reading(budget_reading), problems=problems)
    if objects:
        explanation = _select(explanation, objects, namespace)
    if output == "table":
        print_lines(explanation_lines(explanation, Times(at, zone), verbose=verbose or bool(objects), quiet=quiet))
    else:
        print_data(explanation, output)
    sys.exit(1 if objects and not explanation.all_allowed else 0)


def _select(explanation: Explanation, objects: tuple[str, ...], namespace: str) -> Explanation:
    """Only the named objects, and the problems that name them."""
    known: dict[str, PodView | NodeView | PoolView] = {
        **{f"pod/{pod.namespace}/{pod.name}": pod for pod in explanation.pods},
        **{f"node/{node.name}": node for node in explanation.nodes},
        **{f"nodeclaim/{node.node_claim}": node for node in explanation.nodes if node.node_claim},
        **{f"nodepool/{pool.name}": pool for pool in explanation.nodepools},
    }
    chosen: dict[int, PodView | NodeView | PoolView] = {}
    for text in objects:
        key = _key(text, namespace)
        found = known.get(key)
        if found is None:
            fail(f"{text}: not found in the input, which holds no {key}")
        chosen[id(found)] = found
    pods = tuple(view for view in chosen.values() if isinstance(view, PodView))
    nodes = tuple(view for view in chosen.values() if isinstance(view, NodeView))
    pools = tuple(view for view in chosen.values() if isinstance(view, PoolView))
    named = {f"Pod/{pod.namespace}/{pod.name}" for pod in pods} | {f"NodePool/{pool.name}" for pool in pools}
    named |= {name for node in nodes for name in (f"Node/{node.name}", f"NodeClaim/{node.node_claim}")}
    return msgspec.structs.replace(
        explanation,
        pods=pods,
        nodes=nodes,
        nodepools=pools,
        problems=tuple(problem for problem in explanation.problems if problem.object in named),
    )


_KINDS = {
    **dict.fromkeys(["pod", "pods", "po"], "pod"),
    **dict.fromkeys(["node", "nodes", "no"], "node"),
    **dict.fromkeys(["nodeclaim", "nodeclaims"], "nodeclaim"),
    **dict.fromkeys(["nodepool", "nodepools"], "nodepool"),
}


def _key(text: str, namespace: str) -> str:
    kind, _, name = text.partition("/")
    known = _KINDS.get(kind.lower())
    if known is None or not name:
        fail(f"{text}: want KIND/NAME with a kind of pod, node, nodeclaim or nodepool, such as pod/shop/cart-0")
    return f"{known}/{namespace}/{name}" if known == "pod" and "/" not in name else f"{known}/{name}"
