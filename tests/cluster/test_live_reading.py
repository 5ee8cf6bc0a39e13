"""Do commands say of a live cluster what they say of its dump, with the rights to read and no others?"""

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from dovetail.api import names
from dovetail.ports import NODECLAIMS, NODEPOOLS
from tests.cluster.access import eventually, kubeconfig_text
from tests.cluster.plane import ControlPlane
from tests.cluster.run_process import KEPT
from tests.harness.claims import condition, node_claim, node_class, node_pool
from tests.unit.cli.terminals import GIVEN_BACK, TOP, WHOLE_SCREEN, terminal

PAGE: Final = Path(__file__).parents[2] / "docs" / "without-installing.md"
GROUP: Final = f"/apis/{names.GROUP}/{names.VERSION}"
POOLS, CLAIMS = f"{GROUP}/{NODEPOOLS.plural}", f"{GROUP}/{NODECLAIMS.plural}"
CLASSES: Final = f"/apis/{names.KWOK_GROUP}/{names.KWOK_VERSION}/{names.KWOK_NODECLASS_PLURAL}"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
SHOP: Final = "/api/v1/namespaces/shop"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
AT: Final = "2026-03-06T16:20:00Z"
PLANTED: Final = "planted"
READER: Final = "reader"


class Said(NamedTuple):
    """What the program left behind."""

    code: int
    out: str
    err: str


class Setting(NamedTuple):
    """A small cluster, and what was said of it before it knew of NodePools."""

    plane: ControlPlane
    bare: Said


def dovetail(plane: ControlPlane, *arguments: str, user: str | None = None) -> Said:
    where = [] if "-f" in arguments else ["--kubeconfig", str(plane.kubeconfig_of(user) if user else plane.kubeconfig)]
    done = subprocess.run(
        [Path(sys.executable).with_name("dovetail"), *arguments, *where],
        # A live cluster shows by its CRDs who decides, its dump does not.
        env={key: os.environ[key] for key in KEPT if key in os.environ} | {"DOVETAIL_DECIDER": "dovetail"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    said = "".join(line for line in done.stderr.splitlines(keepends=True) if not line.endswith(" …\n"))  # of long work
    return Said(done.returncode, done.stdout, said)


def told(plane: ControlPlane, command: str, *arguments: str, user: str | None = None) -> str:
    said = dovetail(plane, command, "-o", "json", "--at", AT, *arguments, user=user)
    assert (said.code, said.err) == (0, "")
    return said.out


def explained(plane: ControlPlane, *arguments: str, user: str | None = None) -> str:
    return told(plane, "explain", *arguments, user=user)


# -- the cluster -------------------------------------------------------------------------------------------------------


def secretive_pod() -> dict[str, Any]:
    """With a secret wherever a pod can have one."""
    container = {
        "name": "main",
        "image": f"{PLANTED}.example/image:1",
        "command": ["sh", "-c", f"echo {PLANTED}"],
        "args": [f"--password={PLANTED}"],
        "workingDir": f"/{PLANTED}",
        "env": [
            {"name": f"{PLANTED}_PLAIN", "value": PLANTED},
            {"name": "REFERRED", "valueFrom": {"secretKeyRef": {"name": PLANTED, "key": PLANTED}}},
        ],
        "envFrom": [{"configMapRef": {"name": PLANTED}}],
        "lifecycle": {"preStop": {"exec": {"command": [PLANTED]}}},
        "livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": PLANTED}]}},
        "volumeMounts": [{"name": f"{PLANTED}-volume", "mountPath": f"/{PLANTED}-mount"}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "ports": [{"containerPort": 80}],
    }
    return {
        "metadata": {
            "name": "cart-0",
            "labels": {"app": "cart"},
            "annotations": {
                names.DO_NOT_DISRUPT: "true",
                names.POD_DELETION_COST: "7",
                "example.com/token": PLANTED,
                "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": PLANTED}),
            },
        },
        "spec": {
            "nodeName": "n1",
            "containers": [container],
            "initContainers": [{"name": "first", "image": PLANTED, "env": [{"name": "A", "value": PLANTED}]}],
            "imagePullSecrets": [{"name": PLANTED}],
            "hostAliases": [{"ip": "127.0.0.1", "hostnames": [f"{PLANTED}.example"]}],
            "volumes": [
                {"name": f"{PLANTED}-volume", "secret": {"secretName": PLANTED}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "cart"}},
            ],
            "tolerations": [{"operator": "Exists"}],
        },
    }


