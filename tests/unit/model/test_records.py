"""Records: what is kept of an object, what its absence means, and what is shared."""

from collections.abc import Sized
from datetime import UTC, datetime, timedelta, timezone

import pytest

from dovetail.api import objects
from dovetail.api.names import DO_NOT_DISRUPT, POD_DELETION_COST, ConditionType
from dovetail.api.objects import Toleration
from dovetail.model.node_records import claim_record, node_record
from dovetail.model.pdb_records import pdb_record
from dovetail.model.pod_records import Owner, PodInterner, PodRecord
from dovetail.model.pool_records import pool_record
from dovetail.values.duration import DAY, HOUR, MINUTE
from tests.harness.builders import at, claim, node, pdb, pod, pool

# -- pods -------------------------------------------------------------------------------------------------------------


def test_an_empty_pod_has_the_api_servers_defaults() -> None:
    record = PodInterner().pod(objects.Pod())
    assert record == PodRecord(
        namespace="default",
        name="",
        uid="",
        node_name="",
        labels={},
        annotations={},
        created_at=None,
        deleted_at=None,
        phase="",
        ready=None,
        owner=Owner.NONE,
        grace_seconds=30,
        priority=0,
        critical=False,
        tolerates_disrupted=False,
    )
    assert str(record.object) == "Pod/default/"


def test_equal_labels_and_annotations_are_shared() -> None:
    recorder = PodInterner()
    one = pod("a", labels={"app": "web", "tier": "x"}, do_not_disrupt="true", recorder=recorder)
    two = pod("b", labels={"app": "web", "tier": "x"}, do_not_disrupt="true", recorder=recorder)
    other = pod("c", labels={"app": "db"}, do_not_disrupt="4h", recorder=recorder)
    assert one.labels is two.labels
    assert one.annotations is two.annotations
    assert other.labels == {"app": "db"}
    assert other.annotations == {DO_NOT_DISRUPT: "4h"}
    assert pod(recorder=recorder).labels is pod(recorder=PodInterner()).labels  # nothing is shared by all


def test_labels_and_annotations_of_pods_that_are_gone_are_forgotten() -> None:
    recorder = PodInterner()
    stays = [pod(f"s{number}", labels={"app": f"s{number}"}, recorder=recorder) for number in range(10)]
    for number in range(20_000):
        pod(labels={"job-name": f"job-{number}"}, do_not_disrupt=f"{number}s", node=f"n{number}", recorder=recorder)
    assert sum(len(table) for table in vars(recorder).values() if isinstance(table, Sized)) < 2_000
    again = [pod(f"t{number}", labels={"app": f"s{number}"}, recorder=recorder) for number in range(10)]
    assert all(one.labels is other.labels for one, other in zip(stays, again, strict=True))


def test_labels_of_pods_that_are_there_are_not_forgotten() -> None:
    recorder = PodInterner()
    pods = [pod(labels={"app": f"a{number % 5_000}"}, recorder=recorder) for number in range(10_000)]
    assert len({id(one.labels) for one in pods}) == 5_000


def test_texts_are_shared() -> None:
    recorder = PodInterner()
    one, two = (pod(node="".join(["node", "-7"]), namespace="".join(["sh", "op"]), recorder=recorder) for _ in range(2))
    assert one.node_name is two.node_name
    assert one.namespace is two.namespace


def test_only_annotations_that_a_rule_reads_are_kept() -> None:
    record = pod(annotations={"prometheus.io/scrape": "true", POD_DELETION_COST: "5"}, do_not_disrupt="4h")
    assert record.annotations == {DO_NOT_DISRUPT: "4h", POD_DELETION_COST: "5"}


