"""Does `dovetail guard` hold, release, stamp and clean up on a real control plane, within its rights?"""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dovetail.api import names
from dovetail.api.manifests.parts import Manifest
from dovetail.api.manifests.rbac import HOLD_PODS_GRANTS, RIGHTS, rbac
from dovetail.model.beside import read_hold
from tests.cluster.plane import ControlPlane
from tests.cluster.run_process import RunProcess
from tests.cluster.test_cleanup import cleanup, steady
from tests.cluster.test_manifests import path_of
from tests.cluster.test_run import CLAIMS, POOLS, account_kubeconfig, asked, is_account, pool, requests_of
from tests.harness import manifests

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/namespaces/default/pods"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/dovetail-system/leases"
# Of one year, and it opens for one hour on January 1: the pod is protected while the test runs.
YEARLY: Final = {names.DISRUPTION_SCHEDULE: "0 5 1 1 *"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane whose audit log tells what was asked."""
    with ControlPlane(tmp_path_factory.mktemp("guard") / "plane", audit="Metadata") as plane:
        for body in rbac("dovetail-system", mode=names.DovetailMode.GUARD, hold_pods=True):
            plane.patch(f"{path_of(body)}?fieldManager=test&force=true", body, kind="apply")
        yield plane


def stand(plane: ControlPlane, name: str, *, pool: str) -> None:
    """An initialized node of the pool, as Karpenter would have made it."""
    node = manifests.node(
        name,
        labels={
            names.NODEPOOL_LABEL: pool,
            names.REGISTERED_LABEL: "true",
            names.INITIALIZED_LABEL: "true",
        },
    )
    node["spec"]["providerID"] = f"cloud://{name}"
    plane.create(NODES, node)
    ready = {"type": "Ready", "status": "True", "reason": "Yes", "message": "", "lastTransitionTime": None}
    plane.patch(f"{NODES}/{name}/status", {"status": {**node["status"], "conditions": [ready]}})
    reference = {"group": names.KWOK_GROUP, "kind": names.KWOK_NODECLASS_KIND, "name": "default"}
    plane.create(
        CLAIMS,
        {
            "apiVersion": names.API_VERSION,
            "kind": names.NODECLAIM_KIND,
            "metadata": {
                "name": name,
                "labels": {names.NODEPOOL_LABEL: pool},
                "annotations": {names.NODEPOOL_HASH: "1", names.NODEPOOL_HASH_VERSION: "v3"},
            },
            "spec": {"nodeClassRef": reference, "requirements": []},
        },
    )
    entry = {"status": "True", "reason": "Yes", "message": "", "lastTransitionTime": "2026-03-01T00:00:00Z"}
    conditions = [{"type": each, **entry} for each in ("Launched", "Registered", "Initialized")]
    status = {"providerID": f"cloud://{name}", "nodeName": name, "conditions": conditions}
    plane.patch(f"{CLAIMS}/{name}/status", {"status": status})


def bind(plane: ControlPlane, node: str, name: str, annotations: dict[str, str]) -> None:
    plane.create(PODS, manifests.pod(name, annotations=annotations, nodeName=node))


def annotations_of(plane: ControlPlane, path: str) -> dict[str, str]:
    found: dict[str, str] = plane.get(path)["metadata"].get("annotations", {})
    return found


def is_held(plane: ControlPlane, node: str) -> bool:
    found = annotations_of(plane, f"{NODES}/{node}")
    return found.get(names.DO_NOT_DISRUPT) == "true" and read_hold(found.get(names.HELD, "")) is not None


def annotate_pod(plane: ControlPlane, name: str, value: str | None) -> None:
    plane.patch(f"{PODS}/{name}", {"metadata": {"annotations": {names.DO_NOT_DISRUPT: value}}})


def picture(plane: ControlPlane, *paths: str) -> list[Any]:
    """Of Nodes and pods, whose status the control plane goes on writing, only the metadata."""
    found = [steady(plane.get(path)) for path in paths]
    return [each if each["kind"] == names.NODECLAIM_KIND else each["metadata"] for each in found]


def test_without_karpenter_it_says_what_to_do_and_goes_on_when_it_comes(plane: ControlPlane) -> None:
    with RunProcess(plane, mode="guard") as replica:
        replica.wait_for(lambda: replica.serves("probes"))
        missing = replica.get("/readyz/karpenter")
        assert missing.status == 500
        assert "nodepools.karpenter.sh/v1" in missing.text
        assert "install Karpenter first" in missing.text
        assert any("Karpenter not found" in line["message"] for line in replica.lines)
        plane.install_crds()
        replica.wait_for(lambda: replica.get("/readyz/manager").status == 200)
        answer = replica.get("/readyz/karpenter")
        assert "no running Karpenter" in answer.text
        assert "--karpenter-version" in answer.text
    with RunProcess(plane, "--karpenter-version=1.15", mode="guard") as replica:
        replica.wait_ready()


def test_a_second_guard_waits_whatever_it_selects(plane: ControlPlane) -> None:
    """It would release the nodes of the first one."""
    plane.install_crds()
    plane.create(POOLS, pool("first"))
    stand(plane, "of-first", pool="first")
    bind(plane, "of-first", "first-yearly", YEARLY)
    with RunProcess(plane, "--karpenter-version=1.15", mode="guard") as first:
        first.wait_for(lambda: is_held(plane, "of-first"))
        selects_others = ("--leader-election-namespace=default", "--nodepool-selector=team=other")
        with RunProcess(plane, "--karpenter-version=1.15", *selects_others, mode="guard") as second:
            second.wait_for(lambda: any("refusing to act" in line["message"] for line in second.lines))
            (why,) = [line["message"] for line in second.lines if "refusing to act" in line["message"]]
            assert f"kube-system/{names.BESIDE_LEASE}" in why
            assert is_held(plane, "of-first")


def test_it_holds_and_stamps_within_its_rights_and_cleanup_leaves_nothing(plane: ControlPlane, tmp_path: Path) -> None:
    plane.install_crds()
    body: Manifest = pool("default")
    body["metadata"]["annotations"] = {names.NODEPOOL_HASH: "1", names.GRACEFUL_EXPIRE_AFTER: "1s"}
    body["spec"]["disruption"] = {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}
    plane.create(POOLS, body)
    stand(plane, "held", pool="default")
    stand(plane, "users", pool="default")
    plane.patch(f"{NODES}/users", {"metadata": {"annotations": {names.DO_NOT_DISRUPT: "true"}}})
    bind(plane, "held", "yearly", YEARLY)
    bind(plane, "users", "other", YEARLY)
    paths = [f"{NODES}/held", f"{NODES}/users", f"{CLAIMS}/held", f"{CLAIMS}/users", f"{PODS}/yearly"]
    before = picture(plane, *paths)
    kubeconfig = account_kubeconfig(plane, tmp_path)
    where = "--leader-election-namespace=dovetail-system"
    told = (where, "--hold-pods", "--lead=5m", "--karpenter-version=1.11")
    with RunProcess(plane, *told, kubeconfig=kubeconfig, mode="guard") as replica:
        replica.wait_leading()
        replica.wait_for(lambda: is_held(plane, "held"))
        assert names.HELD not in annotations_of(plane, f"{NODES}/users")
        assert replica.metric('dovetail_beside_held_nodes{nodepool="default",by="guard"}') == 1
        replica.wait_for(lambda: names.POD_HOLD in annotations_of(plane, f"{PODS}/yearly"))
        # A node that nobody protects is older than its pool allows; no Karpenter answers.
        stand(plane, "old", pool="default")
        replica.wait_for(lambda: names.HASH_BEFORE in annotations_of(plane, f"{CLAIMS}/old"))
        # The same hold twice is one event, told again.
        bind(plane, "old", "job", {names.DO_NOT_DISRUPT: "8h"})
        replica.wait_for(lambda: is_held(plane, "old"))
        annotate_pod(plane, "job", None)
        replica.wait_for(lambda: not is_held(plane, "old"))
        annotate_pod(plane, "job", "8h")
        replica.wait_for(lambda: is_held(plane, "old"))
        rights = RIGHTS[names.DovetailMode.GUARD]
        granted = {
            (grant.group, resource, verb)
            for grant in (*rights.cluster, *HOLD_PODS_GRANTS, *rights.own_namespace)
            for resource in grant.resources
            for verb in grant.verbs
        }
        used = {asked(request) for request in requests_of(plane, is_account)}
        assert used <= granted
        replica.wait_for(lambda: {asked(request) for request in requests_of(plane, is_account)} == granted)
        plane.delete(f"{PODS}/job")
        refused = cleanup(plane)
        assert refused[0] == 1
        assert "dovetail-system/dovetail-beside-karpenter" in refused[1]
        replica.process.kill()
        replica.ended()
    assert {asked(each) for each in requests_of(plane, is_account) if is_refused(each)} == set()
    assert picture(plane, *paths) != before
    code, text = cleanup(plane)
    assert code == 0, text
    assert picture(plane, *paths) == before
    assert not set(annotations_of(plane, f"{CLAIMS}/old")) & {names.HASH_BEFORE, names.ROLLED}
    assert cleanup(plane) == (0, "nothing to clean up\n")


def test_crds_that_differ_are_said_with_the_remedy(plane: ControlPlane) -> None:
    """A NodePool that no version of Karpenter would have let in."""
    plane.install_crds()
    definition = f"{DEFINITIONS}/nodepools.{names.GROUP}"
    (version,) = plane.get(definition)["spec"]["versions"]
    loose = {**version, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    plane.patch(definition, {"spec": {"versions": [loose]}})
    odd = {
        "apiVersion": names.API_VERSION,
        "kind": names.NODEPOOL_KIND,
        "metadata": {"name": "odd"},
        "spec": {"template": ""},
    }
    plane.wait(POOLS, lambda _: plane.request("POST", POOLS, odd).status in (201, 409))
    try:
        with RunProcess(plane, "--karpenter-version=1.15", mode="guard") as replica:
            replica.wait_for(lambda: replica.serves("probes"))
            replica.wait_for(lambda: "the CRDs differ" in replica.get("/readyz/karpenter").text)
            assert "install those of your version of Karpenter" in replica.get("/readyz/karpenter").text
            replica.wait_for(lambda: any("the CRDs differ" in line["message"] for line in replica.lines))
    finally:
        plane.request("DELETE", f"{POOLS}/odd")
        plane.patch(definition, {"spec": {"versions": [version]}})


def test_a_dry_run_writes_nothing(plane: ControlPlane) -> None:
    plane.install_crds()
    plane.create(POOLS, pool("dry"))
    stand(plane, "of-dry", pool="dry")
    bind(plane, "of-dry", "dry-yearly", YEARLY)
    with RunProcess(plane, "--dry-run", "--karpenter-version=1.15", mode="guard") as replica:
        replica.wait_ready()
        replica.wait_for(lambda: any(line["message"] == "would patch Node of-dry" for line in replica.lines))
        replica.process.send_signal(signal.SIGTERM)
        assert replica.ended() == 0
    assert not is_held(plane, "of-dry")


def is_refused(request: dict[str, Any]) -> bool:
    return bool(request.get("responseStatus", {}).get("code") == 403)
