"""Which cluster is this about: that of the files given, or a live one?"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dovetail.api.documents import Document
from dovetail.cli.common.live import live_documents
from dovetail.cli.common.options import ClusterSource, CommonOptions
from dovetail.cli.common.read_kinds import ALL_KINDS, RULE_KINDS, ReadKind
from dovetail.cli.common.salvage import salvaged_documents
from dovetail.model.finding import Finding, Severity
from dovetail.model.intake import take_in
from dovetail.model.refs import Ref
from dovetail.model.snapshot import Snapshot

_KNOWN: Final = frozenset((kind.resource.api_version, kind.resource.kind) for kind in ALL_KINDS)
# Rules that are told in other words where a cluster is set up anew from the documents.
_TOLD_BY_SCENARIOS: Final = frozenset(("DuplicateObject", "NotRead", "OldApiVersion", "NoNodePools"))
_DUMP: Final = "kubectl get nodepools,nodeclaims,nodes,pdb,pods -A -o yaml"
_OF_RULES: Final = frozenset(kind.resource.kind for kind in RULE_KINDS)


class ClusterInput(NamedTuple):
    """A cluster as it was read."""

    snapshot: Snapshot
    problems: list[Finding]
    """What was odd, and what is missing."""
    documents: list[Document]
    """All objects, for those who need more than the snapshot."""

    @property
    def problems_beside_scenario(self) -> list[Finding]:
        """What `read_scenario` and those who play it do not say of the same documents."""
        return [problem for problem in self.problems if problem.rule not in _TOLD_BY_SCENARIOS]


def read_cluster(common: CommonOptions, *, also: Sequence[ReadKind] = ()) -> ClusterInput:
    """The cluster of the files, or without files the live one. Raises InputError; ends the program if there is none.

    A live cluster is asked for what the rules read, and for `also` (PLACING_KINDS, WORKLOAD_KINDS); of files all
    documents are taken.
    """
    problems: list[Finding] = []
    return understood(list(cluster_documents(common.source, (*RULE_KINDS, *also), problems)), problems)


def understood(documents: list[Document], problems: Sequence[Finding]) -> ClusterInput:
    """The cluster that these documents are; `problems` are those of reading them. Raises InputError."""
    snapshot, odd = take_in(document for document in documents if _is_for_rules(document))
    return ClusterInput(snapshot, [*problems, *odd, *_missing_parts(snapshot)], documents)


def cluster_documents(source: ClusterSource, kinds: Sequence[ReadKind], problems: list[Finding]) -> Iterator[Document]:
    """All documents of the files, or without files the objects of these kinds in the live cluster."""
    return salvaged_documents(source.paths, problems) if source.paths else live_documents(source, kinds, problems)


def _is_for_rules(document: Document) -> bool:
    """What other commands read is not counted as unread by this one."""
    return document.kind in _OF_RULES or (document.api_version, document.kind) not in _KNOWN


def _missing_parts(snapshot: Snapshot) -> list[Finding]:
    """What nodes refer to and nobody has shown. Nodes without pods are `explain`'s own matter, and NodeClaims too."""
    if snapshot.nodes and not snapshot.pools and not any(member.pool or member.claim for member in snapshot.nodes):
        return [_NO_POOLS]
    nodes = Counter(member.pool for member in snapshot.nodes if member.pool and member.pool not in snapshot.pools)
    return [_pool_missing(pool, count) for pool, count in sorted(nodes.items())]


_NO_POOLS = Finding(
    severity=Severity.WARNING,
    rule="NoNodePools",
    object=Ref("NodePool"),
    field="kind",
    message="there is no NodePool and no NodeClaim, and no node belongs to a pool: only what protects pods can be said",
    remedy=f"if the cluster has karpenter.sh nodes, put them into the dump too: {_DUMP}",
)


def _pool_missing(pool: str, count: int) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        rule="NodePoolMissing",
        object=Ref("NodePool", "", pool),
        field="kind",
        message=f"{count} {'node belongs' if count == 1 else 'nodes belong'} to it, but it is not there: "
        "its budgets and its policy are unknown",
        remedy=f"put the NodePools into the dump too: {_DUMP}",
    )
