"""Does `dovetail cleanup` leave a real cluster as if the controller had never been there?"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from dovetail.api import names
from tests.cluster.access import condition
from tests.cluster.plane import ControlPlane
from tests.cluster.run_process import KEPT, RunProcess
from tests.harness import manifests
from tests.harness.claims import node_claim, node_class, node_pool

GROUP: Final = f"/apis/{names.GROUP}/{names.VERSION}"
POOL: Final = f"{GROUP}/{names.NODEPOOL_PLURAL}/default"
CLAIMS: Final = f"{GROUP}/{names.NODECLAIM_PLURAL}"
CLASSES: Final = f"/apis/{names.KWOK_GROUP}/{names.KWOK_VERSION}/{names.KWOK_NODECLASS_PLURAL}"
NODES: Final = "/api/v1/nodes"
DRIFTED: Final = ("a", "b")
# What every write changes, and what kwok goes on writing.
VOLATILE: Final = {"resourceVersion", "managedFields", "generation", "lastHeartbeatTime"}


def of_type(type_: str) -> dict[str, Any]:
    return {"requirements": [{"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": [type_]}]}


def cleanup(plane: ControlPlane, *arguments: str) -> tuple[int, str]:
    """Exit code, and all that was printed but for progress, which depends on the speed of the machine."""
    done = subprocess.run(
        [Path(sys.executable).with_name("dovetail"), "cleanup", "--kubeconfig", plane.kubeconfig, *arguments],
        env={key: os.environ[key] for key in KEPT if key in os.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, "".join(line for line in done.stdout.splitlines(keepends=True) if not line.endswith(" …\n"))


def steady(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: steady(value) for key, value in part.items() if key not in VOLATILE}
    return [steady(each) for each in part] if isinstance(part, list) else part


def node_of(plane: ControlPlane, claim: str) -> str:
    return str(plane.get(f"{CLAIMS}/{claim}")["status"]["nodeName"])


def picture(plane: ControlPlane) -> dict[str, Any]:
    claims = [f"{CLAIMS}/{claim}" for claim in DRIFTED]
    nodes = [f"{NODES}/{node_of(plane, claim)}" for claim in DRIFTED]
    return {path: steady(plane.get(path)) for path in (*claims, *nodes, POOL)}


def taints(plane: ControlPlane, claim: str) -> set[str]:
    return {taint["key"] for taint in plane.get(f"{NODES}/{node_of(plane, claim)}")["spec"].get("taints", [])}


def hold_back(plane: ControlPlane, value: str | None) -> None:
    for claim in DRIFTED:
        plane.patch(f"{NODES}/{node_of(plane, claim)}", {"metadata": {"annotations": {names.DO_NOT_DISRUPT: value}}})


def prepare(plane: ControlPlane) -> None:
    """Two nodes with a pod each that have drifted, and may not go yet; new nodes will not register for an hour."""
    plane.install_crds()
    plane.create(CLASSES, node_class())
    plane.create(
        POOL.removesuffix("/default"),
        node_pool(
            template=of_type("s-4x-amd64-linux"),
            disruption={"consolidateAfter": "Never", "budgets": [{"nodes": "1"}]},
        ),
    )
    plane.wait("/api/v1/namespaces/default/serviceaccounts/default", lambda _: True)
    with RunProcess(plane) as replica:
        for name in DRIFTED:
            plane.create(CLAIMS, node_claim(name, **of_type("s-4x-amd64-linux")))
        for name in DRIFTED:
            plane.wait(f"{CLAIMS}/{name}", lambda found: condition(found, "Initialized") == "True", seconds=60)
            pod = manifests.pod(f"on-{name}", cpu="3")
            pod["spec"]["nodeName"] = node_of(plane, name)
            plane.create("/api/v1/namespaces/default/pods", pod)
        hold_back(plane, "true")
        plane.patch(f"{CLASSES}/default", {"spec": {"nodeRegistrationDelay": "1h"}})
        plane.patch(POOL, {"spec": {"template": {"spec": of_type("s-8x-amd64-linux")}}})
        for name in DRIFTED:
            plane.wait(f"{CLAIMS}/{name}", lambda found: condition(found, "Drifted") == "True", seconds=60)
            plane.wait(f"/api/v1/namespaces/default/pods/on-{name}", lambda found: condition(found, "Ready") == "True")
        plane.wait(POOL, lambda found: condition(found, "Ready") == "True")
        replica.process.send_signal(signal.SIGTERM)
        assert replica.ended() == 0
    hold_back(plane, None)


def test_candidates_and_a_command_leave_no_trace(private_plane: ControlPlane) -> None:
    plane = private_plane
    prepare(plane)
    assert cleanup(plane)[0] == 0
    before = picture(plane)
    with RunProcess(plane) as replica:

        def in_a_command() -> list[str]:
            found = {name: plane.get(f"{CLAIMS}/{name}") for name in DRIFTED}
            return [name for name in DRIFTED if condition(found[name], "DisruptionReason") == "True"]

        def is_under_way() -> bool:
            marks = set().union(*(taints(plane, name) for name in DRIFTED))
            shown = plane.get(POOL)["status"].get("disruptions")
            return bool(in_a_command() and shown) and {names.CANDIDATE_TAINT, names.DISRUPTED_TAINT} <= marks

        replica.wait_for(is_under_way, seconds=90)
        (taken,) = in_a_command()
        code, said = cleanup(plane)
        assert (code, said.count("\n")) == (1, 1)
        assert f"a controller is running (Lease held: kube-system/{names.LEADER_ELECTION_LEASE} by " in said
        assert "would be cleaned" in cleanup(plane, "--dry-run")[1]
        assert names.DISRUPTED_TAINT in taints(plane, taken), "neither has changed anything"
    code, said = cleanup(plane, "-o", "json")  # it was killed, and its Lease runs out
    report = json.loads(said)
    assert (code, report["dryRun"]) == (0, False)
    changes = {each["object"]: set(each["changes"]) for each in report["objects"]}
    assert f"taint {names.DISRUPTED_TAINT}:NoSchedule" in changes[f"Node/{node_of(plane, taken)}"]
    assert {"condition DisruptionReason", f"annotation {names.DISRUPTION_COMMAND}"} <= changes[f"NodeClaim/{taken}"]
    assert any(f"annotation {names.REPLACEMENT_OF}" in each for each in changes.values())
    after = picture(plane)
    pools = [each[POOL]["status"] for each in (before, after)]
    for key in ("nodes", "resources"):  # the replacement stays
        assert [key in pool and pool.pop(key) is not None for pool in pools] == [True, True]
    assert after == before
    assert cleanup(plane) == (0, "nothing to clean up\n")
    assert cleanup(plane, "-q") == (0, "")
