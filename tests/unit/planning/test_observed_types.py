"""What the nodes of a pool say about the machines that it can have."""

import msgspec

from dovetail.api import names, objects
from dovetail.planning.beside.observed_types import observed_types

POOL = objects.NodePool(
    metadata=objects.ObjectMeta(name="default"),
    spec=objects.NodePoolSpec(template=objects.NodeClaimTemplate(metadata=objects.TemplateMeta(labels={"team": "a"}))),
)


def claim(
    name: str, type_: str = "m5.large", zone: str = "a", *, cpu: str = "1930m", capacity: str = "2"
) -> objects.NodeClaim:
    labels = {
        names.NODEPOOL_LABEL: "default",
        names.INSTANCE_TYPE_LABEL: type_,
        names.ZONE_LABEL: zone,
        names.CAPACITY_TYPE_LABEL: "spot",
        names.ARCH_LABEL: "amd64",
        "karpenter.k8s.aws/instance-family": "m5",
        "team": "a",
    }
    return objects.NodeClaim(
        metadata=objects.ObjectMeta(name=name, labels=labels),
        status=objects.NodeClaimStatus(capacity={"cpu": capacity}, allocatable={"cpu": cpu} if cpu else {}),
    )


def test_each_type_is_there_once_with_the_ways_in_which_it_was_bought() -> None:
    small, large = observed_types(POOL, [claim("c"), claim("b", zone="b"), claim("a", "m5.4xlarge"), claim("d")])[::-1]
    assert (small.name, large.name) == ("m5.large", "m5.4xlarge")
    zones = [{each.key: each.values for each in way.requirements}[names.ZONE_LABEL] for way in small.offerings]
    assert zones == [["a"], ["b"]]
    assert all(way.price == 0 for way in small.offerings)


def test_labels_of_the_type_are_requirements_and_those_of_the_pool_are_not() -> None:
    (found,) = observed_types(POOL, [claim("c")])
    assert {each.key: each.values for each in found.requirements} == {
        names.INSTANCE_TYPE_LABEL: ["m5.large"],
        names.ARCH_LABEL: ["amd64"],
        "karpenter.k8s.aws/instance-family": ["m5"],
    }


def test_what_pods_cannot_use_is_overhead() -> None:
    (found,) = observed_types(POOL, [claim("c")])
    assert (found.capacity, found.overhead) == ({"cpu": "2"}, {"cpu": "70m"})


def test_what_is_allocatable_without_a_capacity_is_capacity() -> None:
    """kwok only reports the capacity of what a NodeClaim requests."""
    bare = msgspec.structs.replace(claim("c").status, capacity={})
    (found,) = observed_types(POOL, [msgspec.structs.replace(claim("c"), status=bare)])
    assert (found.capacity, found.overhead) == ({"cpu": "1930m"}, {})


def test_a_capacity_below_what_is_allocatable_is_only_what_was_requested() -> None:
    asked = msgspec.structs.replace(claim("c").status, capacity={"cpu": "500m"})
    (found,) = observed_types(POOL, [msgspec.structs.replace(claim("c"), status=asked)])
    assert (found.capacity, found.overhead) == ({"cpu": "1930m"}, {})


def test_claims_that_say_nothing_are_left_out() -> None:
    assert observed_types(POOL, []) == ()
    assert observed_types(POOL, [claim("c", cpu="")]) == ()
    assert observed_types(POOL, [claim("c", type_="")]) == ()
    (found,) = observed_types(POOL, [claim("c", cpu="many")])
    assert found.overhead == {}
