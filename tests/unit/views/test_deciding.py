"""Who decides in a cluster is found out from its Leases, its controllers, or what they have left on objects."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

import msgspec
import pytest

from dovetail.api.documents import Document, read_documents
from dovetail.cli.common.salvage import salvaged_documents
from dovetail.views.deciding import who_decides
from tests.harness import eks

NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)
Raw = dict[str, Any]


def made(kind: str, name: str, version: str = "v1", **parts: Any) -> Raw:
    metadata = {"name": name, **parts.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}


def lease(name: str, holder: str, age: timedelta = timedelta(seconds=5)) -> Raw:
    renewed = (NOW - age).isoformat().replace("+00:00", "Z")
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}
    return made("Lease", name, "coordination.k8s.io/v1", metadata={"namespace": "kube-system"}, spec=spec)


def controller(name: str, image: str, *args: str, label: str = "") -> Raw:
    container = {"name": "controller", "image": image, "args": list(args)}
    metadata = {"namespace": "kube-system", "labels": {"app.kubernetes.io/name": label}}
    return made("Pod", name, metadata=metadata, spec={"containers": [container]}, status={"phase": "Running"})


def claim(name: str = "a", *conditions: str, **annotations: str) -> Raw:
    status = {"conditions": [{"type": each, "status": "True"} for each in ("Launched", *conditions)]}
    found = {f"dovetail.dev/{key}": value for key, value in annotations.items()}
    return made("NodeClaim", name, "karpenter.sh/v1", metadata={"annotations": found}, status=status)


def node(**annotations: str) -> Raw:
    found = {f"dovetail.dev/{key}": value for key, value in annotations.items()}
    return made("Node", "n", metadata={"annotations": found}, status={"conditions": []})


def pool(**disruption: str) -> Raw:
    spec = {"template": {"spec": {}}, "disruption": disruption}
    return made("NodePool", "p", "karpenter.sh/v1", metadata={"uid": "1"}, spec=spec)


def documents(*objects: Raw) -> list[Document]:
    items = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects})
    return list(read_documents(items, "dump.json"))


LEADS, BESIDE = "karpenter-leader-election", "dovetail-beside-karpenter"
OFFICIAL = "public.ecr.aws/karpenter/controller:1.15.0@sha256:0b1c"
OWN = "ghcr.io/example/dovetail:0.9"


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        (
            [lease(LEADS, "karpenter-7d_1f"), controller("karpenter-7d", OFFICIAL)],
            "Karpenter 1.15.0 decides: it holds the Lease kube-system/karpenter-leader-election",
        ),
        (
            [lease(LEADS, "karpenter-7d_1f"), controller("karpenter-7d", "mirror/x:1", label="karpenter")],
            "Karpenter decides: it holds the Lease kube-system/karpenter-leader-election",
        ),
        (
            [lease(LEADS, "karpenter-7d_1f")],
            "Karpenter decides: it holds the Lease kube-system/karpenter-leader-election",
        ),
        (
            [lease(LEADS, "dovetail-7d_1f"), controller("dovetail-7d", OWN, "run")],
            "Dovetail decides: it holds the Lease kube-system/karpenter-leader-election",
        ),
        (
            [lease(LEADS, "karpenter-7d_1f"), lease(BESIDE, "d-1_2"), controller("d-1", OWN, "drive")],
            "Dovetail (drive) decides: it holds the Lease kube-system/dovetail-beside-karpenter",
        ),
        (
            [lease(LEADS, "karpenter-7d_1f"), lease(BESIDE, "d-1_2")],
            "Karpenter decides, and Dovetail guards: it holds the Lease kube-system/dovetail-beside-karpenter",
        ),
        (
            [lease(BESIDE, "d-1_2"), node(held='{"by":"drive"}')],
            "Dovetail (drive) decides: it holds the Lease kube-system/dovetail-beside-karpenter",
        ),
        (
            [lease(LEADS, "dovetail-7d_1f", timedelta(hours=1)), claim()],
            "Karpenter decides: Dovetail has written on no object",
        ),
        ([lease(LEADS, ""), claim("a", "DisruptionState")], "Dovetail decides: it has written on NodeClaim a"),
        ([controller("k", OFFICIAL), claim()], "Karpenter 1.15.0 decides: pod kube-system/k runs it"),
        ([controller("d", OWN, "run"), claim()], "Dovetail decides: pod kube-system/d runs it"),
        (
            [controller("k", "shop/karpenter-exporter:2")],
            "Karpenter decides: nothing in these files comes from Dovetail",
        ),
        (
            [controller("d", OWN, "guard"), controller("k", OFFICIAL)],
            "Karpenter decides, and Dovetail guards: pod kube-system/d runs it",
        ),
        (
            [controller("d", OWN, "run"), controller("k", OFFICIAL)],
            "Karpenter 1.15.0 decides: pod kube-system/k runs it",
        ),
        ([node(held='{"by":"guard"}')], "Karpenter decides, and Dovetail guards: it holds Nodes"),
        ([node(held="nonsense")], "Karpenter decides: nothing in these files comes from Dovetail"),
        (
            [pool(gracefulExpireAfter="72h")],
            "Dovetail decides: the CRD of NodePools has its field gracefulExpireAfter",
        ),
        ([pool()], "Karpenter decides: nothing in these files comes from Dovetail"),
        ([], "Karpenter decides: nothing in these files comes from Dovetail"),
    ],
)
def test_what_shows_who_decides(objects: Sequence[Raw], expected: str) -> None:
    assert who_decides(documents(*objects), NOW).sentence == expected


def test_of_a_dump_a_lease_counts_whenever_it_was_renewed() -> None:
    old = documents(lease(LEADS, "karpenter-7d_1f", timedelta(days=30)), claim("a", "DisruptionState"))
    assert who_decides(old).controller == "karpenter"
    assert who_decides(old, NOW).controller == "dovetail"


def test_the_crd_of_nodepools_shows_whose_it_is() -> None:
    own = (files("dovetail.api") / "crds" / "karpenter.sh_nodepools.yaml").read_bytes()
    assert (
        who_decides(read_documents(own, "crd.yaml")).reason == "the CRD of NodePools has its field gracefulExpireAfter"
    )
    theirs = own.replace(b"gracefulExpireAfter", b"expireAfter")
    assert who_decides(read_documents(theirs, "crd.yaml")).controller == "karpenter"


def test_an_object_that_cannot_be_read_shows_nothing() -> None:
    broken = made("NodeClaim", "a", "karpenter.sh/v1", status={"conditions": "none"})
    assert who_decides(documents(broken, claim("b", "DisruptionState"))).reason == "it has written on NodeClaim b"


def test_the_examples() -> None:
    def of(*paths: str) -> str:
        return who_decides(salvaged_documents(paths, [])).text

    assert of(str(eks.DUMP)) == "karpenter"
    assert of("examples/cluster.yaml") == of("examples/scenarios/week.yaml") == "dovetail"
