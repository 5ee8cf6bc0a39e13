"""Problems of objects that the verdicts of `explain` do not show."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from dovetail.api import names
from dovetail.model.finding import Finding, Severity
from dovetail.model.node_records import ClaimRecord, NodeRecord
from dovetail.model.pod_records import PodRecord
from dovetail.model.refs import Ref, Sentence
from dovetail.rules.budgets import GROWN, budget_problems
from dovetail.rules.protection import may_be_protected, pod_problems
from dovetail.rules.states import NodeState
from dovetail.values.timestamp import TimeError, parse_time, spoken_time
from dovetail.views.assessment import Assessment, NodeAssessment
from dovetail.views.explain.badges import hanging
from dovetail.views.findings.beside import left_holds, mark_findings
from dovetail.views.findings.budgets import limit_findings, unread_graceful
from dovetail.views.findings.joined import without_repetition
from dovetail.views.findings.pods import NOT_REPAIRED, Template, node_findings, protection_findings
from dovetail.views.findings.subject import Subject


def all_problems(
    assessment: Assessment,
    given: Iterable[Finding],
    pods: Iterable[PodRecord] | None = None,
    nodes: Iterable[NodeAssessment] | None = None,
) -> tuple[Finding, ...]:
    """The list that every view shows: the problems given, those of the snapshot, and those of pods, nodes and pools.

    `pods`, `nodes`: only these.
    """
    snapshot = assessment.snapshot
    pods, nodes = snapshot.pods if pods is None else pods, assessment.nodes if nodes is None else nodes
    return tuple(without_repetition((*given, *snapshot.problems, *_found_problems(assessment, pods, nodes))))


def _found_problems(
    assessment: Assessment, pods: Iterable[PodRecord], nodes: Iterable[NodeAssessment]
) -> Iterator[Finding]:
    """The problems of these pods and nodes, and of all NodePools and PodDisruptionBudgets."""
    snapshot, at = assessment.snapshot, assessment.at
    unlikely = _UnlikelyProtections(at)
    for pod in pods:
        if may_be_protected(pod) and pod.active:
            yield from pod_problems(pod)
            yield from mark_findings(_subject(pod.object), pod.annotations)
            yield from left_holds(_subject(pod.object), pod.annotations, at)
            if pod.settings.reads_protections:
                yield from unlikely.of(pod)
    for node in nodes:
        yield from node_problems(node, at)
    for pool in assessment.pools.values():
        graceful, object_ = pool.record.graceful_expire_after_ns is not None, pool.record.object
        counts = [pool.counts.nodes, *GROWN]
        yield from budget_problems(
            object_,
            pool.budgets,
            graceful_expiry=graceful,
            now=at,
            node_counts=counts,
            settings=snapshot.settings,
        )
        if pool.record.unread_graceful:
            yield unread_graceful(_subject(object_), pool.record.unread_graceful)
        yield from _warnings(
            limit_findings(_subject(object_), pool.budgets, at, graceful=graceful, settings=snapshot.settings)
        )
    if snapshot.nodes and not snapshot.pods:
        yield NO_PODS
    for pdb in snapshot.pdbs:
        if pdb.selector_problem:
            yield bad_selector(pdb.object, pdb.selector_problem)


class _UnlikelyProtections:
    """Warnings about protections that can be read, but hardly are what was meant: the same as in `lint`.

    Pods of a workload share their annotations, and their windows are searched once.
    """

    def __init__(self, at: datetime) -> None:
        self._at = at
        self._known: dict[tuple[int, int], tuple[Mapping[str, str], list[Finding]]] = {}

    def of(self, pod: PodRecord) -> Iterator[Finding]:
        key = (id(pod.annotations), pod.grace_seconds)
        _, findings = self._known.get(key, (None, None))
        if findings is None:
            template = Template("metadata", pod.annotations, {})
            findings = list(_warnings(protection_findings(_subject(pod.object), template, pod.grace_seconds, self._at)))
            self._known[key] = (pod.annotations, findings)
        for finding in findings:
            yield msgspec.structs.replace(finding, object=pod.object)


def _subject(object_: Ref) -> Subject:
    return Subject(0, "", object_.kind, object_.namespace, object_.name)


def _warnings(findings: Iterable[Finding]) -> Iterator[Finding]:
    return (finding for finding in findings if finding.severity is not Severity.INFO)


def _annotation_problems(node: NodeRecord) -> Iterator[Finding]:
    values = {names.DO_NOT_DISRUPT: node.do_not_disrupt, names.DO_NOT_REPAIR: node.do_not_repair}
    annotations = {key: value for key, value in values.items() if value is not None}
    for finding in node_findings(_subject(node.object), "metadata", annotations, node.settings):
        # A Node that is well is not worth the word that it is not repaired.
        if finding.severity is not Severity.INFO or (finding.rule == NOT_REPAIRED and not node.ready):
            yield finding


def node_problems(assessed: NodeAssessment, at: datetime) -> Iterable[Finding]:
    """The problems of one node."""
    claim, node = assessed.member.claim, assessed.member.node
    if node is not None and (node.do_not_disrupt is not None or node.do_not_repair is not None):
        yield from _annotation_problems(node)
    if node is not None and node.held is not None:
        yield from _warnings(mark_findings(_subject(node.object), {names.HELD: node.held}))
    if claim is not None and claim.rolled is not None:
        yield from mark_findings(_subject(claim.object), {names.ROLLED: claim.rolled})
    if node is not None and node.pool and claim is None:
        yield Finding(
            severity=Severity.WARNING,
            rule="NodeClaimMissing",
            object=node.object,
            field="spec.providerID",
            message="no NodeClaim has this Node's provider ID, so its limits and reasons are unknown",
            remedy="put the NodeClaims and NodePools into the dump too: kubectl get nodepools,nodeclaims -o yaml",
        )
    if claim is None:
        return
    if claim.created_at is None and claim.expire_after_ns is not None:
        yield Finding(
            severity=Severity.INFO,
            rule="CreationTimestampMissing",
            object=claim.object,
            field="metadata.creationTimestamp",
            message="without a creation time, the expiration of the NodeClaim is unknown",
            remedy="dump the object from the cluster",
        )
    if claim.termination_timestamp is not None:
        try:
            parse_time(claim.termination_timestamp)
        except TimeError as error:
            yield Finding(
                severity=Severity.WARNING,
                rule="InvalidTerminationTimestamp",
                object=claim.object,
                field=f"metadata.annotations[{names.TERMINATION_TIMESTAMP}]",
                message=f"{error}; it is ignored, and only terminationGracePeriod counts",
                remedy="remove the annotation, or write an RFC 3339 time",
            )
    yield from _deletion_problems(assessed, claim, at)


def _deletion_problems(assessed: NodeAssessment, claim: ClaimRecord, at: datetime) -> Iterable[Finding]:
    """A deletion that has no end in sight."""
    blockers = assessed.pods.blockers
    badge = hanging(assessed.member, at)
    if badge is not None and badge.since is not None:
        yield Finding(
            severity=Severity.WARNING,
            rule="DeletionHangs",
            object=claim.object if claim.deleted_at is not None else assessed.member.object,
            field="metadata.finalizers",
            message=f"its deletion began {spoken_time(badge.since)}, and it is still there: {badge.why}",
            remedy="look for it in the log of the finalizer's controller; meanwhile it uses a slot of every budget",
        )
    elif assessed.state is NodeState.DRAINING and assessed.deadline is None and blockers:
        waits_for: list[str | Ref] = []
        for ref in dict.fromkeys(verdict.object for verdict in blockers[:5]):
            waits_for += [", ", ref] if waits_for else [ref]
        yield Finding(
            severity=Severity.WARNING,
            rule="DrainHasNoDeadline",
            object=claim.object,
            field="spec.terminationGracePeriod",
            message=Sentence(
                "draining without a limit and waiting for ", *waits_for, "; meanwhile it uses a slot of every budget"
            ),
            remedy="unblock or delete these pods; set terminationGracePeriod in the NodePool's template for new nodes",
        )


NO_PODS = Finding(
    severity=Severity.WARNING,
    rule="NoPods",
    object=Ref("Pod"),
    field="kind",
    message="the input has nodes but no pods, so nothing protects the nodes here",
    remedy="put the pods and PodDisruptionBudgets into the dump too: kubectl get pods,pdb -A -o yaml",
)


def bad_selector(object_: Ref, problem: str) -> Finding:
    """A PodDisruptionBudget whose selector cannot be read."""
    return Finding(
        severity=Severity.ERROR,
        rule="InvalidSelector",
        object=object_,
        field="spec.selector",
        message=f"{problem}; it selects nothing",
        remedy="correct the selector",
    )
