"""What the Node of a claim looks like, what it is called, and when it is due."""

from datetime import datetime
from typing import Any

import msgspec
import pytest

from dovetail.api import names
from dovetail.api.objects import KWOKNodeClass, KWOKNodeClassSpec, NodeClaim, NodeClaimStatus
from dovetail.providers.catalogue import built_in
from dovetail.providers.choosing import choose
from dovetail.providers.kwok.nodes import appears_at, instance_of, launched_instance, name_in, node_body, node_name
from tests.harness.builders import at, conditions
from tests.unit.providers.claims import SMALL, claim, requirement

BY_NAME = {type_.name: type_ for type_ in built_in()}


def body_for(wanted: NodeClaim) -> dict[str, Any]:
    return node_body(instance_of(wanted, *choose(wanted, BY_NAME, 0)))


def test_the_node_of_a_claim() -> None:
    wanted = claim(
        "web-1",
        requirement(names.ZONE_LABEL, "In", "test-zone-b"),
        requirement(names.CAPACITY_TYPE_LABEL, "In", "spot", "on-demand"),
        requirement("example.com/team", "In", "blue"),
        requirement("example.com/tier", "In", "one", "two"),
        requirement("example.com/rack", "NotIn", "r1"),
        requests={"cpu": "500m", "pods": 3},
        annotations={"example.com/note": "hello"},
    )
    body = body_for(wanted)
    assert body["metadata"]["labels"] == {
        names.NODEPOOL_LABEL: "default",
        names.KWOK_NODECLASS_LABEL: "default",
        names.ZONE_LABEL: "test-zone-b",
        names.CAPACITY_TYPE_LABEL: "spot",
        "example.com/team": "blue",
        names.INSTANCE_TYPE_LABEL: SMALL,
        names.ARCH_LABEL: "amd64",
        names.OS_LABEL: "linux",
        names.KWOK_INSTANCE_SIZE_LABEL: "1",
        names.KWOK_INSTANCE_FAMILY_LABEL: "c",
        names.KWOK_INSTANCE_CPU_LABEL: "1",
        names.KWOK_INSTANCE_MEMORY_LABEL: "2Gi",
        names.INSTANCE_PRICE_LABEL: "0.019003",
        names.KWOK_PARTITION_LABEL: "a",
        names.HOSTNAME_LABEL: "web-1",
        names.KWOK_NODE: "fake",
    }
    assert body["metadata"]["annotations"] == {"example.com/note": "hello", names.KWOK_NODE: "fake"}
    assert body["spec"]["providerID"] == f"kwok://{body['metadata']['name']}"
    assert body["spec"]["taints"] == [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]
    assert body["status"]["phase"] == "Pending"
    assert body["status"]["capacity"] == {"cpu": "500m", "pods": "3"}  # the requests, not the machine (R34)


def test_hostname_is_the_claims_name_and_the_nodes_name_differs() -> None:
    body = body_for(claim("web-1"))
    assert body["metadata"]["labels"][names.HOSTNAME_LABEL] == "web-1"
    assert body["metadata"]["name"].startswith("kwok-web-1-")


def test_extended_resource_in_the_requests_appears_in_allocatable() -> None:
    status = body_for(claim(requests={"example.com/gpu": "2", "cpu": "100m"}))["status"]
    assert status["allocatable"] == {
        "example.com/gpu": "2",
        "cpu": "900m",
        "memory": "2038Mi",
        "pods": "16",
        "ephemeral-storage": "20Gi",
    }


@pytest.mark.parametrize("name", ["a", "web-1", "a" * 46 + "-b", "a" * 46 + ".b", "x." * 100 + "y", "n" * 253])
def test_names_fit_into_a_label_and_tell_claims_apart(name: str) -> None:
    found = {node_name(claim(name, uid=f"uid-{number}")) for number in range(20)}
    assert len(found) == 20
    assert all(len(each) <= 63 for each in found)
    assert all(each.startswith(f"kwok-{name[:40].rstrip('-.')}") for each in found)
    assert not any("--" in each or ".-" in each for each in found)
    assert node_name(claim(name)) == node_name(claim(name))


def test_a_long_name_is_no_label() -> None:
    labels = body_for(claim("n" * 64))["metadata"]["labels"]
    assert labels[names.HOSTNAME_LABEL] == node_name(claim("n" * 64))


def launched(since: str = "2026-03-01T12:00:00Z", **statuses: str) -> NodeClaim:
    """A claim as the lifecycle leaves it after its launch."""
    wanted = claim(requests={"cpu": "500m"})
    instance = instance_of(wanted, *choose(wanted, BY_NAME, 0))
    status = NodeClaimStatus(
        provider_id=instance.provider_id,
        capacity=instance.capacity,
        allocatable=instance.allocatable,
        conditions=conditions({"Launched": "True", **statuses}, {"Launched": since}),
    )
    metadata = msgspec.structs.replace(
        wanted.metadata, labels=dict(instance.labels), annotations=dict(instance.annotations)
    )
    return msgspec.structs.replace(wanted, metadata=metadata, status=status)


def test_the_node_made_later_is_the_one_that_was_chosen() -> None:
    wanted = claim(requests={"cpu": "500m"})
    instance = instance_of(wanted, *choose(wanted, BY_NAME, 0))
    assert launched_instance(launched()) == instance
    assert name_in(instance.provider_id) == node_name(wanted)


def node_class(delay: str | None) -> KWOKNodeClass:
    return KWOKNodeClass(spec=KWOKNodeClassSpec(node_registration_delay=delay))


@pytest.mark.parametrize(
    ("delay", "due"),
    [
        (None, at("2026-03-01T12:00:00Z")),
        ("0s", at("2026-03-01T12:00:00Z")),
        ("1h30m", at("2026-03-01T13:30:00Z")),
        ("soon", at("2026-03-01T12:00:00Z")),
        ("90000000h", at("2026-03-01T12:00:00Z")),
    ],
)
def test_registration_delay_counts_from_the_launch(delay: str | None, due: datetime) -> None:
    assert appears_at(launched(), node_class(delay)) == due


def test_a_delay_beyond_the_calendar_never_ends() -> None:
    assert appears_at(launched("9999-12-31T23:00:00Z"), node_class("2h")) is None


@pytest.mark.parametrize("registered", ["False", "Unknown"])
def test_a_claim_that_is_not_registered_awaits_its_node(registered: str) -> None:
    assert appears_at(launched(Registered=registered), None) is not None


def test_nobody_else_does() -> None:
    ours = launched()
    deleted_at = at("2026-03-01T12:00:00Z")
    gone = msgspec.structs.replace(ours, metadata=msgspec.structs.replace(ours.metadata, deletion_timestamp=deleted_at))
    foreign = msgspec.structs.replace(ours, status=msgspec.structs.replace(ours.status, provider_id="aws:///i-1"))
    unlaunched = msgspec.structs.replace(ours, status=msgspec.structs.replace(ours.status, conditions=[]))
    for each in (gone, foreign, unlaunched, launched(Launched="Unknown"), launched(Registered="True")):
        assert appears_at(each, None) is None
