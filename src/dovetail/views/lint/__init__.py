"""Finds what is wrong or surprising in manifests before they are applied."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple, TypeVar

import msgspec

from dovetail.api import names, objects
from dovetail.api.conversion import OLD_VERSION, REMOVED_KINDS, to_v1
from dovetail.api.documents import Document, InputError, decode, group_of, plain_value
from dovetail.api.yaml_events import shorten
from dovetail.model.finding import Finding, Severity
from dovetail.model.node_records import claim_record
from dovetail.model.pdb_records import PdbRecord, pdb_record
from dovetail.model.pool_records import pool_record
from dovetail.model.refs import Ref
from dovetail.model.rule_settings import DEFAULT_SETTINGS, RuleSettings
from dovetail.values.duration import SECOND, short_duration
from dovetail.views.findings.beside import mark_findings
from dovetail.views.findings.joined import without_repetition
from dovetail.views.findings.pods import (
    coerced_findings,
    misnamed_findings,
    misplaced_findings,
    node_findings,
    pod_findings,
)
from dovetail.views.findings.subject import NO_NAME, Subject, has_odd_name, subject_of
from dovetail.views.lint.chart_values import VALUES, values_findings
from dovetail.views.lint.pdbs import SelectablePods, pdb_findings
from dovetail.views.lint.placing import PoolNodes, placing_of, pool_nodes
from dovetail.views.lint.pools import (
    ADDED_FIELDS,
    NO_DRAIN_LIMIT,
    claim_findings,
    class_findings,
    is_change_of_version,
    pool_findings,
    resource_findings,
)
from dovetail.views.lint.scaling import AUTOSCALERS, Autoscalers, target_of
from dovetail.views.lint.workloads import PodSource, pod_source

T = TypeVar("T")

_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}
_MAX_NAMED = 10
# The kinds that lint checks, by group and kind, and the version that the API serves.
_VERSIONS = {
    **{(group_of(version), kind): "v1" for version, kind in objects.KINDS_WITH_PODS},
    ("", "Node"): "v1",
    ("policy", "PodDisruptionBudget"): "v1",
    (names.GROUP, names.NODEPOOL_KIND): names.VERSION,
    (names.GROUP, names.NODECLAIM_KIND): names.VERSION,
    (names.KWOK_GROUP, names.KWOK_NODECLASS_KIND): names.KWOK_VERSION,
}
# The kinds that have findings, or change those of others.
CHECKED_KINDS = frozenset(kind for _, kind in (*_VERSIONS, *REMOVED_KINDS, *AUTOSCALERS, *VALUES))
NOT_CHECKED = "NotChecked"
_NODE_CLASS = "NodeClass"
_NAME = "metadata.name"


def is_checked(api_version: str, kind: str) -> bool:
    """Whether `lint` reads objects of the kind; of others it only counts them."""
    key = (group_of(api_version), kind)
    return any(key in kinds for kinds in (_VERSIONS, REMOVED_KINDS, AUTOSCALERS, VALUES)) or kind.endswith(_NODE_CLASS)


class _PodGracePeriod(NamedTuple):
    """The grace period of a pod, to be compared with the grace period of its node."""

    subject: Subject
    field: str
    seconds: int
    node_name: str
    document: Document | None
    """Of a pod without a node: says where it can run."""
    spec_path: str


class _PoolGracePeriod(NamedTuple):
    """The grace period of the nodes of a pool, and what they are like."""

    subject: Subject
    grace_ns: int
    nodes: PoolNodes


class _DrainTime(NamedTuple):
    """The grace period of a NodeClaim's node."""

    subject: Subject
    node_name: str
    provider_id: str
    grace_ns: int | None


