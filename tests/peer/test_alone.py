"""What concerns a whole cluster, beside a Karpenter of its own: its end and return, and the clean-up after guard."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.ports import Create, Delete
from tests.cluster.plane import PATIENT, ControlPlane
from tests.cluster.run_process import RunProcess
from tests.contract.bodies import NODECLAIMS, NODEPOOLS, NODES, PODS, POLICIES, POLICY_BINDINGS
from tests.harness.beside import STAMP, BesideKarpenter, RealBeside
from tests.peer.process import PeerProcess, load_crds
from tests.peer.test_guard import NEVER, annotations_of, until_held

# What nobody may find changed after the clean-up, of each kind.
COMPARED = ("annotations", "labels", "finalizers", "ownerReferences")


class LoneKarpenter(BesideKarpenter):
    """A cluster with a Karpenter that a test may end."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(RealBeside(plane))
        self.plane = plane
        self._karpenter = PeerProcess(plane, leads=True)

    async def kill(self) -> None:
        await asyncio.to_thread(self.end)

    def end(self) -> None:
        self._karpenter.__exit__(None, None, None)

    async def restart(self) -> None:
        self._karpenter = PeerProcess(self.plane, leads=True)
        await asyncio.to_thread(self._karpenter.wait_ready)

    async def everything(self) -> dict[str, Any]:
        """All objects that guard writes to, without what changes by itself."""
        found = {}
        for kind in (NODES, NODECLAIMS, NODEPOOLS, PODS):
            for each in (await self.cluster.api.list(kind)).items:
                meta = {key: each["metadata"].get(key) for key in COMPARED}
                found[f"{kind.kind}/{each['metadata']['name']}"] = {**meta, "spec": each["spec"]}
        return found


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[LoneKarpenter]:
    with ControlPlane(tmp_path / "plane", flags=PATIENT) as plane:
        plane.install_crds(load_crds())
        lone = LoneKarpenter(plane)
        yield lone
        lone.end()


async def test_a_restarted_karpenter_has_forgotten_its_commands(alone: LoneKarpenter) -> None:
    """It removes their marks, and asks anew who may go."""
    pool = await alone.pool(boots="20s")
    await alone.run(pool)
    (claim,) = await alone.claims(pool)
    await alone.stamp(claim)
    await alone.until(claim, ConditionType.DISRUPTION_REASON, timeout=60)
    await alone.kill()
    await alone.annotate_node(claim, "true")
    await alone.restart()
    await alone.until(claim, ConditionType.DISRUPTION_REASON, timeout=60, status="")
    await alone.until_untainted(claim, names.DISRUPTED_TAINT, timeout=15)
    await alone.untouched(claim, seconds=20)


async def test_a_policy_that_refuses_evictions_holds_only_the_drain(alone: LoneKarpenter) -> None:
    """E5, and why guard uses none: the replacement comes all the same, and waits beside the old node."""
    pool = await alone.pool()
    app = await alone.run(pool)
    (old,) = await alone.claims(pool)
    (pod,) = await alone.pods(app)
    rules = [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]},
    ]
    named = {"metadata": {"name": "no-evictions.example.com"}}
    policy = {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "false"}]}
    binding = {"policyName": named["metadata"]["name"], "validationActions": ["Deny"]}
    await alone.cluster.api.write(Create(POLICIES, named | {"spec": policy}))
    await alone.cluster.api.write(Create(POLICY_BINDINGS, named | {"spec": binding}))
    await alone.cluster.settle(10)  # until it is in force
    await alone.stamp(old)
    await alone.until_going(old, timeout=90)
    await alone.cluster.settle(15)
    assert not await alone.pod_goes(pod)
    assert len(await alone.claims(pool)) == 2
    await alone.cluster.api.write(Delete(POLICY_BINDINGS, named["metadata"]["name"]))
    await alone.until_pod_goes(pod, timeout=60)
    await alone.until_gone(old, timeout=60)


async def test_the_clean_up_leaves_objects_as_they_were(alone: LoneKarpenter) -> None:
    pool = await alone.pool(guarded=True)
    await alone.run(pool, 2, annotations=NEVER)
    first, second = await alone.claims(pool)
    await alone.annotate_node(first, "true")
    before = await alone.everything()
    with RunProcess(alone.plane, mode="guard") as guard:
        await asyncio.to_thread(guard.wait_leading)
        await until_held(alone, second, timeout=15)
        assert await alone.everything() != before
    done = await asyncio.to_thread(clean_up, alone.plane)
    assert done.returncode == 0, done.stdout + done.stderr
    assert await annotations_of(alone, second) == {}
    assert await alone.everything() == before


async def test_guard_goes_on_while_karpenter_is_away(alone: LoneKarpenter) -> None:
    """What it holds is still held when Karpenter is back."""
    pool = await alone.pool(guarded=True)
    with RunProcess(alone.plane, mode="guard") as guard:
        await asyncio.to_thread(guard.wait_leading)
        await alone.run(pool, annotations=NEVER)
        (claim,) = await alone.claims(pool)
        await until_held(alone, claim)
        await alone.kill()
        await alone.stamp(claim, STAMP)
        await alone.restart()
        await alone.until(claim, ConditionType.DRIFTED, timeout=60)
        await alone.untouched(claim, seconds=20)
        assert (await annotations_of(alone, claim))[names.DO_NOT_DISRUPT] == "true"


def clean_up(plane: ControlPlane) -> subprocess.CompletedProcess[str]:
    """`dovetail cleanup`, when the Lease of the guard that was killed has run out."""
    program = Path(sys.executable).with_name("dovetail")
    command = [str(program), "cleanup", "--force", f"--kubeconfig={plane.kubeconfig}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)
