"""Does drive keep its promises whatever is lost, and whenever it or Karpenter dies?

Promises: an annotation of a user never changes; Karpenter takes no node that is held; budgets hold; all pods run again
in the end; and `cleanup` leaves no mark.
"""

from random import Random
from typing import Any

import pytest

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.cli.cleanup.cleaner import clean
from dovetail.ports import NODECLAIMS, NODES, EventType, OutcomeUnknown, Resource, Unavailable
from dovetail.sim.actors.wire import Raw
from dovetail.sim.server.faults import Fault
from dovetail.sim.server.store import Change
from tests.harness import manifests
from tests.harness.disruption import edit_template, pool, scale, stand
from tests.harness.driving import BESIDE_TAINT, Driven, drive
from tests.harness.stage import PARAMETER, stage

pytestmark = stage(drive, shuffle=True, seed=PARAMETER)

USERS = "example.com/kept"
BUDGET = 2
OURS = (names.HELD, names.ROLLED, names.HASH_BEFORE, names.DISRUPTION_COMMAND, names.REPLACEMENT_OF)


class Promises:
    """Looks at every write."""

    def __init__(self, setting: Driven) -> None:
        self.broken: list[str] = []
        self.begun = 0
        self._setting = setting
        self._guest = ""  # the Node that a user protects
        setting.sim.server.registry.store.observers.append(self._observe)

    def protect(self, node: str) -> None:
        self._guest = node

    def _observe(self, kind: Resource[Any], change: Change) -> None:
        if kind.plural == NODES.plural:
            self._node(change)
        elif kind.plural == NODECLAIMS.plural and change.type is not EventType.DELETED:
            self._claim(change)

    def _node(self, change: Change) -> None:
        body = change.new.body
        name, marks = body["metadata"]["name"], body["metadata"].get("annotations") or {}
        if name == self._guest and (marks.get(names.DO_NOT_DISRUPT) != "true" or names.HELD in marks):
            self.broken.append(f"{name}: the annotation of a user has changed")
        if name == self._guest and tainted(body):
            self.broken.append(f"{name}: it is protected, and was taken")
        if tainted(body) and not (change.old is not None and tainted(change.old.body)):
            self.begun += 1
            going = sum(tainted(each) or deleting(each) for each in self._setting.sim.objects(NODES))
            if going > BUDGET:
                self.broken.append(f"{name}: {going} nodes are disrupted at once")

    def _claim(self, change: Change) -> None:
        """A claim that Karpenter takes although its node was held."""
        if change.old is None or not reasoned(change.new.body) or reasoned(change.old.body):
            return
        node = self._setting.node(change.new.body["status"].get("nodeName", ""))
        if node is not None and names.HELD in (node["metadata"].get("annotations") or {}):
            self.broken.append(f"{change.new.body['metadata']['name']}: Karpenter has taken a held node")


def tainted(node: Raw) -> bool:
    return BESIDE_TAINT in [(each["key"], each["effect"]) for each in node["spec"].get("taints") or ()]


def deleting(body: Raw) -> bool:
    return "deletionTimestamp" in body["metadata"]


def reasoned(claim: Raw) -> bool:
    found = (claim.get("status") or {}).get("conditions") or ()
    return any(each["type"] == ConditionType.DISRUPTION_REASON and each["status"] == "True" for each in found)


async def trouble(setting: Driven, random: Random) -> None:
    """One of the things that may happen at any time."""
    match random.randrange(8):
        case 0:
            await setting.program.restart()
        case 1:
            await setting.program.stop()
            await setting.sim.run_for(f"{random.randrange(1, 90)}s")
            await setting.program.start()
        case 2:
            await setting.karpenter.kill()
            await setting.sim.run_for(f"{random.randrange(1, 90)}s")
            await setting.karpenter.start()
        case 3:
            await edit_template(setting, metadata={"labels": {"edition": str(random.randrange(10**6))}})
        case 4:
            await scale(setting, random.randrange(1, 6), "small")
        case 5 | 6:
            error = OutcomeUnknown("lost") if random.random() < 0.5 else Unavailable("away")
            after = isinstance(error, OutcomeUnknown) and random.random() < 0.7
            setting.sim.server.faults.add(
                Fault(error=error, after=after),
                client=names.COMPONENT,
                verb=random.choice(["patch", "create", "delete"]),
            )
        case 7:
            setting.sim.server.faults.drop_watches(None)


@pytest.mark.parametrize("seed", range(4))
async def test_promises_hold_in_random_runs(setting: Driven, seed: int) -> None:
    random = Random(seed)
    promises = Promises(setting)
    old = await stand(setting, pool(budgets=[{"nodes": str(BUDGET)}]), replicas=3)
    await setting.sim.apply(manifests.deployment("small", replicas=4, cpu="700m"))
    await setting.runs_all("small", 4)
    guest = setting.claim(old[0])
    assert guest is not None
    node = guest["status"]["nodeName"]
    await setting.annotate(NODES, node, {names.HELD: None, names.DO_NOT_DISRUPT: None})
    await setting.annotate(NODES, node, {names.HELD: None, names.DO_NOT_DISRUPT: "true"})
    promises.protect(node)
    await edit_template(setting, metadata={"labels": {"edition": "first"}})
    for _ in range(12):
        await setting.sim.run_for(f"{random.randrange(1, 120)}s")
        await trouble(setting, random)
    await setting.sim.run_for("40m")
    assert not promises.broken, "\n".join(promises.broken)
    assert promises.begun
    assert setting.claim(old[0]) is not None
    await setting.runs_all("web", 3, timeout="30m")
    await setting.program.stop()
    await setting.karpenter.kill()
    await clean(setting.sim.server.client("cleanup"))
    left = {
        f"{each['metadata']['name']}: {key}"
        for kind in (NODES, NODECLAIMS)
        for each in setting.sim.objects(kind)
        for key in OURS
        if key in (each["metadata"].get("annotations") or {})
    }
    assert not left
    assert not any(map(tainted, setting.sim.objects(NODES)))
    kept = [each for each in setting.sim.objects(NODES) if names.DO_NOT_DISRUPT in each["metadata"]["annotations"]]
    assert [each["metadata"]["name"] for each in kept] == [node]
