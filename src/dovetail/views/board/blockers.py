"""Which pods block their node, and when, over the span of the board?"""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Final, TypeAlias

from dovetail.model.records import PodRecord
from dovetail.model.refs import Ref
from dovetail.model.snapshot import Snapshot
from dovetail.rules.pdb import PdbIndex
from dovetail.rules.protection import limiting_verdicts
from dovetail.values.schedule.instants import Instants
from dovetail.views.forecast.data import Kind, Span
from dovetail.views.forecast.nodes import Future

_APP_LABELS: Final = ("app.kubernetes.io/name", "app", "k8s-app", "job-name", "name")

# rule, object, what it belongs to, and of how many pods the names are withheld
Cause: TypeAlias = tuple[str, Ref, str, int]
# a cause, from when, until when
Held: TypeAlias = tuple[Cause, datetime, datetime]


class Blockers:
    """Every pod that blocks its node, at every instant: a forecast names only one of those that say the same."""

    def __init__(self, snapshot: Snapshot, at: datetime, end: datetime) -> None:
        pdbs = PdbIndex(snapshot.pdbs, snapshot.pods)
        self._future = Future(at, end, pdbs)
        self._on: dict[str, list[tuple[Cause, Instants]]] = defaultdict(list)
        for pod in snapshot.pods:
            for verdict in limiting_verdicts(pod, pdbs, at):
                cause = (verdict.rule.value, pod.object, workload_of(pod), 0)
                self._on[pod.node_name].append((cause, verdict.when))

    def during(self, node: str, span: Span) -> Iterator[Held]:
        """Who blocks it from when to when. A pod that a drain waits for is gone once it can be evicted."""
        for cause, when in self._on.get(node, ()):
            edges = [turn for turn in self._future.turns(when) if span.start < turn < span.end]
            for start, end in pairwise((span.start, *edges, span.end)):
                if not self._future.holds(when, start):
                    yield cause, start, end
                elif span.kind is Kind.DRAINING:
                    break


def workload_of(pod: PodRecord) -> str:
    """What people call it: its namespace, and the name that its labels give it."""
    app = next((pod.labels[label] for label in _APP_LABELS if pod.labels.get(label)), "")
    return f"{pod.namespace}/{app}" if app else pod.namespace