def test_times_are_utc() -> None:
    berlin = datetime(2026, 3, 7, 3, tzinfo=timezone(timedelta(hours=1)))
    meta = objects.ObjectMeta(creation_timestamp=berlin, deletion_timestamp=berlin)
    record = PodInterner().pod(objects.Pod(metadata=meta))
    assert record.created_at == record.deleted_at == at("2026-03-07T02:00:00Z")
    assert record.created_at is not None
    assert record.created_at.tzinfo is UTC


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        pytest.param([], Owner.NONE, id="none"),
        pytest.param([("apps/v1", "DaemonSet")], Owner.DAEMONSET, id="DaemonSet"),
        pytest.param([("apps/v1", "StatefulSet")], Owner.STATEFULSET, id="StatefulSet"),
        pytest.param([("v1", "Node")], Owner.NODE, id="Node"),
        pytest.param([("apps/v1", "ReplicaSet")], Owner.NONE, id="ReplicaSet"),
        pytest.param([("apps/v1beta1", "DaemonSet")], Owner.NONE, id="another version"),
        pytest.param([("example.com/v1", "DaemonSet")], Owner.NONE, id="another group"),
        pytest.param([("apps/v1", "daemonset")], Owner.NONE, id="lower case"),
        pytest.param(
            [("apps/v1", "StatefulSet"), ("v1", "Node")], Owner.STATEFULSET | Owner.NODE, id="any of several owners"
        ),
    ],
)
def test_owner(owners: list[tuple[str, str]], expected: Owner) -> None:
    references = [objects.OwnerReference(api_version=version, kind=kind) for version, kind in owners]
    meta = objects.ObjectMeta(owner_references=references)
    assert PodInterner().pod(objects.Pod(metadata=meta)).owner == expected


@pytest.mark.parametrize(("given", "kept"), [(None, 30), (0, 0), (1, 1), (600, 600), (-1, 0)])
def test_grace(given: int | None, kept: int) -> None:
    assert pod(grace=given).grace_seconds == kept


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", None), (None, None)])
def test_readiness(status: str | None, ready: bool | None) -> None:
    assert pod(ready=status).ready is ready


@pytest.mark.parametrize(
    ("phase", "deleted", "terminal", "active"),
    [
        ("Pending", None, False, True),
        ("Running", None, False, True),
        ("Unknown", None, False, True),
        ("", None, False, True),
        ("Succeeded", None, True, False),
        ("Failed", None, True, False),
        ("Running", "2026-03-07T02:00:00Z", False, False),
        ("Failed", "2026-03-07T02:00:00Z", True, False),
    ],
)
def test_terminal_and_active(phase: str, deleted: str | None, terminal: bool, active: bool) -> None:
    record = pod(phase=phase, deleted=deleted)
    assert (record.terminal, record.active) == (terminal, active)


@pytest.mark.parametrize(
    ("owner", "phase", "deleted", "reschedulable"),
    [
        ("ReplicaSet", "Running", None, True),
        (None, "Running", None, True),
        ("ReplicaSet", "Pending", None, True),
        ("ReplicaSet", "Succeeded", None, False),
        ("ReplicaSet", "Running", "2026-03-07T02:00:00Z", False),
        ("StatefulSet", "Running", None, True),
        ("StatefulSet", "Running", "2026-03-07T02:00:00Z", True),
        ("StatefulSet", "Failed", None, False),
        ("DaemonSet", "Running", None, False),
        ("Node", "Running", None, False),
    ],
)
def test_reschedulable(owner: str | None, phase: str, deleted: str | None, reschedulable: bool) -> None:
    assert pod(owner=owner, phase=phase, deleted=deleted).reschedulable is reschedulable


KEY = "karpenter.sh/disrupted"


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        pytest.param(Toleration(operator="Exists"), True, id="everything"),
        pytest.param(Toleration(key=KEY, operator="Exists"), True, id="the key"),
        pytest.param(Toleration(key=KEY, operator="Exists", effect="NoSchedule"), True, id="key and effect"),
        pytest.param(Toleration(key=KEY, operator="Exists", effect="NoExecute"), False, id="another effect"),
        pytest.param(Toleration(operator="Exists", effect="NoExecute"), False, id="everything, another effect"),
        pytest.param(Toleration(operator="Exists", effect="NoSchedule"), True, id="everything of this effect"),
        pytest.param(Toleration(key=KEY, operator="Equal"), True, id="Equal without value"),
        pytest.param(Toleration(key=KEY), True, id="no operator is Equal"),
        pytest.param(Toleration(key=KEY, value="yes"), False, id="Equal with a value"),
        pytest.param(Toleration(key=KEY, operator="Equal", value="yes"), False, id="Equal, spelled, with a value"),
        pytest.param(Toleration(), False, id="Equal without key"),
        pytest.param(Toleration(key=KEY, operator="Like"), False, id="unknown operator"),
        pytest.param(Toleration(key="karpenter.sh/candidate", operator="Exists"), False, id="another key"),
        pytest.param(Toleration(key="node.kubernetes.io/unschedulable", operator="Exists"), False, id="unschedulable"),
    ],
)
def test_toleration_of_the_disrupted_taint(toleration: Toleration, tolerates: bool) -> None:
    assert pod(tolerations=[toleration]).tolerates_disrupted is tolerates
    other = Toleration(key="other", operator="Exists")
    assert pod(tolerations=[other, toleration]).tolerates_disrupted is tolerates


