"""Whoever may edit NodeClaims can forge the record of a command: nothing is deleted past the rules (R54, R50)."""

import json
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.planning.disruption.board import Method
from dovetail.ports import NODECLAIMS, NODES, Patch
from dovetail.sim.cloud.machines import Launch
from dovetail.values.timestamp import format_time
from tests.harness import manifests
from tests.harness.provisioning import pool_of_four
from tests.harness.stage import stage
from tests.harness.termination import annotation
from tests.sim.disruption_commands.setting import Setting, play

pytestmark = stage(play)

INVALID = EventReason.INVALID_DISRUPTION_COMMAND
ROLLED_BACK = EventReason.DISRUPTION_ROLLED_BACK
ASKED = (Method.DRIFT, Method.MULTI_NODE, Method.EMPTINESS)


async def forge(setting: Setting, claim: str, record: dict[str, Any]) -> None:
    """Write the record on the claim and taint its node, as a command does."""
    found = setting.claim(claim)
    assert found is not None
    taints = [{"key": names.DISRUPTED_TAINT, "effect": "NoSchedule"}]
    await setting.sim.api.write(Patch(NODES, found["status"]["nodeName"], {"spec": {"taints": taints}}))
    await setting.annotate(NODECLAIMS, claim, {names.DISRUPTION_COMMAND: json.dumps(record)})


def written_on(setting: Setting, claim: str) -> dict[str, Any]:
    text = annotation(setting.claim(claim), names.DISRUPTION_COMMAND)
    assert text is not None
    found: dict[str, Any] = json.loads(text)
    return found


def alone(setting: Setting, claim: str, **fields: Any) -> dict[str, Any]:
    """A record that names just this claim, so that it carries what it should."""
    deadline = format_time(setting.now().replace(year=2099))
    return {"id": "f0", "reason": "Drifted", "method": "drift", "deadline": deadline, "claims": [claim], **fields}


@pytest.mark.parametrize("edit", [{"replacements": []}, {}, {"claims": ["a", "victim"]}, {"claims": ["victim"]}])
async def test_the_id_of_a_running_command_takes_no_other_node(setting: Setting, edit: dict[str, Any]) -> None:
    await setting.begin(pool_of_four(disruption={"budgets": [{"nodes": "1"}]}))
    await setting.stand("a", "victim")
    setting.cloud.next_launches(Launch(seconds=60))
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.wait_until(lambda: setting.is_disrupting("a"))
    await forge(setting, "victim", {**written_on(setting, "a"), **edit})
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"))
    await setting.sim.run_for("5m")
    assert setting.is_untouched("victim")
    assert setting.notes(INVALID, "victim")
    assert setting.notes(ROLLED_BACK, "a") == []
    assert setting.held_for() is None


@pytest.mark.parametrize(
    ("method", "protect"),
    [
        *((method, rule) for method in ASKED for rule in ("pod", "node", "budget")),
        (Method.DRIFT, "no reason"),  # that a node is underutilized shows only in a pass
        (Method.EMPTINESS, "no reason"),
    ],
)
async def test_a_record_that_fits_asks_the_rules(setting: Setting, method: Method, protect: str) -> None:
    await setting.begin(pool_of_four(disruption={"budgets": [{"nodes": "0" if protect == "budget" else "100%"}]}))
    keep = {names.DO_NOT_DISRUPT: "true"} if protect == "pod" else {}
    pods = [manifests.pod("p", cpu="100m", annotations=keep)] if keep or method is not Method.EMPTINESS else []
    if protect == "no reason" and method is Method.EMPTINESS:
        pods = [manifests.pod("p", cpu="100m")]
    await setting.stand("victim", pods=pods)
    node = setting.claim("victim")["status"]["nodeName"]  # type: ignore[index]
    if protect == "node":
        await setting.annotate(NODES, node, {names.DO_NOT_DISRUPT: "true"})
    if protect == "no reason":
        setting.cloud.drift.clear()
        await setting.annotate(NODECLAIMS, "victim", {"example.com/look": "2"})
        await setting.sim.run_for("5s")
    reason = {Method.DRIFT: "Drifted", Method.MULTI_NODE: "Underutilized", Method.EMPTINESS: "Empty"}[method]
    await forge(setting, "victim", alone(setting, "victim", method=method.value, reason=reason))
    await setting.sim.run_for("5m")
    assert setting.is_untouched("victim")
    assert setting.notes(ROLLED_BACK, "victim")


