"""Nodes that have a reason to go, with all controllers running in virtual time, the one that decides among them.

async def test_it(setting: Setting) -> None:
    first, second = await stand(setting, pool(), replicas=2)
    await drift(setting, first)
    await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, first))

pytestmark = stage(play)
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.ports import EVENTS, NODECLAIMS, NODEPOOLS, NODES, PODS, Delete, Patch, Resource
from dovetail.rules.states import NodeState, state_of
from dovetail.sim.actors.wire import DEPLOYMENTS, Raw, active
from dovetail.sim.server.store import Change
from tests.harness import manifests, provisioning
from tests.harness.claims import Manifest, status_of
from tests.harness.provisioning import BIG, OF_FOUR, Setting, pool_of_four
from tests.harness.stage import gives
from tests.harness.termination import Scenario, counted, is_deleting

CANDIDATE = (names.CANDIDATE_TAINT, "PreferNoSchedule")
DISRUPTED = (names.DISRUPTED_TAINT, "NoSchedule")
EVER = {"nodes": "100%"}
_PASSES = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds_count"


@gives("setting")
def play(scenario: Scenario[Setting], **options: Any) -> None:
    provisioning.play(scenario, disrupting=True, **options)


# -- making ------------------------------------------------------------------------------------------------------------


def pool(
    name: str = "default", *, team: str = "", template: Mapping[str, Any] | None = None, **disruption: Any
) -> Manifest:
    """Of machines of 4 cpus; without budgets worth the name, and no node has to be quiet before it is consolidated."""
    told = {"consolidateAfter": "0s", "budgets": [EVER], **disruption}
    labels = {"team": team} if team else {}
    return pool_of_four(name, labels=labels, template=dict(template or {}), disruption=told)


async def stand(
    setting: Setting, *pools: Manifest, replicas: int = 1, cpu: str = BIG, app: str = "web", **pods: Any
) -> list[str]:
    """Have a Deployment run, each of its pods on a node of its own if it is big; the names of the claims, by age."""
    if not setting.sim.objects(NODEPOOLS):
        await setting.begin(*pools)
    await setting.sim.apply(manifests.deployment(app, replicas=replicas, cpu=cpu, **pods))
    await setting.runs_all(app, replicas)
    await setting.sim.run_for("30s")
    return sorted(each["metadata"]["name"] for each in setting.claims())


async def hold(setting: Setting, *claims: str, pods: Mapping[str, Any] | None = None, **options: Any) -> list[str]:
    """Have nodes of 4 cpus with these names, each with a pod `p-<claim>` that is nobody's; the names of the Nodes."""
    told = {"cpu": "100m", **(pods or {})}
    return [
        await setting.launch(name, pods=[manifests.pod(f"p-{name}", **told)], **{"requirements": [OF_FOUR], **options})
        for name in claims
    ]


async def scale(setting: Setting, replicas: int, app: str = "web") -> None:
    await setting.sim.api.write(Patch(DEPLOYMENTS, app, {"spec": {"replicas": replicas}}, namespace="default"))


async def edit_pool(setting: Setting, *, name: str = "default", **disruption: Any) -> None:
    await setting.sim.api.write(Patch(NODEPOOLS.read_as(dict[str, Any]), name, {"spec": {"disruption": disruption}}))


async def edit_template(setting: Setting, *, name: str = "default", **template: Any) -> None:
    await setting.sim.api.write(Patch(NODEPOOLS.read_as(dict[str, Any]), name, {"spec": {"template": template}}))


async def empty(setting: Setting, claim: str) -> None:
    """Take away the pods of the node, which are nobody's."""
    for pod in pods_of(setting, claim):
        await setting.sim.api.write(Delete(PODS, pod["metadata"]["name"], namespace="default"))


async def drift(setting: Setting, *claims: str, drifted: bool = True) -> None:
    """Let the provider say so, or no longer, when it is asked, and have it asked now."""
    for name in claims:
        claim = found(setting, name)
        machine = claim["status"]["providerID"]
        if drifted:
            setting.cloud.drift[machine] = "ImageDrift"
        else:
            setting.cloud.drift.pop(machine)
        looks = int((claim["metadata"].get("annotations") or {}).get("example.com/look", "0"))
        await setting.annotate(NODECLAIMS, name, {"example.com/look": str(looks + 1)})
    await setting.sim.wait_until(
        lambda: all(bool(setting.condition(ConditionType.DRIFTED, name)) == drifted for name in claims), timeout="1s"
    )


# -- looking -----------------------------------------------------------------------------------------------------------


