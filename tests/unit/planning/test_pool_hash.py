"""The hash of a NodePool's template, bit for bit as upstream has it (01 §7)."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dovetail.api import names, objects
from dovetail.planning.nodepool.hash import migrated_annotations, pool_annotations, pool_hash
from dovetail.values.duration import DurationError
from tests.harness.builders import conditions

KWOK = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
TAINT = {"key": "key", "effect": "NoExecute"}


def ref(group: str, kind: str, name: str) -> dict[str, str]:
    return {"group": group, "kind": kind, "name": name}


def hash_of(metadata: Mapping[str, Any] | None = None, **spec: Any) -> str:
    """Through JSON, as the API server answers: what is absent there must stay absent."""
    body = {"metadata": metadata or {}, "spec": {"nodeClassRef": KWOK, "expireAfter": "Never", **spec}}
    return pool_hash(msgspec.json.decode(msgspec.json.encode(body), type=objects.NodeClaimTemplate))


EC2 = "karpenter.k8s.aws"


@pytest.mark.parametrize(
    ("metadata", "spec", "expected"),
    [
        ({}, {"nodeClassRef": ref(EC2, "EC2NodeClass", "default"), "expireAfter": "720h"}, "6821555240594823858"),
        (
            {},
            {
                "nodeClassRef": ref(EC2, "EC2NodeClass", "default-ec2nodeclass"),
                "expireAfter": "720h",
                "taints": [],
                "startupTaints": [],
            },
            "11142864721958693070",
        ),
        (
            {},
            {
                "nodeClassRef": ref("eks.amazonaws.com", "NodeClass", "default"),
                "expireAfter": "336h",
                "terminationGracePeriod": "24h",
            },
            "4012513481623584108",
        ),
        ({}, {}, "7428780003907761376"),
        ({}, {"expireAfter": "720h"}, "12745407319442031341"),
        ({"annotations": {"test": "annotation"}}, {}, "18327619277019979091"),
        (
            {
                "labels": {"keyLabel": "valueLabel"},
                "annotations": {"keyAnnotation": "valueAnnotation", "keyAnnotation2": "valueAnnotation2"},
            },
            {"taints": [TAINT], "startupTaints": [TAINT], "terminationGracePeriod": "5m", "expireAfter": "5m"},
            "17066057431569812298",
        ),
    ],
    ids=["ec2", "ec2 with empty taints", "eks", "kwok", "kwok 720h", "annotation", "everything"],
)
def test_vectors(metadata: Mapping[str, Any], spec: Mapping[str, Any], expected: str) -> None:
    assert hash_of(metadata, **spec) == expected


def test_no_time_at_all_is_a_time() -> None:
    """Worked out by hand from the rules: a grace period of 0s is a struct without fields, and is there."""
    assert hash_of(terminationGracePeriod="0s") == "14245545481296229771"
    assert hash_of(expireAfter="0s") == "13546070544088512816"


BARE = hash_of()


@pytest.mark.parametrize(
    ("metadata", "spec"),
    [
        ({"labels": {}}, {}),
        ({"annotations": {}}, {}),
        ({}, {"taints": []}),
        ({}, {"startupTaints": []}),
        ({}, {"taints": [TAINT]}),
        ({}, {"startupTaints": [TAINT]}),
        ({}, {"terminationGracePeriod": "0s"}),
        ({}, {"expireAfter": "0s"}),
        ({"labels": {"a": "b"}}, {}),
        ({"labels": {"b": "a"}}, {}),
    ],
)
def test_each_of_these_is_another_template(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    assert hash_of(metadata, **spec) != BARE


def test_null_is_absent() -> None:
    assert hash_of({"labels": None}, taints=None, terminationGracePeriod=None) == BARE


def test_what_is_not_hashed() -> None:
    assert hash_of(requirements=[{"key": "a", "operator": "Exists"}]) == BARE


def test_the_order_of_taints_and_labels_does_not_count_but_which_list_they_are_in_does() -> None:
    other = {"key": "other", "value": "x", "effect": "NoSchedule"}
    assert hash_of(taints=[TAINT, other]) == hash_of(taints=[other, TAINT])
    assert hash_of({"labels": {"a": "1", "b": "2"}}) == hash_of({"labels": {"b": "2", "a": "1"}})
    assert hash_of({"labels": {"a": "1"}}) != hash_of({"annotations": {"a": "1"}})
    assert hash_of(taints=[TAINT]) != hash_of(startupTaints=[TAINT])


def test_a_time_counts_and_not_how_it_is_written() -> None:
    assert hash_of(expireAfter="1h30m") == hash_of(expireAfter="90m")
    assert hash_of(terminationGracePeriod="60s") == hash_of(terminationGracePeriod="1m")
    assert hash_of(terminationGracePeriod="1m") != hash_of(expireAfter="1m")


def test_a_time_that_nothing_can_hold() -> None:
    with pytest.raises(DurationError):
        hash_of(expireAfter="99999999999h")


# -- migration --------------------------------------------------------------------------------------------------------


def claim(version: str | None, **statuses: str) -> objects.NodeClaim:
    texts = {names.NODEPOOL_HASH: "1", names.NODEPOOL_HASH_VERSION: version}
    return objects.NodeClaim(
        metadata=objects.ObjectMeta(annotations={key: text for key, text in texts.items() if text is not None}),
        status=objects.NodeClaimStatus(conditions=conditions(statuses)),
    )


def test_a_claim_of_this_version_is_left_alone() -> None:
    assert migrated_annotations(claim("v3"), "2") == {}


@pytest.mark.parametrize("version", ["v2", "", None])
def test_a_claim_of_another_version_gets_the_new_hash(version: str | None) -> None:
    assert migrated_annotations(claim(version, Launched="True"), "2") == pool_annotations("2")
    assert pool_annotations("2") == {names.NODEPOOL_HASH: "2", names.NODEPOOL_HASH_VERSION: "v3"}


@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
def test_a_claim_with_a_drifted_condition_keeps_its_hash(status: str) -> None:
    assert migrated_annotations(claim("v2", Drifted=status), "2") == {names.NODEPOOL_HASH_VERSION: "v3"}
