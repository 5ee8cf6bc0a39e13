"""Somebody edits the labels that say how far a Node has come, while the controllers run."""

import pytest

from dovetail.api import names
from dovetail.ports import NODECLAIMS, NODES, Patch
from tests.harness import manifests
from tests.harness.disruption import drift, node_of, play, pool, scale, stand
from tests.harness.provisioning import Setting
from tests.harness.stage import stage
from tests.sim.simulate.test_playing import dump, play_dump

pytestmark = stage(play)

LABELS = [names.REGISTERED_LABEL, names.INITIALIZED_LABEL, names.NODEPOOL_LABEL, names.INSTANCE_TYPE_LABEL]
# The last value is None: the label is removed.
VALUES = ["x", "false", None]


async def label(setting: Setting, node: str, key: str, value: str | None) -> None:
    await setting.sim.api.write(Patch(NODES, node, {"metadata": {"labels": {key: value}}}))


@pytest.mark.parametrize("value", VALUES)
async def test_an_underutilized_node_without_its_registered_label_is_still_consolidated(
    setting: Setting, value: str | None
) -> None:
    claims = await stand(setting, pool(), replicas=2, cpu="2500m")
    await setting.sim.apply(manifests.deployment("small", replicas=2, cpu="500m"))
    await setting.runs_all("small", 2)
    for claim in claims:
        await label(setting, node_of(setting, claim), names.REGISTERED_LABEL, value)
    await scale(setting, 1)
    await setting.sim.wait_until(lambda: len(setting.claims()) == 1, timeout="10m")


@pytest.mark.parametrize("value", VALUES)
async def test_a_drifted_node_without_its_registered_label_is_still_replaced(
    setting: Setting, value: str | None
) -> None:
    (claim,) = await stand(setting, pool())
    await label(setting, node_of(setting, claim), names.REGISTERED_LABEL, value)
    await drift(setting, claim)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, claim), timeout="10m")
    await setting.runs_all("web", 1)


@pytest.mark.parametrize("key", LABELS)
@stage(except_for=("explained",))
async def test_a_drifted_node_and_its_neighbour_survive_the_removal_of_a_label(setting: Setting, key: str) -> None:
    """The edited node may stay or go. The other drifted node goes."""
    edited, other = await stand(setting, pool(), replicas=2)
    await label(setting, node_of(setting, edited), key, None)
    await drift(setting, edited, other)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, other), timeout="10m")
    await setting.runs_all("web", 2)


@pytest.mark.parametrize("value", ["x", None])
def test_a_dump_with_a_node_without_its_registered_label_is_played(value: str | None) -> None:
    pool_, claim, node, pod = dump()
    pool_["spec"]["disruption"] = {"consolidateAfter": "1m"}
    labels = {**node["metadata"]["labels"], names.REGISTERED_LABEL: value}
    node["metadata"]["labels"] = {key: each for key, each in labels.items() if each is not None}
    report = play_dump([pool_, claim, node, pod], span="2h")
    assert (report.nodes.at_start, report.nodes.at_end, report.pods.pending) == (1, 1, 0)
    assert not report.violations