def found(setting: Setting, claim: str) -> Raw:
    there = setting.claim(claim)
    assert there is not None, f"{claim} is gone"
    return there


def others(setting: Setting, *claims: str, pool: str | None = None) -> list[str]:
    """The claims that are there besides these."""
    return [name for each in setting.claims(pool) if (name := each["metadata"]["name"]) not in claims]


def node_of(setting: Setting, claim: str) -> str:
    return str(found(setting, claim)["status"]["nodeName"])


def pods_of(setting: Setting, claim: str) -> list[Raw]:
    return setting.sim.pods(node=node_of(setting, claim))


def state(setting: Setting, claim: str) -> NodeState:
    """As the rules derive it from the objects that the program has seen."""
    kept = setting.program.cluster.claims.get(("", claim))
    assert kept is not None, f"{claim} is gone"
    return state_of(setting.program.cluster.member(kept.value))


def is_true(setting: Setting, claim: str, condition: ConditionType) -> bool:
    return bool(setting.condition(condition, claim).get("status") == "True")


def in_disruption(claim: Raw) -> bool:
    """S3 to S6, by the claim alone."""
    conditions = (claim.get("status") or {}).get("conditions") or ()
    return is_deleting(claim) or any(
        each["type"] == ConditionType.DISRUPTION_REASON and each["status"] == "True" for each in conditions
    )


def touched(setting: Setting, pool: str | None = None) -> list[str]:
    return [each["metadata"]["name"] for each in setting.claims(pool) if in_disruption(each)]


def is_marked(setting: Setting, claim: str) -> bool:
    """Whether the scheduler is asked to prefer others."""
    return CANDIDATE in setting.taints(node_of(setting, claim))


def disrupted(setting: Setting, reason: str) -> int:
    """How many claims went for the reason."""
    return int(counted(setting.metrics.nodeclaims_disrupted, reason=reason))


def passes(setting: Setting) -> int:
    families = setting.metrics.registry.collect()
    return int(sum(sample.value for family in families for sample in family.samples if sample.name == _PASSES))


def writes(setting: Setting) -> int:
    """Of the program, besides events, which people are told now and then again."""
    asked = (sent.request for sent in setting.sent)
    return sum(each.verb not in ("get", "list", "watch") and each.resource.plural != EVENTS.plural for each in asked)


def running(setting: Setting, app: str = "web") -> int:
    """Pods that are ready and have not been asked to go."""
    return sum(map(active, setting.sim.pods(app=app, ready=True)))


class Most:
    """How many claims of each pool were in S3 to S6 at once, from now on."""

    def __init__(self, setting: Setting) -> None:
        self.of: Counter[str] = Counter()
        self._now: dict[str, str] = {}  # pools by claims
        assert touched(setting) == [], "what is on its way already is not counted"
        setting.sim.server.registry.store.observers.append(self._observe)

    def _observe(self, kind: Resource[Any], change: Change) -> None:
        if kind.plural != NODECLAIMS.plural:
            return
        claim = change.new.body
        name, of = claim["metadata"]["name"], claim["metadata"]["labels"][names.NODEPOOL_LABEL]
        self._now.pop(name, None)
        if change.type != "DELETED" and in_disruption(claim):
            self._now[name] = of
            self.of[of] = max(self.of[of], Counter(self._now.values())[of])


class Taken:
    """When each claim went into S3 or, without it, into S4, from now on."""

    def __init__(self, setting: Setting) -> None:
        self.at: dict[str, datetime] = {}
        self._setting = setting
        setting.sim.server.registry.store.observers.append(self._observe)

    def _observe(self, kind: Resource[Any], change: Change) -> None:
        if kind.plural == NODECLAIMS.plural and in_disruption(change.new.body):
            self.at.setdefault(change.new.body["metadata"]["name"], self._setting.now())


# -- time --------------------------------------------------------------------------------------------------------------


async def idle_until(setting: Setting, at: datetime) -> tuple[int, int]:
    """Let time pass up to a moment before the instant; how many passes and writes that took."""
    before = passes(setting), writes(setting)
    await setting.run_until(at - timedelta(milliseconds=1))
    return passes(setting) - before[0], writes(setting) - before[1]


def nodes(setting: Setting) -> list[str]:
    return [each["metadata"]["name"] for each in setting.sim.objects(NODES)]


def allowed(setting: Setting, pool: str = "default") -> dict[str, tuple[int, int, int]]:
    """Of each reason what the pool's status says: limit, in use, allowed."""
    told = status_of(setting.sim, NODEPOOLS, pool).get("disruptions", ())
    return {each["reason"]: (each["limit"], each["inUse"], each["allowed"]) for each in told}
