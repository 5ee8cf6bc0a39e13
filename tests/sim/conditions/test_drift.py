"""The condition Drifted (02 §10, §14.27, §14.57, §14.58)."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api import names
from dovetail.controllers.nodepool.hash import NodePoolHash
from dovetail.model.instance_types import InstanceType
from dovetail.ports import KWOK_NODECLASSES, NODECLAIMS, NODEPOOLS, CloudError, Delete, Patch
from dovetail.providers.catalogue import built_in
from dovetail.sim.actors.cluster import START
from tests.harness.claims import launched, node_class, node_pool
from tests.harness.running import Program
from tests.harness.stage import PARAMETER, stage
from tests.sim.conditions.setting import MACHINE, Setting, play

pytestmark = stage(play)

MINUTE = timedelta(minutes=1)
TYPE = MACHINE[names.INSTANCE_TYPE_LABEL]
NODEPOOL_DRIFTED, REQUIREMENTS_DRIFTED, TYPE_NOT_FOUND = (
    "NodePoolDrifted",
    "RequirementsDrifted",
    "InstanceTypeNotFound",
)


def hashing(program: Program) -> list[NodePoolHash]:
    return [NodePoolHash(program.cluster)]


def wants(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


async def require(setting: Setting, *requirements: dict[str, Any]) -> None:
    await setting.edit(NODEPOOLS, "default", {"spec": {"template": {"spec": {"requirements": list(requirements)}}}})


async def hashed(setting: Setting, *claims: str) -> None:
    """Claims that are made from the pool as it is now."""
    await setting.sim.run_for("1s")
    pool = setting.sim.object(NODEPOOLS, "default") or {}
    keys = (names.NODEPOOL_HASH, names.NODEPOOL_HASH_VERSION)
    annotations = {key: pool["metadata"]["annotations"][key] for key in keys}
    for name in claims:
        await setting.edit(NODECLAIMS, name, {"metadata": {"annotations": annotations}})


# -- the template ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, id="taints"),
        pytest.param({"spec": {"startupTaints": [{"key": "a", "effect": "NoSchedule"}]}}, id="startupTaints"),
        pytest.param({"metadata": {"labels": {"team": "a"}}}, id="labels"),
        pytest.param({"metadata": {"annotations": {"team": "a"}}}, id="annotations"),
        pytest.param({"spec": {"expireAfter": "1000h"}}, id="expireAfter"),
        pytest.param({"spec": {"terminationGracePeriod": "1h"}}, id="terminationGracePeriod"),
    ],
)
@stage(more=hashing)
async def test_another_template_drifts_every_claim_and_reverting_it_none(
    setting: Setting, change: dict[str, Any]
) -> None:
    await setting.begin(node_pool(), "c1", "c2")
    await hashed(setting, "c1", "c2")
    before = (setting.sim.object(NODEPOOLS, "default") or {})["spec"]["template"]
    assert (setting.drifted("c1"), setting.drifted("c2")) == ("", "")
    await setting.edit(NODEPOOLS, "default", {"spec": {"template": change}})
    assert (setting.drifted("c1"), setting.drifted("c2")) == (NODEPOOL_DRIFTED, NODEPOOL_DRIFTED)
    removed = {part: dict.fromkeys(fields) for part, fields in change.items()}
    back = {part: {**removed[part], **before.get(part, {})} for part in change}
    await setting.edit(NODEPOOLS, "default", {"spec": {"template": back}})
    assert (setting.drifted("c1"), setting.drifted("c2")) == ("", "")


@stage(more=hashing)
async def test_behaviour_drifts_nobody(setting: Setting) -> None:
    await setting.begin(node_pool(), "c1")
    await hashed(setting, "c1")
    budgets = [{"nodes": "0"}]
    disruption = {"consolidateAfter": "1h", "consolidationPolicy": "WhenEmpty", "budgets": budgets}
    disruption["gracefulExpireAfter"] = "9h"
    await setting.edit(NODEPOOLS, "default", {"spec": {"limits": {"cpu": "10"}, "weight": 7, "disruption": disruption}})
    await setting.sim.run_for("1h")
    assert not any(
        entry["type"] == "Drifted" for _, _, status in setting.history for entry in status.get("conditions", ())
    )


class Hashing:
    """The hash controller, which the test switches off and on between two starts of the program."""

    on = True

    def __call__(self, program: Program) -> list[NodePoolHash]:
        return hashing(program) if self.on else []


@pytest.fixture
def more() -> Hashing:
    return Hashing()


@stage(more=PARAMETER)
async def test_a_new_version_of_the_hash_drifts_nobody_and_takes_nothing_back(setting: Setting, more: Hashing) -> None:
    """An older program has hashed otherwise: c1 is as its pool, c2 was drifted."""
    old = {names.NODEPOOL_HASH_VERSION: "v2", names.NODEPOOL_HASH: "11"}
    await setting.begin(node_pool(), "c1", "c2")
    await setting.program.kill()
    await setting.edit(NODEPOOLS, "default", {"metadata": {"annotations": old}})
    await setting.edit(NODECLAIMS, "c1", {"metadata": {"annotations": old}})
    await setting.edit(NODECLAIMS, "c2", {"metadata": {"annotations": {**old, names.NODEPOOL_HASH: "12"}}})
    # Without the hash controller nothing is brought over, and all are compared.
    more.on = False
    await setting.program.start()
    await setting.sim.run_for("1s")
    assert (setting.drifted("c1"), setting.drifted("c2")) == ("", NODEPOOL_DRIFTED)
    since = setting.condition("Drifted", "c2")["lastTransitionTime"]
    await setting.program.kill()
    seen = len(setting.history)
    more.on = True
    await setting.program.start()
    await setting.sim.run_for("10m")
    pool = setting.sim.object(NODEPOOLS, "default") or {}
    assert pool["metadata"]["annotations"][names.NODEPOOL_HASH_VERSION] == names.HASH_VERSION
    assert (setting.drifted("c1"), setting.drifted("c2")) == ("", NODEPOOL_DRIFTED)
    assert setting.condition("Drifted", "c2")["lastTransitionTime"] == since
    of_c2 = [status for _, name, status in setting.history[seen:] if name == "c2"]
    assert all(any(entry["type"] == "Drifted" for entry in status["conditions"]) for status in of_c2)


# -- the requirements --------------------------------------------------------------------------------------------------


async def test_requirements_narrowed_and_relaxed(setting: Setting) -> None:
    zone, other = MACHINE[names.ZONE_LABEL], "test-zone-d"
    await setting.begin(node_pool(template={"requirements": [wants(names.ZONE_LABEL, "In", zone)]}), "c1")
    assert setting.drifted() == ""
    await require(setting, wants(names.ZONE_LABEL, "In", zone, other))
    assert setting.drifted() == ""
    await require(setting, wants(names.ZONE_LABEL, "In", other))
    assert setting.drifted() == REQUIREMENTS_DRIFTED
    await setting.sim.run_for("1h")
    assert setting.drifted() == REQUIREMENTS_DRIFTED
    await require(setting)
    assert setting.drifted() == ""
    await require(setting, wants("team", "Exists"))
    assert setting.drifted() == REQUIREMENTS_DRIFTED
    await setting.edit(NODECLAIMS, "c1", {"metadata": {"labels": {"team": "a"}}})
    assert setting.drifted() == ""


@stage(more=hashing)
async def test_another_reason_is_told_and_the_time_stays(setting: Setting) -> None:
    await setting.begin(node_pool(), "c1")
    await hashed(setting, "c1")
    await require(setting, wants("team", "Exists"))
    assert setting.drifted() == REQUIREMENTS_DRIFTED
    since = setting.condition("Drifted")["lastTransitionTime"]
    await setting.sim.run_for("1h")
    await setting.edit(NODEPOOLS, "default", {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}})
    assert setting.drifted() == NODEPOOL_DRIFTED
    assert setting.condition("Drifted")["lastTransitionTime"] == since


async def test_a_claim_that_is_not_launched_has_not_drifted(setting: Setting) -> None:
    await setting.begin(node_pool(template={"requirements": [wants("team", "Exists")]}), "c1", true=())
    await setting.sim.run_for("2h")
    assert setting.drifted() == ""
    assert setting.writes() == 0
    await launched(setting.sim, "c1", node="n-c1")
    await setting.sim.run_for("1ms")
    assert setting.drifted() == REQUIREMENTS_DRIFTED
    await setting.sim.api.write(
        Patch(
            NODECLAIMS.read_as(dict[str, Any]),
            "c1",
            {"status": {"conditions": [{**setting.condition("Drifted")}]}},
            subresource="status",
        )
    )
    await setting.sim.run_for("1ms")
    assert setting.drifted() == ""


# -- what is offered ---------------------------------------------------------------------------------------------------


def without_type() -> Sequence[InstanceType]:
    return [type_ for type_ in built_in() if type_.name != TYPE]


def without_zone() -> Sequence[InstanceType]:
    return [
        msgspec.structs.replace(
            type_,
            offerings=tuple(
                offering
                for offering in type_.offerings
                if not any(MACHINE[names.ZONE_LABEL] in each.values for each in offering.requirements)
            ),
        )
        for type_ in built_in()
    ]


def sold_out() -> Sequence[InstanceType]:
    replace = msgspec.structs.replace
    return [
        replace(type_, offerings=tuple(replace(offering, available=False) for offering in type_.offerings))
        for type_ in built_in()
    ]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        pytest.param(without_type(), TYPE_NOT_FOUND, id="the type is gone"),
        pytest.param(without_zone(), TYPE_NOT_FOUND, id="the offering is gone"),
        pytest.param(sold_out(), "", id="it only cannot be had now"),
    ],
)
async def test_a_machine_that_is_no_longer_offered_after_an_hour(
    setting: Setting, types: Sequence[InstanceType], expected: str
) -> None:
    setting.vendor.types = types
    await setting.begin(node_pool(), "c1")
    await setting.run_to(START + 60 * MINUTE)
    assert setting.drifted() == ""
    assert setting.vendor.calls["instance_types"] == 0
    await setting.sim.run_for("2ms")
    assert setting.drifted() == expected
    # Once it is offered again, the next look shows it.
    setting.vendor.types = built_in()
    await setting.sim.run_for("10m")
    assert setting.drifted() == ""


async def test_what_was_found_offered_is_believed_for_half_an_hour(setting: Setting) -> None:
    await setting.begin(node_pool(), "c1")
    await setting.run_to(START + 60 * MINUTE)
    await setting.sim.run_for("2ms")
    setting.vendor.types = without_type()
    await setting.run_to(START + 90 * MINUTE)
    assert setting.drifted() == ""
    await setting.sim.run_for("5m")
    assert setting.drifted() == TYPE_NOT_FOUND


async def test_a_reservation_goes_on_as_on_demand(setting: Setting) -> None:
    labels = {names.CAPACITY_TYPE_LABEL: "reserved"}
    await setting.begin(node_pool(), "c1", labels=labels)
    await setting.sim.run_for("2h")
    assert setting.vendor.calls["instance_types"] > 0
    assert setting.drifted() == ""


async def test_types_are_asked_for_once_for_all_claims_of_a_pool(setting: Setting) -> None:
    await setting.begin(node_pool(), *(f"c{number}" for number in range(20)))
    await setting.run_to(START + 61 * MINUTE)
    assert setting.vendor.calls["instance_types"] == 1


# -- the provider ------------------------------------------------------------------------------------------------------


async def test_what_the_provider_finds_is_seen_within_five_minutes_and_goes_so(setting: Setting) -> None:
    await setting.begin(node_pool(), "c1", "c2")
    setting.vendor.drift["c1"] = "ImageDrift"
    await setting.sim.run_for("5m1s")
    assert (setting.drifted("c1"), setting.drifted("c2")) == ("ImageDrift", "")
    setting.vendor.drift.clear()
    await setting.sim.run_for("5m1s")
    assert (setting.drifted("c1"), setting.drifted("c2")) == ("", "")


async def test_it_is_asked_at_once_when_the_node_class_or_the_pods_change(setting: Setting) -> None:
    await setting.begin(node_pool(), "c1")
    setting.vendor.drift["c1"] = "ImageDrift"
    await setting.edit(KWOK_NODECLASSES, "default", {"metadata": {"annotations": {"image": "new"}}})
    assert setting.drifted() == "ImageDrift"
    setting.vendor.drift.clear()
    await setting.bind("c1", "web")
    assert setting.drifted() == ""


async def test_another_node_class_concerns_nobody(setting: Setting) -> None:
    await setting.begin(node_pool(), "c1")
    before = setting.vendor.calls["drift_reason"]
    await setting.sim.apply(node_class("other"))
    await setting.sim.run_for("1s")
    assert setting.vendor.calls["drift_reason"] == before


@pytest.mark.parametrize("silence", ["error", "nothing"])
async def test_while_the_provider_does_not_answer_nothing_changes(setting: Setting, silence: str) -> None:
    setting.vendor.types = without_type()
    await setting.begin(node_pool(), "c1", "c2")
    await setting.sim.run_for("2h")
    assert setting.drifted("c1") == TYPE_NOT_FOUND
    if silence == "error":
        setting.vendor.error = CloudError("down")
    else:
        setting.vendor.types = ()
    calls, writes = setting.vendor.calls.total(), setting.writes()
    await setting.sim.run_for("2h")
    assert setting.drifted("c1") == TYPE_NOT_FOUND
    assert setting.writes() == writes
    # Both claims, with a back-off that ends at the five minutes of the ordinary look.
    assert 10 <= setting.vendor.calls.total() - calls <= 2 * (120 / 5 + 12)
    setting.vendor.error, setting.vendor.types = None, built_in()
    await setting.sim.run_for("5m1s")
    assert (setting.drifted("c1"), setting.drifted("c2")) == ("", "")


async def test_what_the_objects_tell_needs_no_provider(setting: Setting) -> None:
    setting.vendor.error = CloudError("down")
    await setting.begin(node_pool(template={"requirements": [wants("team", "Exists")]}), "c1")
    assert setting.drifted() == REQUIREMENTS_DRIFTED


# -- whose claim -------------------------------------------------------------------------------------------------------


async def test_without_its_pool_nothing_changes(setting: Setting) -> None:
    await setting.begin(node_pool(template={"requirements": [wants("team", "Exists")]}), "c1")
    assert setting.drifted() == REQUIREMENTS_DRIFTED
    await setting.sim.api.write(Delete(NODEPOOLS, "default"))
    await setting.sim.run_for("2h")
    assert setting.drifted() == REQUIREMENTS_DRIFTED
    await setting.sim.apply(node_pool())
    await setting.sim.run_for("1ms")
    assert setting.drifted() == ""


@pytest.mark.parametrize("whose", ["deleting", "foreign"])
async def test_claims_that_go_or_are_not_ours_are_left_alone(setting: Setting, whose: str) -> None:
    foreign: dict[str, Any] = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    }
    await setting.begin(node_pool(), "c1", finalizers=True, **(foreign if whose == "foreign" else {}))
    if whose == "deleting":
        await setting.sim.api.write(Delete(NODECLAIMS, "c1"))
    before = setting.writes()
    await require(setting, wants("team", "Exists"))
    setting.vendor.types = without_type()
    await setting.sim.run_for("2h")
    assert setting.drifted() == ""
    assert setting.writes() == before


async def test_static_pools_drift_too(setting: Setting) -> None:
    await setting.begin(node_pool(replicas=1), "c1")
    await require(setting, wants("team", "Exists"))
    assert setting.drifted() == REQUIREMENTS_DRIFTED


async def test_a_restart_changes_nothing(setting: Setting) -> None:
    setting.vendor.types = without_type()
    setting.vendor.drift["c2"] = "ImageDrift"
    other = {names.INSTANCE_TYPE_LABEL: "m-4x-amd64-linux"}
    await setting.begin(node_pool(), "c1", "c2", "c3")
    for name in ("c2", "c3"):
        await setting.edit(NODECLAIMS, name, {"metadata": {"labels": other}})
    await setting.sim.run_for("3h")
    before = [setting.condition("Drifted", name) for name in ("c1", "c2", "c3")]
    assert [each.get("reason") for each in before] == [TYPE_NOT_FOUND, "ImageDrift", None]
    for _ in range(3):
        await setting.program.restart()
        await setting.sim.run_for("7m")
        assert setting.writes() == 0
        assert before == [setting.condition("Drifted", name) for name in ("c1", "c2", "c3")]
