"""What did the controller do, and when: held against what was foretold."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dovetail.api.documents import read_documents
from dovetail.api.names import ConditionType
from dovetail.model.snapshot import Snapshot
from dovetail.ports import NODECLAIMS, NODEPOOLS, NODES, PDBS, PODS, Resource
from dovetail.rules.verdict import Rule
from dovetail.sim.server.store import Change
from dovetail.state.intake import take_in
from dovetail.views.assessment import assess
from dovetail.views.explain.verdicts import Explanation, NodeView, explain
from dovetail.views.forecast.assembly import Forecast
from dovetail.views.forecast.data import Certainty, ForecastEvent, ForecastEventType, NodeForecast
from tests.harness.disruption import allowed, in_disruption
from tests.harness.provisioning import Setting

# The delays of docs/forecast.md.
DELAYS = {
    ForecastEventType.EXPIRES: timedelta(seconds=2),
    ForecastEventType.GRACEFULLY_EXPIRES: timedelta(seconds=2),
    ForecastEventType.DISRUPTS: timedelta(seconds=30),
    ForecastEventType.POD_EVICTED: timedelta(seconds=10),
    ForecastEventType.POD_DELETED: timedelta(seconds=10),
    ForecastEventType.FORCED: timedelta(seconds=10),
    ForecastEventType.DEADLINE: timedelta(seconds=10),
}
# Instants are told to the microsecond, and objects know seconds only.
ROUNDED = timedelta(seconds=1)
MOMENT = timedelta(milliseconds=1)
_KINDS = (NODEPOOLS, NODECLAIMS, NODES, PODS, PDBS)


def dump(setting: Setting) -> Snapshot:
    """What the server holds, read as a file would be."""
    items = [
        {**body, "apiVersion": kind.api_version, "kind": kind.kind}
        for kind in _KINDS
        for body in setting.sim.objects(kind)
    ]
    text = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})
    return take_in(read_documents(text, "store"))[0]


class Tally:
    """How many entries of each type and certainty came true."""

    def __init__(self) -> None:
        self.foretold: Counter[tuple[str, Certainty]] = Counter()
        self.held: Counter[tuple[str, Certainty]] = Counter()
        self.wrong: list[str] = []

    def add(self, type_: str, certainty: Certainty, held: bool, told: str) -> None:
        self.foretold[type_, certainty] += 1
        self.held[type_, certainty] += held
        if not held:
            self.wrong.append(f"{certainty}: {told}")

    def share(self, certainty: Certainty) -> float:
        foretold = sum(count for (_, of), count in self.foretold.items() if of is certainty)
        held = sum(count for (_, of), count in self.held.items() if of is certainty)
        return held / foretold if foretold else 1.0

    def __str__(self) -> str:
        rows = [
            f"  {type_:<20}{certainty:<9}{self.held[type_, certainty]:>5} of {count:>5}"
            for (type_, certainty), count in sorted(self.foretold.items())
        ]
        shares = [f"{certainty}: {self.share(certainty):.2%} came true" for certainty in Certainty]
        return "\n".join([*shares, *rows])


class Facts:
    """When each thing first happened, from now on."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._at: dict[tuple[str, str], datetime] = {}
        setting.sim.server.registry.store.observers.append(self._observe)

    def _observe(self, kind: Resource[Any], change: Change) -> None:
        body = change.new.body
        name = body["metadata"]["name"]
        deleted = body["metadata"].get("deletionTimestamp") is not None or change.type == "DELETED"
        if kind.plural == PODS.plural and deleted:
            self._note("pod", f"Pod/{body['metadata']['namespace']}/{name}")
        elif kind.plural == NODECLAIMS.plural:
            true = {each["type"] for each in body.get("status", {}).get("conditions", ()) if each["status"] == "True"}
            if deleted:
                self._note("deleted", name)
            if in_disruption(body):
                self._note("taken", name)
            if ConditionType.EXPIRED in true:
                self._note("expired", name)
            if ConditionType.INSTANCE_TERMINATING in true or change.type == "DELETED":
                self._note("ended", name)

    def _note(self, what: str, name: str) -> None:
        self._at.setdefault((what, name), self._setting.now())

    def done_at(self, node: NodeForecast, event: ForecastEvent) -> datetime | None:
        claim = node.node_claim or ""
        match event.type:
            case ForecastEventType.EXPIRES:
                return self._at.get(("deleted", claim))
            case ForecastEventType.GRACEFULLY_EXPIRES:
                return self._at.get(("expired", claim))
            case ForecastEventType.DISRUPTS:
                return self._at.get(("taken", claim))
            case ForecastEventType.FORCED | ForecastEventType.DEADLINE:
                return self._at.get(("ended", claim))
            case _:
                return self._at.get(("pod", str(event.object)))

    def holds(self, node: NodeForecast, event: ForecastEvent) -> bool:
        """Whether it was done then; a deadline is the latest instant."""
        done_at = self.done_at(node, event)
        if done_at is None:
            return False
        late = done_at - event.at
        no_sooner = event.type not in (ForecastEventType.FORCED, ForecastEventType.DEADLINE)
        return late <= DELAYS[event.type] and (not no_sooner or late >= -ROUNDED)


