"""One decision from beginning to end, made by the program itself: what the documentation shows.

examples/disruption.yaml is applied to the simulated cluster, its Deployment is scaled down, and what the program says
is kept as it says it.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from prometheus_client import CollectorRegistry

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.cli.cleanup.cleaner import clean
from dovetail.cli.commands.cleanup import CleanupReport, lines_of
from dovetail.controllers.assembly import FeatureGates, all_controllers
from dovetail.controllers.disruption.engine import DisruptionController
from dovetail.controllers.provisioning.provisioner import ProvisioningOptions
from dovetail.observe.logs import JsonLines
from dovetail.observe.metrics import Metrics
from dovetail.planning.timings import Timings
from dovetail.ports import EVENTS, NODECLAIMS, NODEPOOLS, Patch, Resource
from dovetail.providers.kwok.bundle import kwok_controllers
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.manager import Controller
from dovetail.sim.actors.cluster import SimCluster
from dovetail.sim.actors.wire import DEPLOYMENTS, Raw
from dovetail.sim.loop.virtual_loop import InlineCompute
from dovetail.sim.server.store import Change
from dovetail.values.timestamp import parse_time
from dovetail.web.debug import decisions
from dovetail.web.stream import EVERYTHING
from tests.harness.running import Program, run_controllers

EXAMPLE: Final = Path(__file__).parents[3] / "examples" / "disruption.yaml"
# What people are told of this decision, besides conditions.
TOLD: Final = {"DisruptionLaunching", "DisruptionWaitingReadiness", "DisruptionTerminating", "Nominated", "Evicted"}


class Shown(msgspec.Struct, frozen=True):
    """What the page shows."""

    timeline: str
    log: str
    record: str
    decisions: str
    events: str
    pool: str
    cleanup: str


class _Timeline:
    """What NodeClaims show, and when it changed, in seconds from now on."""

    def __init__(self, sim: SimCluster) -> None:
        self._sim = sim
        self._began_at = sim.clock.now()
        self._known = {each["metadata"]["name"]: _shows(each) for each in sim.objects(NODECLAIMS)}
        self._lines: dict[tuple[int, str], list[str]] = {}
        sim.server.registry.store.observers.append(self._observe)

    def _observe(self, kind: Resource[Any], change: Change) -> None:
        if kind.plural != NODECLAIMS.plural:
            return
        claim, at = change.new.body, self._sim.clock.now() - self._began_at
        name, shows = claim["metadata"]["name"], "gone" if change.type == "DELETED" else _shows(claim)
        if shows and shows != self._known.get(name):
            self._lines.setdefault((round(at.total_seconds()), shows), []).append(name)
            self._known[name] = shows

    def text(self) -> str:
        return "".join(
            f"{at:>3} s  {', '.join(sorted(found))}: {shows}\n" for (at, shows), found in self._lines.items()
        )


def _shows(claim: Raw) -> str:
    conditions = {each["type"]: each for each in (claim.get("status") or {}).get("conditions") or ()}
    state = conditions.get(ConditionType.DISRUPTION_STATE)
    quiet = ", Consolidatable" if ConditionType.CONSOLIDATABLE in conditions else ""
    return "" if state is None else f"{state['reason']} ({state['message']}){quiet}"


class _Log(logging.Handler):
    """Lines as they are written, but by the virtual clock."""

    def __init__(self, sim: SimCluster) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self._sim = sim
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        record.created = self._sim.clock.now().timestamp()
        self.lines.append(msgspec.json.decode(self.format(record)))


@contextmanager
def _logged(sim: SimCluster) -> Iterator[_Log]:
    handler, logger = _Log(sim), logging.getLogger("dovetail.controllers")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def decision() -> Shown:
    """Two half-empty nodes become one."""
    made: list[DisruptionController] = []

    def controllers_of(program: Program) -> list[Controller]:
        provider = KwokProvider(program.api, seed=0)
        controllers = all_controllers(
            program.cluster,
            provider,
            Metrics(CollectorRegistry()),
            Timings(),
            FeatureGates(),
            provisioning=ProvisioningOptions(compute=InlineCompute()),
            disrupting=True,
            of_provider=kwok_controllers(provider, program.cluster),
        )
        made.extend(each for each in controllers if isinstance(each, DisruptionController))
        return list(controllers)

    async def scenario(sim: SimCluster, _: Program) -> Shown:
        with _logged(sim) as log:
            await sim.apply(EXAMPLE.read_text(encoding="utf-8"))
            await sim.wait_until(lambda: len(sim.pods(app="web", ready=True)) == 14, timeout="5m")
            assert len(sim.objects(NODECLAIMS)) == 2
            await sim.run_for("5m")
            await sim.api.write(Patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}}, namespace="default"))
            timeline, scaled_at = _Timeline(sim), sim.clock.now()
            await sim.wait_until(lambda: bool(_records(sim)), timeout="5m")
            record = _records(sim)[0]
            await sim.run_for("500ms")
            cleaned = CleanupReport(dry_run=True, objects=await clean(sim.server.client("cleanup"), dry_run=True))
            await sim.wait_until(lambda: _in_use(sim) == 2, timeout="10s")
            pool = _pool(sim)
            await sim.wait_until(lambda: len(sim.objects(NODECLAIMS)) == 1, timeout="15m")
            await sim.run_for("1m")
            (line,) = (each for each in log.lines if each["message"] == "disrupting node(s)")
            return Shown(
                timeline=timeline.text(),
                log=_pretty(line),
                record=_pretty(msgspec.json.decode(record)),
                decisions=_pretty(_gist(decisions(made[-1].history, made[-1].left_alone, EVERYTHING))),
                events=_events(sim, scaled_at),
                pool=_pretty({"disruptions": pool["status"]["disruptions"]}),
                cleanup=click.unstyle("\n".join(lines_of(cleaned))) + "\n",
            )

    return run_controllers(scenario, controllers_of)


def _pool(sim: SimCluster) -> Raw:
    found = sim.object(NODEPOOLS, "general")
    assert found is not None
    return found


def _in_use(sim: SimCluster) -> int:
    return int(_pool(sim)["status"]["disruptions"][0]["inUse"])


def _records(sim: SimCluster) -> list[str]:
    annotations = [each["metadata"].get("annotations") or {} for each in sim.objects(NODECLAIMS)]
    return [each[names.DISRUPTION_COMMAND] for each in annotations if names.DISRUPTION_COMMAND in each]


def _gist(decisions: dict[str, Any]) -> dict[str, Any]:
    """Without what the log has said: jq '{commands: [.commands[] | {at, command}], leftAlone}'."""
    commands = [{"at": each["at"], "command": each["command"]} for each in decisions["commands"]]
    return {"commands": commands, "leftAlone": decisions["leftAlone"]}


def _pretty(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _events(sim: SimCluster, since: datetime) -> str:
    """On claims and pods; Nodes are told the same as their claims."""
    found = [each for each in sim.objects(EVENTS) if each["reason"] in TOLD and each["regarding"]["kind"] != "Node"]
    lines = []
    for event in sorted(found, key=lambda event: (event["eventTime"], event["regarding"]["name"], event["reason"])):
        at, about = parse_time(event["eventTime"]) - since, event["regarding"]
        if at.total_seconds() >= 0:
            lines.append(f"{at.seconds:>3} s  {about['kind']}/{about['name']}  {event['reason']}: {event['note']}\n")
    return "".join(lines)
