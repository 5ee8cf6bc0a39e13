"""The recipes of CONTRIBUTING.md are complete: a toy reason and toy pod rules, added by them alone, show everywhere.

Each recipe is applied as text to a copy of the program, which then runs in a process of its own.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "src/dovetail"


class Edit(NamedTuple):
    """Text to insert before or after another text that the file has once; without one the file is new."""

    text: str
    before: str = ""
    after: str = ""


Recipe = Mapping[str, tuple[Edit, ...]]

REASON: Recipe = {
    "api/names.py": (
        Edit('    RETIRED = "Retired"\n', after='    INTERRUPTED = "Interrupted"\n'),
        Edit('    RETIRED = "Retired"\n', before='    EXPIRED = "Expired"  # ours'),
    ),
    "api/crds/karpenter.sh_nodepools.yaml": (
        Edit(f"{' ' * 32}- Retired\n", after=f"{' ' * 32}- Expired\n"),
        Edit(f"{' ' * 32}- retired\n", after=f"{' ' * 32}- expired\n"),
    ),
    "rules/reasons.py": (
        Edit(
            "    Reason.RETIRED: DisruptionReason(ConditionType.RETIRED),\n",
            before="    Reason.EXPIRED: DisruptionReason(",
        ),
    ),
    "planning/disruption/board.py": (
        Edit(
            '    STATIC_RETIREMENT = "static-retirement"\n    RETIREMENT = "retirement"\n',
            after='    EXPIRATION = "expiration"\n',
        ),
        Edit(
            "    Method.STATIC_RETIREMENT: Reason.RETIRED,\n    Method.RETIREMENT: Reason.RETIRED,\n",
            after="    Method.EXPIRATION: Reason.EXPIRED,\n",
        ),
        Edit(
            " | {Method.STATIC_RETIREMENT}", after="STATIC = frozenset({Method.STATIC_DRIFT, Method.STATIC_EXPIRATION})"
        ),
    ),
    "planning/disruption/methods.py": (
        Edit(
            "    (Method.STATIC_RETIREMENT, _like_for_like),\n    (Method.RETIREMENT, _replaced),\n",
            after="    (Method.EXPIRATION, _replaced),\n",
        ),
    ),
    "controllers/nodeclaim/retirement.py": (
        Edit(
            '''"""Whose owner says that it is to retire?"""

from dovetail.api import objects
from dovetail.api.names import ConditionType
from dovetail.controllers.base.writing import write_status
from dovetail.controllers.nodeclaim.conditions import ClaimConditions
from dovetail.planning.conditions import Conditions
from dovetail.runtime.work_queue import Done, Outcome


class Retirement(ClaimConditions):
    name = "nodeclaim.retirement"

    async def reconcile_claim(self, claim: objects.NodeClaim) -> Outcome:
        conditions = Conditions(claim, self.clock.now())
        if "example.com/retire" in claim.metadata.annotations and not conditions.is_true(ConditionType.RETIRED):
            conditions.set(ConditionType.RETIRED)
            await write_status(self.api, self.cluster, claim, conditions)
        return Done()
'''
        ),
    ),
    "controllers/assembly.py": (
        Edit(
            "from dovetail.controllers.nodeclaim.retirement import Retirement\n",
            after="from dovetail.controllers.nodeclaim.lifecycle import Lifecycle\n",
        ),
        Edit("        Retirement(cluster),\n", after="        Expiration(cluster, metrics),\n"),
    ),
}

RULE_NAME: Recipe = {
    "rules/verdict.py": (
        Edit('    SETTLING = "settling"\n', after='    DISRUPTION_BLOCK_SCHEDULE = "disruption-block-schedule"\n'),
    ),
}
TABLE = "# In the order of R5.\n"
LAST_ROW = "        faults=lambda annotations: read_schedule(ScheduleKind.BLOCK, annotations).faults,\n    ),\n"

ANNOTATED: Recipe = {
    **RULE_NAME,
    "api/names.py": (
        Edit(
            'SETTLE_FOR: Final = "karpenter.sh/settle-for"\n',
            after='DISRUPTION_BLOCK_DURATION: Final = "karpenter.sh/disruption-block-duration"\n',
        ),
        Edit("    SETTLE_FOR,\n", after="    DISRUPTION_BLOCK_SCHEDULE,\n    DISRUPTION_BLOCK_DURATION,\n"),
        Edit('    INVALID_SETTLE_FOR = "InvalidSettleFor"\n', after="  # ours (R11)\n"),
    ),
    "rules/protection.py": (
        Edit(
            '''def settling(pod: PodRecord, now: datetime) -> Verdict:
    """Protected for the span from its creation."""
    rule, value = Rule.SETTLING, pod.annotations.get(names.SETTLE_FOR)
    if value is None or _settling_faults(pod.annotations):
        return allow(rule, pod.object, "not annotated")
    return _protected_for(rule, pod.object, parse_duration(value), pod.created_at, now)


def _settling_faults(annotations: Mapping[str, str]) -> list[AnnotationFault]:
    try:
        parse_duration(annotations.get(names.SETTLE_FOR, "0s"))
    except DurationError as error:
        return [AnnotationFault(names.EventReason.INVALID_SETTLE_FOR, names.SETTLE_FOR, str(error), "write a duration")]
    return []


''',
            before=TABLE,
        ),
        Edit(
            """    PodRule(
        Rule.SETTLING,
        settling,
        lambda pod: names.SETTLE_FOR in pod.annotations,
        "settling",
        faults=_settling_faults,
        other_input=lambda pod: pod.created_at,
    ),
