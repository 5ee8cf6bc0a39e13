"""The pods of nodes that drain, in the reading of who drains them (R56).

Beside Karpenter, guard and drive protect pods as Dovetail does until a drain begins; then Karpenter's reading counts.
"""

from collections.abc import Iterable

import msgspec

from dovetail.model.pod_records import PodRecord
from dovetail.model.rule_settings import RuleSettings
from dovetail.model.snapshot import Snapshot


def drained_pods(pods: Iterable[PodRecord], settings: RuleSettings) -> tuple[PodRecord, ...]:
    """The pods as a drain reads them."""
    theirs = settings.in_drains
    return tuple([pod if pod.settings == theirs else msgspec.structs.replace(pod, settings=theirs) for pod in pods])


def read_drains(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the pods of nodes that drain now read so."""
    settings = snapshot.settings
    if settings.in_drains == settings:
        return snapshot
    draining = [pod for member in snapshot.nodes if member.deleting for pod in member.pods]
    if not draining:
        return snapshot
    read = dict(zip(map(id, draining), drained_pods(draining, settings), strict=True))
    return msgspec.structs.replace(
        snapshot,
        nodes=tuple(
            msgspec.structs.replace(member, pods=tuple([read[id(pod)] for pod in member.pods]))
            if member.deleting
            else member
            for member in snapshot.nodes
        ),
        pods=tuple([read.get(id(pod), pod) for pod in snapshot.pods]),
    )
