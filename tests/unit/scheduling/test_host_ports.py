"""Which ports of the node pods take, and when two of them want the same (05 §5)."""

from typing import Any

import pytest

from dovetail.scheduling.host_ports import NO_PORTS, HostPort, conflict, host_ports
from tests.unit.scheduling.wire import pod


def ports(*entries: dict[str, Any], **spec: Any) -> frozenset[HostPort]:
    return host_ports(pod(containers=[{"name": "app", "ports": list(entries)}], **spec).spec)


def test_ports_of_the_host_are_read_with_what_is_left_out() -> None:
    found = ports(
        {"containerPort": 80, "hostPort": 8080},
        {"containerPort": 53, "hostPort": 53, "hostIP": "10.0.0.1", "protocol": "UDP"},
        {"containerPort": 9090},
    )
    assert found == {HostPort(8080, "TCP", "0.0.0.0"), HostPort(53, "UDP", "10.0.0.1")}


def test_init_containers_are_not_read() -> None:
    asked = pod(initContainers=[{"name": "setup", "ports": [{"containerPort": 80, "hostPort": 80}]}])
    assert host_ports(asked.spec) == NO_PORTS


def test_sidecars_are() -> None:
    """They run beside the containers, and the scheduler reads them."""
    sidecar = {"name": "proxy", "restartPolicy": "Always", "ports": [{"containerPort": 80, "hostPort": 80}]}
    assert host_ports(pod(initContainers=[sidecar]).spec) == {HostPort(80, "TCP", "0.0.0.0")}


def test_on_the_network_of_the_host_each_port_is_one_of_the_hosts() -> None:
    assert ports({"containerPort": 9100}, hostNetwork=True) == {HostPort(9100, "TCP", "0.0.0.0")}


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        (HostPort(80, "TCP", "0.0.0.0"), HostPort(80, "TCP", "0.0.0.0"), True),
        (HostPort(80, "TCP", "0.0.0.0"), HostPort(80, "TCP", "10.0.0.1"), True),
        (HostPort(80, "TCP", "::"), HostPort(80, "TCP", "10.0.0.1"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.1"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.2"), False),
        (HostPort(80, "TCP", "0.0.0.0"), HostPort(80, "UDP", "0.0.0.0"), False),
        (HostPort(80, "TCP", "0.0.0.0"), HostPort(81, "TCP", "0.0.0.0"), False),
    ],
)
def test_when_two_want_the_same(one: HostPort, other: HostPort, clash: bool) -> None:
    assert conflict(frozenset((one,)), frozenset((other,))) == (one if clash else None)
    assert conflict(frozenset((other,)), frozenset((one,))) == (other if clash else None)


def test_the_first_conflict_is_named_and_a_pod_is_none_to_itself() -> None:
    mine = frozenset(HostPort(number, "TCP", "0.0.0.0") for number in (443, 80, 8080))
    assert conflict(mine, mine) == HostPort(80, "TCP", "0.0.0.0")
    assert str(HostPort(80, "TCP", "0.0.0.0")) == "0.0.0.0:80/TCP"
    twice = ports({"containerPort": 1, "hostPort": 80}, {"containerPort": 2, "hostPort": 80, "hostIP": "::"})
    assert conflict(twice, NO_PORTS) is None
