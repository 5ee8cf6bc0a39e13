"""`lint` and `explain` say of the same mistake that it is equally severe: an error has no effect as it is written."""

import json
from itertools import product
from typing import Any

import pytest

from dovetail.api import names
from tests.unit.cli.running import Program

SCHEDULES = ("0 22-6 * * *", "0 9 * * 1-5 *", "Europe/Berlin 0 2 * * 6", "0 0 31 2 *", "0 * * * *", "")
DURATIONS = ("8h", "10s", "8d", "2h;4h", "x")
Raw = dict[str, Any]


def protections() -> list[dict[str, str]]:
    texts = ("true", "false", "4 hours", "yes", "0s", "-4h", "1d", "")
    found = [{names.DO_NOT_DISRUPT: text} for text in texts]
    for schedule, duration in (
        (names.DISRUPTION_SCHEDULE, names.DISRUPTION_SCHEDULE_DURATION),
        (names.DISRUPTION_BLOCK_SCHEDULE, names.DISRUPTION_BLOCK_DURATION),
    ):
        found += [{schedule: text, duration: length} for text, length in product(SCHEDULES, DURATIONS)]
        found += [{duration: "8h"}, {schedule: SCHEDULES[0]}, {names.DO_NOT_DISRUPT: "true", schedule: SCHEDULES[0]}]
    return [*found, {"karpenter.sh/do-not-disrupts": "true"}, {"karpenter.sh/disruption-duration": "1h"}]


def on_nodes() -> list[dict[str, str]]:
    texts = ("true", "4h", "yes", "false", "0s")
    found = [{key: text} for key in (names.DO_NOT_DISRUPT, names.DO_NOT_REPAIR) for text in texts]
    return [*found, {names.HELD: "nonsense"}, {"karpenter.sh/do-not-evict": "true"}]


def mistakes() -> list[Raw]:
    def made(kind: str, version: str, number: int, annotations: dict[str, str], **parts: Any) -> Raw:
        meta = {
            "name": f"{kind.lower()}-{number}",
            "annotations": annotations,
            "creationTimestamp": "2026-03-01T00:00:00Z",
        }
        return {"apiVersion": version, "kind": kind, "metadata": meta | parts.pop("metadata", {}), **parts}

    containers = {"nodeName": "node-0", "containers": [{"name": "c", "image": "i"}]}
    for_pods = {"metadata": {"namespace": "d"}, "spec": containers, "status": {"phase": "Running"}}
    pods = [made("Pod", "v1", number, each, **for_pods) for number, each in enumerate(protections())]
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    nodes = [made("Node", "v1", number, each, status=ready) for number, each in enumerate(on_nodes())]
    reference = {"group": names.KWOK_GROUP, "kind": "KWOKNodeClass", "name": "default"}
    template = {"spec": {"nodeClassRef": reference, "requirements": []}}
    budgets: list[list[Raw]] = [
        [{"nodes": "0"}],
        [{"nodes": "1", "schedule": "0 25 * * *", "duration": "1h"}],
        [{"nodes": "1", "schedule": "0 2 * * *"}],
        [{"nodes": "ten"}],
        [{"nodes": 10}],
        [{"nodes": "10", "reasons": ["Nope"]}],
        [{"nodes": "10", "reasons": ["Expired"]}],
        [{"nodes": "1", "schedule": "0 * * * *", "duration": "8h"}],
        [{"nodes": "5"}, {"nodes": "10", "reasons": ["Drifted"]}],
    ]
    pools = [
        made("NodePool", names.API_VERSION, number, {}, spec={"template": template, "disruption": {"budgets": each}})
        for number, each in enumerate(budgets)
    ]
    return [*pods, *nodes, *pools]


@pytest.mark.parametrize("decider", ["dovetail", "karpenter", "karpenter@1.11"])
def test_a_mistake_is_as_severe_in_explain_as_in_lint(dovetail: Program, decider: str) -> None:
    file = dovetail.file(json.dumps({"apiVersion": "v1", "kind": "List", "items": mistakes()}), "all.json")
    severities: list[dict[tuple[str, ...], str]] = []
    for arguments in (("lint", file), ("explain", "-f", file, "--at", "2026-03-06T00:00:00Z")):
        said = dovetail(*arguments, "-o", "json", "--decider", decider)
        problems = json.loads(said.out)["problems"]
        severities.append({(each["object"], each["field"], each["rule"]): each["severity"] for each in problems})
    lint, explain = severities
    both = lint.keys() & explain.keys()
    assert len(both) > 80
    assert {key: lint[key] for key in both} == {key: explain[key] for key in both}
