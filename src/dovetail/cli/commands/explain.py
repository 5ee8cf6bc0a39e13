"""`dovetail explain`: whether pods and nodes may be disrupted now, and which rules block them until when."""

import sys
from collections.abc import Mapping
from functools import partial

import click
import msgspec
from msgspec import UNSET

from dovetail.cli.common.completion import complete_workloads
from dovetail.cli.common.contexts import default_namespace, head, place_of
from dovetail.cli.common.dump_age import old_dump
from dovetail.cli.common.files import one_line_errors
from dovetail.cli.common.instance_types import INSTANCE_TYPES, catalogue_in
from dovetail.cli.common.named_objects import KINDS_AND_WORKLOADS, named_objects, named_workloads, refs_of
from dovetail.cli.common.options import CommonOptions, common_options
from dovetail.cli.common.output import Times, print_answer, without_cycle_search, working
from dovetail.cli.common.read_kinds import workload_kinds
from dovetail.cli.common.replacements import ConsolidationAnswer, assessed, consolidation_of, pending_views
from dovetail.cli.common.sources import read_cluster
from dovetail.cli.text.explain import explanation_lines
from dovetail.model.refs import Ref, Sentence
from dovetail.rules.nodes import CONSOLIDATION
from dovetail.rules.verdict import Rule
from dovetail.views.assessment import Assessment, PoolAssessment
from dovetail.views.explain.answers import budget_step
from dovetail.views.explain.pending import PendingView
from dovetail.views.explain.standings import NodeStanding
from dovetail.views.explain.verdicts import Explanation, NodeView, PodView, PoolView, explain
from dovetail.views.explain.workloads import WorkloadView, workloads_in


@click.command("explain")
@click.argument("objects", nargs=-1, metavar="[KIND/NAME]...", shell_complete=complete_workloads)
@common_options(
    ahead="Look ahead: also say what becomes free or blocked within this span, and when.",
    namespace="Only pods of this namespace; also that of pods named without one.  [default: that of the context]",
    quiet="Leave out problems and what is not blocked.",
    verbose="Show every rule that was checked, not only those that block.",
)
@INSTANCE_TYPES
@without_cycle_search()
def command(*, objects: tuple[str, ...], common: CommonOptions, instance_types: str | None) -> None:
    """Say whether pods and nodes may be disrupted now, and if not, which rules block them and until when.

    Reads the live cluster, which takes only the rights to get and list, or a dump of it:

    \b
      kubectl get nodepools,nodeclaims,nodes,pdb,pods -A -o yaml > cluster.yaml
      dovetail explain -f cluster.yaml

    Name objects to see only these (pod/shop/cart-0, node/n1, nodeclaim/default-x1, nodepool/default), or a workload for
    its pods (deployment/shop/web, statefulset, daemonset, replicaset, job). The exit code is then 1 if one of them is
    blocked.
    """
    with one_line_errors(), working("reading and judging …"):
        read = read_cluster(common.source, also=workload_kinds(named_workloads(objects)))
        read.problems.extend(old_dump(read.snapshot, common.at) if common.paths else ())
        named, catalogue = {text.rpartition("/")[2] for text in objects}, catalogue_in(instance_types)
        assessment = assessed(read, common.source, common.at, catalogue=catalogue, named=named)
        explanation = explain(assessment, end=common.end, problems=read.problems)
        workloads = tuple(workloads_in(read.documents)) if named_workloads(objects) else ()
    if objects:
        namespace = common.namespace or default_namespace(common.source)
        explanation = _select(
            explanation, workloads, objects, namespace=namespace, place=place_of(common.source), gone=_gone(assessment)
        )
    elif common.namespace is not None:
        explanation = _only(explanation, common.namespace)
    if objects or common.namespace is not None:
        with one_line_errors(), working("simulating …"):
            asked = {(pod.namespace, pod.name) for pod in explanation.pods if pod.node is None}
            waiting = {(pod.namespace, pod.name) for pod in read.snapshot.pods if pod.phase == "Pending"}
            before = len(read.problems)
            pending = pending_views(read, common.source, common.at, catalogue=catalogue, pods=asked & waiting)
            steady = {node.name for node in explanation.nodes if objects and _may_be_consolidated(node)}
            consolidation = consolidation_of(read, common.source, common.at, catalogue=catalogue, nodes=steady)
        explanation = msgspec.structs.replace(
            explanation,
            nodes=tuple(
                _with_consolidation(node, consolidation.get(node.name), assessment.pools.get(node.nodepool or ""))
                for node in explanation.nodes
            ),
            pods=tuple(_with_pending(pod, pending.get((pod.namespace, pod.name))) for pod in explanation.pods),
            problems=(*explanation.problems, *read.problems[before:]),
        )
    times = Times(common.at, common.zone)
    lines = partial(
        explanation_lines,
        explanation,
        times,
        verbose=common.verbose,
        quiet=common.quiet,
        named=bool(objects),
        namespace=None if objects else common.namespace,
    )
    heading = "\n".join(
        filter(
            None, (head(common.source, explanation.decider, explanation.problems, times), explanation.decider.limits)
        )
    )
    print_answer(explanation, common.output, lines, heading=heading)
    sys.exit(1 if objects and not explanation.all_allowed else 0)


