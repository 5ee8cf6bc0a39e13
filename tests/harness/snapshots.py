"""A second implementation of the join in `state/`: slow, from records, all at once.

Tests of views use it to make snapshots, and the state is compared with it.
"""

from collections import defaultdict
from collections.abc import Iterable
from operator import attrgetter
from typing import TypeVar

from dovetail.model.finding import Finding, Severity
from dovetail.model.node_records import ClaimRecord, NodeRecord
from dovetail.model.pdb_records import PdbRecord
from dovetail.model.pod_records import PodRecord
from dovetail.model.pool_records import PoolRecord
from dovetail.model.snapshot import ClusterNode, Snapshot

R = TypeVar("R", NodeRecord, ClaimRecord)

_NAME = attrgetter("name")
_IN_NAMESPACE = attrgetter("namespace", "name")


def take_snapshot(
    *,
    pods: Iterable[PodRecord] = (),
    nodes: Iterable[NodeRecord] = (),
    claims: Iterable[ClaimRecord] = (),
    pools: Iterable[PoolRecord] = (),
    pdbs: Iterable[PdbRecord] = (),
) -> Snapshot:
    """Join the records. NodeClaim and Node meet by provider ID, never by name, and never by an empty one (01 §1)."""
    all_pods = tuple(sorted(pods, key=_IN_NAMESPACE))
    pods_on: dict[str, list[PodRecord]] = defaultdict(list)
    for pod in all_pods:
        if pod.node_name:
            pods_on[pod.node_name].append(pod)

    problems: list[Finding] = []
    sorted_nodes = sorted(nodes, key=_NAME)
    sorted_claims = sorted(claims, key=_NAME)
    nodes_of = _by_provider_id(sorted_nodes, problems, "Nodes", "spec.providerID")
    claims_of = _by_provider_id(sorted_claims, problems, "NodeClaims", "status.providerID")
    joined = {provider_id: claims_of[provider_id] for provider_id in nodes_of.keys() & claims_of.keys()}

    members = [
        ClusterNode(claim=joined.get(_key(node, nodes_of)), node=node, pods=tuple(pods_on.get(node.name, ())))
        for node in sorted_nodes
    ]
    members += [ClusterNode(claim=claim, node=None) for claim in sorted_claims if _key(claim, claims_of) not in joined]
    return Snapshot(
        nodes=tuple(sorted(members, key=_NAME)),
        pods=all_pods,
        pools={pool.name: pool for pool in sorted(pools, key=_NAME)},
        pdbs=tuple(sorted(pdbs, key=_IN_NAMESPACE)),
        problems=tuple(problems),
    )


def _by_provider_id(records: list[R], problems: list[Finding], plural: str, field: str) -> dict[str, R]:
    """Only unambiguous provider IDs: two objects that claim one instance cannot both be right."""
    groups: dict[str, list[R]] = defaultdict(list)
    for record in records:
        if record.provider_id:
            groups[record.provider_id].append(record)
    for provider_id, group in groups.items():
        if len(group) == 1:
            continue
        problems.extend(
            Finding(
                severity=Severity.WARNING,
                rule="DuplicateProviderID",
                object=record.object,
                field=field,
                message=f"{len(group)} {plural} have the provider ID {provider_id}; none of them is matched",
                remedy="delete the one whose instance is gone",
            )
            for record in group
        )
    return {provider_id: group[0] for provider_id, group in groups.items() if len(group) == 1}


def _key(record: R, unambiguous: dict[str, R]) -> str:
    return record.provider_id if unambiguous.get(record.provider_id) is record else ""