def lint(
    documents: Iterable[Document],
    at: datetime,
    *,
    unit_of: Callable[[str], str] = lambda _file: "",
    not_read: Mapping[str, int] | None = None,
    settings: RuleSettings = DEFAULT_SETTINGS,
) -> list[Finding]:
    """All findings, by file, then object, then severity. Reading the documents may raise; checking them never does.

    Files of one unit are applied together: an object twice in it is a mistake. `not_read`: the kinds of further
    objects; it may be filled while the documents are read. `settings`: of whoever decides.
    """
    linter = _Linter(at, unit_of, settings)
    for place, document in enumerate(documents):
        linter.read(subject_of(place, document), document)
    return linter.finish(not_read or {})


class _Linter:
    """Checks each document by itself, and keeps what must be compared with other documents."""

    def __init__(self, at: datetime, unit_of: Callable[[str], str], settings: RuleSettings) -> None:
        self._at = at
        self._settings = settings
        self._unit_of = unit_of
        self._found: dict[Subject, list[Finding]] = {}
        self._seen: dict[tuple[str, str, str, str, str], Document] = {}
        self._not_checked: Counter[str] = Counter()
        self._workloads: list[SelectablePods] = []
        self._owned_pods: dict[tuple[str, tuple[tuple[str, str], ...]], SelectablePods] = {}
        self._asked: list[_PodGracePeriod] = []
        self._pdbs: list[tuple[Subject, PdbRecord]] = []
        self._pools: list[tuple[Subject, Document]] = []
        self._pool_graces: list[_PoolGracePeriod] = []
        self._autoscalers = Autoscalers()
        self._node_classes: dict[tuple[str, str], set[str]] = defaultdict(set)  # names by group and kind
        self._pool_nodes: Counter[tuple[str, str]] = Counter()  # Nodes and NodeClaims, by kind and pool
        self._claims: list[_DrainTime] = []
        self._provider_ids: dict[str, str] = {}  # of Nodes, by name

    def read(self, subject: Subject, document: Document) -> None:
        """Check one document."""
        group, _, version = document.api_version.rpartition("/")
        wanted = _VERSIONS.get((group, document.kind))
        if document.kind.endswith(_NODE_CLASS):
            self._node_classes[group, document.kind].add(subject.name)
        if wanted is None:
            self._read_other(subject, document, group)
            return
        findings = self._found[subject] = list(self._identity(subject, document, group))
        if version != wanted:
            findings.append(_wrong_version(subject, document, f"{group}/{wanted}".lstrip("/")))
        match document.kind:
            case names.NODEPOOL_KIND:
                self._pools.append((subject, document))  # its nodes may follow
            case names.NODECLAIM_KIND | names.KWOK_NODECLASS_KIND:
                findings += self._resource(subject, document)
            case "Node":
                findings += self._node(subject, document)
            case "PodDisruptionBudget":
                findings += self._pdb(subject, document)
            case _:
                findings += self._pods(subject, document)

    def _read_other(self, subject: Subject, document: Document, group: str) -> None:
        """Read an object of another kind: an autoscaler, the values of a chart, or one to be counted."""
        key = (group, document.kind)
        if key in REMOVED_KINDS:
            self._found[subject] = [_removed(subject, document.api_version, REMOVED_KINDS[key])]
            return
        try:
            if key in AUTOSCALERS:
                self._autoscalers.add(document)
            elif key in VALUES:
                self._found[subject] = values_findings(subject, document, VALUES[key], self._settings)
            else:
                self._not_checked[subject.kind] += 1
        except InputError as error:
            self._found[subject] = [_undecodable(subject, document, error)]

    def finish(self, not_read: Mapping[str, int]) -> list[Finding]:
        """Compare documents, and sort all findings."""
        self._not_checked.update(not_read)
        for subject, document in self._pools:
            self._found[subject] += self._resource(subject, document)
        workloads = [
            workload._replace(replicas=self._autoscalers.most_replicas(target_of(workload.subject), workload.replicas))
            for workload in self._workloads
        ]
        for subject, problem in pdb_findings(
            self._pdbs, workloads, list(self._owned_pods.values()), self._autoscalers.targets, self._unit_of
        ):
            self._found[subject].append(problem)
        self._compare_graces()
        self._join_drains()
        for subject, found in self._found.items():
            if subject.name == NO_NAME:  # whoever decodes the object refuses the name again
                found[1:] = [each for each in found[1:] if (each.rule, each.field) != ("InvalidObject", _NAME)]
        files = {file: rank for rank, file in enumerate(dict.fromkeys(subject.file for subject in self._found))}
        return [
            problem
            for subject in sorted(self._found, key=lambda subject: (files[subject.file], subject.place))
            for problem in sorted(self._found[subject], key=lambda problem: _RANK[problem.severity])
        ] + self._unknown_kinds()

    # -- any object ---------------------------------------------------------------------------------------------------

    def _identity(self, subject: Subject, document: Document, group: str) -> Iterator[Finding]:
        if subject.name == NO_NAME:
            what, how = ("the object has no name", "add metadata.name")
            if has_odd_name(document):
                what, how = ("the name is not a string", "put the name in quotes")
            yield subject.error("InvalidObject", _NAME, f"{what}: the API server refuses it", how)
        elif not subject.generated:
            unit = self._unit_of(subject.file)
            first = self._seen.setdefault((unit, group, document.kind, subject.namespace, subject.name), document)
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
                rule=NOT_CHECKED,
                object=Ref(""),
                field="kind",
                message=f"not checked, because lint does not know these kinds: {', '.join(counted + more)}",
                remedy="nothing to do; lint checks pods, workloads, Nodes, NodePools, NodeClaims and PDBs",
            )
        ]

    # -- pods and workloads -------------------------------------------------------------------------------------------

    def _pods(self, subject: Subject, document: Document) -> list[Finding]:
        """Check a pod, or an object with a pod template."""
        try:
            source = pod_source(document)
        except InputError as error:
            return [_undecodable(subject, document, error)]
        findings = coerced_findings(subject, document, durations=self._settings.reads_durations)
        if source.finished:
            return findings  # it protects nothing (R4)
        template = source.template
        reported = {problem.field for problem in findings}
        findings += [
            problem
            for problem in pod_findings(subject, template, source.grace_seconds, self._at, self._settings)
            if problem.field not in reported or problem.severity is not Severity.ERROR
        ]
        for path, annotations in source.around:
            findings += misplaced_findings(subject, path, annotations, template)
        self._keep(subject, source, document)
        return findings

    def _keep(self, subject: Subject, source: PodSource, document: Document) -> None:
        node_name = source.spec.node_name
        self._asked.append(
            _PodGracePeriod(
                *(subject, source.grace_field, source.grace_seconds, node_name),
                *(None if node_name else document, source.spec_path),
            )
        )
        workload = SelectablePods(subject, source.template.labels, source.replicas)
        if source.owned and subject.kind == "Pod":
            key = (subject.namespace, tuple(sorted(source.template.labels.items())))
            before = self._owned_pods.get(key)
            self._owned_pods[key] = workload if before is None else before.plus_one()
        elif source.runs and not source.owned:
            self._workloads.append(workload)

    def _pdb(self, subject: Subject, document: Document) -> list[Finding]:
        pdb, findings = _decoded(subject, document, objects.PodDisruptionBudget, self._settings)
        if pdb is not None:
            self._pdbs.append((subject, pdb_record(pdb)))
        return findings

    # -- Nodes, NodeClaims, NodePools ----------------------------------------------------------------------------------

    def _node(self, subject: Subject, document: Document) -> list[Finding]:
        node, findings = _decoded(subject, document, objects.Node, self._settings)
        if node is None:
            return findings
        self._pool_nodes["Node", node.metadata.pool] += 1
        if node.spec.provider_id:
            self._provider_ids[node.metadata.name] = node.spec.provider_id
        annotations = node.metadata.annotations
        return [
            *findings,
            *misnamed_findings(subject, "metadata", annotations, node.metadata.labels),
            *node_findings(subject, "metadata", annotations, self._settings),
            *mark_findings(subject, annotations),
        ]

    def _resource(self, subject: Subject, document: Document) -> list[Finding]:
        """Check one of our own kinds: first as the API server does, then by the rules."""
        try:
            value = plain_value(document)
        except InputError as error:  # a number out of range, or nested too deeply
            return [_undecodable(subject, document, error)]
        findings = resource_findings(subject, value) if isinstance(value, dict) else []
        refused = any(problem.severity is Severity.ERROR for problem in findings)
        try:
            findings += self._meaning(subject, to_v1(document))
        except InputError as error:
            if not refused:  # else the refusal says it better
                findings.append(_undecodable(subject, document, error))
        coerced = coerced_findings(subject, document, durations=self._settings.node_durations)
        # The schema has the others.
        findings += [problem for problem in coerced if problem.field.startswith("metadata")]
        findings = without_repetition(findings)
        return self._as_one(subject, findings) if document.api_version == OLD_VERSION else findings

    def _as_one(self, subject: Subject, findings: list[Finding]) -> list[Finding]:
        """The fields that a new version moves or renames are one finding: that about the version."""
        fields = [problem for problem in findings if is_change_of_version(problem)]
        changed = [problem for problem in fields if problem.field not in ADDED_FIELDS]
        changes = "".join(f"; {problem.field}: {problem.remedy}" for problem in changed)
        for place, problem in enumerate(self._found[subject]):
            if problem.rule == "OldApiVersion":
                self._found[subject][place] = msgspec.structs.replace(problem, remedy=problem.remedy + changes)
        return [problem for problem in findings if problem not in fields]

    def _meaning(self, subject: Subject, document: Document) -> Iterable[Finding]:
        if subject.kind == names.NODEPOOL_KIND:
            pool = _decode(document, objects.NodePool)
            grace_ns = pool_record(pool).grace_period_ns
            if grace_ns:  # 0s has another finding
                self._pool_graces.append(_PoolGracePeriod(subject, grace_ns, pool_nodes(pool)))
            kinds = ("Node", names.NODECLAIM_KIND)
            nodes = max(self._pool_nodes[kind, subject.name] for kind in kinds)
            return [
                *pool_findings(subject, pool, self._at, nodes or None, self._settings),
                *class_findings(subject, pool.spec.template.spec.node_class_ref, self._node_classes),
            ]
        if subject.kind == names.NODECLAIM_KIND:
            claim = _decode(document, objects.NodeClaim)
            self._pool_nodes[subject.kind, claim.metadata.pool] += 1
            grace_ns = claim_record(claim).grace_period_ns
            self._claims.append(_DrainTime(subject, claim.status.node_name, claim.status.provider_id, grace_ns))
            return claim_findings(subject, claim, self._settings)
        _decode(document, objects.KWOKNodeClass)
        return []

    def _compare_graces(self) -> None:
        """A pod whose grace is not shorter than its node's is deleted as soon as the drain begins (R17, seed 002)."""
        by_node = {claim.node_name: claim for claim in self._claims if claim.node_name}
        by_provider_id = {claim.provider_id: claim for claim in self._claims if claim.provider_id}
        for asked in self._asked:
            limits = [
                (pool.subject, pool.grace_ns) for pool in self._pool_graces if pool.grace_ns <= asked.seconds * SECOND
            ]
            if asked.node_name:
                provider_id = self._provider_ids.get(asked.node_name, "")
                claim = by_node.get(asked.node_name) or by_provider_id.get(provider_id)
                limits = [(claim.subject, claim.grace_ns)] if claim is not None and claim.grace_ns else []
            elif limits and asked.document is not None:
                pod = placing_of(asked.document, asked.spec_path)
                possible = [pool.subject for pool in self._pool_graces if pool.nodes.can_take(pod)]
                limits = [(holder, grace_ns) for holder, grace_ns in limits if holder in possible]
            short = [(holder, grace_ns) for holder, grace_ns in limits if asked.seconds * SECOND >= grace_ns]
            if short:
                self._found[asked.subject].append(_too_long(asked, short))

    def _join_drains(self) -> None:
        """Most NodePools have no terminationGracePeriod: the first one tells of the others too."""
        unlimited = [
            (subject, place)
            for subject, findings in self._found.items()
            for place, problem in enumerate(findings)
            if problem.rule == NO_DRAIN_LIMIT
        ]
        if len(unlimited) < 2:
            return
        (first, place), *others = unlimited
        others_named = ", ".join(subject.name for subject, _ in others[:_MAX_NAMED])
        more = f" and {len(others) - _MAX_NAMED} more" if len(others) > _MAX_NAMED else ""
        problem = self._found[first][place]
        message = f"{problem.message}; the same is true of {len(others)} other NodePools: {others_named}{more}"
        self._found[first][place] = msgspec.structs.replace(problem, message=message)
        for subject, _ in others:
            self._found[subject] = [problem for problem in self._found[subject] if problem.rule != NO_DRAIN_LIMIT]