def fill(plane: ControlPlane) -> None:
    """A node of a pool with a protected pod, a budget, workloads, and the Lease of a controller."""
    # With a renewal to come, it counts as renewed however long the tests take.
    held = {"holderIdentity": "dovetail-1_2", "renewTime": "2099-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15}
    plane.create(LEASES, {"metadata": {"name": names.LEADER_ELECTION_LEASE}, "spec": held})
    plane.create(CLASSES, node_class())
    plane.create(
        POOLS,
        node_pool(
            template={"expireAfter": "720h", "terminationGracePeriod": "1h"},
            disruption={"consolidateAfter": "1m", "budgets": [{"nodes": "1", "reasons": ["Drifted"]}, {"nodes": "2"}]},
        ),
    )
    plane.create(CLAIMS, node_claim("c1", expireAfter="720h", terminationGracePeriod="1h"))
    status = {
        "providerID": "kwok://n1",
        "nodeName": "n1",
        "imageID": PLANTED,
        "conditions": [condition(each) for each in ("Launched", "Registered", "Initialized", "Drifted")],
    }
    plane.patch(f"{CLAIMS}/c1/status", {"status": status})
    labels = {names.NODEPOOL_LABEL: "default", names.INITIALIZED_LABEL: "true", names.REGISTERED_LABEL: "true"}
    plane.create(
        "/api/v1/nodes",
        {
            "metadata": {"name": "n1", "labels": labels, "annotations": {names.KWOK_NODE: "fake"}},
            "spec": {"providerID": "kwok://n1"},
        },
    )
    plane.create(f"{SHOP}/secrets", {"metadata": {"name": "s"}, "stringData": {"password": PLANTED}})
    plane.create(f"{SHOP}/configmaps", {"metadata": {"name": "c"}, "data": {"key": PLANTED}})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "x"}
    plane.create(f"{SHOP}/persistentvolumeclaims", {"metadata": {"name": "cart"}, "spec": claim})
    plane.create(
        "/apis/policy/v1/namespaces/shop/poddisruptionbudgets",
        {
            "metadata": {"name": "cart"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "cart"}}},
        },
    )
    plane.create(f"{SHOP}/pods", secretive_pod())
    template = {"metadata": {"labels": {"app": "d"}}, "spec": secretive_pod()["spec"]}
    del template["spec"]["nodeName"], template["spec"]["volumes"][1]  # its claim cannot be bound
    plane.create(
        "/apis/apps/v1/namespaces/shop/daemonsets",
        {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": template}},
    )
    plane.wait(f"{SHOP}/pods", lambda found: sum(is_settled(pod) for pod in found["items"]) == 2, seconds=60)
    plane.wait(
        "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/cart",
        lambda found: found.get("status", {}).get("currentHealthy") == 1,
    )


def is_settled(pod: dict[str, Any]) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Running")


def let_read(plane: ControlPlane) -> None:
    """A ServiceAccount that may read what the documentation says is enough."""
    role = yaml.safe_load(re.findall(r"```yaml\n(# dovetail-read.yaml\n.*?)```", PAGE.read_text(), re.DOTALL)[0])
    plane.create(f"{RBAC}/clusterroles", role)
    plane.create(f"{SHOP}/serviceaccounts", {"metadata": {"name": READER}})
    plane.create(
        f"{RBAC}/clusterrolebindings",
        {
            "metadata": {"name": "dovetail-read"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dovetail-read"},
            "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": "shop"}],
        },
    )
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = plane.create(f"{SHOP}/serviceaccounts/{READER}/token", body)["status"]["token"]
    plane.kubeconfig_of(READER).write_text(kubeconfig_text(plane.url, plane.ca_file, token))
    eventually(
        lambda: plane.request("GET", "/api/v1/nodes", token=token).status == 200, seconds=20, what=lambda: "not yet"
    )
    refused = plane.request("POST", f"{SHOP}/pods", secretive_pod(), token=token)
    assert refused.status == 403, "the role is for reading only"


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    with ControlPlane(tmp_path_factory.mktemp("live") / "plane", audit="Metadata") as plane:
        plane.create("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        plane.wait(f"{SHOP}/serviceaccounts/default", lambda _: True)
        alone = {
            "metadata": {"name": "alone", "annotations": {names.DO_NOT_DISRUPT: "true"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        plane.create("/api/v1/nodes", {"metadata": {"name": "foreign"}})
        plane.create(f"{SHOP}/pods", alone)
        bare = dovetail(plane, "explain", "-o", "json", "--at", AT)
        plane.delete(f"{SHOP}/pods/alone", gracePeriodSeconds=0)
        plane.delete("/api/v1/nodes/foreign")
        plane.install_crds()
        fill(plane)
        let_read(plane)
        yield Setting(plane, bare)


# -- the tests ---------------------------------------------------------------------------------------------------------


def test_a_cluster_without_nodepools_is_told_what_protects_its_pods(setting: Setting) -> None:
    assert (setting.bare.code, setting.bare.err) == (0, "")
    answer = json.loads(setting.bare.out)
    assert [(pod["name"], pod["allowed"]) for pod in answer["pods"]] == [("alone", False)]
    assert [problem["rule"] for problem in answer["problems"]] == ["NoNodePools"]


@pytest.mark.parametrize("command", ["explain", "forecast", "plan"])
def test_reading_rights_are_enough_and_a_dump_tells_the_same(setting: Setting, tmp_path: Path, command: str) -> None:
    plane, file = setting.plane, str(tmp_path / "dump.json.gz")
    live = told(plane, command, user=READER)
    assert [node["name"] for node in json.loads(live)["nodes"]] == ["n1"]
    assert told(plane, command) == live
    assert dovetail(plane, "record", "-q", "-o", file, user=READER) == (0, "", "")
    assert told(plane, command, "-f", file) == live


def test_a_live_cluster_is_played_like_its_dump(setting: Setting, tmp_path: Path) -> None:
    """And with events of a Scenario beside it."""
    plane, file = setting.plane, str(tmp_path / "dump.json.gz")
    live = told(plane, "simulate", "--from-cluster", "--for", "2h", user=READER)
    report = json.loads(live)
    assert (report["start"], report["end"]) == (AT, "2026-03-06T18:20:00Z")
    assert (report["nodes"]["atStart"], report["violations"]) == (1, [])
    assert {problem["severity"] for problem in report["problems"]} <= {"info", "warning"}
    assert dovetail(plane, "record", "-q", "-o", file, user=READER) == (0, "", "")
    assert told(plane, "simulate", "--for", "2h", "-f", file) == live
    event = {"at": "5s", "delete": "Pod/shop/cart-0"}
    scenario = {"apiVersion": "dovetail.dev/v1alpha1", "kind": "Scenario", "for": "2h", "events": [event]}
    (tmp_path / "event.json").write_text(json.dumps(scenario))
    changed = told(plane, "simulate", "--from-cluster", str(tmp_path / "event.json"), user=READER)
    happened = [(each["at"], each["object"]) for each in json.loads(changed)["timeline"] if each["type"] == "scenario"]
    assert happened == [("2026-03-06T16:20:05Z", "Pod/shop/cart-0")]  # before its node drains, which has drifted


def test_nothing_is_asked_for_but_lists(setting: Setting) -> None:
    """Whatever has been asked in this module before, and now."""
    plane = setting.plane
    answer = json.loads(explained(plane, user=READER))
    assert [pod["allowed"] for pod in answer["pods"] if pod["name"] == "cart-0"] == [False]
    assert answer["problems"] == []
    requests = [json.loads(line) for line in (plane.folder / "audit.log").read_text().splitlines()]
    ours = [each for each in requests if each.get("userAgent", "").startswith(f"{names.COMPONENT}/")]
    assert {each["verb"] for each in ours} == {"list"}


@pytest.mark.parametrize("name", ["dump.json", "dump.yaml", "dump.json.gz"])
def test_a_recorded_dump_tells_no_secrets(setting: Setting, tmp_path: Path, name: str) -> None:
    plane, file = setting.plane, tmp_path / name
    said = dovetail(plane, "record", "-o", str(file))
    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("recorded ")
    assert [each.name for each in tmp_path.iterdir()] == [name]
    text = (gzip.decompress if name.endswith(".gz") else bytes)(file.read_bytes()).decode()
    assert PLANTED not in text
    assert "managedFields" not in text
    kinds = {each["kind"] for each in yaml.safe_load(text)["items"]}
    assert kinds >= {"NodePool", "NodeClaim", "Node", "Pod", "PodDisruptionBudget", "DaemonSet", "KWOKNodeClass"}
    assert not kinds & {"Secret", "ConfigMap"}


def test_a_dump_of_kubectl_is_explained_like_the_cluster(setting: Setting, tmp_path: Path) -> None:
    """As kubectl prints it: everything in one List, in the order asked for. And cleaning it loses nothing."""
    plane, items = setting.plane, []
    kinds = (
        (POOLS, names.API_VERSION, "NodePool"),
        (CLAIMS, names.API_VERSION, "NodeClaim"),
        ("/api/v1/nodes", "v1", "Node"),
        ("/apis/policy/v1/poddisruptionbudgets", "policy/v1", "PodDisruptionBudget"),
        ("/api/v1/pods", "v1", "Pod"),
    )
    for path, version, kind in kinds:
        items += [{"apiVersion": version, "kind": kind, **each} for each in plane.get(path)["items"]]
    dump, clean = tmp_path / "kubectl.json", tmp_path / "clean.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {}}, indent=4))
    assert PLANTED in dump.read_text()
    assert explained(plane, "-f", str(dump)) == explained(plane)
    assert dovetail(plane, "record", "-q", "-f", str(dump), "-o", str(clean)) == (0, "", "")
    assert PLANTED not in clean.read_text()
    assert explained(plane, "-f", str(clean)) == explained(plane)


def test_what_may_not_be_read_is_said_with_the_right_that_is_missing(setting: Setting) -> None:
    plane, role = setting.plane, f"{RBAC}/clusterroles/dovetail-read"
    rules = plane.get(role)["rules"]
    without = [rule for rule in rules if rule["apiGroups"] != ["policy"]]
    plane.patch(role, {"rules": without})
    token = json.loads(plane.kubeconfig_of(READER).read_text())["users"][0]["user"]["token"]
    path = "/apis/policy/v1/poddisruptionbudgets"
    try:
        eventually(lambda: plane.request("GET", path, token=token).status == 403, seconds=20, what=lambda: "allowed")
        answer = json.loads(explained(plane, user=READER))
        (problem,) = answer["problems"]
        assert (problem["severity"], problem["rule"], problem["object"]) == (
            "error",
            "NotPermitted",
            "PodDisruptionBudget",
        )
        assert "poddisruptionbudgets" in problem["message"]
        assert '{apiGroups: ["policy"], resources: ["poddisruptionbudgets"], verbs: ["get", "list"' in problem["remedy"]
        assert [node["name"] for node in answer["nodes"]] == ["n1"]
        named = dovetail(plane, "explain", "pod/shop/cart-0", user=READER)
        assert named.code == 1
        assert "poddisruptionbudgets could not be read" in named.out
    finally:
        plane.patch(role, {"rules": rules})
        eventually(lambda: plane.request("GET", path, token=token).status == 200, seconds=20, what=lambda: "refused")


def test_a_controller_that_has_stopped_is_told_to_those_who_may_read_its_lease(setting: Setting) -> None:
    plane, lease = setting.plane, f"{LEASES}/{names.LEADER_ELECTION_LEASE}"
    role, spec = f"{RBAC}/clusterroles/dovetail-read", plane.get(lease)["spec"]
    rules = plane.get(role)["rules"]
    plane.patch(lease, {"spec": {"holderIdentity": None, "renewTime": "2026-03-06T16:00:00.000000Z"}})
    said = (
        f"no controller has held the Lease kube-system/{names.LEADER_ELECTION_LEASE} since 2026-03-06T16:00:00Z; "
        "nothing is decided until one runs"
    )
    try:
        for command in ("explain", "forecast", "plan", "top"):
            answer = json.loads(told(plane, command, user=READER))
            assert (answer["problems"][0]["rule"], answer["problems"][0]["message"]) == ("NoController", said)
            lines = dovetail(plane, command, "--at", AT, user=READER).out.splitlines()
            assert [line for line in lines if "the Lease" in line] == ["N" + said[1:]]
            assert "  → see why it does not run: kubectl -n kube-system get deployments,pods" in lines
        assert "N" + said[1:] in dovetail(plane, "roll", "nodeclaim/c1", "--dry-run", user=READER).out.splitlines()
        plane.patch(role, {"rules": [rule for rule in rules if rule["apiGroups"] != ["coordination.k8s.io"]]})
        eventually(lambda: not json.loads(explained(plane, user=READER))["problems"], seconds=20, what=lambda: "told")
    finally:
        plane.patch(role, {"rules": rules})
        plane.patch(lease, {"spec": spec})


def test_somebody_with_no_rights_and_somebody_unknown_are_told_in_one_line(setting: Setting) -> None:
    plane = setting.plane
    nobody = dovetail(plane, "explain", user="somebody")
    assert (nobody.code, nobody.out, nobody.err.count("\n")) == (3, "", 1)
    assert "may not read anything in the cluster: nodepools" in nobody.err
    assert "explain -n NAMESPACE" in nobody.err
    assert dovetail(plane, "simulate", "--from-cluster", user="somebody") == nobody
    plane.kubeconfig_of("stranger").write_text(kubeconfig_text(plane.url, plane.ca_file, "wrong"))
    stranger = dovetail(plane, "record", user="stranger")
    assert (stranger.code, stranger.out, stranger.err.count("\n")) == (3, "", 1)
    assert "refuses these credentials" in stranger.err


def test_rights_in_one_namespace_show_its_pods(setting: Setting) -> None:
    plane = setting.plane
    plane.create(
        f"{RBAC}/namespaces/shop/rolebindings",
        {
            "metadata": {"name": "somebody"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "somebody"}],
        },
    )
    token = plane.token_of("somebody")
    try:
        eventually(
            lambda: plane.request("GET", f"{SHOP}/pods", token=token).status == 200, seconds=20, what=lambda: "refused"
        )
        answer = json.loads(explained(plane, "-n", "shop", user="somebody"))
        assert "cart-0" in {pod["name"] for pod in answer["pods"]}
        (problem,) = (problem for problem in answer["problems"] if problem["rule"] == "NotPermitted")
        assert "may read only namespace shop, and not nodepools, nodeclaims, nodes" in problem["message"]
        assert dovetail(plane, "run", user="somebody").err.startswith("dovetail: this user lacks a right: ")
        assert dovetail(plane, "cleanup", user="somebody").err.startswith("dovetail: this user lacks a right: ")
    finally:
        plane.delete(f"{RBAC}/namespaces/shop/rolebindings/somebody")
        eventually(
            lambda: plane.request("GET", f"{SHOP}/pods", token=token).status == 403, seconds=20, what=lambda: "allowed"
        )


def test_top_shows_the_cluster_once_and_as_it_changes(setting: Setting) -> None:
    """The last of this module, for it watches."""
    plane = setting.plane
    once = dovetail(plane, "top", "--once", user=READER)
    assert (once.code, once.err) == (0, "")
    assert "n1" in once.out
    labels = {names.NODEPOOL_LABEL: "default", names.REGISTERED_LABEL: "true"}
    with terminal(*TOP, "--kubeconfig", str(plane.kubeconfig_of(READER))) as screen:
        screen.until("n1")
        assert "comes-later" not in screen.seen
        plane.create("/api/v1/nodes", {"metadata": {"name": "comes-later", "labels": labels}})
        try:
            screen.until("comes-later")
        finally:
            plane.delete("/api/v1/nodes/comes-later")
        screen.type("q")
        assert screen.end() == 0
        assert screen.seen.rindex(GIVEN_BACK) > screen.seen.rindex(WHOLE_SCREEN)
        assert screen.attributes == screen.before
        assert "Traceback" not in screen.seen