def _may_be_consolidated(node: NodeView) -> bool:
    """Whether only its budget, or the places and prices of its pods, can keep the node."""
    if node.answer is UNSET or node.answer.standing != NodeStanding.STEADY or not node.managed:
        return False
    return any(
        reason.reason in CONSOLIDATION
        and all(verdict.allowed or verdict.rule == Rule.BUDGET for verdict in reason.verdicts)
        for reason in node.reasons
    )


def _with_consolidation(
    node: NodeView, consolidation: ConsolidationAnswer | None, pool: PoolAssessment | None
) -> NodeView:
    if consolidation is None or node.answer is UNSET:
        return node
    answer = msgspec.structs.replace(node.answer, cause=Sentence(node.answer.cause, "; ", consolidation.words))
    step = budget_step(pool, node.name) if consolidation.waits and pool is not None else consolidation.step
    if step and not answer.next_step:
        answer = msgspec.structs.replace(answer, next_step=Sentence(step))
    return msgspec.structs.replace(node, answer=answer)


def _with_pending(pod: PodView, pending: PendingView | None) -> PodView:
    return pod if pending is None else msgspec.structs.replace(pod, pending=pending)


def _only(explanation: Explanation, namespace: str) -> Explanation:
    """The pods of the namespace, their nodes, the pools of these, and the problems of all of them."""
    pods = tuple(pod for pod in explanation.pods if pod.namespace == namespace)
    on = {pod.node for pod in pods}
    nodes = tuple(node for node in explanation.nodes if node.name in on)
    pools = {node.nodepool for node in nodes}
    about = {ref for node in nodes for ref in refs_of(node)} | {Ref("NodePool", "", pool) for pool in pools if pool}
    return msgspec.structs.replace(
        explanation,
        blockers=UNSET,
        pending=UNSET,
        pods=pods,
        nodes=nodes,
        nodepools=tuple(pool for pool in explanation.nodepools if pool.name in pools),
        problems=tuple(
            problem
            for problem in explanation.problems
            if problem.object.namespace == namespace or problem.object in about or problem.object.is_kind
        ),
    )


def _gone(assessment: Assessment) -> dict[str, str]:
    """The NodeClaims of Nodes that are gone, by the names of these: a deletion that hangs is known by that name."""
    claims = (member.claim for member in assessment.snapshot.nodes if member.node is None)
    return {claim.node_name: claim.name for claim in claims if claim is not None and claim.node_name}


def _select(
    explanation: Explanation,
    workloads: tuple[WorkloadView, ...],
    objects: tuple[str, ...],
    *,
    namespace: str,
    place: str,
    gone: Mapping[str, str],
) -> Explanation:
    """Only the named objects with the pods of workloads, and the problems about them or about a whole kind.

    `gone`: the NodeClaims of Nodes that are gone, by the names of these.
    """
    claims = {node.node_claim: node for node in explanation.nodes}
    views: dict[Ref, PodView | NodeView | PoolView | WorkloadView] = {
        **{Ref("node", "", name): claims[claim] for name, claim in gone.items()},
        **{Ref("pod", pod.namespace, pod.name): pod for pod in explanation.pods},
        **{Ref(workload.kind.lower(), workload.namespace, workload.name): workload for workload in workloads},
        **{Ref("node", "", node.name): node for node in explanation.nodes},
        **{Ref("nodeclaim", "", node.node_claim): node for node in explanation.nodes if node.node_claim},
        **{Ref("nodepool", "", pool.name): pool for pool in explanation.nodepools},
    }
    matches = named_objects(views, objects, namespace, kinds=KINDS_AND_WORKLOADS, place=place)
    chosen = {id(view): view for view in matches}.values()
    chosen_workloads = tuple(view for view in chosen if isinstance(view, WorkloadView))
    owned = {(workload.namespace, name) for workload in chosen_workloads for name in workload.pods}
    pods = tuple(view for view in chosen if isinstance(view, PodView))
    pods += tuple(pod for pod in explanation.pods if (pod.namespace, pod.name) in owned and pod not in pods)
    nodes = tuple(view for view in chosen if isinstance(view, NodeView))
    pools = tuple(view for view in chosen if isinstance(view, PoolView))
    named = {Ref("Pod", pod.namespace, pod.name) for pod in pods} | {Ref("NodePool", "", pool.name) for pool in pools}
    named |= {ref for node in nodes for ref in refs_of(node)}
    named |= {Ref("NodePool", "", node.nodepool) for node in nodes if node.nodepool}
    return msgspec.structs.replace(
        explanation,
        workloads=chosen_workloads or UNSET,
        blockers=UNSET,
        pending=UNSET,
        pods=pods,
        nodes=nodes,
        nodepools=pools,
        problems=tuple(
            problem for problem in explanation.problems if problem.object in named or problem.object.is_kind
        ),
    )
