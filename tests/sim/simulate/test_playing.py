"""Scenarios and dumps are played as written: capacity comes, creation times count, events and faults happen."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import yaml

from dovetail.api import names
from dovetail.api.documents import InputError, read_documents
from dovetail.model.decider import parse_decider
from dovetail.model.rule_settings import settings_of
from dovetail.ports import NODES, Unavailable
from dovetail.sim.scenarios.player import Play
from dovetail.sim.scenarios.reading import read_scenario
from dovetail.sim.server.faults import Fault
from dovetail.views.simulation.report import SimulationReport

START = datetime(2026, 3, 2, tzinfo=UTC)
POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      expireAfter: Never
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements:
      - {key: karpenter.kwok.sh/instance-cpu, operator: In, values: ["4"]}
      - {key: kubernetes.io/os, operator: In, values: [linux]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 1m, budgets: [{nodes: 100%}]}
"""
WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, resources: {requests: {cpu: "3"}}}]}
"""


def scenario(*events: str, span: str = "2h") -> str:
    head = f"apiVersion: dovetail.dev/v1alpha1\nkind: Scenario\nstart: 2026-03-02T00:00:00Z\nfor: {span}\n"
    return head + "".join(["events:\n", *(f"- {event}\n" for event in events)] if events else [])


def play(*texts: str, seed: int = 1) -> SimulationReport:
    data = "\n---\n".join(texts).encode()
    found = read_scenario(read_documents(data, "test.yaml"), now=START, seed=seed)
    with Play(found) as playing:
        while playing.now < found.end:
            playing.advance(min(found.end, playing.now + timedelta(minutes=37)))
        return playing.report()


def happened(report: SimulationReport, type_: str) -> list[str]:
    return [entry.object for entry in report.timeline if entry.type == type_]


# -- from nothing ------------------------------------------------------------------------------------------------------


def test_capacity_is_provisioned_and_paid_for() -> None:
    report = play(POOL, WEB, scenario())
    assert (report.nodes.launched, report.nodes.at_end, report.pods.pending) == (3, 3, 0)
    hourly = sum(life.price or 0.0 for life in report.lives)
    assert report.cost.per_hour_end == pytest.approx(hourly, rel=0.001)
    assert report.cost.total == pytest.approx(hourly * 2, rel=0.01)
    assert report.cost.total == pytest.approx(sum(hour.cost for hour in report.hours), abs=0.001)
    assert [hour.nodes for hour in report.hours] == [3, 3]
    assert not report.violations
    assert [each.rule for each in report.problems] == ["NodeClassAssumed"]


def test_a_node_class_of_which_its_pool_says_that_it_is_gone_makes_no_nodes() -> None:
    pool = yaml.safe_load(POOL)
    condition = {"type": "NodeClassReady", "status": "False", "reason": "NodeClassNotFound", "message": "none"}
    pool["status"] = {"conditions": [condition | {"lastTransitionTime": "2026-03-01T00:00:00Z"}]}
    report = play(yaml.safe_dump(pool), WEB, scenario())
    assert (report.nodes.launched, report.pods.pending) == (0, 3)
    assert [(each.rule, str(each.object)) for each in report.problems] == [
        ("NodeClassMissing", "KWOKNodeClass/default")
    ]


@pytest.mark.parametrize("requirement", ["", "{key: node.kubernetes.io/instance-type, operator: Exists}"])
def test_a_pool_with_replicas_that_lists_no_instance_types_is_launched(requirement: str) -> None:
    """The cloud chooses, by what else the template asks for."""
    static = yaml.safe_load(POOL)
    static["spec"] |= {"replicas": 3}
    if requirement:
        static["spec"]["template"]["spec"]["requirements"].append(yaml.safe_load(requirement))
    report = play(yaml.safe_dump(static), scenario())
    assert (report.nodes.launched, report.nodes.at_end) == (3, 3)
    dynamic = play(POOL, WEB, scenario())
    assert {life.instance_type for life in report.lives} == {life.instance_type for life in dynamic.lives}
    assert not report.violations


def test_what_is_left_behind_is_told_once() -> None:
    """A node that waits for its budget is marked; then it has pods again, and nobody can take the mark off."""
    pool = POOL.replace("{nodes: 100%}", '{nodes: "0"}')
    web = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: %d}}"
    events = (f"{{at: 10m, apply: {web % 2}}}", f"{{at: 1h, apply: {web % 3}}}")
    data = "\n---\n".join((pool, WEB, scenario(*events))).encode()
    found = read_scenario(read_documents(data, "test.yaml"), now=START)
    with Play(found) as playing:
        playing.advance(START + timedelta(minutes=59))
        refused = Fault(error=Unavailable("out of order"))
        playing.sim.server.faults.add(refused, verb="patch", resource=NODES, client=names.COMPONENT, times=10**6)
        playing.advance(found.end)
        assert playing.violations() == ()
        first, second = playing.report(), playing.report()
    assert [(each.at, each.rule, each.message) for each in first.violations] == [
        (found.end, "marks", "is tainted as a candidate, and no graceful reason can stand for it")
    ]
    assert first == second


def test_the_same_input_and_seed_give_the_same_bytes() -> None:
    events = ("{at: 30m, fault: {kind: instance-lost, count: 1}}", "{at: 50m, delete: Deployment/web}")
    first, second, other = (play(POOL, WEB, scenario(*events), seed=seed) for seed in (1, 1, 2))
    assert msgspec.json.encode(first, enc_hook=str) == msgspec.json.encode(second, enc_hook=str)
    assert msgspec.json.encode(first, enc_hook=str) != msgspec.json.encode(other, enc_hook=str)


def test_events_create_change_and_delete() -> None:
    report = play(
        POOL,
        WEB,
        scenario(
            "{at: 10m, apply: {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 5}}}",
            "{at: 20m, apply: {apiVersion: v1, kind: Pod, metadata: {name: one, namespace: new}, "
            "spec: {containers: [{name: a, image: a, resources: {requests: {cpu: '3'}}}]}}}",
            "{at: 1h, delete: Deployment/default/web}",
        ),
    )
    assert happened(report, "scenario") == ["Deployment/default/web", "Pod/new/one", "Deployment/default/web"]
    assert report.nodes.launched == 6
    assert report.nodes.terminated == {"Empty": 5}
    assert report.nodes.at_end == 1


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("{at: 5m, delete: Pod/default/nobody}", 'test.yaml: document 3, line 29: events[0]: pods "nobody" not found'),
        ("{at: 5m, fault: {kind: instance-lost, node: nobody}}", "events[0]: no node is called 'nobody'"),
        (
            "{at: 5m, apply: {apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: default}, "
            "spec: {weight: 1000}}}",
            "events[0]: NodePool.karpenter.sh",
        ),
    ],
)
def test_events_that_cannot_be_carried_out(event: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        play(POOL, WEB, scenario(event))
    assert said in str(raised.value)


def test_objects_that_the_api_refuses() -> None:
    with pytest.raises(InputError) as raised:
        play(POOL.replace("1m", "soon"), scenario())
    assert "test.yaml: document 1, line 2: NodePool/default: " in str(raised.value)
    assert "spec.disruption.consolidateAfter" in str(raised.value)


# -- faults ------------------------------------------------------------------------------------------------------------


def test_machines_that_vanish_are_replaced() -> None:
    report = play(POOL, WEB, scenario("{at: 10m, fault: {kind: instance-lost, count: 2}}"))
    assert len(happened(report, "fault")) == 2
    assert report.nodes.launched == 5
    assert report.pods.pending == 0


def test_interruptions_are_answered_in_time() -> None:
    report = play(POOL, WEB, scenario("{at: 10m, fault: {kind: interruption, notice: 5m}}"))
    assert report.nodes.terminated == {"Interrupted": 1}
    assert (report.nodes.launched, report.pods.evicted, report.pods.lost) == (4, 1, 0)


def test_a_node_that_comes_back() -> None:
    report = play(POOL, WEB, scenario("{at: 10m, fault: {kind: kubelet-silent, for: 3m}}"))
    assert (report.nodes.launched, report.nodes.at_end) == (3, 3)
    assert [entry.message for entry in report.timeline if entry.type == "fault"] == [
        "its kubelet falls silent",
        "is well again",
    ]


def test_what_cannot_be_had_for_a_while() -> None:
    shortage = "{at: 0s, fault: {kind: insufficient-capacity, for: 30m}}"
    report = play(POOL, WEB, scenario(shortage))
    launched = [entry.at for entry in report.timeline if entry.type == "launched"]
    assert launched
    assert min(launched) >= START + timedelta(minutes=30)
    assert report.pods.pending == 0


# -- a dump ------------------------------------------------------------------------------------------------------------


def dump(**changes: Any) -> list[dict[str, Any]]:
    """A cluster of a cloud that nobody here knows: one node, as `kubectl get -o yaml` prints it."""
    class_ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    labels = {
        "karpenter.sh/nodepool": "default",
        "karpenter.sh/capacity-type": "spot",
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
        "karpenter.k8s.aws/instance-category": "m",
        "node.kubernetes.io/instance-type": "m6i.xlarge",
        "topology.kubernetes.io/zone": "eu-west-1a",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": "ip-10-0-0-1",
    }
    made = "2026-03-01T12:00:00Z"
    system = {"creationTimestamp": made, "resourceVersion": "4711", "generation": 2}
    amounts = {"cpu": "3920m", "memory": "15000Mi", "pods": "58"}
    up = [
        {"type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": made}
        for type_ in ("Launched", "Registered", "Initialized", "Ready")
    ]
    requirements = [
        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["m"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
    ]
    template = {"nodeClassRef": class_ref, "requirements": requirements, "expireAfter": "24h"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6d4", "uid": "uid-of-web", "controller": True}
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": made, "lastProbeTime": None}]
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default", "uid": "uid-of-pool", **system},
        "spec": {"template": {"spec": template}, "disruption": {"consolidateAfter": "Never"}},
        "status": {"conditions": up[3:]},
    }
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": "default-x1",
            "uid": "uid-of-claim",
            "labels": labels,
            "finalizers": ["karpenter.sh/termination"],
            **system,
        },
        "spec": template,
        "status": {
            "providerID": "aws:///eu-west-1a/i-01",
            "nodeName": "ip-10-0-0-1",
            "conditions": up,
            "capacity": amounts,
            "allocatable": amounts,
        },
    }
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "ip-10-0-0-1",
            "uid": "uid-of-node",
            "labels": labels,
            "finalizers": ["karpenter.sh/termination"],
            **system,
        },
        "spec": {"providerID": "aws:///eu-west-1a/i-01"},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": ready},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-6d4-a",
            "namespace": "shop",
            "uid": "uid-of-pod",
            "labels": {"app": "web"},
            "annotations": changes.get("annotations", {}),
            "ownerReferences": [owner],
            **system,
        },
        "spec": {
            "nodeName": "ip-10-0-0-1",
            "priorityClassName": "high",
            "priority": 7,
            "containers": [{"name": "web", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"phase": "Running", "startTime": made, "conditions": ready},
    }
    return [pool, claim, node, pod]


def play_dump(objects: list[dict[str, Any]], span: str = "24h") -> SimulationReport:
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": objects})
    return play(text, scenario(span=span))


def test_a_dump_of_another_cloud() -> None:
    """Its node expires 24 h after it was made, not after the start; its pod moves, though its owner is not there."""
    report = play_dump(dump())
    assert (report.nodes.at_start, report.nodes.launched, report.nodes.terminated) == (1, 1, {"Expired": 1})
    (gone,) = (life for life in report.lives if life.gone_at is not None)
    assert gone.disrupted_at == datetime(2026, 3, 2, 12, tzinfo=UTC)
    (new,) = (life for life in report.lives if life.gone_at is None)
    assert (new.instance_type, new.zone, new.capacity_type) == ("m6i.xlarge", "eu-west-1a", "spot")
    assert report.pods.pending == 0
    assert not report.violations
    told = {each.rule for each in report.problems}
    assert told == {"OwnersAssumed", "CloudAssumed", "NodeClassAssumed", "PriorityAssumed", "InstanceTypesAssumed"}


def test_nothing_happens_to_a_dump_by_being_played() -> None:
    report = play_dump(dump(), span="11h")
    assert [(entry.type, entry.object) for entry in report.timeline] == []
    assert report.cost.per_hour_start == report.cost.per_hour_end > 0


def test_protections_of_a_dump_count_from_the_creation_of_the_pod() -> None:
    """R3: for 36 h from Sunday noon, so the drain that begins on Monday noon waits till midnight."""
    report = play_dump(dump(annotations={"karpenter.sh/do-not-disrupt": "36h"}), span="40h")
    (evicted,) = (entry.at for entry in report.timeline if entry.type == "evicted")
    assert timedelta() <= evicted - datetime(2026, 3, 3, tzinfo=UTC) < timedelta(minutes=1)


@pytest.mark.parametrize(("mode", "gone"), [("karpenter", {"Drifted": 1}), ("dovetail:guard", {})])
def test_holds_of_a_dump_end_where_karpenter_is_alone(mode: str, gone: dict[str, int]) -> None:
    """The dump is of a cluster with guard, which holds a drifted node for a pod with a window on Saturdays."""
    objects = dump(annotations={"karpenter.sh/disruption-schedule": "0 2 * * 6"})
    drifted = {
        "type": "Drifted",
        "status": "True",
        "reason": "AMIDrift",
        "message": "",
        "lastTransitionTime": "2026-03-01T13:00:00Z",
    }
    held = {"dovetail.dev/held": '{"by": "guard", "until": "2026-03-07T02:00:00Z", "why": "disruption-schedule"}'}
    objects[1]["status"]["conditions"] = [*objects[1]["status"]["conditions"], drifted]
    objects[1]["spec"] = {**objects[1]["spec"], "expireAfter": "Never"}
    objects[2]["metadata"]["annotations"] = {**held, "karpenter.sh/do-not-disrupt": "true"}
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": objects})
    found = read_scenario(
        read_documents(text.encode(), "dump.yaml"),
        now=START,
        span=timedelta(hours=2),
        settings=settings_of(parse_decider(mode)),
    )
    with Play(found) as playing:
        playing.advance(found.end)
        report = playing.report()
    assert report.nodes.terminated == gone
    assert ("MarksRemoved" in {each.rule for each in report.problems}) == (mode == "karpenter")


def test_a_claim_that_does_not_say_that_it_is_up() -> None:
    objects = dump()
    del objects[1]["status"]["conditions"], objects[1]["metadata"]["uid"]
    report = play_dump(objects, span="2h")
    assert report.nodes.launched == 0
    assert "ClaimsAssumedUp" in {each.rule for each in report.problems}


def test_a_hash_that_is_not_ours_drifts_nobody() -> None:
    objects = dump()
    for each in objects[:2]:
        each["metadata"]["annotations"] = {
            "karpenter.sh/nodepool-hash": "1",
            "karpenter.sh/nodepool-hash-version": "v3",
        }
    report = play_dump(objects, span="2h")
    assert not happened(report, "drifted")
    assert "HashDiffers" in {each.rule for each in report.problems}


def test_a_node_that_has_drifted_for_a_reason_of_its_provider_is_replaced() -> None:
    objects = dump()
    made = objects[1]["metadata"]["creationTimestamp"]
    drifted = {"type": "Drifted", "status": "True", "reason": "AMIDrift", "message": "", "lastTransitionTime": made}
    objects[1]["status"]["conditions"] = [*objects[1]["status"]["conditions"], drifted]
    report = play_dump(objects, span="2h")
    assert (report.nodes.launched, report.nodes.terminated) == (1, {"Drifted": 1})
    assert not report.violations


def test_a_deployment_of_a_dump_is_not_rolled_over() -> None:
    """The hashes of a real cluster's ReplicaSets are not those that the simulated controllers give."""
    objects = dump()
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "resources": {"requests": {"cpu": "1"}}}]},
    }
    meta = {"namespace": "shop", "creationTimestamp": "2026-02-01T00:00:00Z"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "uid": "uid-of-deployment", **meta},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-of-deployment"}
    hashed = {"app": "web", "pod-template-hash": "6d4"}
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": "web-6d4",
            "uid": "uid-of-web",
            "labels": hashed,
            "ownerReferences": [{**owner, "controller": True}],
            **meta,
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": hashed},
            "template": {**template, "metadata": {"labels": hashed}},
        },
    }
    objects[3]["metadata"]["labels"] = hashed
    with Play(
        read_scenario(
            read_documents(yaml.safe_dump_all([*objects, deployment, replica_set]).encode(), "a"),
            now=START,
            start=START,
            span=timedelta(hours=1),
        )
    ) as playing:
        playing.advance(START + timedelta(hours=1))
        assert [pod["metadata"]["uid"] for pod in playing.sim.pods(app="web")] == ["uid-of-pod"]
