"""Looks on while drive works beside a Karpenter, and keeps what must not be.

    promises = DrivePromises(setting, budget=2)
    ...
    assert not promises.broken
    assert not await left_after_cleanup(setting)

A user's annotation is never changed, and its node never taken; Karpenter takes no node that is held; the budget holds.
"""

from typing import Any, Final

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.cli.cleanup.cleaner import clean
from dovetail.ports import NODECLAIMS, NODES, PODS, EventType, Resource
from dovetail.sim.actors.wire import Raw, deleting
from dovetail.sim.server.store import Change
from tests.harness.driving import BESIDE_TAINT, Driven

OURS: Final = (
    names.HELD,
    names.ROLLED,
    names.HASH_BEFORE,
    names.POD_HOLD,
    names.DISRUPTION_COMMAND,
    names.REPLACEMENT_OF,
)


class DrivePromises:
    """Looks at every write. `budget`: so many nodes may be disrupted at once."""

    def __init__(self, setting: Driven, *, budget: int) -> None:
        self.broken: list[str] = []
        self.begun = 0
        self._setting = setting
        self._budget = budget
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
            if going > self._budget:
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


def reasoned(claim: Raw) -> bool:
    found = (claim.get("status") or {}).get("conditions") or ()
    return any(each["type"] == ConditionType.DISRUPTION_REASON and each["status"] == "True" for each in found)


async def left_after_cleanup(setting: Driven) -> list[str]:
    """Ends drive and Karpenter, cleans up, and returns the marks that are left."""
    await setting.program.stop()
    await setting.karpenter.kill()
    await clean(setting.sim.server.client("cleanup"))
    marks = [
        f"{each['kind']} {each['metadata']['name']}: {key}"
        for kind in (NODES, NODECLAIMS, PODS)
        for each in setting.sim.objects(kind)
        for key in OURS
        if key in (each["metadata"].get("annotations") or {})
    ]
    return marks + [f"taint of {each['metadata']['name']}" for each in setting.nodes() if tainted(each)]