async def compare(setting: Setting, forecast: Forecast, tally: Tally, name: str) -> None:
    """Let the span pass, look at the rules' instants when they come, and at the rest in the end."""
    facts = Facts(setting)
    told = [(node, event) for node in forecast.nodes for event in node.events]
    looked_at = [(node, event) for node, event in told if event.type not in DELAYS]
    for at in sorted({event.at for _, event in looked_at} | set(_budget_turns(forecast))):
        await setting.run_until(at - MOMENT)
        snapshot = dump(setting)
        before, after = explain(assess(snapshot, at - timedelta(microseconds=1))), explain(assess(snapshot, at))
        for node, event in looked_at:
            if event.at == at:
                held = _turned(before, after, node.name, event)
                tally.add(event.type, event.certainty, held, f"{name} {node.name} {event}")
        await setting.run_until(at + 2 * ROUNDED)
        _compare_budgets(setting, forecast, at, tally, name)
    await setting.run_until(forecast.end + timedelta(minutes=1))
    for node, event in told:
        if event.type in DELAYS:
            where = f"{name} {node.name} {event}; done {facts.done_at(node, event)}"
            tally.add(event.type, event.certainty, facts.holds(node, event), where)


def _turned(before: Explanation, after: Explanation, name: str, event: ForecastEvent) -> bool:
    """Whether the rules' answer about what the server held changes at that very instant."""
    if event.type in (ForecastEventType.FREE, ForecastEventType.BLOCKED):
        was, is_ = (_node(explanation, name) for explanation in (before, after))
        if was is None or is_ is None:
            return False
        free = (was.free_at == before.at, is_.free_at == after.at)
        return free == ((False, True) if event.type is ForecastEventType.FREE else (True, False))
    rules = (Rule.DISRUPTION_SCHEDULE, Rule.DISRUPTION_BLOCK_SCHEDULE)
    said = [
        [verdict.allowed for verdict in pod.verdicts if verdict.rule in rules]
        for explanation in (before, after)
        for pod in explanation.pods
        if f"Pod/{pod.namespace}/{pod.name}" == str(event.object)
    ]
    return len(said) == 2 and said[0] != said[1]


def _node(explanation: Explanation, name: str) -> NodeView | None:
    return next((node for node in explanation.nodes if node.name == name), None)


def _budget_turns(forecast: Forecast) -> Iterator[datetime]:
    for pool in forecast.nodepools:
        for reason in pool.reasons:
            yield from (span.start for span in reason.spans if forecast.at < span.start < forecast.end)


def _compare_budgets(setting: Setting, forecast: Forecast, at: datetime, tally: Tally, name: str) -> None:
    """What the pool's status says a moment later."""
    certainty = Certainty.EXACT if at < forecast.exact_until else Certainty.ASSUMED
    for pool in forecast.nodepools:
        status = allowed(setting, pool.name)
        for reason in pool.reasons:
            for span in reason.spans:
                if span.start == at and reason.reason in status:
                    told = (span.limit, span.in_use, span.allowed)
                    held = status[reason.reason] == told
                    tally.add("budget", certainty, held, f"{name} {pool.name} {span}; is {status[reason.reason]}")