@pytest.mark.parametrize(
    ("cost", "priority", "expected"),
    [
        pytest.param(None, None, 1.0, id="ordinary"),
        pytest.param("0", 0, 1.0, id="zeros"),
        pytest.param("134217728", None, 2.0, id="2^27 is one"),
        pytest.param("-134217728", None, 0.0, id="-2^27 is none"),
        pytest.param(None, 33554432, 2.0, id="priority 2^25 is one"),
        pytest.param("67108864.0", 16777216, 2.0, id="half of each"),
        pytest.param("2147483647", 2000001000, 10.0, id="at most 10"),
        pytest.param("-2147483648", -2147483648, -10.0, id="at least -10"),
        pytest.param("1e300", None, 10.0, id="1e300"),
        pytest.param("-1e300", None, -10.0, id="-1e300"),
        pytest.param("inf", None, 10.0, id="infinity"),
        pytest.param("-Infinity", None, -10.0, id="minus infinity"),
        pytest.param("nan", None, 1.0, id="nan counts 0"),
        pytest.param("-NaN", 33554432, 2.0, id="nan leaves the priority"),
        pytest.param("cheap", None, 1.0, id="a word counts 0"),
        pytest.param("", 33554432, 2.0, id="empty counts 0, the priority stays"),
    ],
)
def test_eviction_cost(cost: str | None, priority: int | None, expected: float) -> None:
    assert pod(deletion_cost=cost, priority=priority).eviction_cost == expected


@pytest.mark.parametrize("cost", [" -1000000000", "-1000000000\n", "-\u0661000000000"])
def test_eviction_cost_is_not_read_more_laxly_than_go_does(cost: str) -> None:
    # Python's float takes blanks around a number and any Unicode digits, Go's ParseFloat does not; 02 §6 counts what
    # does not parse as 0.
    assert pod(deletion_cost=cost).eviction_cost == 1.0


def test_readiness_is_found_among_other_conditions() -> None:
    statuses = {"PodScheduled": "True", "Ready": "False"}
    found = [objects.ConditionStatus(type=type_, status=status) for type_, status in statuses.items()]
    assert PodInterner().pod(objects.Pod(status=objects.PodStatus(conditions=found))).ready is False
    assert PodInterner().pod(objects.Pod(status=objects.PodStatus(conditions=found[:1]))).ready is None


# -- nodes ------------------------------------------------------------------------------------------------------------


def test_an_empty_node() -> None:
    record = node_record(objects.Node())
    assert (record.pool, record.provider_id, record.do_not_disrupt, record.taints) == ("", "", None, ())
    assert (record.registered, record.initialized, record.ready) == (False, False, False)
    assert (record.created_at, record.deleted_at) == (None, None)


def test_a_node() -> None:
    record = node("n", pool="gpu", taints=[("a", "NoSchedule"), ("b", "NoExecute")], do_not_disrupt="4h")
    assert (str(record.object), record.pool, record.provider_id) == ("Node/n", "gpu", "kwok://n")
    assert (record.registered, record.initialized, record.ready) == (True, True, True)
    assert (record.taints, record.do_not_disrupt) == ((("a", "NoSchedule"), ("b", "NoExecute")), "4h")


@pytest.mark.parametrize("value", ["True", "false", "", "1"])
def test_registered_and_initialized_are_exactly_true(value: str) -> None:
    labels = {"karpenter.sh/registered": value, "karpenter.sh/initialized": value}
    record = node_record(objects.Node(metadata=objects.ObjectMeta(labels=labels)))
    assert (record.registered, record.initialized) == (False, False)


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False), (None, False)])
def test_a_node_is_ready_only_if_it_says_so(status: str | None, ready: bool) -> None:
    assert node(ready=status).ready is ready


