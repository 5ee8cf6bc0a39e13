"""A pod that asks too much of scheduling is refused by name of the field, and keeps nobody else waiting."""

import string
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.api.pod_specs import SchedulingPod, SchedulingPodSpec
from dovetail.model import spec_limits
from dovetail.model.pod_records import PodInterner, PodScheduling
from dovetail.model.spec_limits import UNCOUNTED_BYTES, within_limits
from dovetail.scheduling.resources import Resources, pod_request
from tests.harness import manifests
from tests.harness.provisioning import Setting, play, pool_of_four
from tests.harness.stage import stage

pytestmark = stage(play)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
Body = dict[str, Any]


def read(**spec: Any) -> PodScheduling:
    body = {"metadata": {"name": "p"}, "spec": {"containers": [container()], **spec}}
    found = PodInterner().watched_pod(msgspec.convert(body, SchedulingPod)).scheduling
    assert found is not None
    return found


def container(name: str = "main", **resources: str) -> Body:
    return {"name": name, "resources": {"requests": {"cpu": "100m", **resources}}}


def selector(number: int) -> Body:
    return {"matchLabels": {"app": f"a{number}"}}


def term(number: int) -> Body:
    return {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": selector(number)}


def node_term(number: int) -> Body:
    return {"matchExpressions": [{"key": "zone", "operator": "In", "values": [f"z{number}"]}]}


def spread(number: int) -> Body:
    return {"topologyKey": "zone", "maxSkew": 1 + number, "labelSelector": selector(0)}


def weighted(field: str, each: Body) -> Body:
    return {"weight": 1, field: each}


TOO_MANY_TERMS: dict[str, Callable[[int], Body]] = {
    "nodeSelector": lambda n: {"nodeSelector": {f"l{i}": "x" for i in range(n)}},
    "tolerations": lambda n: {"tolerations": [{"key": f"k{i}", "operator": "Exists"} for i in range(n)]},
    "node terms": lambda n: {
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [node_term(i) for i in range(n // 2)]}}}
    },
    "node preferences": lambda n: {
        "affinity": {"nodeAffinity": {PREFERRED: [weighted("preference", node_term(i)) for i in range(n // 2)]}}
    },
    "pod affinity": lambda n: {"affinity": {"podAffinity": {REQUIRED: [term(i) for i in range(n // 2)]}}},
    "pod anti-affinity": lambda n: {
        "affinity": {"podAntiAffinity": {PREFERRED: [weighted("podAffinityTerm", term(i)) for i in range(n // 2)]}}
    },
    "spread": lambda n: {"topologySpreadConstraints": [spread(i) for i in range(n // 2)]},
    "together": lambda n: {
        "nodeSelector": {f"l{i}": "x" for i in range(n // 2)},
        "topologySpreadConstraints": [spread(i) for i in range(n // 4)],
    },
}


@pytest.mark.parametrize("name", TOO_MANY_TERMS)
def test_as_many_terms_as_the_limit_are_read_and_more_are_left_out(name: str) -> None:
    most = read(**TOO_MANY_TERMS[name](spec_limits.TERMS))
    assert (most.flaw, most.spec.containers != ()) == ("", True)
    more = read(**TOO_MANY_TERMS[name](spec_limits.TERMS + 4))
    assert more.flaw == (
        "nodeSelector, affinity, tolerations and topologySpreadConstraints have 132 terms and expressions together, "
        "at most 128 are read"
    )
    assert more.spec == SchedulingPodSpec(containers=most.spec.containers), "what it requests still counts"


@pytest.mark.parametrize(
    ("spec", "flaw"),
    [
        (
            {"containers": [container(**{f"a.b/r{i}": "1" for i in range(64)})]},
            "containers have 65 different resources, at most 64 are read",
        ),
        (
            {"initContainers": [container(f"c{i}") for i in range(1024)]},
            "containers have 1025 amounts of resources, at most 1024 are read",
        ),
        (
            {"containers": [{"name": "main", "ports": [{"containerPort": 1 + i} for i in range(1025)]}]},
            "containers have 1025 ports, at most 1024 are read",
        ),
    ],
)
def test_containers_that_list_too_much_count_as_if_they_asked_for_nothing(spec: Body, flaw: str) -> None:
    found = read(nodeSelector={"a": "b"}, **spec)
    assert found.flaw == flaw
    assert found.spec == SchedulingPodSpec(node_selector={"a": "b"})


def test_pods_that_are_too_large_share_what_is_left() -> None:
    recorder = PodInterner()
    body: Body = {"metadata": {"name": "p"}, "spec": TOO_MANY_TERMS["spread"](10_000)}
    pods = [recorder.watched_pod(msgspec.convert(body, SchedulingPod)) for _ in range(2)]
    assert pods[0].scheduling is pods[1].scheduling
    assert all(len(key) < 1024 for key in recorder._schedulings)


def test_what_is_not_counted_cannot_exceed_a_limit() -> None:
    keys = [*string.ascii_letters, *string.digits, *map(str, range(10, 100))]
    smallest = {"nodeSelector": dict.fromkeys(keys[: spec_limits.TERMS + 1], "")}
    assert len(msgspec.msgpack.encode(smallest["nodeSelector"])) > UNCOUNTED_BYTES
    _, flaw = within_limits(msgspec.convert(smallest, SchedulingPodSpec))
    assert flaw


async def test_a_pod_that_is_too_large_is_refused_and_others_are_placed(setting: Setting) -> None:
    await setting.begin(pool_of_four())
    worst = manifests.pod("worst", cpu="1")
    worst["spec"] |= {
        "topologySpreadConstraints": [
            {**spread(i), "whenUnsatisfiable": "DoNotSchedule"} for i in range(spec_limits.TERMS)
        ],
    }
    await setting.sim.apply(worst, manifests.pod("plain", cpu="1"))
    await setting.sim.wait_until(lambda: bool(setting.sim.pods(app="plain", ready=True)), timeout="5m")
    (event, *_) = setting.events(EventReason.FAILED_SCHEDULING, "worst")
    assert "at most 128 are read; write fewer" in event["note"]
    assert len(event["note"]) < 400


async def test_a_daemon_set_that_is_too_large_is_left_out_and_pods_are_placed(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    await setting.begin(pool_of_four())
    worst = manifests.workload("DaemonSet", "worst")
    worst["spec"]["template"]["spec"] |= TOO_MANY_TERMS["tolerations"](spec_limits.TERMS + 1)
    await setting.sim.apply(worst, manifests.pod("plain", cpu="1"))
    await setting.sim.wait_until(lambda: bool(setting.sim.pods(app="plain", ready=True)), timeout="5m")
    (told,) = {record.getMessage() for record in caplog.records if "DaemonSet" in record.getMessage()}
    assert told.startswith(
        "DaemonSet default/worst counts as if it were not there: nodeSelector, affinity, tolerations"
    )


def test_sidecars_add_up_in_one_walk() -> None:
    """Each step of the start takes what the sidecars before it have, and its own."""
    found = read(
        containers=[container(memory="1")],
        initContainers=[
            {**container("a", memory="5"), "restartPolicy": "Always"},
            container("b", memory="7"),
            {**container("c", example="2"), "restartPolicy": "Always"},
        ],
    )
    assert pod_request(SchedulingPod(spec=found.spec)) == Resources({"cpu": 300, "memory": 12, "example": 2, "pods": 1})
