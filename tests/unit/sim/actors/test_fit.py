"""What a node alone says to a pod."""

from typing import Any

import pytest

from dovetail.sim.actors.scheduling.amounts import pod_requests
from dovetail.sim.actors.scheduling.demand import Demand, host_ports, tolerates
from dovetail.sim.actors.scheduling.fit import (
    FITS,
    NO_AFFINITY,
    NO_PORTS,
    NOT_NAMED,
    TAINTED,
    TOO_MANY_PODS,
    UNSCHEDULABLE,
    Fit,
    NodeUsage,
    fit,
    summary,
    term_matches,
    unfit_message,
    zone_fit,
)
from tests.harness import manifests


def demand(**spec: Any) -> Demand:
    pod = manifests.pod("p", **spec)
    pod["metadata"]["namespace"] = "default"
    return Demand(pod)


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [dict(t) for t in terms]}
        }
    }


def container(cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("spec", "milli"),
    [
        ({"containers": [container("1"), container("500m")]}, 1500),
        ({"containers": [container("1")], "initContainers": [container("3")]}, 3000),
        # A sidecar counts beside the containers, and beside the init containers that come after it.
        ({"containers": [container("5")], "initContainers": [container("4.9", restartPolicy="Always")]}, 9900),
        (
            {
                "containers": [container("5")],
                "initContainers": [container("4.9", restartPolicy="Always"), container("6")],
            },
            10900,
        ),
        (
            {
                "containers": [container("5")],
                "initContainers": [container("6"), container("4.9", restartPolicy="Always")],
            },
            9900,
        ),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}}, 4000),
        ({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}, 2000),
    ],
)
def test_effective_requests(spec: dict[str, Any], milli: int) -> None:
    assert pod_requests(spec)["cpu"] == milli


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "value": "other"}, False),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"value": "v"}, False),
    ],
)
def test_tolerations(toleration: dict[str, str], tolerated: bool) -> None:
    assert tolerates([toleration], {"key": "k", "value": "v", "effect": "NoSchedule"}) is tolerated


@pytest.mark.parametrize(
    ("operator", "values", "matches"),
    [
        ("In", ["5", "6"], True),
        ("In", ["6"], False),
        ("NotIn", ["6"], True),
        ("NotIn", ["5"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["4"], True),
        ("Gt", ["5"], False),
        ("Lt", ["6"], True),
        ("Lt", ["x"], False),
    ],
)
def test_node_affinity_operators(operator: str, values: list[str], matches: bool) -> None:
    term = {"matchExpressions": [{"key": "size", "operator": operator, "values": values}]}
    assert term_matches(term, "n", {"size": "5"}) is matches
    without = operator in {"NotIn", "DoesNotExist"}
    assert term_matches(term, "n", {}) is without


def test_an_empty_term_matches_nothing() -> None:
    assert not term_matches({}, "n", {})


@pytest.mark.parametrize(
    ("spec", "node", "reasons", "final"),
    [
        ({}, {}, (), False),
        ({"nodeSelector": {"disk": "ssd"}}, {}, (NO_AFFINITY,), True),
        ({"nodeSelector": {"disk": "ssd"}}, {"labels": {"disk": "ssd"}}, (), False),
        ({}, {"taints": [{"key": "k", "effect": "NoSchedule"}]}, (TAINTED,), True),
        ({}, {"taints": [{"key": "k", "effect": "NoExecute"}]}, (TAINTED,), True),
        ({}, {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}, (), False),
        ({"tolerations": [{"operator": "Exists"}]}, {"taints": [{"key": "k", "effect": "NoSchedule"}]}, (), False),
        ({"cpu": "5"}, {}, ("Insufficient cpu",), True),
        ({"cpu": "5", "memory": "17Gi"}, {}, ("Insufficient cpu", "Insufficient memory"), True),
        ({}, {"pods": 0}, (TOO_MANY_PODS,), False),
        (
            {"affinity": required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]})},
            {},
            (NOT_NAMED,),
            True,
        ),
        (
            {"affinity": required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]})},
            {},
            (),
            False,
        ),
    ],
)
def test_one_node(spec: dict[str, Any], node: dict[str, Any], reasons: tuple[str, ...], final: bool) -> None:
    assert fit(demand(**spec), NodeUsage(manifests.node("n", **node))) == Fit(reasons, final)


def test_what_other_pods_take_is_not_final() -> None:
    node = NodeUsage(manifests.node("n", cpu="4"))
    node.add("default/a", demand(cpu="3"))
    assert fit(demand(cpu="2"), node) == Fit(("Insufficient cpu",), final=False)
    node.remove("default/a")
    assert fit(demand(cpu="2"), node) is FITS


def test_a_cordoned_node_takes_only_who_tolerates_it() -> None:
    manifest = manifests.node("n")
    manifest["spec"]["unschedulable"] = True
    node = NodeUsage(manifest)
    assert fit(demand(), node).reasons == (UNSCHEDULABLE,)
    tolerant = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
    assert fit(demand(tolerations=tolerant), node) is FITS


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ({"hostPort": 80}, {"hostPort": 80}, True),
        ({"hostPort": 80}, {"hostPort": 81}, False),
        ({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, False),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.2"}, False),
    ],
)
def test_host_ports(one: dict[str, Any], other: dict[str, Any], clash: bool) -> None:
    node = NodeUsage(manifests.node("n"))
    node.add("default/a", demand(containers=[{"name": "c", "ports": [{"containerPort": 1, **one}]}]))
    found = fit(demand(containers=[{"name": "c", "ports": [{"containerPort": 1, **other}]}]), node)
    assert found.reasons == ((NO_PORTS,) if clash else ())


def test_the_host_network_takes_the_container_ports() -> None:
    spec = {"hostNetwork": True, "containers": [{"name": "c", "ports": [{"containerPort": 8080}]}]}
    assert [port.number for port in host_ports(spec)] == [8080]


def test_volumes_keep_a_pod_in_their_zone() -> None:
    node = NodeUsage(manifests.node("n", zone="a"))
    assert zone_fit(node, [{"topology.kubernetes.io/zone": "a__b"}]) is FITS
    assert zone_fit(node, [{"topology.kubernetes.io/zone": "b"}]).reasons


def test_the_message_is_kube_schedulers() -> None:
    fits = {"a": Fit((TAINTED,), final=True), "b": Fit(("Insufficient cpu",)), "c": Fit(("Insufficient cpu",))}
    told = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu."
    assert (summary(fits), unfit_message(fits)) == (told, told)
    assert unfit_message(fits, "no.") == f"{told} no new claims to deallocate, preemption: no."
    assert unfit_message({}, "no.") == "no nodes available to schedule pods"