""",
            after=LAST_ROW,
        ),
    ),
}

UNANNOTATED: Recipe = {
    **RULE_NAME,
    "rules/protection.py": (
        Edit(
            '''def settling(pod: PodRecord, now: datetime) -> Verdict:
    """Every pod is protected for half an hour from its creation."""
    return _protected_for(Rule.SETTLING, pod.object, 30 * MINUTE, pod.created_at, now)


''',
            before=TABLE,
        ),
        Edit(
            """    PodRule(
        Rule.SETTLING,
        settling,
        lambda pod: True,
        "settling",
        other_input=lambda pod: pod.created_at,
        without_annotation=True,
    ),
""",
            after=LAST_ROW,
        ),
    ),
}


def applied(recipe: Recipe, folder: Path) -> Path:
    """A copy of the program with the edits of the recipe; where its packages are."""
    copy = folder / "src"
    shutil.copytree(ROOT / PACKAGE, copy / "dovetail", ignore=shutil.ignore_patterns("__pycache__"))
    for name, edits in recipe.items():
        path = copy / "dovetail" / name
        for edit in edits:
            place = edit.before or edit.after
            if not place:
                assert not path.exists()
                path.write_text(edit.text)
                continue
            text = path.read_text()
            assert text.count(place) == 1, f"{name} has {place!r} {text.count(place)} times"
            path.write_text(text.replace(place, f"{edit.after}{edit.text}{edit.before}"))
    return copy


def seen(recipe: Recipe, scene: str, folder: Path) -> dict[str, Any]:
    """What is seen of the scene when the program has the toy."""
    path = os.pathsep.join((str(applied(recipe, folder)), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.recipe_scenes", scene, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def series(metrics: str, name: str, **labels: str) -> float:
    """The sum of the series of this name that have these labels."""
    total = 0.0
    for line in metrics.splitlines():
        told, _, value = line.rpartition(" ")
        if told.partition("{")[0] == name and all(f'{key}="{text}"' in told for key, text in labels.items()):
            total += float(value)
    return total


def named_files(heading: str) -> set[str]:
    """The files of the program that a section of CONTRIBUTING.md names."""
    section = (ROOT / "CONTRIBUTING.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"`((?:[a-z_]+/)+[a-z_.]+\.(?:py|yaml))`", section))


@pytest.mark.parametrize(
    ("recipe", "heading", "most"),
    [
        (REASON, "How a reason is added", 8),
        (ANNOTATED, "How a rule is added", 5),
        (UNANNOTATED, "How a rule is added", 5),
    ],
)
def test_a_recipe_names_every_file_and_they_are_few(recipe: Recipe, heading: str, most: int) -> None:
    new = {name for name, edits in recipe.items() if not (edits[0].before or edits[0].after)}
    assert len(recipe) <= most
    named = named_files(heading)
    assert set(recipe) - new <= named
    assert [name for name in sorted(named) if not (ROOT / PACKAGE / name).exists() and not (ROOT / name).exists()] == []


def test_a_new_reason_is_acted_on_budgeted_and_shown(tmp_path: Path) -> None:
    found = seen(REASON, "reason", tmp_path)

    (old,) = (each for each in found["explain"]["nodes"] if each["nodeClaim"] == "old")
    node = old["name"]
    assert old["state"] == "S2"
    judged = {each["reason"]: each for each in old["reasons"]}
    assert (judged["Retired"]["wanted"], judged["Retired"]["allowed"]) == (True, False)
    assert [each["rule"] for each in judged["Retired"]["verdicts"] if not each["allowed"]] == ["budget"]
    assert [reason for reason, each in judged.items() if each["wanted"]] == ["Retired"]

    (ahead,) = (each for each in found["forecast"]["nodes"] if each["name"] == node)
    assert [each["reason"] for each in ahead["reasons"] if each["wanted"]] == ["Retired"]
    (pool,) = found["forecast"]["nodepools"]
    assert {each["reason"]: each["spans"][0]["limit"] for each in pool["reasons"]}["Retired"] == 0
    (event,) = (each for each in ahead["events"] if each["type"] == "disrupts")
    assert event["at"] == "2026-03-02T02:00:00Z"
    assert event["message"].startswith("may be disrupted for Retired")

    (fate,) = (each for each in found["plan"]["nodes"] if each["name"] == node)
    assert fate["reasons"] == ["Retired"]

    (row,) = (each for each in found["board"]["rows"] if each["name"] == node)
    assert row["wanted"] == ["Retired"]
    assert (row["stuck"], row["waiting"][0], row["rule"]) == (None, "Retired", "budget")
    assert row["waiting"][1] is not None
    assert "Retired" in [lane["reason"] for lane in found["board"]["pools"][0]["lanes"]]

    metrics = found["metrics"]
    assert series(metrics, "dovetail_nodes_blocked", reason="Retired", blocker="budget") == 1
    assert series(metrics, "karpenter_voluntary_disruption_eligible_nodes", reason="retired") == 1

    then = found["then"]
    assert "2026-03-02T02:00:00Z" < then["at"] < "2026-03-02T02:10:00Z"
    assert then["disrupted"] == 1
    assert "old" not in then["claims"]
    assert series(then["metrics"], "karpenter_voluntary_disruption_decisions_total", reason="retired") == 1


@pytest.mark.parametrize(("recipe", "scene"), [(ANNOTATED, "annotated"), (UNANNOTATED, "unannotated")])
def test_a_new_pod_rule_is_obeyed_and_shown(recipe: Recipe, scene: str, tmp_path: Path) -> None:
    found = seen(recipe, scene, tmp_path)

    assert found["lint"] == (["InvalidSettleFor"] if recipe is ANNOTATED else [])

    pods = {each["name"]: each for each in found["explain"]["pods"]}
    for pod in pods.values():
        assert [each["rule"] for each in pod["verdicts"] if not each["allowed"]] == ["settling"]
        assert pod["until"] is not None
    (aged,) = (each for each in found["explain"]["nodes"] if each["nodeClaim"] == "aged")
    node = aged["name"]
    (drifted,) = (each for each in aged["reasons"] if each["reason"] == "Drifted")
    assert [each["rule"] for each in drifted["verdicts"] if not each["allowed"]] == ["pods"]

    (ahead,) = (each for each in found["forecast"]["nodes"] if each["name"] == node)
    assert [cause["rule"] for cause in ahead["spans"][0]["causes"]] == ["settling"]
    assert ahead["spans"][1]["kind"] == "free"

    (fate,) = (each for each in found["plan"]["nodes"] if each["name"] == node)
    assert found["plan"]["commands"] == []
    assert "protected for 30m" in " ".join(fate["why"])

    (row,) = (each for each in found["board"]["rows"] if each["name"] == node)
    assert [cause[0] for cause in row["causes"]] == ["settling"]

    metrics = found["metrics"]
    assert series(metrics, "dovetail_protected_pods", protection="settling", state="active") == 2
    assert series(metrics, "dovetail_nodes_blocked", reason="Drifted", blocker="settling") == 1

    minutes = found["then"]
    assert 30 <= minutes["leaving"] <= 35
    assert 40 <= minutes["aged"] <= 45
