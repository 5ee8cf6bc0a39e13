"""What pods request, what nodes have, and what fits. Docstrings cite 05 §13."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.pod_specs import SchedulingPod
from dovetail.scheduling.resources import (
    MAX_AMOUNT,
    NOTHING,
    ONE_POD,
    ResourceError,
    Resources,
    node_resources,
    offered_amounts,
    pod_request,
    read_amounts,
    total,
    type_allocatable,
)
from tests.unit.scheduling.wire import claim, container, node, pod

GIB = 2**30


def amounts(**values: int) -> Resources:
    return Resources({name.replace("_", "-"): value for name, value in values.items()})


# -- requests ----------------------------------------------------------------------------------------------------------


def test_the_example_of_the_rule() -> None:
    asked = pod(
        containers=[container(cpu="5")],
        initContainers=[container("proxy", always=True, cpu="4.9"), container("setup", cpu="6")],
    )
    assert pod_request(asked) == amounts(cpu=10900, pods=1)


def test_an_init_container_may_need_more_than_all_containers() -> None:
    """05 §13.25."""
    asked = pod(
        containers=[container(cpu="1", memory="1Gi"), container("b", cpu="1", memory="1Gi")],
        initContainers=[container("setup", cpu="3", memory="1Gi"), container("more", cpu="500m", memory="3Gi")],
    )
    assert pod_request(asked) == amounts(cpu=3000, memory=3 * GIB, pods=1)


def test_a_sidecar_before_an_init_container_runs_beside_it_and_one_after_does_not() -> None:
    """05 §13.26."""
    sidecar, setup = container("proxy", always=True, cpu="2"), container("setup", cpu="3")
    before = pod(containers=[container(cpu="1")], initContainers=[sidecar, setup])
    after = pod(containers=[container(cpu="1")], initContainers=[setup, sidecar])
    assert pod_request(before)["cpu"] == 5000
    assert pod_request(after)["cpu"] == 3000


def test_resources_of_the_pod_stand_over_the_sum() -> None:
    """05 §13.27."""
    asked = pod(
        containers=[container(cpu="1", memory="1Gi", ephemeral_storage="1Gi"), container("b", cpu="1")],
        resources={
            "requests": {"cpu": "500m", "hugepages-2Mi": "4Mi", "ephemeral-storage": "9Gi"},
            "limits": {"memory": "8Gi"},
        },
    )
    wanted = {"cpu": 500, "memory": GIB, "hugepages-2Mi": 4 * 2**20, "ephemeral-storage": GIB, "pods": 1}
    assert pod_request(asked) == Resources(wanted)


def test_a_limit_of_the_pod_counts_where_no_container_asks() -> None:
    """05 §13.27."""
    asked = pod(containers=[container()], resources={"requests": {"cpu": "0"}, "limits": {"memory": "1Gi", "cpu": "4"}})
    assert pod_request(asked) == amounts(memory=GIB, pods=1)


def test_the_overhead_of_the_runtime_comes_on_top() -> None:
    """05 §13.28."""
    asked = pod(
        containers=[container(cpu="1")],
        initContainers=[container("setup", cpu="2")],
        overhead={"cpu": "250m", "memory": "120Mi"},
    )
    assert pod_request(asked) == amounts(cpu=2250, memory=120 * 2**20, pods=1)


def test_what_has_no_request_asks_for_its_limit() -> None:
    asked = pod(containers=[container(limits={"cpu": "2", "memory": "1Gi"}, cpu="1")])
    assert pod_request(asked) == amounts(cpu=1000, memory=GIB, pods=1)


def resizing(condition: Mapping[str, str] | None = None, **status: Any) -> SchedulingPod:
    return pod(
        containers=[container(cpu="4", memory="1Gi"), container("b", cpu="1")],
        status={"containerStatuses": [{"name": "app", **status}], "conditions": [condition] if condition else []},
    )


def test_while_a_container_is_resized_the_larger_counts() -> None:
    assert pod_request(resizing(resources={"requests": {"cpu": "2", "memory": "2Gi"}})) == amounts(
        cpu=5000, memory=2 * GIB, pods=1
    )
    assert pod_request(resizing(allocatedResources={"cpu": "6"})) == amounts(cpu=7000, memory=GIB, pods=1)


def test_a_resize_that_cannot_be_counts_for_nothing() -> None:
    infeasible = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    has = {"resources": {"requests": {"cpu": "2", "memory": "2Gi"}}, "allocatedResources": {"cpu": "3"}}
    assert pod_request(resizing(infeasible, **has)) == amounts(cpu=4000, memory=2 * GIB, pods=1)
    assert pod_request(resizing({**infeasible, "reason": "Deferred"}, **has))["cpu"] == 5000
    assert pod_request(resizing({**infeasible, "status": "False"}, **has))["cpu"] == 5000
    assert pod_request(resizing(infeasible))["cpu"] == 5000  # nobody says what it has


def test_sidecars_are_resized_too() -> None:
    asked = pod(
        initContainers=[container("proxy", always=True, cpu="1")],
        containers=[container(cpu="1")],
        status={"initContainerStatuses": [{"name": "proxy", "resources": {"requests": {"cpu": "3"}}}]},
    )
    assert pod_request(asked)["cpu"] == 4000


def running_sums(inits: list[tuple[bool, int]], containers: list[int]) -> list[int]:
    """How much runs at once, at each moment of a pod's life: by its containers, one after the other."""
    sums, beside = [], 0
    for index, (always, cpu) in enumerate(inits):
        beside = sum(amount for sidecar, amount in inits[:index] if sidecar)
        sums.append(beside + cpu)
        beside += cpu if always else 0
    return [*sums, sum(containers) + sum(amount for sidecar, amount in inits if sidecar)]


