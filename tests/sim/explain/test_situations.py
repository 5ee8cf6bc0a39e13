"""Why does this node not go? `explain node/X` names the cause in its first sentence, and so do events, metrics and the
dashboard."""

import logging
from collections.abc import Sequence
from datetime import UTC
from typing import Any

import pytest

from dovetail.api.names import EventReason
from dovetail.cli.common.output import Times
from dovetail.cli.top.keys import ViewState
from dovetail.cli.top.nodes import NodeTable
from dovetail.cli.top.rows import figures
from dovetail.ports import KWOK_NODECLASSES, NODECLAIMS, NODEPOOLS, PODS, Forbidden, Patch
from dovetail.sim.cloud.machines import Launch
from dovetail.sim.loop.virtual_loop import InlineCompute
from dovetail.sim.server.faults import Fault
from dovetail.values.timestamp import format_time
from dovetail.views.board.rows import NodeRow
from tests.harness import manifests, screens
from tests.harness.disruption import drift, hold, node_of, others, play, pool, stand
from tests.harness.dumps import asked
from tests.harness.provisioning import Setting
from tests.harness.stage import stage
from tests.harness.termination import FOR_EVER

pytestmark = stage(play)

PINNED: dict[str, Any] = {"nodeSelector": {"example.com/nowhere": "at-all"}}
FROM_ONE: dict[str, Any] = {"annotations": {"karpenter.sh/disruption-schedule": "0 1 * * *"}}
KEPT: dict[str, Any] = {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}
LIMITED = {"limits": {"cpu": "4"}}


def blockers(setting: Setting) -> set[str]:
    """The blockers in `dovetail_nodes_blocked`."""
    engine = screens.engine_of(setting.program.controllers)
    return screens.pool_metrics(setting.program.cluster, setting.sim.clock, engine)[0]


async def row_of(setting: Setting, node: str) -> NodeRow:
    """The node on the dashboard of the controller."""
    engine = screens.engine_of(setting.program.controllers)
    return await screens.row_of(setting.program.cluster, engine, InlineCompute(0), node)


def says(setting: Setting, node: str, *words: str) -> None:
    """The first sentence of `explain` and the next step have these words, and the exit code is 1."""
    found = asked(setting, "explain", f"node/{node}")
    assert all(word in found.answer for word in (node, *words)), found.answer
    assert found.code == 1


def row_in(lines: Sequence[str], first: str) -> list[str]:
    """The words of the row of a table."""
    return next(words for words in map(str.split, lines) if len(words) > 1 and words[0] == first)


async def test_a_pdb_that_can_never_allow_it(setting: Setting) -> None:
    await setting.sim.apply(manifests.pdb("web", minAvailable=1))
    (claim,) = await stand(setting, pool())
    await drift(setting, claim)
    await setting.sim.run_for("1m")
    node = node_of(setting, claim)
    says(
        setting,
        node,
        "has been stuck (Drifted) since",
        "web can never allow it: minAvailable 1 leaves none of 1 to spare",
    )
    assert blockers(setting) == {"pod-disruption-budget"}
    (pod,) = (each["metadata"]["name"] for each in setting.sim.pods(app="web"))
    why = f"Pod/default/{pod}: PodDisruptionBudget web can never allow it: minAvailable 1 leaves none of 1 to spare"
    assert f"Drifted: {why}" in setting.notes(EventReason.DISRUPTION_BLOCKED, node)
    assert why in " ".join(asked(setting, "plan", "--remove", node).lines)
    assert (await row_of(setting, node)).stuck is not None


async def test_a_drain_that_a_protected_pod_blocks_without_a_deadline(setting: Setting) -> None:
    (claim,) = await stand(setting, pool(), **KEPT)
    node = node_of(setting, claim)
    await setting.delete_claim(claim)
    await setting.sim.run_for("1m")
    says(setting, node, "has been stuck (S4 draining) since", "waits for Pod/default/web-", "no terminationGracePeriod")
    says(setting, node, "→ remove the annotation karpenter.sh/do-not-disrupt from Pod/default/web-")
    (pod,) = (each["metadata"]["name"] for each in setting.sim.pods(app="web"))
    assert asked(setting, "explain", f"pod/{pod}").body[2].endswith("no end date; the drain of its node waits for it")
    assert "the node waits until it is gone" in setting.notes(EventReason.FAILED_DRAINING, node)[0]
    row = await row_of(setting, node)
    assert row.stuck is not None
    assert row.stuck[0] == "Draining"


