"""A run of all controllers that keeps every promise: each rule had something to look at, and nothing to say."""

from typing import Any

from dovetail.api import names
from dovetail.ports import Patch
from dovetail.sim.actors.wire import DEPLOYMENTS
from dovetail.sim.checkers.checkers import RULES
from tests.harness import manifests
from tests.harness.claims import node_class, node_pool
from tests.harness.disruption import play
from tests.harness.provisioning import Setting
from tests.harness.stage import stage

pytestmark = stage(play)

ON_DEMAND = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["on-demand"]}
DISRUPTION: dict[str, Any] = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}


async def test_every_rule_applies_to_a_consolidation(setting: Setting) -> None:
    """A deployment shrinks, and its node makes way for a cheaper one."""
    await setting.sim.apply(node_class(), node_pool(template={"requirements": [ON_DEMAND]}, disruption=DISRUPTION))
    await setting.sim.apply(manifests.deployment("web", replicas=14, cpu="1"))
    await setting.runs_all("web", 14)
    await setting.sim.run_for("5m")
    (before,) = setting.claims()
    await setting.sim.api.write(Patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}}, namespace="default"))
    await setting.sim.wait_until(lambda: setting.claim(before["metadata"]["name"]) is None, timeout="15m")
    await setting.sim.run_for("10m")
    (after,) = setting.claims()
    machines = [each["metadata"]["labels"][names.INSTANCE_TYPE_LABEL] for each in (before, after)]
    assert machines[0] != machines[1]
    await setting.program.stop()
    checkers = setting.program.checkers
    checkers.finish()
    assert checkers.violations == []
    assert {rule: checkers.applied[rule] > 0 for rule in RULES} == dict.fromkeys(RULES, True)
