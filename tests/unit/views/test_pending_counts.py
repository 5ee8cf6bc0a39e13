"""Counts pending pods by reason, for the first lines of answers."""

from typing import Any

import msgspec

from dovetail.api.objects import ConditionStatus, Pod, PodSpec, PodStatus
from dovetail.model.pod_records import PodInterner, PodRecord
from dovetail.views.explain.pending import PendingReason, PendingView, pending_pods
from tests.harness import builders


def pending(name: str, why: str | None = None, **changes: Any) -> PodRecord:
    """A pending pod without a node. `why`: the reason of its condition PodScheduled."""
    record = builders.pod(name, node="", phase="Pending")
    return msgspec.structs.replace(record, unscheduled=why or "", **changes)


def read(**spec: Any) -> PodRecord:
    """The record of a file's pod."""
    unscheduled = ConditionStatus(type="PodScheduled", status="False", reason="SchedulingGated")
    status = PodStatus(phase="Pending", conditions=[ConditionStatus(type="Ready", reason="Else"), unscheduled])
    return PodInterner().pod(Pod(spec=PodSpec(**spec), status=status))


def test_a_record_of_any_reading_says_why_its_pod_has_no_node() -> None:
    assert read().unscheduled == "SchedulingGated"
    assert not read(node_name="n").unscheduled


def test_pods_are_counted_by_reason_and_what_may_need_mending_comes_first() -> None:
    counts = pending_pods(
        [
            builders.pod("runs"),
            builders.pod("done", phase="Succeeded"),
            builders.pod("bound", phase="Pending"),
            builders.pod("goes", node="", phase="Pending", deleted=builders.CREATED),
            pending("new"),
            pending("gated", "SchedulingGated"),
            pending("big-2", "Unschedulable"),
            pending("big-1", "Unschedulable"),
            msgspec.structs.replace(
                builders.pod("agent", node="", phase="Pending", owner="DaemonSet"), unscheduled="Unschedulable"
            ),
        ]
    )
    assert str(counts) == (
        "6 pods are pending: 2 have found no node yet, 1 belongs to a DaemonSet and does not fit on its node, "
        "1 has scheduling gates, 1 is not tried by kube-scheduler yet, 1 has a node and starts"
    )
    assert [ref.name for ref in counts.counts[0].pods] == ["big-1", "big-2"]


def test_the_oldest_comes_first_and_says_since_when() -> None:
    old = builders.at("2026-02-01T00:00:00Z")
    undated = pending("a", "Unschedulable", created_at=None)
    (count,) = pending_pods(
        [undated, pending("b", "Unschedulable"), pending("c", "Unschedulable", created_at=old)]
    ).counts
    assert (count.since, [ref.name for ref in count.pods]) == (old, ["c", "b", "a"])


def test_what_the_simulation_says_of_a_pod_counts() -> None:
    views = {("default", "a"): PendingView(PendingReason.NEW_NODE, "needs a new node of NodePool x")}
    counts = pending_pods([pending("a", "Unschedulable"), pending("b", "Unschedulable")], views)
    assert str(counts) == "2 pods are pending: 1 has found no node yet, 1 needs a new node"


def test_without_pending_pods_there_is_nothing_to_say() -> None:
    assert not pending_pods([builders.pod()])
    assert str(pending_pods([pending("a")])) == "1 pod is pending: it is not tried by kube-scheduler yet"


def test_readers_are_told_only_of_pods_that_they_may_list() -> None:
    counts = pending_pods([pending("a"), pending("b", namespace="shop"), pending("c", "Unschedulable")])
    assert str(counts.redacted(lambda namespace: namespace == "shop")) == (
        "1 pod is pending: it is not tried by kube-scheduler yet"
    )
    assert not counts.redacted(lambda _: False)
