"""Do commands answer for objects of v1beta1 as for the v1 objects that they are converted to?"""

import json
from typing import Any

import pytest

from tests.harness.eks import asked_of, objects


def _without_grace(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """v1beta1 has no terminationGracePeriod, and claims expire as their pool says."""
    expiries = {}
    for item in items:
        if item["kind"] == "NodePool":
            spec = item["spec"]["template"]["spec"]
            spec.pop("terminationGracePeriod", None)
            expiries[item["metadata"]["name"]] = spec["expireAfter"]
    for item in items:
        if item["kind"] == "NodeClaim":
            item["spec"].pop("terminationGracePeriod", None)
            item["spec"]["expireAfter"] = expiries[item["metadata"]["labels"]["karpenter.sh/nodepool"]]
    return items


def _as_old(item: dict[str, Any]) -> dict[str, Any]:
    if item["kind"] not in ("NodePool", "NodeClaim"):
        return item
    is_pool = item["kind"] == "NodePool"
    node = item["spec"]["template"]["spec"] if is_pool else item["spec"]
    expiry = node.pop("expireAfter")
    node["nodeClassRef"]["apiVersion"] = node["nodeClassRef"].pop("group") + "/v1beta1"
    if is_pool:
        disruption = item["spec"]["disruption"]
        disruption["expireAfter"] = expiry
        if disruption["consolidationPolicy"] == "WhenEmptyOrUnderutilized":
            disruption["consolidationPolicy"] = "WhenUnderutilized"
    return item | {"apiVersion": "karpenter.sh/v1beta1"}


@pytest.mark.parametrize("command", ["explain", "forecast", "plan"])
def test_the_answer_is_that_for_v1(command: str) -> None:
    new, old = _without_grace(objects()), [_as_old(item) for item in _without_grace(objects())]
    answers = []
    for items in (new, old):
        answer = json.loads("\n".join(asked_of(items, command, "-o", "json").lines))
        rules = {problem["rule"] for problem in answer.pop("problems")}
        answers.append((answer, rules - {"OldApiVersion"}, "OldApiVersion" in rules))
    assert answers[0][:2] == answers[1][:2]
    assert (answers[0][2], answers[1][2]) == (False, True)


def test_a_simulation_has_the_nodes() -> None:
    printed = asked_of([_as_old(item) for item in _without_grace(objects())], "simulate", "--for", "10m", "-o", "json")
    report = json.loads("\n".join(printed.lines))
    rules = {problem["rule"] for problem in report["problems"]}
    assert report["nodes"]["atStart"] == 16
    assert "OldApiVersion" in rules
    assert "NoNodePools" not in rules


def test_a_recording_is_of_v1() -> None:
    old = [_as_old(item) for item in _without_grace(objects())]
    kept = json.loads("\n".join(asked_of(old, "record").lines))["items"]
    versions = {item["apiVersion"] for item in kept if item["kind"] in ("NodePool", "NodeClaim")}
    assert versions == {"karpenter.sh/v1"}
    assert {item["spec"]["expireAfter"] for item in kept if item["kind"] == "NodeClaim"} == {"720h", "168h", "Never"}


@pytest.mark.parametrize("command", ["explain", "plan", "simulate"])
def test_a_provisioner_is_refused_by_name(command: str) -> None:
    provisioner = {"apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": "old"}}
    options = ["--for", "1m"] if command == "simulate" else []
    printed = asked_of([*objects(), provisioner], command, *options, "-o", "json")
    problems = json.loads("\n".join(printed.lines))["problems"]
    (told,) = (problem for problem in problems if problem["rule"] == "RemovedKind")
    assert (told["object"], told["severity"]) == ("Provisioner/old", "error")
    assert "NodePool of karpenter.sh/v1" in told["remedy"]
    assert not any("Provisioner" in problem["object"] for problem in problems if problem is not told)