async def test_an_initialized_node_cannot_be_named_as_the_replacement(setting: Setting) -> None:
    await setting.stand("victim", "other")
    await setting.annotate(NODECLAIMS, "other", {names.REPLACEMENT_OF: "f0"})
    await forge(setting, "victim", alone(setting, "victim", replacements=["other"]))
    await setting.sim.run_for("5m")
    assert setting.is_untouched("victim")
    assert setting.claim("other") is not None


async def test_a_launching_claim_cannot_be_named_to_have_it_deleted(setting: Setting) -> None:
    await setting.stand("a", "victim")
    setting.cloud.next_launches(Launch(seconds=60))
    await setting.start(setting.command("a", replacements=1))
    await setting.sim.wait_until(lambda: setting.is_disrupting("a"))
    (launching,) = (each["metadata"]["name"] for each in setting.replacements())
    await forge(setting, "victim", alone(setting, "victim", replacements=[launching, "none"]))
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "a"))
    assert setting.claim(launching) is not None
    await setting.sim.run_for("1m")
    assert setting.is_untouched("victim")


async def test_a_launching_claim_cannot_be_edited_into_a_replacement_to_have_it_deleted(setting: Setting) -> None:
    await setting.stand("victim", pods=[manifests.pod("old", cpu="3")])
    setting.cloud.next_launches(Launch(seconds=60))
    await setting.sim.apply(manifests.pod("new", cpu="3"))
    await setting.sim.wait_until(lambda: len(setting.claims()) == 2)
    (launching,) = {each["metadata"]["name"] for each in setting.claims()} - {"victim"}
    await setting.annotate(NODECLAIMS, launching, {names.REPLACEMENT_OF: "f0"})
    await forge(setting, "victim", alone(setting, "victim", replacements=[launching, "none"]))
    await setting.sim.run_for("5m")
    assert setting.claim(launching) is not None
    assert setting.is_untouched("victim")


async def test_forged_records_do_not_hold_a_pool_back(setting: Setting) -> None:
    victims = [f"v{number}" for number in range(8)]
    await setting.begin(pool_of_four(disruption={"budgets": [{"nodes": "0"}]}))
    await setting.stand(*victims)
    for number, victim in enumerate(victims):
        await forge(setting, victim, alone(setting, victim, id=f"f{number}", replacements=[f"none-{number}"]))
        await setting.sim.run_for("2s")
    await setting.sim.run_for("10s")
    assert all(map(setting.is_untouched, victims))
    assert setting.held_for() is None


@pytest.mark.parametrize("restart", [False, True], ids=["same process", "new leader"])
@pytest.mark.parametrize(
    "edit", [{"replacements": []}, {"reason": "Empty"}, None], ids=["other list", "reason", "gone"]
)
async def test_a_command_whose_record_is_edited_is_rolled_back(
    setting: Setting, edit: dict[str, Any] | None, restart: bool
) -> None:
    await setting.stand("a", "b")
    setting.cloud.next_launches(Launch(seconds=60))
    await setting.start(setting.command("a", "b", replacements=1))
    await setting.sim.wait_until(lambda: setting.is_disrupting("a") and setting.is_disrupting("b"))
    if restart:
        await setting.program.kill()
    value = None if edit is None else json.dumps({**written_on(setting, "b"), **edit})
    await setting.annotate(NODECLAIMS, "b", {names.DISRUPTION_COMMAND: value})
    if restart:
        await setting.program.start()
    await setting.sim.run_for("30s")
    assert setting.is_untouched("a")
    assert setting.is_untouched("b")
    await setting.sim.run_for("5m")
    assert setting.is_untouched("a")
    assert setting.is_untouched("b")
