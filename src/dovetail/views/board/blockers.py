"""Which pods block their node, and when, over the span of the board?"""

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Final, TypeAlias

from dovetail.model.records import PodRecord
from dovetail.model.refs import Ref
from dovetail.views.assessment import NodeAssessment, limited_by_deadline
from dovetail.views.forecast.data import NodeSpan, SpanKind
from dovetail.views.forecast.nodes import ForecastContext

_APP_LABELS: Final = ("app.kubernetes.io/name", "app", "k8s-app", "job-name", "name")

# rule, object, what it belongs to, and of how many pods the names are withheld
BlockerEntry: TypeAlias = tuple[str, Ref, str, int]
# a cause, from when, until when
BlockedSpan: TypeAlias = tuple[BlockerEntry, datetime, datetime]


def blockers_during(
    span: NodeSpan, node: NodeAssessment, future: ForecastContext, deadline: datetime | None
) -> Iterator[BlockedSpan]:
    """Every pod that blocks the node, from when to when: a forecast names only one of those that say the same.

    `deadline`: of its drain. A pod that a drain waits for is gone once it can be evicted.
    """
    drained = span.kind is SpanKind.DRAINING
    for pod, verdict in node.limiting:
        cause = (verdict.rule.value, pod.object, workload_of(pod), 0)
        if drained and deadline is not None and node.deadline is None:  # else the verdict knows of it
            verdict = limited_by_deadline(pod, verdict, deadline, span.start)  # noqa: PLW2901
        when = verdict.when
        edges = [turn for turn in future.turns(when) if span.start < turn < span.end]
        for start, end in pairwise((span.start, *edges, span.end)):
            if not future.holds(when, start):
                yield cause, start, end
            elif drained:
                break


def workload_of(pod: PodRecord) -> str:
    """What people call it: its namespace, and the name that its labels give it."""
    app = next((pod.labels[label] for label in _APP_LABELS if pod.labels.get(label)), "")
    return f"{pod.namespace}/{app}" if app else pod.namespace
