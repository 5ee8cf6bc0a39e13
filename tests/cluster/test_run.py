"""Does `dovetail run` start, serve, lead, hand over and stop on a real control plane, within its rights?"""

import json
import signal
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.manifests.parts import Manifest
from dovetail.api.manifests.rbac import CLUSTER_GRANTS, RIGHTS, SPREAD_GRANTS, rbac
from dovetail.providers.kwok.bundle import BUNDLE as KWOK
from dovetail.values.timestamp import parse_time
from tests.cluster.access import Cluster, condition, kubeconfig_text
from tests.cluster.plane import ControlPlane
from tests.cluster.run_process import RunProcess
from tests.cluster.test_manifests import path_of

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
POOLS = f"/apis/{names.GROUP}/{names.VERSION}/{names.NODEPOOL_PLURAL}"
CLAIMS = f"/apis/{names.GROUP}/{names.VERSION}/{names.NODECLAIM_PLURAL}"
CLASSES = f"/apis/{names.KWOK_GROUP}/{names.KWOK_VERSION}/{names.KWOK_NODECLASS_PLURAL}"
HANDOVER_SECONDS = 5.0
GRACE_SECONDS = 2

EXAMPLES = Path(__file__).parents[2] / "examples"
ACCOUNT = "system:serviceaccount:dovetail-system:dovetail"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane whose audit log tells what was asked, without our definitions."""
    with ControlPlane(tmp_path_factory.mktemp("run") / "plane", audit="Metadata") as plane:
        yield plane


@pytest.fixture
def lease(unique_name: Callable[[str], str]) -> str:
    """One that no other test takes."""
    return unique_name("lease")


def requests_of(plane: ControlPlane, identity: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    lines = (plane.folder / "audit.log").read_text().splitlines()
    return [found for found in map(json.loads, lines) if identity(found)]


def asked(request: dict[str, Any]) -> tuple[str, str, str]:
    """Group, resource and verb, as RBAC names them."""
    found = request.get("objectRef", {})
    resource = "/".join(filter(None, (found.get("resource", ""), found.get("subresource", ""))))
    return found.get("apiGroup", ""), resource, request["verb"]


def claim(name: str, **spec: Any) -> Manifest:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.NODECLAIM_KIND,
        "metadata": {"name": name, "labels": {names.NODEPOOL_LABEL: "default"}},
        "spec": {
            "nodeClassRef": {"group": names.KWOK_GROUP, "kind": names.KWOK_NODECLASS_KIND, "name": "default"},
            "requirements": [{"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["s-4x-amd64-linux"]}],
            **spec,
        },
    }


def pool(name: str) -> Manifest:
    reference = {"group": names.KWOK_GROUP, "kind": names.KWOK_NODECLASS_KIND, "name": "default"}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.NODEPOOL_KIND,
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": []}}},
    }


def install(plane: ControlPlane) -> None:
    """Our definitions, a node class and a pool, if they are not there yet."""
    plane.install_crds()
    node_class = {"apiVersion": names.KWOK_API_VERSION, "kind": names.KWOK_NODECLASS_KIND}
    for path, body in ((CLASSES, node_class | {"metadata": {"name": "default"}}), (POOLS, pool("default"))):
        answer = plane.request("POST", path, body)
        assert answer.status in (201, 409), answer


def test_without_definitions_it_says_what_to_do_and_goes_on_when_they_come(plane: ControlPlane, lease: str) -> None:
    with RunProcess(plane, f"--leader-election-name={lease}") as replica:
        replica.wait_for(lambda: replica.serves("probes"))
        assert replica.get("/healthz").text == "ok"
        assert replica.get("/healthz/healthz").text == "ok"
        missing = replica.get("/readyz/crd")
        assert missing.status == 500
        assert "nodepools.karpenter.sh/v1" in missing.text
        assert "dovetail manifests | kubectl apply -f -" in missing.text
        assert replica.get("/readyz").status == 500
        (line,) = (each for each in replica.lines if each["message"] == "CRDs missing")
        assert line["install"] == "dovetail manifests | kubectl apply -f -"
        plane.install_crds()
        replica.wait_ready()
        assert replica.get("/readyz?verbose").text == "[+]readyz ok\n[+]manager ok\n[+]crd ok\nreadyz check passed\n"
        assert replica.get("/readyz/manager").text == "ok"
        assert replica.get("/readyz/other").status == 404


def test_one_leads_and_hands_over_when_stopped(plane: ControlPlane, lease: str) -> None:
    install(plane)
    with RunProcess(plane, f"--leader-election-name={lease}") as first:
        first.wait_ready()
        first.wait_leading()
        assert first.metric("karpenter_cluster_state_synced") == 1
        assert first.metric('dovetail_node_state{nodepool="default",state="S1"}') == 0
        holder = plane.get(f"{LEASES}/{lease}")["spec"]["holderIdentity"]
        assert holder.startswith("dovetail-")  # outside a pod nothing else says whose it is
        with RunProcess(plane, f"--leader-election-name={lease}") as second:
            second.wait_ready()
            assert second.metric("leader_election_master_status") == 0
            assert second.metric("dovetail_node_state") is None  # else two replicas would count twice
            first.process.send_signal(signal.SIGTERM)
            assert first.ended() == 0
            assert first.messages()[-1] == "stopped"
            second.wait_for(lambda: second.metric("leader_election_master_status") == 1, seconds=HANDOVER_SECONDS)
            assert plane.get(f"{LEASES}/{lease}")["spec"]["holderIdentity"] != holder
            second.process.send_signal(signal.SIGINT)
            assert second.ended() == 0
            assert "holderIdentity" not in plane.get(f"{LEASES}/{lease}")["spec"]


def test_a_dry_run_writes_nothing(plane: ControlPlane, lease: str, unique_name: Callable[[str], str]) -> None:
    install(plane)
    name = unique_name("dry")
    made = plane.create(CLAIMS, claim(name))
    written = writes(plane)
    with RunProcess(plane, "--dry-run", f"--leader-election-name={lease}") as replica:
        replica.wait_ready()
        replica.wait_for(lambda: any(line.get("NodeClaim") == name for line in told(replica)))
        assert replica.metric("leader_election_master_status") == 1
        replica.process.send_signal(signal.SIGTERM)
        assert replica.ended() == 0
    assert writes(plane) == written
    assert plane.get(f"{CLAIMS}/{name}")["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert len({json.dumps(line["body"]) for line in told(replica)}) == len(told(replica)), "it repeats itself"
    plane.delete(f"{CLAIMS}/{name}")


def told(replica: RunProcess) -> list[dict[str, Any]]:
    return [line for line in replica.lines if line["message"].startswith("would ")]


def writes(plane: ControlPlane) -> list[tuple[str, str, str]]:
    """All that processes of ours have ever written."""
    return [
        asked(request) for request in requests_of(plane, is_ours) if request["verb"] not in ("get", "list", "watch")
    ]


def test_its_rights_are_exactly_what_it_uses(
    plane: ControlPlane, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    install(plane)
    for body in rbac("dovetail-system", KWOK.rules(), spread_by_default=True):
        plane.patch(f"{path_of(body)}?fieldManager=test&force=true", body, kind="apply")
    kubeconfig = account_kubeconfig(plane, tmp_path)
    spread = f"--scheduler-config={EXAMPLES / 'scheduler-config.yaml'}"  # without it, less is read
    with RunProcess(plane, "--leader-election-namespace=dovetail-system", spread, kubeconfig=kubeconfig) as replica:
        replica.wait_ready()
        replica.wait_leading()
        plane.create(POOLS, pool(unique_name("pool")))
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "30"}}}
        pending = {"metadata": {"name": unique_name("pending")}, "spec": {"containers": [container]}}
        plane.create("/api/v1/namespaces/default/pods", pending)
        live_and_die(plane, unique_name("node"))
        lose_and_regain_readiness(plane)
        assert replica.metric("karpenter_cloudprovider_duration_seconds_count") is not None
        granted = {
            (grant.group, resource, verb)
            for grant in (*CLUSTER_GRANTS, *KWOK.rules(), *SPREAD_GRANTS, *RIGHTS[names.DovetailMode.RUN].own_namespace)
            for resource in grant.resources
            for verb in grant.verbs
        }
        replica.wait_for(lambda: {asked(request) for request in requests_of(plane, is_account)} == granted)
        replica.process.send_signal(signal.SIGTERM)
        assert replica.ended() == 0
    refused = {
        asked(request)
        for request in requests_of(plane, is_account)
        if request.get("responseStatus", {}).get("code") == 403
    }
    assert refused == set()


def test_a_drain_goes_on_where_a_killed_process_left_it(plane: ControlPlane, unique_name: Callable[[str], str]) -> None:
    install(plane)
    name, alone = unique_name("node"), "--disable-leader-election=true"
    plane.create(CLAIMS, claim(name, terminationGracePeriod="20s"))
    with RunProcess(plane, alone) as first:
        bind_pods(plane, name)
        plane.delete(f"{CLAIMS}/{name}")
        plane.wait_gone(f"/api/v1/namespaces/default/pods/free-{name}")
        first.process.kill()
        assert first.ended() == -signal.SIGKILL
    deleted_at = parse_time(plane.get(f"{CLAIMS}/{name}")["metadata"]["deletionTimestamp"])
    assert plane.request("GET", f"/api/v1/namespaces/default/pods/held-{name}").status == 200
    with RunProcess(plane, alone):
        plane.wait_gone(f"{CLAIMS}/{name}", seconds=60)
    forced = [
        parse_time(request["requestReceivedTimestamp"])
        for request in requests_of(plane, is_ours)
        if asked(request)[1:] == ("pods", "delete") and request["objectRef"].get("name") == f"held-{name}"
    ]
    assert min(forced) >= deleted_at + timedelta(seconds=20 - GRACE_SECONDS)


def is_ours(request: dict[str, Any]) -> bool:
    return bool(request.get("userAgent", "").startswith(f"{names.COMPONENT}/"))


def is_account(request: dict[str, Any]) -> bool:
    return bool(request["user"]["username"] == ACCOUNT)


def account_kubeconfig(plane: ControlPlane, folder: Path) -> Path:
    """The kubeconfig of the ServiceAccount, with a token as its pods get one."""
    path = "/api/v1/namespaces/dovetail-system/serviceaccounts/dovetail/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = plane.create(path, request)["status"]["token"]
    kubeconfig = folder / "account.kubeconfig"
    kubeconfig.write_text(kubeconfig_text(plane.url, plane.ca_file, token))
    return kubeconfig


def lose_and_regain_readiness(plane: Cluster) -> None:
    """The same change of a pool's condition twice: the second is told by patching the event of the first."""
    for status in ("False", "True", "False", "True"):
        entry = {"type": "Ready", "status": status, "reason": "Test", "message": ""}
        conditions = [{**entry, "lastTransitionTime": "2026-03-02T00:00:00Z"}]
        plane.patch(f"{CLASSES}/default/status", {"status": {"conditions": conditions}})
        plane.wait(f"{POOLS}/default", lambda found, status=status: condition(found, "NodeClassReady") == status)  # type: ignore[misc]