# -- claims -----------------------------------------------------------------------------------------------------------


def test_an_empty_claim_has_the_apis_defaults() -> None:
    record = claim_record(objects.NodeClaim())
    assert (record.expire_after_ns, record.grace_period_ns, record.termination_timestamp) == (30 * DAY, None, None)
    assert (record.pool, record.provider_id, record.last_pod_event_at, record.conditions) == ("", "", None, {})
    assert not record.is_true(ConditionType.DRIFTED)
    assert record.true_since(ConditionType.INITIALIZED) is None


@pytest.mark.parametrize(
    ("text", "ns"),
    [("24h", DAY), ("1h30m", 90 * MINUTE), ("0s", 0), ("Never", None), ("10d", None), ("", None), ("-1h", None)],
)
def test_expire_after(text: str, ns: int | None) -> None:
    assert claim(expire_after=text).expire_after_ns == ns


@pytest.mark.parametrize(
    ("text", "ns"),
    [(None, None), ("72h", 3 * DAY), ("0s", 0), ("Never", None), ("3d", None), ("", None), ("1.5h", None)],
)
def test_grace_period(text: str | None, ns: int | None) -> None:
    assert claim(grace_period=text).grace_period_ns == ns


def test_conditions_of_a_claim() -> None:
    record = claim(statuses={"Initialized": "True", "Drifted": "False", "Expired": "Unknown"})
    assert record.is_true(ConditionType.INITIALIZED)
    assert not record.is_true(ConditionType.DRIFTED)
    assert not record.is_true(ConditionType.EXPIRED)
    assert record.true_since(ConditionType.INITIALIZED) == at("2026-03-01T00:00:00Z")
    assert claim(statuses={"Initialized": "False"}).true_since(ConditionType.INITIALIZED) is None
    assert str(record.object) == "NodeClaim/claim-1"


# -- pools ------------------------------------------------------------------------------------------------------------


def test_an_empty_pool_has_the_apis_defaults() -> None:
    record = pool_record(objects.NodePool())
    assert (record.consolidate_after_ns, record.consolidation_policy) == (0, "WhenEmptyOrUnderutilized")
    assert (record.graceful_expire_after_ns, record.replicas, record.grace_period_ns) == (None, None, None)
    assert record.budgets == (objects.Budget(nodes="10%"),)


def test_a_pool() -> None:
    record = pool(
        "gpu", consolidate_after="5m", graceful_expire_after="480h", replicas=3, grace_period="1h", budgets=[]
    )
    assert (str(record.object), record.consolidate_after_ns, record.graceful_expire_after_ns) == (
        "NodePool/gpu",
        5 * MINUTE,
        20 * DAY,
    )
    assert (record.replicas, record.grace_period_ns, record.budgets, record.deleted_at) == (3, HOUR, (), None)


@pytest.mark.parametrize("text", ["Never", "soon", "1d", ""])
def test_what_is_no_duration_never_consolidates_and_never_expires(text: str) -> None:
    record = pool(consolidate_after=text, graceful_expire_after=text)
    assert (record.consolidate_after_ns, record.graceful_expire_after_ns) == (None, None)


# -- PDBs -------------------------------------------------------------------------------------------------------------


def test_an_empty_pdb() -> None:
    record = pdb_record(objects.PodDisruptionBudget())
    assert (record.namespace, record.selector, record.selector_problem, record.always_allow) == (
        "default",
        None,
        None,
        False,
    )
    assert (record.min_available, record.max_unavailable, record.disruptions_allowed, record.expected_pods) == (
        None,
        None,
        None,
        None,
    )


def test_a_pdb() -> None:
    record = pdb("g", namespace="shop", match={"app": "web"}, max_unavailable="10%", policy="AlwaysAllow", allowed=0)
    assert (str(record.object), record.always_allow) == ("PodDisruptionBudget/shop/g", True)
    assert (record.max_unavailable, record.disruptions_allowed) == ("10%", 0)
    assert record.selector is not None
    assert record.selector.matches({"app": "web"})


def test_a_bad_selector_is_told_and_selects_nothing() -> None:
    record = pdb(expressions=[("app", "In", [])])
    assert record.selector is None
    assert record.selector_problem == "operator In for key 'app' needs values"
