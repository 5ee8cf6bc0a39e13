"""Reads the cluster from files, or from a live cluster."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dovetail.api import names
from dovetail.api.conversion import converted
from dovetail.api.documents import Document, InputError, decode
from dovetail.api.objects import KINDS_WITH_PODS, ApiObject, NodeClaim
from dovetail.api.recorded import PODS_NOT_RECORDED
from dovetail.api.schema import SchemaViolation
from dovetail.cli.common.evidence import live_evidence
from dovetail.cli.common.live import live_documents
from dovetail.cli.common.options import ClusterSource
from dovetail.cli.common.read_kinds import ALL_KINDS, RULE_KINDS, ReadKind
from dovetail.cli.common.salvage import salvaged_documents
from dovetail.model.finding import Finding, Severity
from dovetail.model.node_records import claim_record
from dovetail.model.pod_records import PodInterner
from dovetail.model.refs import Ref
from dovetail.model.rule_settings import DEFAULT_SETTINGS, RuleSettings, settings_of
from dovetail.model.snapshot import Snapshot
from dovetail.rules.reasons import MARKED
from dovetail.state.intake import ReadPod, take_in
from dovetail.views.deciding import who_decides
from dovetail.views.leading import missing_controllers

if TYPE_CHECKING:
    from dovetail.sim.scenarios.whole_pods import WholePods

_KNOWN: Final = KINDS_WITH_PODS.union((kind.resource.api_version, kind.resource.kind) for kind in ALL_KINDS)
# Rules that `read_scenario` reports in other words.
_TOLD_BY_SCENARIOS: Final = frozenset(("DuplicateObject", "NotRead", "NoNodePools"))
_DUMP: Final = "kubectl get nodepools,nodeclaims,nodes,pdb,pods -A -o yaml"
_NODES_NAMED: Final = 10
_OF_RULES: Final = frozenset(kind.resource.kind for kind in RULE_KINDS)


class ClusterInput(NamedTuple):
    """A cluster as it was read."""

    snapshot: Snapshot
    problems: list[Finding]
    """What is unusual or missing."""
    documents: list[Document]
    """All objects that can be read, also those that are not in the snapshot."""
    pods: "WholePods | None" = None
    """The pods that are read for scheduling too; None: each is read again if somebody asks."""

    @property
    def problems_beside_scenario(self) -> list[Finding]:
        """The problems that `read_scenario` does not report of the same documents."""
        return [problem for problem in self.problems if problem.rule not in _TOLD_BY_SCENARIOS]


def read_cluster(source: ClusterSource, *, also: Sequence[ReadKind] = ()) -> ClusterInput:
    """The cluster in the files, or the live cluster if there are none. Raises InputError.

    Ends the program if the cluster cannot be reached.

    Of a live cluster it reads RULE_KINDS and `also` (PLACING_KINDS, WORKLOAD_KINDS); of files, all documents.
    """
    problems: list[Finding] = []
    documents = list(cluster_documents(source, (*RULE_KINDS, *also), problems))
    return understood(documents, problems, settings_in(source, documents, problems, live=not source.paths))


def settings_in(
    source: ClusterSource, documents: Sequence[Document], problems: list[Finding], *, live: bool
) -> RuleSettings:
    """The settings of whoever decides in the cluster of these documents, unless the user says who does.

    Adds a problem if whoever decides does not run.
    """
    shown = live_evidence(source) if live else None
    if shown is None:
        decider = source.decider or who_decides(documents)
        missing = list(missing_controllers(documents, decider, None)) if not live else []
    else:
        decider = source.decider or who_decides([*documents, *shown.documents], shown.at)
        missing = shown.missing(decider)
    problems[:0] = missing
    return settings_of(decider, source.budgets)


def understood(
    documents: list[Document], problems: Sequence[Finding], settings: RuleSettings = DEFAULT_SETTINGS
) -> ClusterInput:
    """The cluster in these documents; `problems`: of reading them."""
    documents = list(converted(documents))
    for_rules = (document for document in documents if _is_for_rules(document))
    pods = _whole_pods(documents, settings)
    read_pod: ReadPod = (lambda _document: None) if pods is None else pods.read
    snapshot, odd, unreadable = take_in(for_rules, _field_remedy, settings, read_pod)
    if unreadable:
        documents = [document for document in documents if document not in unreadable]
    missing = (*_missing_parts(snapshot), *_pods_not_recorded(documents))
    return ClusterInput(snapshot, [*problems, *odd, *missing], documents, pods)


def _whole_pods(documents: Sequence[Document], settings: RuleSettings) -> "WholePods | None":
    """If a node has a reason to go, whoever asks whether it can be replaced needs every pod as scheduling reads it."""
    if not any(document.kind == names.NODECLAIM_KIND and _is_marked(document) for document in documents):
        return None
    from dovetail.sim.scenarios.whole_pods import WholePods  # noqa: PLC0415  (takes long to import)

    return WholePods(PodInterner(settings=settings))


def _is_marked(document: Document) -> bool:
    try:
        claim = claim_record(decode(document, NodeClaim))
    except InputError:
        return False
    return any(map(claim.is_true, MARKED.values()))


def cluster_documents(source: ClusterSource, kinds: Sequence[ReadKind], problems: list[Finding]) -> Iterator[Document]:
    """All documents of the files, or the objects of these kinds in the live cluster if there are no files."""
    return salvaged_documents(source.paths, problems) if source.paths else live_documents(source, kinds, problems)


def _field_remedy(kind: str, value: Mapping[str, Any], violation: SchemaViolation) -> str:
    """The remedy of `lint`."""
    from dovetail.views.lint.pools import field_remedy  # noqa: PLC0415  (most inputs need it not)

    return field_remedy(kind, value, violation)


def _is_for_rules(document: Document) -> bool:
    """Whether rules read it, or no command does. Objects for other commands are not reported as unread."""
    return document.kind in _OF_RULES or (document.api_version, document.kind) not in _KNOWN


def _missing_parts(snapshot: Snapshot) -> list[Finding]:
    """NodePools that nodes refer to and that are missing. `explain` reports missing pods and NodeClaims."""
    if snapshot.nodes and not snapshot.pools and not any(member.pool or member.claim for member in snapshot.nodes):
        return [_NO_POOLS]
    nodes = Counter(member.pool for member in snapshot.nodes if member.pool and member.pool not in snapshot.pools)
    return [_pool_missing(pool, count) for pool, count in sorted(nodes.items())]


def _pods_not_recorded(documents: Iterable[Document]) -> Iterator[Finding]:
    """A problem if the dump is of some namespaces only."""
    metas = (decode(document, ApiObject).metadata for document in documents if document.kind == "Node")
    nodes = sorted(meta.name for meta in metas if PODS_NOT_RECORDED in meta.annotations)
    if nodes:
        more = f" and {len(nodes) - _NODES_NAMED} more" if len(nodes) > _NODES_NAMED else ""
        yield Finding(
            severity=Severity.WARNING,
            rule="PodsNotRecorded",
            object=Ref("Node"),
            field=f"metadata.annotations[{PODS_NOT_RECORDED}]",
            message="the dump is of some namespaces only. These nodes have pods of other namespaces, which may block "
            f"them although they look free: {', '.join(nodes[:_NODES_NAMED])}{more}",
            remedy="record all namespaces: dovetail record without -n",
        )


_NO_POOLS = Finding(
    severity=Severity.WARNING,
    rule="NoNodePools",
    object=Ref("NodePool"),
    field="kind",
    message="there are no NodePools or NodeClaims, and no node belongs to a pool: only protections of pods are known",
    remedy=f"if the cluster has NodePools, add them to the dump: {_DUMP}",
)


def _pool_missing(pool: str, count: int) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        rule="NodePoolMissing",
        object=Ref("NodePool", "", pool),
        field="kind",
        message=f"{count} {'node belongs' if count == 1 else 'nodes belong'} to it, but it is missing: "
        "its budgets and its policy are unknown",
        remedy=f"add the NodePools to the dump: {_DUMP}",
    )