async def test_an_eviction_that_a_policy_refuses(setting: Setting) -> None:
    (claim,) = await stand(setting, pool())
    node, refused = node_of(setting, claim), Forbidden("a policy says no", code=403, reason="Forbidden")
    setting.sim.server.faults.add(Fault(error=refused), verb="evict", resource=PODS, times=FOR_EVER)
    await setting.delete_claim(claim)
    await setting.sim.run_for("2m")
    says(
        setting,
        node,
        "has been stuck (S4 draining) since",
        "waits for Pod/default/web-",
        "evicting a pod fails: 403 Forbidden",
    )
    says(setting, node, f"→ see why: kubectl events -n default --for node/{node}")
    assert "its eviction fails: a policy says no" in setting.notes(EventReason.FAILED_DRAINING, node)[0]
    assert not any("evicted" in line for line in asked(setting, "forecast").lines)
    assert (await row_of(setting, node)).stuck is not None
    setting.sim.server.faults.clear()
    await setting.sim.run_for("10m")
    assert setting.gone(NODECLAIMS, claim)


async def test_an_eviction_that_is_refused_later(setting: Setting) -> None:
    """The drain waits for a window first. A deadline limits it, so nobody has to act."""
    (claim,) = await stand(setting, pool(template={"terminationGracePeriod": "24h"}), **FROM_ONE)
    node, refused = node_of(setting, claim), Forbidden("a policy says no", code=403, reason="Forbidden")
    setting.sim.server.faults.add(Fault(error=refused), verb="evict", resource=PODS, times=FOR_EVER)
    await setting.delete_claim(claim)
    await setting.sim.run_for("2m")
    says(setting, node, "has been leaving (S4 draining) since", "outside its disruption window")
    await setting.sim.run_for("1h")
    says(
        setting,
        node,
        "has been leaving (S4 draining) since",
        "evicting a pod fails: 403 Forbidden; what is left is deleted",
    )
    forecast = asked(setting, "forecast").lines
    assert any("deleted for the deadline of its node" in line for line in forecast)
    notes = setting.notes(EventReason.FAILED_DRAINING, node)
    assert any("its eviction fails: a policy says no" in note for note in notes)


async def test_a_budget_of_zero(setting: Setting) -> None:
    (claim,) = await stand(setting, pool(budgets=[{"nodes": "0", "reasons": ["Drifted"]}], consolidateAfter="Never"))
    await drift(setting, claim)
    await setting.sim.run_for("1m")
    node = node_of(setting, claim)
    says(
        setting, node, "has been stuck (Drifted) since", "budgets[0] of NodePool default allows 0 nodes for Drifted now"
    )
    says(setting, node, "→ correct spec.disruption.budgets: kubectl edit nodepool default")
    assert blockers(setting) == {"budget"}
    (note, *_) = setting.notes(EventReason.DISRUPTION_BLOCKED, node)
    assert note == "Drifted: budgets[0] of NodePool default allows 0 nodes for Drifted now"
    # No screen calls it free.
    assert row_in(asked(setting, "explain", "-q").lines, node)[-3] == "stuck"
    row, now = await row_of(setting, node), setting.now()
    totals = figures([row], int(now.timestamp()))
    assert (totals.free, totals.standings) == (0, {"stuck": 1})
    assert " stuck " in NodeTable([row], ViewState(), Times(now, UTC), None).line(row, selected=False).plain


