"""A Node that is made again under its name, without our labels and finalizer, is drained like any other."""

from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.ports import NODECLAIMS, NODES, PDBS, Delete, Patch
from tests.harness import manifests
from tests.harness.stage import stage
from tests.harness.termination import Setting, is_deleting, play

pytestmark = stage(play)

DISRUPTED = (names.DISRUPTED_TAINT, "NoSchedule")
RAW_NODES = NODES.read_as(dict[str, Any])


async def return_node(setting: Setting, name: str, **spec: Any) -> None:
    """Remove the Node past its finalizer, and make it again as a kubelet does that has restarted."""
    body: dict[str, Any] = {"metadata": {"finalizers": None}}
    await setting.sim.api.write(Patch(RAW_NODES, name, body))
    if setting.node(name) is not None:
        await setting.delete_node(name)
    assert setting.gone(NODES, name)
    made = manifests.node(name)
    await setting.sim.apply({**made, "spec": {"providerID": f"kwok://{name}", **spec}})


@pytest.mark.parametrize("deleted_first", [False, True], ids=["then deleted", "while it is being drained"])
async def test_a_node_that_comes_back_is_drained_before_it_goes(setting: Setting, deleted_first: bool) -> None:
    node = await setting.launch(pods=[manifests.pod("web")])
    await setting.sim.apply(manifests.pdb("web", maxUnavailable=0))
    if deleted_first:
        await setting.delete_claim()
        await setting.sim.run_for("10s")
    await return_node(setting, node)
    if not deleted_first:
        await setting.delete_claim()
    await setting.sim.run_for("10m")
    assert is_deleting(setting.claim())
    assert is_deleting(setting.node(node))
    assert DISRUPTED in setting.taints(node)
    assert setting.runs("web")
    await setting.sim.api.write(Delete(PDBS, "web", namespace="default"))
    await setting.sim.wait_until(lambda: setting.gone(NODES, node) and setting.gone(NODECLAIMS, "c1"))
    assert [event["regarding"]["name"] for event in setting.events(EventReason.EVICTED)] == ["web"]


async def test_a_node_whose_finalizer_somebody_removed_is_drained_before_it_goes(setting: Setting) -> None:
    node = await setting.launch(pods=[manifests.pod("web")])
    body: dict[str, Any] = {"metadata": {"finalizers": None}}
    await setting.sim.api.write(Patch(RAW_NODES, node, body))
    await setting.delete_claim()
    await setting.sim.wait_until(lambda: setting.gone(NODES, node) and setting.gone(NODECLAIMS, "c1"))
    assert [event["regarding"]["name"] for event in setting.events(EventReason.EVICTED)] == ["web"]


async def test_a_node_that_comes_back_without_provider_id_is_nobodys(setting: Setting) -> None:
    """It may be another machine of that name: the claim ends, and the Node is left alone."""
    node = await setting.launch(pods=[manifests.pod("web")])
    await return_node(setting, node, providerID="")
    await setting.delete_claim()
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "c1"))
    await setting.sim.run_for("10m")
    assert not is_deleting(setting.node(node))
    assert DISRUPTED not in setting.taints(node)
    assert setting.runs("web")
