"""Are NodePools and NodeClaims of v1beta1 converted as an API server does?"""

from typing import Any

import pytest

from dovetail.api.conversion import OLD_VERSION, converted, to_v1
from dovetail.api.documents import Document

V1 = "karpenter.sh/v1"
REFERENCE = {"apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "name": "default"}


def document(kind: str, value: dict[str, Any], version: str = OLD_VERSION) -> Document:
    return Document("f", 1, None, None, version, kind, value={"apiVersion": version, "kind": kind, **value})


def pool(name: str = "a", **spec: Any) -> Document:
    return document("NodePool", {"metadata": {"name": name}, "spec": spec})


def claim(pool_name: str | None, **spec: Any) -> Document:
    labels = {} if pool_name is None else {"karpenter.sh/nodepool": pool_name}
    return document("NodeClaim", {"metadata": {"name": "c", "labels": labels}, "spec": spec})


def spec_of(document: Document) -> Any:
    assert document.value is not None
    assert (document.api_version, document.value["apiVersion"], document.converted_from) == (V1, V1, OLD_VERSION)
    return document.value["spec"]


def test_a_pool_without_settings_has_the_defaults_of_its_version() -> None:
    spec = spec_of(to_v1(pool()))
    assert spec["disruption"] == {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}
    assert spec["template"]["spec"] == {"expireAfter": "720h"}


def test_a_pool_keeps_its_meaning() -> None:
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s", "expireAfter": "Never"}
    budgets = [{"nodes": "0", "schedule": "0 9 * * 1-5", "duration": "8h"}]
    node = {"nodeClassRef": REFERENCE, "requirements": [], "taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    old = pool(disruption={**disruption, "budgets": budgets}, template={"spec": node}, weight=3, limits={"cpu": "9"})
    spec = spec_of(to_v1(old))
    assert spec["disruption"] == {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s", "budgets": budgets}
    assert spec["template"]["spec"] == {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [],
        "taints": node["taints"],
        "expireAfter": "Never",
    }
    assert (spec["weight"], spec["limits"]) == (3, {"cpu": "9"})


def test_the_kubelet_becomes_an_annotation() -> None:
    for old in (pool(template={"spec": {"kubelet": {"maxPods": 9}}}), claim(None, kubelet={"maxPods": 9})):
        new = to_v1(old)
        assert new.value is not None
        annotations = new.value["metadata"]["annotations"]
        assert annotations == {"compatibility.karpenter.sh/v1beta1-kubelet-conversion": '{"maxPods":9}'}
        assert "kubelet" not in str(spec_of(new))


@pytest.mark.parametrize(
    ("reference", "group", "kind"),
    [
        ({"name": "x"}, "karpenter.k8s.aws", "EC2NodeClass"),
        ({"kind": "AKSNodeClass", "name": "x"}, "karpenter.azure.com", "AKSNodeClass"),
        ({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass"}, "karpenter.kwok.sh", "KWOKNodeClass"),
    ],
)
def test_a_reference_names_a_group(reference: dict[str, str], group: str, kind: str) -> None:
    new = spec_of(to_v1(claim(None, nodeClassRef=reference)))["nodeClassRef"]
    assert (new["group"], new["kind"], "apiVersion" in new) == (group, kind, False)


def test_a_claim_expires_as_its_pool_says() -> None:
    claims = [claim(None), claim("a"), claim("unknown")]
    *_, alone, owned, orphan = converted([*claims, pool(disruption={"expireAfter": "24h"})])
    assert [spec_of(one)["expireAfter"] for one in (alone, owned, orphan)] == ["Never", "24h", "Never"]


def test_other_objects_stay_the_same() -> None:
    others = [
        document("NodePool", {"metadata": {"name": "x"}}, V1),
        document("Provisioner", {}, "karpenter.sh/v1alpha5"),
        document("Pod", {}, "v1"),
        pool(disruption="none"),
        document("NodeClaim", {"metadata": {"name": "x"}, "spec": 7}),
    ]
    assert list(converted(others)) == others


def test_what_is_written_is_not_changed() -> None:
    old = pool(disruption={"expireAfter": "1h"}, template={"spec": {"nodeClassRef": dict(REFERENCE), "kubelet": {}}})
    before = str(old.value)
    to_v1(old)
    assert str(old.value) == before