def _decode(document: Document, type_: type[T]) -> T:
    """The object; without its status if that cannot be read, which the API server drops from a manifest."""
    try:
        return decode(document, type_)
    except InputError as error:
        if not document.field_of(error).startswith("status"):
            raise
    value = plain_value(document)
    parts = {key: part for key, part in value.items() if key != "status"} if isinstance(value, dict) else value
    bare = msgspec.structs.replace(document, raw=None, value=parts)
    decoded = decode(bare, type_)
    document.coerced = bare.coerced
    return decoded


def _decoded(
    subject: Subject, document: Document, type_: type[T], settings: RuleSettings
) -> tuple[T | None, list[Finding]]:
    """The object, or None, and findings about decoding it."""
    try:
        decoded = _decode(document, type_)
    except InputError as error:
        return None, [_undecodable(subject, document, error)]
    return decoded, coerced_findings(subject, document, durations=settings.node_durations)


def _undecodable(subject: Subject, document: Document, error: InputError) -> Finding:
    field = document.field_of(error)
    return subject.error(
        "InvalidObject",
        field,
        f"{shorten(error.message, 300)}; the rest of the object is not checked",
        f"correct {field}" if field else "correct the object",
    )


def _removed(subject: Subject, version: str, successor: str) -> Finding:
    message = f"{shorten(version, 100)} {subject.kind} was removed: the API server refuses it, or nothing acts on it"
    return subject.error("RemovedKind", "kind", message, f"write a {successor}")


