"""`dovetail forecast`: per node and pool, over a span: when free, when expiring, when forced, what budgets allow."""

import shutil
from collections.abc import Iterable
from datetime import timedelta

import click
import msgspec

from dovetail.cli.common.files import one_line_errors
from dovetail.cli.common.named_objects import object_key, refs_of
from dovetail.cli.common.options import BUDGET_READING, CommonOptions, common_options
from dovetail.cli.common.output import Times, print_data, print_lines, without_cycle_search, working
from dovetail.cli.common.process import fail
from dovetail.cli.common.sources import read_cluster
from dovetail.cli.text.forecast import forecast_lines
from dovetail.model.refs import Ref
from dovetail.model.snapshot import Snapshot
from dovetail.rules.budgets import BudgetSemantics
from dovetail.views.assessment import assess
from dovetail.views.forecast.assembly import forecast, machines_of
from dovetail.views.forecast.data import Forecast

DEFAULT_SPAN = timedelta(hours=24)


@click.command("forecast")
@click.argument("objects", nargs=-1, metavar="[KIND/NAME]...")
@common_options(
    ahead="How far ahead.  [default: 24h]",
    namespace="Only nodes with pods of this namespace, and only these pods. For pods named without one, theirs.",
    quiet="Leave out problems, and nodes to which nothing happens.",
    verbose="Leave out nothing: all nodes, all events, all changes of budgets.",
)
@click.option(
    "--nodepool", "pools", multiple=True, metavar="NAME", help="Only this pool and its nodes. May be repeated."
)
@BUDGET_READING
@without_cycle_search()
def command(*, objects: tuple[str, ...], pools: tuple[str, ...], common: CommonOptions, budget_reading: str) -> None:
    """Say when nodes will be free, expire or be forced out, and what budgets will allow.

    Reads the live cluster, for which the rights to get and list are enough, or a dump of it:

    \b
      kubectl get nodepools,nodeclaims,nodes,pdb,pods -A -o yaml > cluster.yaml
      dovetail forecast -f cluster.yaml --for 7d --tz Europe/Berlin

    Name objects to ask about these only (node/n1, nodeclaim/default-x1, nodepool/default, pod/shop/cart-0: its node).
    """
    end = common.at + DEFAULT_SPAN if common.end is None else common.end
    with one_line_errors(), working("reading and looking ahead …"):
        read = read_cluster(common)
        machines = machines_of(read.documents)
        assessment = assess(read.snapshot, common.at, BudgetSemantics(budget_reading))
        found = forecast(assessment, end, machines=machines, problems=read.problems)
    if objects or pools:
        found = _select(found, read.snapshot, [*objects, *(f"nodepool/{pool}" for pool in pools)], common.namespace)
    elif common.namespace is not None:
        found = _only(found, read.snapshot, common.namespace)
    if common.output == "table":
        width = shutil.get_terminal_size().columns
        times = Times(common.at, common.zone)
        verbose = common.verbose or bool(objects)
        print_lines(forecast_lines(found, times, width=width, verbose=verbose, quiet=common.quiet))
    else:
        print_data(found, common.output)


def _only(found: Forecast, snapshot: Snapshot, namespace: str) -> Forecast:
    """Nodes on which the namespace has pods; what happens to others' pods is not told."""
    on = {pod.node_name for pod in snapshot.pods if pod.namespace == namespace}
    nodes = tuple(
        msgspec.structs.replace(
            node,
            events=tuple(event for event in node.events if event.object.namespace in ("", namespace)),
        )
        for node in found.nodes
        if node.name in on
    )
    pools = {node.nodepool or "" for node in nodes}
    problems = tuple(each for each in found.problems if each.object.namespace in ("", namespace))
    narrowed = _narrowed(found, {node.name for node in nodes}, pools)
    return msgspec.structs.replace(narrowed, nodes=nodes, problems=problems)


def _select(found: Forecast, snapshot: Snapshot, objects: Iterable[str], namespace: str | None) -> Forecast:
    """Only the named objects, and the problems that name them."""
    known: dict[str, tuple[set[str], set[str]]] = {}  # nodes and pools
    for pool in found.nodepools:
        known[f"nodepool/{pool.name}"] = (set(), {pool.name})
    for node in found.nodes:
        known[f"node/{node.name}"] = known[f"nodeclaim/{node.node_claim}"] = ({node.name}, set())
        if node.nodepool:
            known.setdefault(f"nodepool/{node.nodepool}", (set(), {node.nodepool}))[0].add(node.name)
    for pod in snapshot.pods:
        known[f"pod/{pod.namespace}/{pod.name}"] = ({pod.node_name} if pod.node_name else set(), set())
    nodes: set[str] = set()
    pools: set[str] = set()
    for text in objects:
        key = object_key(text, namespace or "default")
        if key not in known:
            fail(f"{text}: not found in the input, which holds no {key}")
        nodes |= known[key][0]
        pools |= known[key][1]
    return _narrowed(found, nodes, pools)


def _narrowed(found: Forecast, nodes: set[str], pools: set[str]) -> Forecast:
    """Only these, with the problems that name them, or a whole kind that is missing."""
    kept = tuple(node for node in found.nodes if node.name in nodes)
    named = {ref for node in kept for ref in refs_of(node)} | {Ref("NodePool", "", pool) for pool in pools}
    return msgspec.structs.replace(
        found,
        nodes=kept,
        nodepools=tuple(pool for pool in found.nodepools if pool.name in pools),
        herds=tuple(herd for herd in found.herds if not nodes.isdisjoint(herd.nodes)),
        problems=tuple(problem for problem in found.problems if problem.object in named or problem.object.is_kind),
    )
