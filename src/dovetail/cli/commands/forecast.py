"""`dovetail forecast`: when nodes become free, expire or are forced out over a span, and what budgets allow."""

from collections.abc import Iterable
from datetime import timedelta
from functools import partial

import click
import msgspec

from dovetail.cli.common.completion import complete_objects, complete_pools
from dovetail.cli.common.contexts import default_namespace, head, place_of
from dovetail.cli.common.dump_age import old_dump
from dovetail.cli.common.files import one_line_errors
from dovetail.cli.common.instance_types import INSTANCE_TYPES, catalogue_in
from dovetail.cli.common.named_objects import named_objects, refs_of
from dovetail.cli.common.options import CommonOptions, common_options
from dovetail.cli.common.output import Times, output_width, print_answer, without_cycle_search, working
from dovetail.cli.common.replacements import assessed
from dovetail.cli.common.sources import read_cluster
from dovetail.cli.text.forecast import forecast_lines
from dovetail.model.refs import Ref
from dovetail.model.snapshot import Snapshot
from dovetail.views.forecast.assembly import forecast
from dovetail.views.forecast.data import Forecast

DEFAULT_SPAN = timedelta(hours=24)


@click.command("forecast")
@click.argument("objects", nargs=-1, metavar="[KIND/NAME]...", shell_complete=complete_objects)
@common_options(
    ahead="How far ahead.  [default: 24h]",
    namespace="Only nodes with pods of this namespace, and only these pods; also for pods named without a namespace.",
    quiet="Leave out problems, and nodes to which nothing happens.",
    verbose="Show all nodes, all events and all changes of budgets.",
)
@click.option(
    "--nodepool",
    "pools",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_pools,
    help="Only this pool and its nodes. Can be repeated.",
)
@INSTANCE_TYPES
@without_cycle_search()
def command(
    *,
    objects: tuple[str, ...],
    pools: tuple[str, ...],
    common: CommonOptions,
    instance_types: str | None,
) -> None:
    """Say when nodes will be free, expire or be forced out, and what budgets will allow.

    Reads the live cluster, which takes only the rights to get and list, or a dump of it:

    \b
      kubectl get nodepools,nodeclaims,nodes,pdb,pods -A -o yaml > cluster.yaml
      dovetail forecast -f cluster.yaml --for 7d --tz Europe/Berlin

    Name objects to see only these (node/n1, nodeclaim/default-x1, nodepool/default, pod/shop/cart-0: its node).
    """
    end = common.at + DEFAULT_SPAN if common.end is None else common.end
    with one_line_errors(), working("reading and looking ahead …"):
        read = read_cluster(common.source)
        read.problems.extend(old_dump(read.snapshot, common.at) if common.paths else ())
        catalogue = catalogue_in(instance_types)
        assessment = assessed(read, common.source, common.at, catalogue=catalogue)
        outlook = forecast(assessment, end, problems=read.problems)
    if objects or pools:
        namespace = common.namespace or default_namespace(common.source)
        named = [*objects, *(f"nodepool/{pool}" for pool in pools)]
        outlook = _select(outlook, read.snapshot, named, namespace=namespace, place=place_of(common.source))
    elif common.namespace is not None:
        outlook = _only(outlook, read.snapshot, common.namespace)
    times, width = Times(common.at, common.zone), output_width()
    verbose = common.verbose or bool(objects)
    lines = partial(forecast_lines, outlook, times, width=width, verbose=verbose, quiet=common.quiet)
    print_answer(outlook, common.output, lines, heading=head(common.source, outlook.decider, outlook.problems, times))


def _only(outlook: Forecast, snapshot: Snapshot, namespace: str) -> Forecast:
    """Nodes on which the namespace has pods, without the events of pods of other namespaces."""
    on = {pod.node_name for pod in snapshot.pods if pod.namespace == namespace}
    nodes = tuple(
        msgspec.structs.replace(
            node,
            events=tuple(event for event in node.events if event.object.namespace in ("", namespace)),
        )
        for node in outlook.nodes
        if node.name in on
    )
    pools = {node.nodepool or "" for node in nodes}
    problems = tuple(problem for problem in outlook.problems if problem.object.namespace in ("", namespace))
    narrowed = _narrowed(outlook, {node.name for node in nodes}, pools)
    return msgspec.structs.replace(narrowed, nodes=nodes, problems=problems)


def _select(outlook: Forecast, snapshot: Snapshot, objects: Iterable[str], *, namespace: str, place: str) -> Forecast:
    """Only the named objects, and the problems about them."""
    meant: dict[Ref, tuple[set[str], set[str]]] = {}  # nodes and pools
    for pool in outlook.nodepools:
        meant[Ref("nodepool", "", pool.name)] = (set(), {pool.name})
    for node in outlook.nodes:
        meant[Ref("node", "", node.name)] = single = ({node.name}, set[str]())
        if node.node_claim:
            meant[Ref("nodeclaim", "", node.node_claim)] = single
        if node.nodepool:
            meant.setdefault(Ref("nodepool", "", node.nodepool), (set(), {node.nodepool}))[0].add(node.name)
    for pod in snapshot.pods:
        meant[Ref("pod", pod.namespace, pod.name)] = ({pod.node_name} if pod.node_name else set(), set())
    chosen = named_objects(meant, objects, namespace, place=place)
    nodes = {name for nodes, _ in chosen for name in nodes}
    return _narrowed(outlook, nodes, {name for _, pools in chosen for name in pools})


def _narrowed(outlook: Forecast, nodes: set[str], pools: set[str]) -> Forecast:
    """Only these, and the problems about them or about a whole kind."""
    chosen = tuple(node for node in outlook.nodes if node.name in nodes)
    named = {ref for node in chosen for ref in refs_of(node)} | {Ref("NodePool", "", pool) for pool in pools}
    return msgspec.structs.replace(
        outlook,
        nodes=chosen,
        nodepools=tuple(pool for pool in outlook.nodepools if pool.name in pools),
        herds=tuple(herd for herd in outlook.herds if not nodes.isdisjoint(herd.nodes)),
        problems=tuple(problem for problem in outlook.problems if problem.object in named or problem.object.is_kind),
    )
