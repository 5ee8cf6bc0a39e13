"""Do consolidation commands come out as planned? Random clusters in virtual time.

`python -m bench plans` plays eight clusters for two days; `python -m bench plans 40 1` plays forty for one day.
Each has ten Deployments and StatefulSets of 250m to 3 cpu, some with spread constraints and PodDisruptionBudgets, that
change their size four times. A launch is unplanned if no command asked for it and nothing from outside explains it.
`accounted` and `unplanned` are what the controller's own accounts say of the savings and of such launches (ADR-0038).
`promised` includes commands that were given up before they did anything.
"""

import random
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import msgspec

from dovetail.api import names
from dovetail.api.documents import Document
from dovetail.planning.disruption.commands import Command
from dovetail.ports import NODECLAIMS, EventType, Resource
from dovetail.rules.nodes import CONSOLIDATION
from dovetail.sim.scenarios.player import Play
from dovetail.sim.scenarios.reading import read_scenario
from dovetail.sim.server.store import Change
from dovetail.values.timestamp import format_time

START: Final = datetime(2026, 3, 2, tzinfo=UTC)
_CLASS: Final = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
_SIZES: Final = (250, 500, 900, 1000, 1800, 2000, 2800, 3000)  # millicores
_BLAMED: Final = timedelta(minutes=15)  # a launch is blamed on a command that started so long before
_CHANGES: Final = 4
_NANO: Final = 1e9  # prices are counted in billionths
_COLUMNS: Final = {
    **dict.fromkeys(("commands", "given_up", "followed", "unplanned"), "d"),
    **dict.fromkeys(("promised", "realised", "accounted"), ".3f"),
    **dict.fromkeys(("moved", "launched"), "d"),
    "cost": ".2f",
}


