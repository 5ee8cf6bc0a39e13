"""What `explain` says of a node with a reason to go is what the controller does, replacements included.

A node that explain calls free is taken, or waits for its turn, and explain says so. Only the pause after a replacement
that failed is unknown to explain: the controller has it in memory, and an event on the node tells it. A node that
explain calls blocked is not taken while nothing changes.

Every run is determined by its seed. This prints the share of 500 runs, as the soak profile does:

    python -m tests.sim.explain.test_explain_agrees_with_action 0 500
"""

import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

from msgspec import UNSET

from dovetail.api.documents import read_documents
from dovetail.api.names import EventReason
from dovetail.cli.common.options import ClusterSource
from dovetail.cli.common.replacements import assessed
from dovetail.cli.common.sources import understood
from dovetail.ports import NODEPOOLS, InsufficientCapacity, Patch
from dovetail.rules.reasons import MARKED
from dovetail.rules.states import IN_DISRUPTION
from dovetail.rules.verdict import Rule
from dovetail.sim.cloud.machines import Launch
from dovetail.views.explain.verdicts import NodeView, explain
from tests.harness import manifests
from tests.harness.disruption import drift, play, pool, stand
from tests.harness.dumps import dump
from tests.harness.provisioning import BIG, Setting
from tests.harness.soak import SOAK

RUNS = 500 if SOAK else 6
SAMPLES, LONGEST_TURN, LONGEST_PASS = 40, 6, 1  # of half a minute each
PINNED: dict[str, Any] = {"nodeSelector": {"example.com/nowhere": "at-all"}}


def explained(setting: Setting) -> dict[str, NodeView]:
    """The nodes, by the names of their claims."""
    read = understood(list(read_documents(dump(setting), "dump.json")), [])
    found = explain(assessed(read, ClusterSource(("dump.json",)), setting.now()))
    return {node.node_claim: node for node in found.nodes if node.node_claim}


def reasons(node: NodeView) -> list[tuple[bool, set[str]]]:
    """For each reason of the node that replaces it: whether it is allowed, and the rules that block it."""
    return [
        (each.allowed, {verdict.rule for verdict in each.verdicts if not verdict.allowed})
        for each in node.reasons
        if each.wanted and each.reason in MARKED
    ]


async def prepare(setting: Setting, chance: Random) -> list[str]:
    """A few nodes of one or two workloads, some of which drift; the names of the claims that drift."""
    template = {"terminationGracePeriod": "1h"} if chance.random() < 0.3 else {}
    budget = {"nodes": chance.choice(["100%", "1", "2", "0"])}
    await setting.begin(pool(budgets=[budget], consolidateAfter=chance.choice(["Never", "0s"]), template=template))
    if chance.random() < 0.3:
        await setting.sim.apply(manifests.pdb("web", maxUnavailable=chance.choice([0, 1])))
    annotations = {"karpenter.sh/do-not-disrupt": chance.choice(["true", "5m"])} if chance.random() < 0.2 else {}
    web: dict[str, Any] = {"cpu": chance.choice([BIG, "1"]), "annotations": annotations}
    claims = await stand(setting, replicas=chance.randint(1, 4), **web)
    if chance.random() < 0.5:
        claims = await stand(setting, replicas=chance.randint(1, 2), cpu=BIG, app="db")
    limit = chance.choice([None, None, len(claims) * 4 - 4, len(claims) * 4, len(claims) * 4 + 4])
    if limit is not None:
        limits = {"spec": {"limits": {"cpu": str(limit)}}}
        await setting.sim.api.write(Patch(NODEPOOLS.read_as(dict[str, Any]), "default", limits))
    fails = chance.choice([None, None, Launch(ready=False), Launch(error=InsufficientCapacity("none"), seconds=1)])
    if fails is not None:
        setting.cloud.next_launches(fails)
    return [claim for claim in claims if chance.random() < 0.7] or claims[:1]


def judge(
    setting: Setting, before: dict[str, NodeView], free: Counter[str], agreed: Counter[bool]
) -> dict[str, NodeView]:
    """Compares what explain said half a minute ago with what has happened since."""
    now = explained(setting)
    for name, node in before.items():
        wanted = reasons(node)
        if node.state in IN_DISRUPTION or not wanted or name not in now:
            continue
        is_taken = now[name].state in IN_DISRUPTION
        free[name] = 0 if is_taken or not any(allowed for allowed, _ in wanted) else free[name] + 1
        if is_taken:
            # Only a change since then can have made room: another node that came or went.
            unchanged = before.keys() == now.keys()
            agreed[any(rules <= {Rule.BUDGET} for _, rules in wanted) or not unchanged] += 1
        elif free[name] >= LONGEST_TURN:
            agreed[False] += 1
        elif free[name] > LONGEST_PASS:
            agreed[_is_in_turn(node) or bool(setting.events(EventReason.DISRUPTION_ROLLED_BACK, node.name))] += 1
        elif not any(allowed for allowed, _ in wanted):
            agreed[all(rules for _, rules in wanted)] += 1
    return now


def _is_in_turn(node: NodeView) -> bool:
    return node.answer is not UNSET and "waits for its turn" in str(node.answer.cause)


async def run(setting: Setting, chance: Random, agreed: Counter[bool]) -> None:
    await drift(setting, *await prepare(setting, chance))
    before, free = explained(setting), Counter[str]()
    for _ in range(SAMPLES):
        await setting.sim.run_for("30s")
        before = judge(setting, before, free, agreed)


def agreement(seeds: Sequence[int]) -> tuple[str, list[int]]:
    """The share of the answers that agree, as a sentence, and the seeds of runs with one that does not."""
    agreed: Counter[bool] = Counter()
    wrong = []
    for seed in seeds:
        here: Counter[bool] = Counter()
        play(partial(run, chance=Random(seed), agreed=here), seed=seed)
        agreed += here
        if here[False]:
            wrong.append(seed)
    total = agreed.total()
    assert total > len(seeds)
    share = agreed[True] / total
    return f"explain agreed with action {agreed[True]} times of {total}, in {len(seeds)} runs: {share:.1%}", wrong


def test_explain_agrees_with_action() -> None:
    sentence, wrong = agreement(range(RUNS))
    print(sentence)
    assert wrong == []


if __name__ == "__main__":
    SENTENCE, WRONG = agreement(range(*map(int, sys.argv[1:])))
    print(SENTENCE, *(["seeds:", *WRONG] if WRONG else []))
    sys.exit(bool(WRONG))
