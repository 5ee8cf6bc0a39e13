"""Why does this node not go? `explain node/X` names the cause in its first sentence, on a real control plane. Metrics,
the dashboard and events agree with it.

The same situations are in tests/sim/explain.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.names import EventReason
from dovetail.ports import NODECLAIMS, PODS, Create, Delete, Invalid, Patch
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.compute import ThreadCompute
from tests.cluster.disruption.playing import Endings, Timeline, judge, name_of
from tests.cluster.disruption.setting import BETWEEN_LOOKS, EVERYTHING, NOTHING, Setting
from tests.cluster.run_process import KEPT
from tests.cluster.termination.setting import GUARDED
from tests.contract.bodies import CONFIG_MAPS, POLICIES, POLICY_BINDINGS
from tests.harness import manifests, screens
from tests.harness.dumps import Printed


async def says(setting: Setting, claim: str, *words: str) -> None:
    """The answer has these words once the program has seen everything, and the exit code is 1."""
    node, said = setting.node(claim), ""
    for _ in range(60):
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("dovetail")),
            *("explain", f"node/{node}", "--kubeconfig", str(setting.kubeconfig)),
            env={key: os.environ[key] for key in KEPT if key in os.environ},
            stdout=asyncio.subprocess.PIPE,
        )
        out, _error = await process.communicate()
        said = Printed(process.returncode or 0, out.decode().splitlines()).answer
        if all(word in said for word in words) and process.returncode == 1:
            return
        await setting.history.reaches(setting.history.now() + BETWEEN_LOOKS)
    raise AssertionError(said)


async def shows(setting: Setting, claim: str, *, blockers: set[str], state: str, stuck: bool) -> None:
    """Metrics and the dashboard of the controller, once it has seen everything.

    `blockers`: of `dovetail_nodes_blocked`. `stuck`: somebody has to act.
    """
    program, clock = setting.program, SystemClock()
    engine = screens.engine_of(program.controllers)
    seen: object = None
    for _ in range(60):
        blocked, states = screens.pool_metrics(program.cluster, clock, engine, setting.name)
        row = await screens.row_of(program.cluster, engine, ThreadCompute(), setting.node(claim))
        seen = (blocked, state in states, row.state, row.stuck is not None)
        if seen == (blockers, True, state, stuck):
            return
        await setting.history.reaches(setting.history.now() + BETWEEN_LOOKS)
    raise AssertionError(seen)


async def a_pdb_that_can_never_allow_it(setting: Setting) -> None:
    await setting.begin(budgets=EVERYTHING)
    await setting.deploy("web", cpu="1")
    await setting.apply(manifests.pdb("web", minAvailable=1))
    (claim,) = await setting.has_nodes(1)
    await setting.outdate(claim)
    await says(
        setting, claim, "has been stuck (Drifted) since", "web can never allow it: minAvailable 1 leaves none of 1"
    )
    await shows(setting, claim, blockers={"pod-disruption-budget"}, state="S2", stuck=True)
    assert "can never allow it" in (await setting.event(EventReason.DISRUPTION_BLOCKED, setting.node(claim))).note


async def a_drain_that_a_protected_pod_blocks(setting: Setting) -> None:
    await setting.begin(budgets=EVERYTHING)
    await setting.deploy("web", cpu="1", annotations=GUARDED)
    (claim,) = await setting.has_nodes(1)
    await setting.api.write(Delete(NODECLAIMS, claim))
    await says(setting, claim, "has been stuck (S4 draining) since", "waits for Pod/", "no terminationGracePeriod")
    await shows(setting, claim, blockers=set(), state="S4", stuck=True)
    (pod,) = (each.metadata.name for each in setting.pods("web"))
    note = (await setting.event(EventReason.FAILED_DRAINING, setting.node(claim))).note
    assert pod in note
    assert "the node waits until it is gone" in note
    await setting.unguard(pod)


async def a_budget_of_zero(setting: Setting) -> None:
    await setting.begin(budgets=NOTHING)
    await setting.deploy("web", cpu="1")
    (claim,) = await setting.has_nodes(1)
    await setting.outdate(claim)
    await says(
        setting, claim, "has been stuck (Drifted) since", f"budgets[0] of NodePool {setting.name} allows 0 nodes"
    )
    await shows(setting, claim, blockers={"budget"}, state="S2", stuck=True)
    assert "allows 0 nodes" in (await setting.event(EventReason.DISRUPTION_BLOCKED, setting.node(claim))).note


async def a_misspelt_schedule_of_a_budget(setting: Setting) -> None:
    await setting.begin(budgets=[{"nodes": "1", "schedule": "0 25 * * *", "duration": "1h"}])
    await setting.deploy("web", cpu="1")
    (claim,) = await setting.has_nodes(1)
    await setting.outdate(claim)
    await says(setting, claim, "has been stuck (Drifted)", "is invalid and counts as 0: hour '25'")
    await shows(setting, claim, blockers={"budget"}, state="S2", stuck=True)
    assert "is invalid" in (await setting.event(EventReason.DISRUPTION_BLOCKED, setting.node(claim))).note


async def a_finalizer_on_a_pod(setting: Setting) -> None:
    await setting.begin(budgets=EVERYTHING, template={"terminationGracePeriod": "1h"})
    await setting.deploy("web", cpu="1", terminationGracePeriodSeconds=2)
    (claim,) = await setting.has_nodes(1)
    (pod,) = (each.metadata.name for each in setting.pods("web"))
    raw, held = PODS.read_as(dict[str, Any]), {"metadata": {"finalizers": ["example.com/archive"]}}
    await setting.api.write(Patch(raw, pod, held, namespace=setting.name))
    await setting.api.write(Delete(NODECLAIMS, claim))
    await says(setting, claim, "has been leaving (S4 draining)", "held by finalizer example.com/archive")
    await shows(setting, claim, blockers=set(), state="S4", stuck=False)
    node, history = setting.node(claim), setting.history
    await history.until(
        lambda: any(
            "held by finalizer example.com/archive" in event.note
            for event in history.events(EventReason.FAILED_DRAINING, node)
        ),
        "an event that names the finalizer",
    )
    await setting.api.write(Patch(raw, pod, {"metadata": {"finalizers": None}}, namespace=setting.name))


async def probe(setting: Setting) -> None:
    """Until a policy is in force."""
    for number in range(100):
        body = {"metadata": {"name": f"probe-{number}"}}
        await setting.api.write(Create(CONFIG_MAPS, body, namespace=setting.name))
        await setting.history.reaches(setting.history.now() + BETWEEN_LOOKS)


async def an_eviction_that_a_policy_refuses(setting: Setting) -> None:
    await setting.begin(budgets=EVERYTHING)
    await setting.deploy("web", cpu="1")
    (claim,) = await setting.has_nodes(1)
    groups = (("", "configmaps"), ("", "pods/eviction"))
    rules = [
        {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [plural]}
        for group, plural in groups
    ]
    ours = {"matchLabels": {"kubernetes.io/metadata.name": setting.name}}
    policy = {
        "matchConstraints": {"namespaceSelector": ours, "resourceRules": rules},
        "validations": [{"expression": "false", "message": "this needs a ticket"}],
    }
    named = {"metadata": {"name": f"{setting.name}.example.com"}}
    binding = {"policyName": named["metadata"]["name"], "validationActions": ["Deny"]}
    await setting.api.write(Create(POLICIES, named | {"spec": policy}))
    await setting.api.write(Create(POLICY_BINDINGS, named | {"spec": binding}))
    with pytest.raises(Invalid, match="this needs a ticket"):
        await probe(setting)
    await setting.api.write(Delete(NODECLAIMS, claim))
    await says(
        setting, claim, "has been stuck (S4 draining) since", "waits for Pod/", "evicting a pod fails: 422 Invalid"
    )
    await shows(setting, claim, blockers=set(), state="S4", stuck=True)
    note = (await setting.event(EventReason.FAILED_DRAINING, setting.node(claim))).note
    assert "this needs a ticket" in note
    await setting.api.write(Delete(POLICY_BINDINGS, named["metadata"]["name"]))
    await setting.api.write(Delete(POLICIES, named["metadata"]["name"]))
    await setting.are_gone(claim)


async def pods_that_have_no_other_place(setting: Setting) -> None:
    await setting.begin(budgets=EVERYTHING)
    (claim,) = await setting.hold("a", nodeSelector={"example.com/nowhere": "at-all"})
    await setting.outdate(claim)
    await says(setting, claim, "has been stuck (Drifted) since", "example.com/nowhere", "dovetail plan --remove")
    await shows(setting, claim, blockers={"replacement"}, state="S2", stuck=True)
    assert "example.com/nowhere" in (await setting.event(EventReason.DISRUPTION_BLOCKED, setting.node(claim))).note


async def limits_that_leave_room_for_no_replacement(setting: Setting) -> None:
    await setting.begin(budgets=EVERYTHING)
    await setting.deploy("web", cpu="3", replicas=2)
    first, _ = await setting.has_nodes(2)
    await setting.change_pool(limits={"cpu": "4"})
    await setting.outdate(first)
    await says(
        setting,
        first,
        "has been stuck (Drifted)",
        "its limits leave no room (limits.cpu: 6 of 4 in use",
        "→ raise spec.limits",
    )
    await shows(setting, first, blockers={"replacement"}, state="S2", stuck=True)
    node, history = setting.node(first), setting.history
    # The first event may be of the moment in which the changed NodePool is not yet usable again.
    await history.until(
        lambda: any(
            "limits.cpu: 6 of 4" in event.note for event in history.events(EventReason.DISRUPTION_BLOCKED, node)
        ),
        "an event that names the limit",
    )
    assert not any("cheaper" in event.note for event in history.events(EventReason.DISRUPTION_BLOCKED, node))


async def a_replacement_that_is_not_ready(setting: Setting) -> None:
    old, new = await setting.in_s3()
    await says(
        setting, old, "has been leaving (Drifted, S3 disrupting) since", f"waits for replacement {new}", "given up 20"
    )
    await shows(setting, old, blockers=set(), state="S3", stuck=False)
    assert f"Replacement for {old}" in (await setting.event(EventReason.DISRUPTION_WAITING_READINESS, new)).note


TIMELINES: Sequence[Timeline] = (
    a_pdb_that_can_never_allow_it,
    a_drain_that_a_protected_pod_blocks,
    a_budget_of_zero,
    a_misspelt_schedule_of_a_budget,
    a_finalizer_on_a_pod,
    an_eviction_that_a_policy_refuses,
    pods_that_have_no_other_place,
    limits_that_leave_room_for_no_replacement,
    a_replacement_that_is_not_ready,
)


@pytest.mark.parametrize("timeline", TIMELINES, ids=name_of)
def test_timeline(timeline: Timeline, endings: Endings) -> None:
    judge(timeline, endings)