MILLIS = st.integers(0, 5000)


@given(st.lists(st.tuples(st.booleans(), MILLIS), max_size=5), st.lists(MILLIS, max_size=4), MILLIS)
def test_the_request_is_what_runs_at_once_at_most(
    inits: list[tuple[bool, int]], containers: list[int], overhead: int
) -> None:
    asked = pod(
        initContainers=[container(f"i{n}", always=always, cpu=f"{cpu}m") for n, (always, cpu) in enumerate(inits)],
        containers=[container(f"c{n}", cpu=f"{cpu}m") for n, cpu in enumerate(containers)],
        overhead={"cpu": f"{overhead}m"},
    )
    assert pod_request(asked)["cpu"] == max(running_sums(inits, containers)) + overhead


# -- text --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "100m", 100),
        ("cpu", "1.5", 1500),
        ("cpu", "1u", 1),  # away from zero, as Kubernetes does
        ("cpu", 2, 2000),
        ("memory", "1.5Gi", 3 * 2**29),
        ("memory", 1e9, 10**9),
        ("memory", "100m", 1),
        ("nvidia.com/gpu", "4", 4),
        ("memory", str(MAX_AMOUNT), MAX_AMOUNT),
    ],
)
def test_amounts_are_whole_numbers_of_the_resources_unit(resource: str, text: str | float, amount: int) -> None:
    assert read_amounts({resource: text}) == Resources({resource: amount})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("lots", "is not a quantity"),
        ("", "is not a quantity"),
        ("NaN", "is not a quantity"),
        ("-1", "is negative"),
        ("-1m", "is negative"),
        ("1e30", "more than any machine has"),
        (str(MAX_AMOUNT + 1), "more than any machine has"),
        ("9" * 2000, "is not a quantity"),
        (float("inf"), "is not a quantity"),
    ],
)
def test_what_is_no_amount_is_refused_by_name(text: str | float, why: str) -> None:
    with pytest.raises(ResourceError, match=why) as refused:
        pod_request(pod(containers=[container(gpu=text)]))
    assert refused.value.quantity.resource == "gpu"
    found, (bad,) = offered_amounts({"gpu": text, "cpu": "1"})
    assert found == amounts(cpu=1000)
    assert why in str(bad)