def live_and_die(plane: Cluster, name: str) -> None:
    """A claim gets its node and expires, with one pod that can be evicted and one that has to be forced out."""
    plane.create(CLAIMS, claim(name, expireAfter="15s", terminationGracePeriod="10s"))
    bind_pods(plane, name)
    plane.wait_gone(f"{CLAIMS}/{name}", seconds=90)


def bind_pods(plane: Cluster, name: str) -> None:
    """Two pods on the claim's node, one of them protected for good."""
    found = plane.wait(f"{CLAIMS}/{name}", lambda found: condition(found, "Initialized") == "True", seconds=60)
    for pod, annotations in (("free", {}), ("held", {names.DO_NOT_DISRUPT: "true"})):
        containers = [{"name": "c", "image": "none"}]
        spec = {
            "nodeName": found["status"]["nodeName"],
            "containers": containers,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
        }
        metadata = {"name": f"{pod}-{name}", "annotations": annotations}
        plane.create("/api/v1/namespaces/default/pods", {"metadata": metadata, "spec": spec})


def test_a_taken_port_is_told_in_one_line(plane: ControlPlane) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with RunProcess(plane, f"--metrics-port={port}") as replica:
            assert replica.ended() == 2
    (line,) = replica.said
    assert line.startswith(f"dovetail: cannot serve metrics on 127.0.0.1:{port}: ")


def test_it_ends_when_it_can_no_longer_know_that_it_leads(plane: ControlPlane, lease: str) -> None:
    install(plane)
    with RunProcess(plane, f"--leader-election-name={lease}") as replica:
        replica.wait_leading()
        plane.pause("kube-apiserver")
        try:
            assert replica.ended(seconds=30) == 1
        finally:
            plane.resume("kube-apiserver")
            plane.wait_ready("kube-apiserver")
        ends = [line["error"] for line in replica.lines if line["message"] == "controller ended"]
        assert ends == ["not renewed within 10.0 s"]


def test_a_second_interrupt_ends_it_at_once(plane: ControlPlane, lease: str) -> None:
    install(plane)
    with RunProcess(plane, f"--leader-election-name={lease}") as replica:
        replica.wait_leading()
        plane.pause("kube-apiserver")  # so that it cannot give the lease back
        try:
            replica.process.send_signal(signal.SIGINT)
            replica.wait_for(lambda: "stopping" in replica.messages(), seconds=3)
            replica.process.send_signal(signal.SIGINT)
            assert replica.ended(seconds=3) == -signal.SIGINT
        finally:
            plane.resume("kube-apiserver")
            plane.wait_ready("kube-apiserver")