def _wrong_version(subject: Subject, document: Document, wanted: str) -> Finding:
    version, remedy = document.api_version, f"write apiVersion: {wanted}"
    if version == OLD_VERSION:
        message = f"{version} is an old version that is not served; other findings read the object as {wanted}"
        return subject.warning("OldApiVersion", "apiVersion", message, remedy)
    if version == "policy/v1beta1" and _selects_nothing(document):
        remedy += ", and remove the empty selector, which selected no pod and selects every pod in v1"
    message = f"{subject.kind} is not served in version {shorten(version, 100)} by today's API servers"
    return subject.error("UnknownApiVersion", "apiVersion", message, remedy)


def _selects_nothing(document: Document) -> bool:
    try:
        spec = plain_value(document).get("spec")
    except InputError:
        return False
    return isinstance(spec, dict) and spec.get("selector") == {}


def _too_long(asked: _PodGracePeriod, short: list[tuple[Subject, int]]) -> Finding:
    pools = list(dict.fromkeys(f"{holder.object} ({short_duration(grace_ns)})" for holder, grace_ns in short))
    named = ", ".join(pools[:_MAX_NAMED])
    least = min(grace_ns for _, grace_ns in short)
    return asked.subject.warning(
        "GraceExceedsNode",
        asked.field,
        f"the pod asks for {short_duration(asked.seconds * SECOND)} to end, at least the terminationGracePeriod of "
        f"{named}: there it is deleted as soon as its node begins to drain, whatever protects it",
        f"ask for less than {short_duration(least)}, or raise terminationGracePeriod above what the pod needs",
    )