class PlanFigures(msgspec.Struct, kw_only=True):
    """What came of the plans in one cluster, or in several."""

    commands: int = 0
    followed: int = 0  # commands that an unplanned launch followed
    promised: float = 0.0  # dollars per hour
    realised: float = 0.0  # measured from outside
    accounted: float = 0.0  # realised by the controller's accounts
    given_up: int = 0  # commands that were rolled back before they did anything
    unplanned: int = 0  # launches by the controller's accounts
    moved: int = 0
    launched: int = 0
    cost: float = 0.0
    rest_minutes: float = 0.0  # after the last change from outside; of several clusters, the longest

    def __add__(self, other: "PlanFigures") -> "PlanFigures":
        total = {name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        return PlanFigures(**total | {"rest_minutes": max(self.rest_minutes, other.rest_minutes)})


def documents(seed: int, span: timedelta) -> list[Document]:
    """An empty cluster, its workloads, and when they change their size."""
    draw = random.Random(seed)
    objects: list[dict[str, Any]] = [pool()]
    workloads = []
    for number in range(10):
        parts = workload(draw, number)
        workloads.append(parts[0])
        objects += parts
    events = [
        {"at": f"{after.total_seconds():.0f}s", "apply": edit(draw, workloads)}
        for after in change_times(seed, span)[1:]
    ]
    objects.append(
        {
            "apiVersion": "dovetail.dev/v1alpha1",
            "kind": "Scenario",
            "start": format_time(START),
            "for": f"{span.total_seconds():.0f}s",
            "seed": seed,
            "events": events,
        }
    )
    return [
        Document("bench", index, None, None, body["apiVersion"], body["kind"], value=body)
        for index, body in enumerate(objects, 1)
    ]


def edit(draw: random.Random, workloads: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One to three of the workloads with another number of replicas."""
    changed = []
    for workload in draw.sample(workloads, draw.randint(1, 3)):
        meta = {"name": workload["metadata"]["name"], "namespace": "default"}
        spec = {"replicas": max(1, round(workload["spec"]["replicas"] * draw.choice((0.4, 0.6, 1.5, 2))))}
        changed.append({"apiVersion": "apps/v1", "kind": workload["kind"], "metadata": meta, "spec": spec})
    return changed


def change_times(seed: int, span: timedelta) -> list[timedelta]:
    """When something changes from outside, the start included; the last two hours and more are quiet."""
    draw = random.Random(f"changes {seed}")
    return [timedelta(0), *sorted(span * draw.uniform(0.1, 0.9) for _ in range(_CHANGES))]


def pool() -> dict[str, Any]:
    """Types of 4, 8 and 16 cpus."""
    types = [f"{family}-{size}x-amd64-linux" for family in "cs" for size in (4, 8, 16)]
    requirements = [
        {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": types},
        {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["on-demand"]},
    ]
    template = {"spec": {"nodeClassRef": _CLASS, "requirements": requirements, "expireAfter": "Never"}}
    disruption = {"consolidateAfter": "5m", "budgets": [{"nodes": "20%"}]}
    spec = {"template": template, "disruption": disruption}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": spec}


def workload(
    draw: random.Random, number: int, kinds: tuple[str, ...] = ("Deployment", "Deployment", "StatefulSet")
) -> list[dict[str, Any]]:
    """A workload, and its PodDisruptionBudget if it has one."""
    name, labels = f"w{number}", {"app": f"w{number}"}
    kind = draw.choice(kinds)
    requests = {"cpu": f"{draw.choice(_SIZES)}m", "memory": f"{draw.choice((256, 512, 1024))}Mi"}
    pod: dict[str, Any] = {
        "containers": [{"name": "main", "image": "example", "resources": {"requests": requests}}],
        "terminationGracePeriodSeconds": draw.choice((1, 30, 60)),
    }
    if draw.random() < 0.3:
        spread = {"maxSkew": 1, "labelSelector": {"matchLabels": labels}, "whenUnsatisfiable": "DoNotSchedule"}
        pod["topologySpreadConstraints"] = [
            spread | {"topologyKey": draw.choice((names.ZONE_LABEL, names.HOSTNAME_LABEL))}
        ]
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": draw.randint(1, 12), "selector": {"matchLabels": labels}, "template": template}
    meta = {"name": name, "namespace": "default"}
    objects = [{"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec}]
    if kind == "StatefulSet":
        spec["serviceName"] = name
    if draw.random() < 0.4:
        budget = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
        objects.append({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": budget})
    return objects


class _Watcher:
    """Notes launches, the price of all nodes over time, and the commands of one cluster."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.unasked: list[datetime] = []  # launches that no command asked for
        self.rates: list[tuple[datetime, float]] = [(play.now, 0.0)]
        self._prices: dict[str, float] = {}
        play.sim.server.registry.store.observers.append(self._observe)

    def _observe(self, resource: Resource[Any], change: Change) -> None:
        if resource.plural != NODECLAIMS.plural:
            return
        claim, now = change.new.body, self._play.now
        name, price = claim["metadata"]["name"], self._price(claim)
        if change.old is None and names.REPLACEMENT_OF not in (claim["metadata"].get("annotations") or {}):
            self.unasked.append(now)
        before = dict(self._prices)
        if change.type is EventType.DELETED:
            self._prices.pop(name, None)
        elif price:
            self._prices[name] = price
        if self._prices != before:
            self.rates.append((now, sum(self._prices.values())))

    def _price(self, claim: Mapping[str, Any]) -> float:
        machine = self._play.cloud.machines.get((claim.get("status") or {}).get("providerID", ""))
        return 0.0 if machine is None else float(machine.instance.labels.get(names.INSTANCE_PRICE_LABEL, 0.0))

    def rate_at(self, at: datetime) -> float:
        return [rate for since, rate in self.rates if since <= at][-1]


def play(seed: int, span: timedelta) -> PlanFigures:
    """One cluster."""
    scenario = read_scenario(documents(seed, span), now=START, span=span)
    changes = [START + after for after in change_times(seed, span)]
    with Play(scenario) as playing:
        watcher = _Watcher(playing)
        commands: dict[str, Command] = {}
        while playing.now < scenario.end:
            playing.advance(min(playing.now + timedelta(minutes=30), scenario.end))
            past = (entry.command for entry in playing.disruption.history if entry.rejected is None)
            commands |= {command.id: command for command in past if command.reason in CONSOLIDATION}
        totals = playing.disruption.accounts.totals
        report = playing.report()
    assert not report.violations, report.violations
    started = sorted(commands.values(), key=lambda command: command.at)
    followed = {id_ for at in watcher.unasked if (id_ := _blamed(at, started, changes)) is not None}
    figures = PlanFigures(
        commands=len(started),
        followed=len(followed),
        accounted=totals.realised / _NANO,
        given_up=totals.given_up,
        unplanned=totals.unplanned,
        moved=report.pods.evicted,
        launched=report.nodes.launched,
        cost=report.cost.total,
        rest_minutes=(watcher.rates[-1][0] - changes[-1]) / timedelta(minutes=1),
    )
    for since, until in pairwise([*changes, scenario.end]):
        inside = [command for command in started if since <= command.at < until]
        if inside:
            figures.promised += sum(command.savings or 0 for command in inside) / _NANO
            figures.realised += watcher.rate_at(inside[0].at) - watcher.rate_at(until - timedelta(seconds=1))
    return figures


def _blamed(at: datetime, commands: list[Command], changes: list[datetime]) -> str | None:
    """The command that the launch is blamed on: the last one, if nothing changed from outside since it started."""
    before = [command for command in commands if at - _BLAMED <= command.at <= at]
    return before[-1].id if before and not any(before[-1].at <= change <= at for change in changes) else None


def print_plans(clusters: float = 8, days: float = 2.0) -> None:
    """Print what came of the plans of so many clusters."""
    span, began, total = timedelta(days=days), time.process_time(), PlanFigures()
    print(f"plans of {clusters:g} random clusters over {days:g} days")
    print(f"{'seed':>5} " + " ".join(f"{name.replace('_', ' '):>9}" for name in _COLUMNS))
    for seed in range(int(clusters)):
        figures = play(seed, span)
        total += figures
        _print_row(str(seed), figures)
    _print_row("all", total)
    print(f"rest after {total.rest_minutes:.0f} min at most; {time.process_time() - began:.0f} s of CPU\n", flush=True)


def _print_row(name: str, row: PlanFigures) -> None:
    cells = (f"{getattr(row, column):{form}}" for column, form in _COLUMNS.items())
    print(f"{name:>5} " + " ".join(f"{cell:>9}" for cell in cells), flush=True)
