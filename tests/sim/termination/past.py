"""Every state that an object has had on the simulated server: for what must hold all the time, not only at the end."""

from collections.abc import Sequence
from typing import Any

from dovetail.ports import Resource
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import Raw
from dovetail.sim.server.store import Change
from tests.harness.claims import Manifest


class Past:
    """The states of one cluster-wide object from now on, oldest first."""

    def __init__(self, sim: SimCluster, kind: Resource[Any], name: str) -> None:
        self.states: list[Raw] = []
        self._kind = kind.group, kind.plural
        self._name = name
        sim.server.registry.store.observers.append(self._observe)

    def _observe(self, resource: Resource[Any], change: Change) -> None:
        body = change.new.body
        if (resource.group, resource.plural) == self._kind and body["metadata"]["name"] == self._name:
            self.states.append(body)

    def conditions(self, type_: str) -> list[Manifest]:
        """A condition in every state that has it."""
        return [
            entry
            for state in self.states
            for entry in (state.get("status") or {}).get("conditions") or ()
            if entry["type"] == type_
        ]

    def statuses(self, type_: str) -> list[str]:
        """Each status of a condition that was not the one before."""
        return runs([str(entry["status"]) for entry in self.conditions(type_)])

    def reasons(self, type_: str) -> list[str]:
        return runs([str(entry["reason"]) for entry in self.conditions(type_)])


def runs(texts: Sequence[str]) -> list[str]:
    """The texts without those that repeat the one before."""
    return [text for number, text in enumerate(texts) if number == 0 or text != texts[number - 1]]
