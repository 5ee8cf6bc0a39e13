"""The objects of a dump give the same assessment and decision, whether documents or watches feed the state."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from dovetail.api import names, objects
from dovetail.api.documents import Document, read_documents
from dovetail.controllers.base.cluster import WatchedCluster
from dovetail.controllers.base.instance_types import InstanceTypeSource
from dovetail.model.instance_types import TypeCatalogue
from dovetail.planning.disruption.assessment import DisruptionAssessment, DisruptionInputs, DisruptionPlanner
from dovetail.planning.disruption.board import DisruptionBoard
from dovetail.planning.disruption.methods import decide_pass
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.scheduling.placement import SchedulingOptions
from dovetail.sim.loop.virtual_loop import VirtualClock, simulate
from dovetail.sim.scenarios.one_shot import look
from dovetail.sim.scenarios.reading import Scenario, read_scenario
from dovetail.sim.scenarios.restore import prepare
from dovetail.sim.server.api_server import ApiServer
from dovetail.state.scheduling import SchedulingState
from tests.harness import manifests
from tests.harness.builders import at
from tests.harness.claims import condition, node_class
from tests.harness.placing import a_claim, a_daemon_set, a_node, a_pod, a_pool

EXAMPLES = Path(__file__).parents[3] / "examples"
NOW = at("2026-03-04T12:00:00Z")


def watched(scenario: Scenario) -> tuple[DisruptionAssessment, DisruptionBoard]:
    """As the controllers see it, whose caches follow a server that holds these objects."""
    prepared = prepare(scenario)

    class Machines(KwokProvider):
        async def instance_types(self, pool: objects.NodePool) -> TypeCatalogue:  # noqa: ARG002
            return TypeCatalogue(0, prepared.machines.types)

    async def main(clock: VirtualClock) -> tuple[DisruptionAssessment, DisruptionBoard]:
        server = ApiServer(clock, collect_garbage=False)
        for each in prepared.objects:
            if each.resource.kind != "Namespace" or each.key not in ("default", "kube-system"):
                server.registry.restore(each.resource, each.body, namespace=each.namespace)
        cluster = WatchedCluster(server, clock, prepared.node_classes.read_as(objects.NodeClass))
        state = SchedulingState(cluster)
        types = InstanceTypeSource(cluster, Machines(server), keep_seconds=300)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(cache.run()) for cache in cluster.reflectors]
            for cache in cluster.reflectors:
                await cache.wait_synced()
            await types.refresh(state.usable_pools())
            await cluster.settled()
            for task in running:
                task.cancel()
        planner = DisruptionPlanner(options=SchedulingOptions())
        assessment = planner.assess(DisruptionInputs(snapshot=state.snapshot(scenario.start)))
        return assessment, planner.board(assessment)

    found = simulate(main, start=scenario.start)
    assert found is not None
    return found


def told(assessment: DisruptionAssessment, board: DisruptionBoard) -> dict[str, Any]:
    """All of it but UIDs, which the server makes where a file has none."""
    decision = decide_pass(board, ConsolidationOptions())
    return {
        "candidates": {
            reason: [
                (each.node, each.claim, each.pool, each.price, each.cost, each.since, paths(each.pods))
                for each in found
            ]
            for reason, found in assessment.candidates.items()
        },
        "left": [(each.node, str(each.sentence)) for each in assessment.left],
        "allowances": dict(board.allowances),
        "pools": assessment.pools,
        "owed": sorted(paths(assessment.inputs.snapshot.owed)),
        "nodes": [
            (each.name, each.open, each.initialized, each.requested, each.taints) for each in assessment.places.nodes
        ],
        "left out": assessment.places.left_out,
        "daemons": [(each.name) for each in assessment.places.daemons],
        "wake at": assessment.wake_at,
        "commands": [(each.reason, each.nodes, len(each.replacements)) for each in decision.commands],
        "refused": {node: str(why) for node, why in decision.refused.items()},
    }


def paths(pods: Any) -> list[tuple[str, str, Any]]:
    return [(pod.namespace, pod.name, pod.request) for pod in pods]


def compare(documents: Sequence[Document]) -> dict[str, Any]:
    scenario = read_scenario(documents, now=NOW, start=NOW)
    still = look(documents, NOW)
    here, there = told(still.assessment, still.board), told(*watched(scenario))
    for part, found in here.items():
        assert found == there[part], part
    return here


@pytest.mark.parametrize(
    "name", ["cluster.yaml", "disruption.yaml", "provisioning.yaml", "scenarios/week.yaml", "scenarios/upgrade.yaml"]
)
def test_examples(name: str) -> None:
    path = EXAMPLES / name
    compare(list(read_documents(path.read_bytes(), path.name)))


def random_cluster(chance: Random) -> list[dict[str, Any]]:
    up, reasons = ["Registered", "Initialized"], ["Consolidatable", "Consolidatable", "Drifted", "InstanceTerminating"]
    items: list[dict[str, Any]] = [
        node_class(),
        a_pool("default", disruption={"consolidateAfter": "0s", "budgets": [{"nodes": chance.choice(["1", "100%"])}]}),
        manifests.priority_class("high", 1000, globalDefault=chance.random() < 0.5),
        manifests.pdb("a", maxUnavailable=chance.choice([0, 1])),
        a_daemon_set("d"),
    ]
    offered = {names.CAPACITY_TYPE_LABEL: "on-demand", names.ZONE_LABEL: "test-zone-a"}
    for number in range(6):
        node = a_node(f"n{number}", unregistered=chance.random() < 0.1)
        claim = a_claim(f"c{number}", of=chance.choice([f"n{number}"] * 9 + ["n0"]), true=[*up, chance.choice(reasons)])
        node["status"]["conditions"] = [condition("Ready", "True" if chance.random() < 0.9 else "False")]
        for each in (node, claim):
            each["metadata"]["labels"] |= {names.INSTANCE_TYPE_LABEL: "s-4x-amd64-linux", **offered}
        items += [node, claim] if chance.random() < 0.9 else [node]
    items += [
        a_pod(
            f"p{number}",
            on=chance.choice(["", *(f"n{each}" for each in range(6))]),
            cpu=chance.choice(["100m", "500m", "1", "1", "much"]),
            labels={"app": chance.choice("ab")},
            annotations=chance.choice([{}, {}, {}, {names.DO_NOT_DISRUPT: "true"}]),
            phase=chance.choice(["Running", "Running", "Succeeded"]),
            priorityClassName=chance.choice(["", "high"]),
        )
        for number in range(9)
    ]
    return items


def test_random_clusters() -> None:
    seen: Counter[str] = Counter()
    for seed in range(16):
        dump = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": random_cluster(Random(seed))})
        found = compare(list(read_documents(dump, "dump.json")))
        seen.update(part for part, value in found.items() if value)
    parts = ("candidates", "left", "owed", "nodes", "commands", "refused", "daemons")
    assert all(seen[part] for part in parts), seen  # it was about something