def test_a_thousandth_of_a_cpu_too_many_is_refused() -> None:
    with pytest.raises(ResourceError, match="more than any machine has"):
        read_amounts({"cpu": str(MAX_AMOUNT // 1000 + 1)})


def test_a_sum_that_no_machine_has_is_refused() -> None:
    half = str(MAX_AMOUNT // 2 + 1)
    with pytest.raises(ResourceError, match="all together is more than any machine has"):
        pod_request(pod(containers=[container(memory=half), container("b", memory=half)]))


# -- fitting -----------------------------------------------------------------------------------------------------------


def test_nothing_of_a_resource_that_nobody_has_fits_anywhere() -> None:
    """05 §13.29."""
    asked = pod_request(pod(containers=[container(gpu="0", cpu="1")]))
    assert asked.fits(amounts(cpu=1000, pods=1))
    assert not (asked + amounts(gpu=1)).fits(amounts(cpu=1000, pods=1))


def test_one_pod_too_many_does_not_fit() -> None:
    """05 §13.31."""
    free = amounts(cpu=9000, pods=1)
    asked = pod_request(pod(containers=[container(cpu="1m")]))
    assert asked.fits(free)
    assert (asked + asked).lacking(free) == "pods"


def test_one_negative_resource_makes_a_node_unusable_for_every_pod() -> None:
    """05 §13.32."""
    free = amounts(cpu=9000, memory=GIB, pods=9) - amounts(memory=2 * GIB)
    assert not ONE_POD.fits(free)
    assert not NOTHING.fits(free)
    assert ONE_POD.lacking(free) == "memory"


NAMES = ["cpu", "memory", "pods", "gpu"]
AMOUNTS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3))
FREE = st.dictionaries(st.sampled_from(NAMES), st.integers(-1, 3))


@given(AMOUNTS, FREE)
def test_fitting_is_what_the_rule_says(asked: dict[str, int], free: dict[str, int]) -> None:
    by_hand = all(amount >= 0 for amount in free.values()) and all(
        asked.get(name, 0) <= free.get(name, 0) for name in NAMES
    )
    assert Resources(asked).fits(Resources(free)) == by_hand
    assert (Resources(asked).lacking(Resources(free)) is None) == by_hand


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_amounts_are_vectors(one: dict[str, int], other: dict[str, int], third: dict[str, int]) -> None:
    a, b, c = map(Resources, (one, other, third))
    for name in NAMES:
        x, y = one.get(name, 0), other.get(name, 0)
        assert ((a + b)[name], (a - b)[name], (a | b)[name], (a & b)[name]) == (x + y, x - y, max(x, y), min(x, y))
    assert total([a, b, c]) == a + (b + c) == (c + b) + a
    assert (a + b) - b == a
    assert hash((a + b) - b) == hash(a)
    assert a == Resources({**dict.fromkeys(NAMES, 0), **one})  # nothing is as if missing


# -- nodes and types ---------------------------------------------------------------------------------------------------

EXPECTED = {"cpu": "4", "nvidia.com/gpu": "1", "pods": "110"}
BOOTING = {"cpu": "3900m", "nvidia.com/gpu": "0", "memory": "1Gi"}


def test_a_gpu_that_a_starting_kubelet_does_not_count_yet_is_taken_from_the_claim() -> None:
    """05 §13.30."""
    owner = claim(allocatable=EXPECTED, capacity=EXPECTED)
    found = node_resources(node(initialized=False, allocatable=BOOTING, capacity=BOOTING), owner)
    filled = {"cpu": 3900, "nvidia.com/gpu": 1, "pods": 110, "memory": GIB}
    assert (found.allocatable, found.capacity) == (Resources(filled), Resources(filled))


def test_an_initialized_node_and_one_without_a_claim_are_as_they_say() -> None:
    says = Resources({"cpu": 3900, "memory": GIB})
    assert node_resources(node(allocatable=BOOTING), claim(allocatable=EXPECTED)).allocatable == says
    assert node_resources(node(initialized=False, allocatable=BOOTING), None).allocatable == says


def test_before_there_is_a_node_the_claim_alone_counts() -> None:
    found = node_resources(None, claim(allocatable={"cpu": "3"}, capacity={"cpu": "4"}))
    assert (found.allocatable, found.capacity) == (amounts(cpu=3000), amounts(cpu=4000))


def test_what_a_node_says_that_is_no_amount_counts_as_nothing_and_is_told() -> None:
    found = node_resources(node(allocatable={"cpu": "4", "gpu": "some"}, capacity={"cpu": "-4"}), None)
    assert found.allocatable == amounts(cpu=4000)
    assert [bad.resource for bad in found.bad] == ["gpu", "cpu"]


def test_huge_pages_are_no_ordinary_memory() -> None:
    capacity = Resources({"cpu": 4000, "memory": 8 * GIB, "hugepages-1Gi": 2 * GIB, "hugepages-2Mi": GIB})
    left = type_allocatable(capacity, Resources({"cpu": 100, "memory": GIB}))
    assert (left["cpu"], left["memory"], left["hugepages-1Gi"]) == (3900, 4 * GIB, 2 * GIB)
    assert type_allocatable(capacity, amounts(memory=7 * GIB))["memory"] == 0


def test_a_type_that_keeps_more_than_it_has_takes_nothing() -> None:
    assert not ONE_POD.fits(type_allocatable(amounts(cpu=50, pods=9), amounts(cpu=100)))
