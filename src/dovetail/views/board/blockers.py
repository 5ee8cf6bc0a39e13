"""The pods that block their node, and when, over the span of the board."""

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Final, TypeAlias

from dovetail.model.records import PodRecord
from dovetail.model.refs import Ref
from dovetail.views.assessment import NodeAssessment, limited_by_deadline
from dovetail.views.forecast.data import Kind, Span
from dovetail.views.forecast.nodes import Future

_APP_LABELS: Final = ("app.kubernetes.io/name", "app", "k8s-app", "job-name", "name")

# rule, object, workload, and the number of pods whose names are withheld
Cause: TypeAlias = tuple[str, Ref, str, int]
# a cause, from when, until when
Held: TypeAlias = tuple[Cause, datetime, datetime]


def blockers_during(span: Span, node: NodeAssessment, future: Future, deadline: datetime | None) -> Iterator[Held]:
    """Every pod that blocks the node, from when to when. A forecast names only one of several alike.

    `deadline`: of its drain. A pod that a drain waits for goes as soon as it can be evicted.
    """
    drained = span.kind is Kind.DRAINING
    for pod, verdict in node.limiting:
        cause = (verdict.rule.value, pod.object, workload_of(pod), 0)
        if drained and deadline is not None and node.deadline is None:  # else the verdict includes it
            verdict = limited_by_deadline(pod, verdict, deadline, span.start)  # noqa: PLW2901
        when = verdict.when
        edges = [turn for turn in future.turns(when) if span.start < turn < span.end]
        for start, end in pairwise((span.start, *edges, span.end)):
            if not future.holds(when, start):
                yield cause, start, end
            elif drained:
                break


def workload_of(pod: PodRecord) -> str:
    """The namespace of the pod, and the name of its application by its labels."""
    app = next((pod.labels[label] for label in _APP_LABELS if pod.labels.get(label)), "")
    return f"{pod.namespace}/{app}" if app else pod.namespace
