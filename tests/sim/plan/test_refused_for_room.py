"""A node whose pods fit elsewhere, but not as the scheduler would put them: events, decisions and `plan` say so."""

import json
from pathlib import Path

import pytest

from dovetail.api import names
from dovetail.api.names import EventReason
from dovetail.controllers.disruption.engine import DisruptionController
from dovetail.values.timestamp import format_time
from dovetail.web.debug import decisions
from dovetail.web.stream import Visibility
from tests.harness import manifests
from tests.harness.disruption import disrupted, edit_pool, play, pool
from tests.harness.dumps import dump
from tests.harness.provisioning import OF_FOUR, Setting
from tests.harness.stage import stage
from tests.harness.termination import GUARDED
from tests.unit.cli.running import Program

pytestmark = stage(play)

REQUIREMENTS = [
    {**OF_FOUR, "values": ["s-8x-amd64-linux"]},
    {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["on-demand"]},
]


async def refused(setting: Setting) -> str:
    """Have such a node, and return its name.

    Two nodes have room for 2950m and 3900m, so that two pods of 1900m and one of 2900m fit. But the scheduler puts each
    where most is free: the large one or one of the two equal ones finds no room in any order.
    """
    await setting.begin(pool(template={"requirements": REQUIREMENTS}, consolidateAfter="Never"))
    old = await setting.launch("old", requirements=REQUIREMENTS)
    await setting.sim.apply(
        manifests.deployment("even", replicas=2, cpu="1900m"), manifests.deployment("odd", cpu="2900m")
    )
    await setting.runs_all("even", 2)
    await setting.runs_all("odd", 1)
    for name, cpu in (("x", "4950m"), ("y", "4")):
        pods = [manifests.pod(f"p-{name}", cpu=cpu, annotations=GUARDED)]
        await setting.launch(name, requirements=REQUIREMENTS, pods=pods)
    await edit_pool(setting, consolidateAfter="0s")
    await setting.sim.run_for("1m")
    return old


def sentence(setting: Setting) -> str:
    (pod,) = setting.sim.pods(app="odd")
    name = pod["metadata"]["name"]
    return f"would save $0.2344/h, but default/{name} would find no room once the others have landed"


async def test_events_and_decisions_say_why_the_node_stays(setting: Setting) -> None:
    node = await refused(setting)
    (engine,) = (each for each in setting.program.controllers if isinstance(each, DisruptionController))
    why = sentence(setting)
    assert decisions((), engine.left_alone, Visibility(None))["leftAlone"][node] == why
    hidden = decisions((), engine.left_alone, Visibility(frozenset()))["leftAlone"][node]
    assert hidden.startswith("would save $0.2344/h, but ")
    assert "odd" not in hidden
    await setting.sim.run_for("1h")
    assert setting.notes(EventReason.UNCONSOLIDATABLE, node)[-1] == why
    assert disrupted(setting, "underutilized") == 0
    assert len(setting.cloud.machines) == 3


async def test_plan_says_why_the_node_stays(setting: Setting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    node = await refused(setting)
    file = tmp_path / "dump.json"
    file.write_bytes(dump(setting))
    dovetail = Program(monkeypatch, tmp_path)
    arguments = ("plan", "-f", str(file), "--at", format_time(setting.now()))
    why = sentence(setting)
    assert f"{node}   default   stays   {why}\n" in dovetail(*arguments).out
    plan = json.loads(dovetail(*arguments, "-o", "json").out)
    (told,) = (each for each in plan["nodes"] if each["name"] == node)
    assert (told["fate"], told["why"]) == ("stays", [why])
