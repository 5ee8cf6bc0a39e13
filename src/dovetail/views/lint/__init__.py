"""Finds what is wrong or surprising in manifests before they are applied. The contract of 09."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple, TypeVar

from dovetail.api import names, objects
from dovetail.api.documents import Document, InputError, decode, plain_value
from dovetail.api.yaml_events import shorten
from dovetail.model.finding import Finding, Severity
from dovetail.model.records import PdbRecord, claim_record, pdb_record, pool_record
from dovetail.model.refs import Ref
from dovetail.values.duration import SECOND, short_duration
from dovetail.views.lint.pdbs import SelectablePods, pdb_findings
from dovetail.views.lint.pods import (
    coerced_findings,
    misplaced_findings,
    node_findings,
    pod_findings,
)
from dovetail.views.lint.pools import INVALID, UNUSABLE, claim_findings, pool_findings, resource_findings
from dovetail.views.lint.subject import NO_NAME, Subject, subject_of
from dovetail.views.lint.workloads import KINDS_WITH_PODS, PodSource, pod_source

T = TypeVar("T")

_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}
_MAX_NAMED = 10
# The kinds that lint checks, by group and kind, and the version that the API serves.
_VERSIONS = {
    **{(version.rpartition("/")[0], kind): "v1" for version, kind in KINDS_WITH_PODS},
    ("", "Node"): "v1",
    ("policy", "PodDisruptionBudget"): "v1",
    (names.GROUP, names.NODEPOOL_KIND): names.VERSION,
    (names.GROUP, names.NODECLAIM_KIND): names.VERSION,
    (names.KWOK_GROUP, names.KWOK_NODECLASS_KIND): names.KWOK_VERSION,
}


class _PodGracePeriod(NamedTuple):
    """The grace period of a pod, to be compared with the grace period of its node."""

    subject: Subject
    field: str
    seconds: int
    node_name: str


class _DrainTime(NamedTuple):
    """The grace period of a NodeClaim's node."""

    subject: Subject
    node_name: str
    provider_id: str
    grace_ns: int | None


def lint(documents: Iterable[Document], at: datetime) -> list[Finding]:
    """All findings, by file, then object, then severity. Reading the documents may raise; checking them never does."""
    linter = _Linter(at)
    for place, document in enumerate(documents):
        linter.read(subject_of(place, document), document)
    return linter.finish()