async def test_a_misspelt_schedule_of_a_budget(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dovetail.controllers.disruption.reporter")
    budget = {"nodes": "1", "schedule": "0 25 * * *", "duration": "1h"}
    (claim,) = await stand(setting, pool(budgets=[budget], consolidateAfter="Never"))
    await drift(setting, claim)
    await setting.sim.run_for("1m")
    node = node_of(setting, claim)
    says(
        setting,
        node,
        "has been stuck (Drifted)",
        "budgets[0] of NodePool default is invalid and counts as 0: hour '25'",
    )
    assert "budgets[0] of NodePool default is invalid" in setting.notes(EventReason.DISRUPTION_BLOCKED, node)[0]
    assert any(line.endswith(" stuck") for line in asked(setting, "forecast", "-q").lines)
    (line,) = (each.__dict__ for each in caplog.records if each.getMessage() == "node stays")
    assert (line["Node"], "is invalid and counts as 0: hour '25'" in line["why"]) == (node, True)
    assert any("InvalidBudget" in line for line in asked(setting, "explain", f"node/{node}").lines)


async def test_a_finalizer_on_a_pod(setting: Setting) -> None:
    (claim,) = await stand(setting, pool(template={"terminationGracePeriod": "1h"}))
    (pod,) = setting.sim.pods(app="web")
    body = {"metadata": {"finalizers": ["example.com/archive"]}}
    await setting.sim.api.write(Patch(PODS.read_as(dict[str, Any]), pod["metadata"]["name"], body, namespace="default"))
    node = node_of(setting, claim)
    await setting.delete_claim(claim)
    await setting.sim.run_for("40s")
    says(setting, node, "has been leaving (S4 draining)", "held by finalizer example.com/archive; ignored from")
    says(setting, node, "→ find who sets finalizer example.com/archive: kubectl get pod")
    (head, step) = asked(setting, "explain", f"pod/{pod['metadata']['name']}").body[2:4]
    assert "terminating, should be gone since 2026-03-02T00:" in head
    assert head.endswith("held by finalizer example.com/archive")
    assert step.endswith(f"if nobody removes it, do: kubectl edit pod {pod['metadata']['name']} -n default")
    (note,) = setting.notes(EventReason.FAILED_DRAINING, node)
    assert "held by finalizer example.com/archive; ignored from" in note
    ignored_from = note.partition("ignored from ")[2].partition(")")[0]
    forecast = asked(setting, "forecast").lines
    assert any(line.endswith(f"the drain should be over {ignored_from}") for line in forecast)


async def test_pods_that_have_no_other_place(setting: Setting) -> None:
    await setting.begin(pool())
    (node,) = await hold(setting, "stuck", pods=PINNED)
    await drift(setting, "stuck")
    await setting.sim.run_for("1m")
    says(setting, node, "has been stuck (Drifted) since", "default/p-stuck", "example.com/nowhere")
    says(setting, node, f"dovetail plan --remove {node}")
    assert blockers(setting) == {"replacement"}
    (note,) = setting.notes(EventReason.DISRUPTION_BLOCKED, node)
    assert note.startswith("Drifted: default/p-stuck fits on no other node")
    assert "example.com/nowhere" in note
    row = await row_of(setting, node)
    assert row.stuck is not None
    assert ("replacement", "Pod/default/p-stuck") in [(cause[0], str(cause[1])) for cause in row.causes]


async def test_limits_that_leave_room_for_no_replacement(setting: Setting) -> None:
    limited = pool()
    first, second = await stand(setting, limited, replicas=2)
    await setting.sim.api.write(Patch(NODEPOOLS.read_as(dict[str, Any]), "default", {"spec": LIMITED}))
    await drift(setting, first)
    await setting.sim.run_for("1m")
    assert others(setting, first, second) == []
    node = node_of(setting, first)
    limits = "limits.cpu: 6 of 4 in use, 1 left when the leaving nodes are gone, a new node takes at least 4"
    says(
        setting,
        node,
        "has been stuck (Drifted)",
        "and NodePool default can make none: its limits leave no room",
        limits,
    )
    says(setting, node, "→ raise spec.limits")
    for command in ("explain", "plan", "forecast"):
        text = " ".join(asked(setting, command, *([f"node/{node}"] if command != "plan" else [])).lines)
        assert "costs" not in text, command
    assert blockers(setting) == {"replacement"}
    notes = setting.notes(EventReason.DISRUPTION_BLOCKED, node)
    assert "limits.cpu: 6 of 4 in use" in notes[0]
    assert (await row_of(setting, node)).stuck is not None


async def test_the_event_follows_the_cause_at_once(setting: Setting) -> None:
    """A cause that takes the place of another one was told only when two minutes were over."""
    (claim,) = await stand(setting, pool(budgets=[{"nodes": "0"}]), **KEPT)
    (pod,) = (each["metadata"]["name"] for each in setting.sim.pods(app="web"))
    await drift(setting, claim)
    await setting.sim.run_for("20s")
    free = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": None}}}
    await setting.sim.api.write(Patch(PODS.read_as(dict[str, Any]), pod, free, namespace="default"))
    await setting.sim.run_for("20s")
    notes = setting.notes(EventReason.DISRUPTION_BLOCKED, node_of(setting, claim))
    first, second = (note for note in notes if note.startswith("Drifted: "))
    assert pod in first
    assert "allows 0 nodes" in second


async def test_a_replacement_that_is_not_ready(setting: Setting) -> None:
    (claim,) = await stand(setting, pool())
    node = node_of(setting, claim)
    setting.cloud.next_launches(Launch(ready=False))
    await drift(setting, claim)
    await setting.sim.run_for("2m")
    (new,) = others(setting, claim)
    says(
        setting,
        node,
        "has been leaving (Drifted, S3 disrupting) since",
        f"waits for replacement {new} (its node is not",
    )
    says(setting, node, "given up 20", f"→ kubectl describe nodeclaim {new}")
    row = await row_of(setting, node)
    assert row.stuck is None
    assert (
        "  replacement  "
        in NodeTable([row], ViewState(), Times(setting.now(), UTC), None).line(row, selected=False).plain
    )
    await setting.sim.run_for("8m20s")  # it is rolled back, and the replacement stays
    says(setting, node, "has been waiting (Drifted)", "the last replacement of NodePool default did not come up")
    assert blockers(setting) == {"replacement"}


async def test_the_owner_of_a_protected_pod_is_told_when_the_drain_begins(setting: Setting) -> None:
    (claim,) = await stand(setting, pool(template={"terminationGracePeriod": "10m"}), **KEPT)
    (pod,) = (each["metadata"]["name"] for each in setting.sim.pods(app="web"))
    assert asked(setting, "explain", f"pod/{pod}").body[2].endswith("protected, with no end date")
    await setting.delete_claim(claim)
    await setting.sim.run_for("5s")
    (event,) = setting.events(EventReason.TERMINATION_GRACE_PERIOD_EXPIRING, pod)
    assert event["type"] == "Warning"
    forced_at = str(event["note"]).partition("the pod is deleted at ")[2].partition(",")[0]
    assert f"deleted by force {forced_at}" in asked(setting, "explain", f"pod/{pod}").body[2]
    await setting.sim.run_for("10m")
    assert setting.gone(PODS, pod)


async def test_a_pod_within_its_own_grace_is_no_warning(setting: Setting) -> None:
    (claim,) = await stand(setting, pool())
    node = node_of(setting, claim)
    await setting.delete_claim(claim)
    await setting.sim.run_for("20s")
    assert setting.notes(EventReason.FAILED_DRAINING, node) == []


async def test_a_pod_is_deleted_by_force_when_its_node_expires(setting: Setting) -> None:
    template = {"expireAfter": "1h", "terminationGracePeriod": "10m"}
    await stand(setting, pool(template=template, consolidateAfter="Never"), **KEPT)
    (pod,) = (each["metadata"]["name"] for each in setting.sim.pods(app="web"))
    line = asked(setting, "explain", f"pod/{pod}").body[2]
    assert "protected, with no end date; deleted by force 2026-03-02T01:" in line


async def test_a_node_pool_that_is_not_ready(setting: Setting) -> None:
    (claim,) = await stand(setting, pool())
    await drift(setting, claim)
    ready = {"type": "Ready", "status": "False", "reason": "Broken", "message": "no AMI"}
    broken = {"status": {"conditions": [{**ready, "lastTransitionTime": format_time(setting.now())}]}}
    raw = KWOK_NODECLASSES.read_as(dict[str, Any])
    await setting.sim.api.write(Patch(raw, "default", broken, subresource="status"))
    await setting.sim.run_for("1m")
    node = node_of(setting, claim)
    says(
        setting,
        node,
        "has been stuck (Drifted)",
        "NodePool default makes no new nodes: it is not Ready: no AMI",
        "describe nodepool",
    )
    assert "NodePool default makes no new nodes" in setting.notes(EventReason.DISRUPTION_BLOCKED, node)[0]
    assert blockers(setting) == {"replacement"}
