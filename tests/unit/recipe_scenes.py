"""What a toy reason and a toy pod rule do to a simulated cluster, and what each command says of it, as JSON.

`python -m tests.unit.recipe_scenes <scene> <folder>` is run by test_recipes.py on a copy of the program that has them.
"""

import json
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from dovetail.api.documents import read_documents
from dovetail.cli.main import program
from dovetail.controllers.metrics.cluster import ClusterMetrics
from dovetail.observe.metrics import Metrics
from dovetail.ports import KWOK_NODECLASSES, NODECLAIMS, NODEPOOLS, NODES, PODS
from dovetail.state.intake import take_in
from dovetail.values.timestamp import format_time
from dovetail.views.assessment import assess
from dovetail.views.board.maker import BoardMaker
from tests.harness import manifests
from tests.harness.disruption import EVER, disrupted, drift, hold, play, pool
from tests.harness.metrics_text import exposition
from tests.harness.provisioning import Setting

KINDS = (KWOK_NODECLASSES, NODEPOOLS, NODECLAIMS, NODES, PODS)
TOY_ANNOTATION = "karpenter.sh/settle-for"


class Scene:
    """Collects what is seen while the scenario plays; the commands are asked afterwards."""

    def __init__(self) -> None:
        self.objects: list[Mapping[str, Any]] = []
        self.at: datetime
        self.metrics = ""
        self.then: dict[str, Any] = {}

    def watch(self, setting: Setting) -> CollectorRegistry:
        registry = CollectorRegistry()
        registry.register(ClusterMetrics(setting.program.cluster, setting.sim.clock, leads=lambda: True))
        return registry

    def look(self, setting: Setting, registry: CollectorRegistry) -> None:
        self.at = setting.now()
        self.objects = [
            {"apiVersion": kind.api_version, "kind": kind.kind, **each}
            for kind in KINDS
            for each in setting.sim.objects(kind)
        ]
        self.metrics = "".join(exposition(each).decode() for each in (registry, _registry(setting.metrics)))


def _registry(metrics: Metrics) -> CollectorRegistry:
    found = metrics.registry
    assert isinstance(found, CollectorRegistry)
    return found


def reason() -> Scene:
    """A node has the toy reason, and the budget of that reason holds it back from midnight until 02:00."""
    scene = Scene()

    async def scenario(setting: Setting) -> None:
        registry = scene.watch(setting)
        closed = {"nodes": "0", "reasons": ["Retired"], "schedule": "0 0 * * *", "duration": "2h"}
        await setting.begin(pool(consolidateAfter="Never", budgets=[closed, EVER]))
        await hold(setting, "old", "young")
        await setting.annotate(NODECLAIMS, "old", {"example.com/retire": "true"})
        await setting.sim.run_for("1m")
        scene.look(setting, registry)
        await setting.sim.wait_until(lambda: setting.gone(NODECLAIMS, "old"), timeout="3h")
        scene.then = {
            "at": format_time(setting.now()),
            "disrupted": disrupted(setting, "retired"),
            "claims": sorted(each["metadata"]["name"] for each in setting.claims()),
            "metrics": exposition(_registry(setting.metrics)).decode(),
        }

    play(scenario)
    return scene


def pod_rule(annotations: Mapping[str, str]) -> Scene:
    """The toy rule protects pods for half an hour: one on a node that is drained, and one that comes ten minutes later
    on a node that has drifted."""
    scene = Scene()

    async def scenario(setting: Setting) -> None:
        registry = scene.watch(setting)
        await setting.begin(pool(consolidateAfter="Never"))
        begin = setting.now()
        await hold(setting, "leaving", pods={"annotations": annotations})
        await setting.delete_claim("leaving")
        await setting.sim.run_for("10m")
        await hold(setting, "aged", pods={"annotations": annotations})
        await drift(setting, "aged")
        await setting.sim.run_for("1m")
        scene.look(setting, registry)
        taken: dict[str, float] = {}
        for _ in range(60):
            await setting.sim.run_for("1m")
            for name in ("aged", "leaving"):
                if name not in taken and setting.gone(PODS, f"p-{name}"):
                    taken[name] = (setting.now() - begin) / timedelta(minutes=1)
        scene.then = taken

    play(scenario)
    return scene


SCENES: Mapping[str, Callable[[], Scene]] = {
    "reason": reason,
    "annotated": lambda: pod_rule({TOY_ANNOTATION: "30m"}),
    "unannotated": lambda: pod_rule({}),
}


def main() -> None:
    scene, folder = SCENES[sys.argv[1]](), Path(sys.argv[2])
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": scene.objects}))
    told: dict[str, Any] = {"metrics": scene.metrics, "then": scene.then}
    for command in ("explain", "forecast", "plan"):
        found = CliRunner().invoke(program, [command, "-f", str(path), "-o", "json", "--at", format_time(scene.at)])
        assert found.exit_code in (0, 1), found.output
        told[command] = json.loads(found.stdout)
    bad = folder / "pod.json"
    bad.write_text(json.dumps(manifests.pod("bad", annotations={TOY_ANNOTATION: "soon"})))
    linted = json.loads(CliRunner().invoke(program, ["lint", str(bad), "-o", "json"]).stdout)
    told["lint"] = [each["rule"] for each in linted["problems"] if each["severity"] == "error"]
    snapshot, *_ = take_in(read_documents(path.read_bytes(), str(path)))
    board = BoardMaker().make(assess(snapshot, scene.at), scene.at + timedelta(days=1))
    told["board"] = msgspec.to_builtins(board, enc_hook=str)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
