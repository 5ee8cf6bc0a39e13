"""What daemons take of nodes that are there and of those to come. Docstrings cite 05 §13."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dovetail.api import names
from dovetail.scheduling.daemons import (
    Daemon,
    DaemonGroup,
    daemon_groups,
    least_overhead,
    node_reserve,
    read_daemon,
    representative,
)
from dovetail.scheduling.host_ports import HostPort
from dovetail.scheduling.requirements import Requirements, of_labels
from dovetail.scheduling.resources import NOTHING, ONE_POD, Resources
from dovetail.scheduling.taints import node_taints, template_taints
from tests.unit.scheduling.wire import allof, claim, container, pod, required, taint

LINUX = of_labels({names.OS_LABEL: "linux"})
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def terms(*each: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(each)}}}


def expressing(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def daemon(name: str = "agent", cpu: str = "100m", **spec: Any) -> Daemon:
    return read_daemon(name, pod(name, containers=[container(cpu=cpu)], **spec), [])


# -- the representative ------------------------------------------------------------------------------------------------


def test_the_newest_pod_stands_for_all_and_until_there_is_one_the_template() -> None:
    template = pod("agent", containers=[container(limits={"cpu": "1"})])
    old, new = (
        pod(name, created=at, containers=[container(cpu=cpu)])
        for name, at, cpu in (("agent-b", "2026-03-01T00:00:00Z", "2"), ("agent-a", "2026-03-02T00:00:00Z", "3"))
    )
    assert representative(template, [new, old]) is new
    assert read_daemon("agent", template, [old, new]).request == Resources({"cpu": 3000, "pods": 1})
    assert representative(template, []) is template
    assert read_daemon("agent", template, []).request == Resources({"cpu": 1000, "pods": 1})  # its limit


def test_the_nodes_of_the_template_stand_over_the_one_that_the_pod_is_tied_to() -> None:
    tied = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    template = pod("agent", affinity=terms(expressing("gpu", "Exists")))
    before = {**expressing("gpu", "In", "old"), **tied}  # of an earlier template
    running = pod("agent-a", affinity=terms(before), tolerations=[{"key": "x"}])
    found = read_daemon("agent", template, [running])
    assert found.alternatives == (allof(required("gpu", "Exists")),)
    assert any(each.key == "x" for each in found.tolerations)
    plain = read_daemon("agent", pod("agent"), [pod("agent-a", affinity=terms(tied))])
    assert plain.alternatives == (Requirements(),)


# -- nodes that are there ----------------------------------------------------------------------------------------------


def test_a_node_keeps_room_for_daemons_that_will_come() -> None:
    daemons = [
        daemon("logs", "100m"),
        daemon("gpu", "200m", nodeSelector={"gpu": "true"}),
        daemon("tainted", "400m", tolerations=[{"key": "own", "operator": "Exists"}]),
        daemon("either", "800m", affinity=terms(expressing("rack", "Exists"), expressing(names.OS_LABEL, "Exists"))),
    ]
    taints = template_taints([taint("own:NoSchedule")])
    assert node_reserve(daemons, LINUX, (), NOTHING)["cpu"] == 1300
    assert node_reserve(daemons, LINUX, taints, NOTHING)["cpu"] == 400
    assert node_reserve(daemons, of_labels({"gpu": "true"}), (), NOTHING)["cpu"] == 700


def test_daemons_that_run_already_are_not_counted_twice() -> None:
    reserve = node_reserve([daemon("a"), daemon("b")], LINUX, (), daemon("a").request)
    assert reserve == daemon("b").request


def test_a_daemon_that_nobody_expected_never_makes_the_reserve_negative() -> None:
    """05 §13.58."""
    unexpected = Resources({"cpu": 5000, "gpu": 1, "pods": 1})
    assert node_reserve([daemon("a")], LINUX, (), unexpected) == NOTHING
    assert node_reserve([], LINUX, (), unexpected) == NOTHING


@given(st.lists(st.integers(0, 500), max_size=4), st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.integers(0, 900)))
def test_no_reserve_is_negative_and_none_is_too_small(millis: list[int], bound: dict[str, int]) -> None:
    daemons = [daemon(f"d{index}", f"{milli}m") for index, milli in enumerate(millis)]
    reserve = node_reserve(daemons, LINUX, (), Resources(bound))
    assert all(amount > 0 for _, amount in reserve.items())
    assert reserve["cpu"] == max(0, sum(millis) - bound.get("cpu", 0))


# -- nodes to come -----------------------------------------------------------------------------------------------------


def groups(*daemons: Daemon, template: Requirements = LINUX, taints: tuple[str, ...] = ()) -> list[DaemonGroup]:
    types = {
        "small": of_labels({names.ARCH_LABEL: "amd64", names.OS_LABEL: "linux"}),
        "arm": of_labels({names.ARCH_LABEL: "arm64", names.OS_LABEL: "linux"}),
        "large": of_labels({names.ARCH_LABEL: "amd64", names.OS_LABEL: "linux"}),
    }
    return daemon_groups(daemons, template=template, taints=template_taints(map(taint, taints)), types=types)


def ran(found: list[DaemonGroup]) -> dict[tuple[str, ...], tuple[str, ...]]:
    return {group.types: tuple(each.name for each in group.daemons) for group in found}


def test_types_that_get_the_same_daemons_are_one_group() -> None:
    everywhere = daemon("logs", "100m")
    amd = daemon(
        "probe",
        "200m",
        nodeSelector={names.ARCH_LABEL: "amd64"},
        hostNetwork=True,
    )
    found = groups(everywhere, amd)
    assert ran(found) == {("small", "large"): ("logs", "probe"), ("arm",): ("logs",)}
    assert [group.overhead for group in found] == [everywhere.request + amd.request, everywhere.request]
    assert least_overhead(found) == everywhere.request
    assert least_overhead(found[:1]) == Resources({"cpu": 300, "pods": 2})
    assert least_overhead([]) == NOTHING


def test_ports_of_all_daemons_of_a_group() -> None:
    one, two = (
        read_daemon(
            str(port), pod(containers=[{"name": "a", "ports": [{"containerPort": port, "hostPort": port}]}]), []
        )
        for port in (9100, 9200)
    )
    (found,) = groups(one, two)
    assert found.ports == {HostPort(port, "TCP", "0.0.0.0") for port in (9100, 9200)}
    assert found.overhead == ONE_POD + ONE_POD


def test_the_least_overhead_is_that_of_each_resource() -> None:
    amd = daemon("amd", "500m", nodeSelector={names.ARCH_LABEL: "amd64"})
    arm = daemon("arm", "200m", nodeSelector={names.ARCH_LABEL: "arm64"}, overhead={"memory": "1Gi"})
    assert least_overhead(groups(amd, arm)) == Resources({"cpu": 200, "pods": 1})


def test_what_a_template_does_not_define_keeps_a_daemon_away_unless_it_is_well_known() -> None:
    custom = daemon("custom", nodeSelector={"team": "red"})
    zonal = daemon("zonal", nodeSelector={names.ZONE_LABEL: "a"})
    waiting = daemon("waiting", nodeSelector={names.INITIALIZED_LABEL: "true", names.REGISTERED_LABEL: "true"})
    assert set(ran(groups(custom, zonal, waiting)).values()) == {("zonal", "waiting")}
    never = daemon("never", nodeSelector={names.INITIALIZED_LABEL: "false"})
    assert set(ran(groups(never)).values()) == {()}
    assert set(ran(groups(custom, template=LINUX & of_labels({"team": "red"}))).values()) == {("custom",)}


def test_every_term_of_a_daemon_is_tried() -> None:
    either = daemon("e", affinity=terms(expressing("team", "In", "red"), expressing(names.ARCH_LABEL, "In", "arm64")))
    assert ran(groups(either)) == {("small", "large"): (), ("arm",): ("e",)}


def test_taints_of_the_template_keep_daemons_away_but_soft_ones_do_not() -> None:
    plain, tolerant = daemon("plain"), daemon("tolerant", tolerations=[{"operator": "Exists"}])
    assert set(ran(groups(plain, tolerant, taints=("own:NoSchedule",))).values()) == {("tolerant",)}
    assert set(ran(groups(plain, taints=("own:PreferNoSchedule",))).values()) == {("plain",)}


def test_startup_taints_never_block_daemons() -> None:
    """05 §13.23."""
    coming = node_taints(None, claim("own:PreferNoSchedule", startup=("boot:NoSchedule",)))
    assert daemon().runs_on(LINUX, coming)
    assert not daemon().runs_on(LINUX, node_taints(None, claim("boot:NoSchedule")))