class _Linter:
    """Checks each document by itself, and keeps what must be compared with other documents."""

    def __init__(self, at: datetime) -> None:
        self._at = at
        self._found: dict[Subject, list[Finding]] = {}
        self._seen: dict[tuple[str, str, str, str], Document] = {}
        self._not_checked: Counter[str] = Counter()
        self._workloads: list[SelectablePods] = []
        self._owned_pods: dict[tuple[str, tuple[tuple[str, str], ...]], SelectablePods] = {}
        self._asked: list[_PodGracePeriod] = []
        self._pdbs: list[tuple[Subject, PdbRecord]] = []
        self._pools: list[tuple[Subject, int]] = []
        self._claims: list[_DrainTime] = []
        self._provider_ids: dict[str, str] = {}  # of Nodes, by name

    def read(self, subject: Subject, document: Document) -> None:
        """Check one document."""
        group, _, version = document.api_version.rpartition("/")
        wanted = _VERSIONS.get((group, document.kind))
        if wanted is None:
            self._not_checked[subject.kind] += 1
            return
        found = self._found[subject] = list(self._identity(subject, document, group))
        if version != wanted:
            found.append(_wrong_version(subject, document.api_version, f"{group}/{wanted}".lstrip("/")))
        match document.kind:
            case names.NODEPOOL_KIND | names.NODECLAIM_KIND | names.KWOK_NODECLASS_KIND:
                found += self._resource(subject, document)
            case "Node":
                found += self._node(subject, document)
            case "PodDisruptionBudget":
                found += self._pdb(subject, document)
            case _:
                found += self._pods(subject, document)

    def finish(self) -> list[Finding]:
        """Compare documents, and sort all findings."""
        for subject, problem in pdb_findings(self._pdbs, self._workloads, list(self._owned_pods.values())):
            self._found[subject].append(problem)
        self._compare_graces()
        files = {file: rank for rank, file in enumerate(dict.fromkeys(subject.file for subject in self._found))}
        return [
            problem
            for subject in sorted(self._found, key=lambda subject: (files[subject.file], subject.place))
            for problem in sorted(self._found[subject], key=lambda problem: _RANK[problem.severity])
        ] + self._unknown_kinds()

    # -- any object ---------------------------------------------------------------------------------------------------

    def _identity(self, subject: Subject, document: Document, group: str) -> Iterator[Finding]:
        if subject.name == NO_NAME:
            message = "the object has no name: the API server refuses it"
            yield subject.error("InvalidObject", "metadata.name", message, "add metadata.name")
        elif not subject.generated:
            first = self._seen.setdefault((group, document.kind, subject.namespace, subject.name), document)
            if first is not document:
                message = f"{shorten(first.where, 200)} has the same object; the last one applied wins"
                remedy = "remove one of the two, or rename it"
                yield subject.warning("DuplicateObject", "metadata.name", message, remedy)

    def _unknown_kinds(self) -> list[Finding]:
        if not self._not_checked:
            return []
        kinds = self._not_checked.most_common()
        counted = [f"{count} {kind}" for kind, count in kinds[:_MAX_NAMED]]
        more = [f"and {len(kinds) - _MAX_NAMED} more kinds"] if len(kinds) > _MAX_NAMED else []
        return [
            Finding(
                severity=Severity.INFO,
                rule="NotChecked",
                object=Ref(""),
                field="kind",
                message=f"not checked, because lint does not know these kinds: {', '.join(counted + more)}",
                remedy="nothing to do; lint knows pods, workloads, Nodes, NodePools, NodeClaims, node classes and PDBs",
            )
        ]

    # -- pods and workloads -------------------------------------------------------------------------------------------

    def _pods(self, subject: Subject, document: Document) -> list[Finding]:
        """Check a pod, or an object with a pod template."""
        try:
            source = pod_source(document)
        except InputError as error:
            return [_undecodable(subject, document, error)]
        found = coerced_findings(subject, document)
        if source.finished:
            return found  # it protects nothing (R4)
        template = source.template
        reported = {problem.field for problem in found}
        found += [
            problem
            for problem in pod_findings(subject, template, source.grace_seconds, self._at)
            if problem.field not in reported or problem.severity is not Severity.ERROR
        ]
        for path, annotations in source.around:
            found += misplaced_findings(subject, path, annotations, template)
        self._keep(subject, source)
        return found

    def _keep(self, subject: Subject, source: PodSource) -> None:
        self._asked.append(_PodGracePeriod(subject, source.grace_field, source.grace_seconds, source.spec.node_name))
        workload = SelectablePods(subject, source.template.labels, source.replicas)
        if source.owned and subject.kind == "Pod":
            key = (subject.namespace, tuple(sorted(source.template.labels.items())))
            before = self._owned_pods.get(key)
            self._owned_pods[key] = workload if before is None else before.plus_one()
        elif source.runs and not source.owned:
            self._workloads.append(workload)

    def _pdb(self, subject: Subject, document: Document) -> list[Finding]:
        pdb, found = _decoded(subject, document, objects.PodDisruptionBudget)
        if pdb is not None:
            self._pdbs.append((subject, pdb_record(pdb)))
        return found

    # -- Nodes, NodeClaims, NodePools ----------------------------------------------------------------------------------

    def _node(self, subject: Subject, document: Document) -> list[Finding]:
        node, found = _decoded(subject, document, objects.Node)
        if node is None:
            return found
        if node.spec.provider_id:
            self._provider_ids[node.metadata.name] = node.spec.provider_id
        return [*found, *node_findings(subject, "metadata", node.metadata.annotations)]

    def _resource(self, subject: Subject, document: Document) -> list[Finding]:
        """Check one of our own kinds: first as the API server does, then by the rules."""
        try:
            value = plain_value(document)
        except InputError as error:  # a number out of range, or nested too deeply
            return [_undecodable(subject, document, error)]
        found = resource_findings(subject, value) if isinstance(value, dict) else []
        refused = any(problem.severity is Severity.ERROR for problem in found)
        try:
            found += self._meaning(subject, document)
        except InputError as error:
            if not refused:  # else the refusal says it better
                found.append(_undecodable(subject, document, error))
        coerced = coerced_findings(subject, document)
        found += [problem for problem in coerced if problem.field.startswith("metadata")]  # the schema has the others
        return _without_repetition(found)

    def _meaning(self, subject: Subject, document: Document) -> Iterable[Finding]:
        if subject.kind == names.NODEPOOL_KIND:
            pool = decode(document, objects.NodePool)
            grace_ns = pool_record(pool).grace_period_ns
            if grace_ns:  # 0s has another finding
                self._pools.append((subject, grace_ns))
            return pool_findings(subject, pool, self._at)
        if subject.kind == names.NODECLAIM_KIND:
            claim = decode(document, objects.NodeClaim)
            grace_ns = claim_record(claim).grace_period_ns
            self._claims.append(_DrainTime(subject, claim.status.node_name, claim.status.provider_id, grace_ns))
            return claim_findings(subject, claim)
        decode(document, objects.KWOKNodeClass)
        return []

    def _compare_graces(self) -> None:
        """A pod whose grace is not shorter than its node's is deleted as soon as the drain begins (R17, seed 002)."""
        by_node = {claim.node_name: claim for claim in self._claims if claim.node_name}
        by_provider_id = {claim.provider_id: claim for claim in self._claims if claim.provider_id}
        for asked in self._asked:
            limits = self._pools
            if asked.node_name:
                provider_id = self._provider_ids.get(asked.node_name, "")
                claim = by_node.get(asked.node_name) or by_provider_id.get(provider_id)
                limits = [(claim.subject, claim.grace_ns)] if claim is not None and claim.grace_ns else []
            short = [(holder, grace_ns) for holder, grace_ns in limits if asked.seconds * SECOND >= grace_ns]
            if short:
                self._found[asked.subject].append(_too_long(asked, short))


