"""What cannot be read or met is told on the pod, with the reason; everybody else is served (R32)."""

from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.model.instance_types import InstanceType, TypeCatalogue
from dovetail.ports import CloudError
from tests.harness import manifests
from tests.harness.claims import Manifest, node_pool
from tests.harness.provisioning import Setting, play, pool_of_four
from tests.harness.stage import stage

pytestmark = stage(play)

FAILED = EventReason.FAILED_SCHEDULING
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def nodes_like(*expressions: Manifest, **term: Any) -> Manifest:
    terms = [{"matchExpressions": list(expressions), **term}]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def with_pods(kind: str, app: str, key: str = names.HOSTNAME_LABEL) -> Manifest:
    return {kind: {REQUIRED: [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]}}


BAD: dict[str, tuple[Manifest, str]] = {
    "less than nothing": ({"cpu": "-1"}, "'-1' is negative"),
    "more than can be counted": ({"memory": "99999999999999999999999E"}, "more than any machine has"),
    "more than all machines": ({"cpu": "100000"}, "NodePool default: none of its instance types will do (1 too small)"),
    "an operator nobody knows": (
        {"affinity": nodes_like({"key": "x", "operator": "Like", "values": ["a"]})},
        "'Like' is no operator",
    ),
    "In without values": ({"affinity": nodes_like({"key": "x", "operator": "In"})}, "'x'"),
    "Gt without a number": (
        {"affinity": nodes_like({"key": "x", "operator": "Gt", "values": ["many"]})},
        "'x'",
    ),
    "a restricted label": ({"nodeSelector": {"karpenter.sh/registered": "true"}}, "may not be asked for"),
    "a host by its name": ({"nodeSelector": {names.HOSTNAME_LABEL: "n1"}}, "may not be asked for"),
    "fields of nodes": (
        {
            "affinity": nodes_like(
                matchFields=[{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
            )
        },
        "matchFields",
    ),
    "a label nobody has": ({"nodeSelector": {"team": "nobody"}}, "does not have known values"),
    "a mistyped label": (
        {"nodeSelector": {"kubernetes.io/zone": "test-zone-a"}},
        "is 'topology.kubernetes.io/zone' meant?",
    ),
    "a zone nobody has": ({"nodeSelector": {names.ZONE_LABEL: "moon"}}, "NodePool default: "),
    "with pods that nobody runs": ({"affinity": with_pods("podAffinity", "nobody")}, "affinity over"),
    "a claim that does not exist": (
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]},
        "claim none does not exist",
    ),
    "resource claims": ({"resourceClaims": [{"name": "gpu"}]}, "resource claims"),
}


@pytest.mark.parametrize("case", BAD)
async def test_one_bad_pod_is_told_why_and_another_is_served(setting: Setting, case: str) -> None:
    spec, why = BAD[case]
    await setting.begin()
    await setting.sim.apply(manifests.pod("bad", **spec), manifests.pod("good"))
    await setting.sim.wait_until(lambda: setting.runs("good"))
    feature = {"feature": "resource-claims"}
    unsupported = setting.metrics.registry.get_sample_value("dovetail_unsupported_pods", feature)
    assert bool(unsupported) == (case == "resource claims")
    (note,) = setting.notes(FAILED, "bad")
    assert note.startswith("Failed to schedule pod, ")
    assert why in note
    assert len(setting.claims()) == 1
    await setting.sim.run_for("10m")
    assert len(setting.claims()) == 1


async def test_a_pod_that_wants_no_managed_node_is_left_alone(setting: Setting) -> None:
    """06 §2.1."""
    await setting.begin()
    own = nodes_like({"key": names.NODEPOOL_LABEL, "operator": "DoesNotExist"})
    await setting.sim.apply(manifests.pod("own", affinity=own))
    await setting.sim.run_for("5m")
    assert not setting.claims()
    assert not setting.notes(FAILED, "own")


async def test_pods_that_each_want_to_be_with_the_other(setting: Setting) -> None:
    """Neither runs, so neither can be first; others do not wait for them."""
    await setting.begin()
    await setting.sim.apply(
        manifests.pod("hen", affinity=with_pods("podAffinity", "egg")),
        manifests.pod("egg", affinity=with_pods("podAffinity", "hen")),
        manifests.pod("good"),
    )
    await setting.sim.wait_until(lambda: setting.runs("good"))
    assert "affinity over kubernetes.io/hostname" in setting.notes(FAILED, "hen")[0]
    assert "affinity over kubernetes.io/hostname" in setting.notes(FAILED, "egg")[0]


async def test_a_pod_that_is_against_itself_and_for_itself(setting: Setting) -> None:
    await setting.begin()
    torn = {**with_pods("podAffinity", "good"), **with_pods("podAntiAffinity", "good")}
    await setting.sim.apply(manifests.pod("torn", affinity=torn), manifests.pod("good"))
    await setting.sim.wait_until(lambda: setting.runs("good"))
    await setting.sim.run_for("1m")
    assert setting.notes(FAILED, "torn")
    assert len(setting.claims()) == 1


async def test_a_pool_without_types_is_told_and_another_is_used(setting: Setting) -> None:
    strange = {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["imaginary"]}
    await setting.begin(node_pool("strange", weight=9, template={"requirements": [strange]}), pool_of_four("plain"))
    await setting.sim.apply(manifests.pod("a"), manifests.pod("big", cpu="300"))
    await setting.sim.wait_until(lambda: setting.runs("a"))
    assert (len(setting.claims("strange")), len(setting.claims("plain"))) == (0, 1)
    text = "NodePool requirements filtered out all compatible available instance types"
    assert setting.notes(EventReason.NO_COMPATIBLE_INSTANCE_TYPES, "strange") == [text]
    (note,) = setting.notes(FAILED, "big")
    assert "NodePool strange: no instance type meets its requirements" in note
    assert "1 other NodePool: none of its instance types will do (1 too small)" in note


async def test_a_provider_that_has_nothing_to_offer_or_does_not_answer(setting: Setting) -> None:
    await setting.begin()
    answers: list[list[InstanceType] | CloudError] = [CloudError("throttled"), []]
    usual = setting.cloud.instance_types

    async def instance_types(pool: Any) -> Any:
        answer = answers.pop(0) if answers else await usual(pool)
        if isinstance(answer, CloudError):
            raise answer
        return TypeCatalogue(0, answer) if isinstance(answer, list) else answer

    setting.cloud.instance_types = instance_types  # type: ignore[method-assign]
    await setting.sim.apply(manifests.pod("a"))
    await setting.sim.wait_until(lambda: setting.runs("a"))
    (note,) = setting.notes(FAILED, "a")
    assert "no dynamic nodepools found" in note
    assert "NodePool default is left out: its instance types cannot be looked up: throttled" in note
