"""What is wrong with a NodePool beyond what the API server checks (01 §4.1, §4.2)."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from dovetail.api import names, objects
from dovetail.planning.nodepool.validation import ignored_capacity_types, pool_flaws


def pool(
    *,
    labels: Mapping[str, str] | None = None,
    requirements: Sequence[Mapping[str, Any]] = (),
    disruption: Mapping[str, Any] | None = None,
    **spec: Any,
) -> objects.NodePool:
    template = {"metadata": {"labels": labels or {}}, "spec": {"requirements": list(requirements), **spec}}
    return msgspec.convert({"spec": {"template": template, "disruption": disruption or {}}}, objects.NodePool)


def flaws(**fields: Any) -> list[str]:
    return pool_flaws(pool(**fields))


def test_an_ordinary_pool() -> None:
    assert (
        flaws(
            labels={"team": "a", "example.com/tier": "", "node-restriction.kubernetes.io/x": "y"},
            taints=[
                {"key": "a", "effect": "NoSchedule"},
                {"key": "a", "effect": "NoExecute", "value": "example.com/b"},
            ],
            startupTaints=[{"key": "b", "effect": ""}],
            requirements=[
                {
                    "key": "karpenter.sh/capacity-type",
                    "operator": "In",
                    "values": ["spot", "on-demand"],
                    "minValues": 2,
                },
                {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Gt", "values": ["4"]},
                {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["a"]},
                {"key": "kops.k8s.io/instancegroup", "operator": "Exists"},
                {"key": "team", "operator": "DoesNotExist"},
            ],
            expireAfter="Never",
            terminationGracePeriod="1h",
        )
        == []
    )


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (names.NODEPOOL_LABEL, "x", "karpenter.sh/nodepool is set by the controller and may not be set"),
        (names.HOSTNAME_LABEL, "x", "kubernetes.io/hostname is every node's own"),
        ("karpenter.sh/registered", "x", "of the label domain karpenter.sh only"),
        ("sub.karpenter.sh/a", "x", "of the label domain karpenter.sh only"),
        ("a/b/c", "x", "not a qualified name"),
        ("/a", "x", "not a qualified name"),
        ("", "x", "not a qualified name"),
        ("UPPER/a", "x", "not a qualified name"),
        ("x" * 64, "x", "not a qualified name"),
        (f"{'x' * 254}/a", "x", "not a qualified name"),
        ("-a", "x", "not a qualified name"),
        ("a", "x y", "is not a label value"),
        ("a", "x" * 64, "is not a label value"),
        ("a", "x\n", "is not a label value"),
    ],
)
def test_bad_labels(key: str, value: str, message: str) -> None:
    (found,) = flaws(labels={key: value})
    assert message in found


@pytest.mark.parametrize(
    "key", ["karpenter.sh/capacity-type", "karpenter.kwok.sh/anything", f"{'x' * 63}", f"{'x' * 253}/a", "a.b-c/A_1.2"]
)
def test_good_labels(key: str) -> None:
    assert flaws(labels={key: "x" * 63}) == []


@pytest.mark.parametrize(
    ("taint", "message"),
    [
        ({"key": "", "effect": "NoSchedule"}, "the key is not a qualified name"),
        ({"key": "a b", "effect": "NoSchedule"}, "the key is not a qualified name"),
        ({"key": "a", "value": "b c", "effect": "NoSchedule"}, "is not a qualified name"),
        ({"key": "a", "effect": "Never"}, "is no effect"),
    ],
)
@pytest.mark.parametrize("field", ["taints", "startupTaints"])
def test_bad_taints(field: str, taint: Mapping[str, str], message: str) -> None:
    (found,) = flaws(**{field: [taint]})
    assert message in found


def test_a_taint_may_be_there_once_in_both_lists_whatever_its_value() -> None:
    a = {"key": "a", "effect": "NoSchedule"}
    assert "more than once" in flaws(taints=[a], startupTaints=[{**a, "value": "other"}])[0]
    assert len(flaws(taints=[a, a])) == 1
    assert len(flaws(startupTaints=[a, a])) == 1
    assert flaws(taints=[a], startupTaints=[{**a, "effect": "NoExecute"}]) == []


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ({"key": "a", "operator": "Equals", "values": ["x"]}, "is no operator"),
        ({"key": "a", "operator": "in", "values": ["x"]}, "is no operator"),
        ({"key": "a b", "operator": "Exists"}, "the key is not a qualified name"),
        ({"key": names.NODEPOOL_LABEL, "operator": "Exists"}, "may not be required"),
        ({"key": names.HOSTNAME_LABEL, "operator": "Exists"}, "may not be required"),
        ({"key": "karpenter.sh/custom", "operator": "Exists"}, "may be required"),
        ({"key": "karpenter.kwok.sh/custom", "operator": "Exists"}, "may be required"),
        ({"key": "a", "operator": "In"}, "needs at least one value"),
        ({"key": "a", "operator": "In", "values": ["x"], "minValues": 2}, "needs at least as many values, not 1"),
        ({"key": "a", "operator": "NotIn", "values": ["x y"]}, "is not a label value"),
        ({"key": "a", "operator": "Gt", "values": ["1", "2"]}, "needs exactly one value"),
        ({"key": "a", "operator": "Lt"}, "needs exactly one value"),
        ({"key": "a", "operator": "Gte", "values": ["1.5"]}, "needs exactly one value"),
        ({"key": "a", "operator": "Lte", "values": [str(2**63)]}, "needs exactly one value"),
    ],
)
def test_bad_requirements(requirement: Mapping[str, Any], message: str) -> None:
    (found,) = flaws(requirements=[requirement])
    assert message in found


@pytest.mark.parametrize(
    ("values", "least", "known"),
    [(["cheap"], None, 0), (["cheap", "spot"], 2, 1), (["spot", "spot"], 2, 1)],
)
def test_capacity_types_that_are_too_few(values: list[str], least: int | None, known: int) -> None:
    requirement = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": values, "minValues": least}
    (found,) = flaws(requirements=[requirement])
    assert f"only {known} are capacity types" in found


def test_unknown_capacity_types_beside_known_ones_are_accepted_and_named() -> None:
    requirement = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["spot", "free", "cheap"]}
    mixed = pool(requirements=[requirement])
    assert pool_flaws(mixed) == []
    assert ignored_capacity_types(mixed) == ["cheap", "free"]
    assert ignored_capacity_types(pool(requirements=[{**requirement, "operator": "NotIn"}])) == []


def test_old_names_count_as_new_ones() -> None:
    assert flaws(requirements=[{"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]) == []


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"expireAfter": "99999999999h"}, "expireAfter"),
        ({"terminationGracePeriod": "99999999999h"}, "terminationGracePeriod"),
        ({"disruption": {"consolidateAfter": "99999999999h"}}, "consolidateAfter"),
        ({"disruption": {"gracefulExpireAfter": "99999999999h"}}, "gracefulExpireAfter"),
    ],
)
def test_times_that_nothing_can_hold(fields: Mapping[str, Any], name: str) -> None:
    (found,) = flaws(**fields)
    assert found.startswith(f"{name}: ")


def test_everything_is_told_at_once() -> None:
    found = flaws(
        labels={names.HOSTNAME_LABEL: "x"},
        taints=[{"key": "", "effect": "NoSchedule"}],
        requirements=[{"key": "a", "operator": "In"}, {"key": "b", "operator": "Gt"}],
        expireAfter="99999999999h",
    )
    assert len(found) == 5