def _decoded(subject: Subject, document: Document, type_: type[T]) -> tuple[T | None, list[Finding]]:
    """The object, or None, and findings about decoding it."""
    try:
        decoded = decode(document, type_)
    except InputError as error:
        return None, [_undecodable(subject, document, error)]
    return decoded, coerced_findings(subject, document)


def _undecodable(subject: Subject, document: Document, error: InputError) -> Finding:
    field = document.field_of(error)
    return subject.error(
        "InvalidObject",
        field,
        f"{shorten(error.message, 300)}; the rest of the object is not checked",
        f"correct {field}" if field else "correct the object",
    )


def _wrong_version(subject: Subject, version: str, wanted: str) -> Finding:
    remedy = f"write apiVersion: {wanted}"
    if version == f"{names.GROUP}/v1beta1":
        message = f"{version} is an old version that is not served; what follows reads the object as {wanted}"
        return subject.warning("OldApiVersion", "apiVersion", message, remedy)
    message = f"{subject.kind} is not served in version {shorten(version, 100)} by today's API servers"
    return subject.error("UnknownApiVersion", "apiVersion", message, remedy)


def _without_repetition(found: list[Finding]) -> list[Finding]:
    """Without findings that another one explains better: the budget's own, or the API server's refusal."""
    budgets = [problem.field for problem in found if problem.rule == names.EventReason.INVALID_BUDGET]
    refused = [problem.field for problem in found if problem.rule == INVALID]
    better = {INVALID: budgets, UNUSABLE: refused}
    return [
        problem for problem in found if not any(_within(problem.field, above) for above in better.get(problem.rule, ()))
    ]


def _within(field: str, above: str) -> bool:
    return field == above or field.startswith((f"{above}[", f"{above}."))


def _too_long(asked: _PodGracePeriod, short: list[tuple[Subject, int]]) -> Finding:
    named = ", ".join(f"{holder.object} ({short_duration(grace_ns)})" for holder, grace_ns in short[:_MAX_NAMED])
    least = min(grace_ns for _, grace_ns in short)
    return asked.subject.warning(
        "GraceExceedsNode",
        asked.field,
        f"the pod asks for {short_duration(asked.seconds * SECOND)} to end, at least the terminationGracePeriod of "
        f"{named}: there it is deleted as soon as its node begins to drain, whatever protects it",
        f"ask for less than {short_duration(least)}, or raise terminationGracePeriod above what the pod needs",
    )
