"""Which parts of a cluster are missing from what was read, so that answers are incomplete?"""

from collections import Counter

from dovetail.model.problem import Problem, Severity
from dovetail.model.refs import Ref
from dovetail.model.snapshot import Snapshot

_DUMP = "kubectl get nodepools,nodeclaims,nodes,pdb,pods -A -o yaml"


def missing_parts(snapshot: Snapshot) -> list[Problem]:
    """What nodes refer to and nobody has shown. Nodes without pods are `explain`'s own matter, and NodeClaims too."""
    if snapshot.nodes and not snapshot.pools and not any(member.pool or member.claim for member in snapshot.nodes):
        return [_NO_POOLS]
    nodes = Counter(member.pool for member in snapshot.nodes if member.pool and member.pool not in snapshot.pools)
    return [_pool_missing(pool, count) for pool, count in sorted(nodes.items())]


_NO_POOLS = Problem(
    severity=Severity.WARNING,
    rule="NoNodePools",
    object=Ref("NodePool"),
    field="kind",
    message="there is no NodePool and no NodeClaim, and no node belongs to a pool: only what protects pods can be said",
    remedy=f"if the cluster has karpenter.sh nodes, put them into the dump too: {_DUMP}",
)


def _pool_missing(pool: str, count: int) -> Problem:
    return Problem(
        severity=Severity.WARNING,
        rule="NodePoolMissing",
        object=Ref("NodePool", "", pool),
        field="kind",
        message=f"{count} {'node belongs' if count == 1 else 'nodes belong'} to it, but it is not there: "
        "its budgets and its policy are unknown",
        remedy=f"put the NodePools into the dump too: {_DUMP}",
    )
