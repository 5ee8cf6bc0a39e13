"""Whoever may not list a pod never reads its name or namespace, on any path (R49).

What the engine says is not made up here: it decides about random boards, and in simulated clusters. Everything that a
reader with rights for some namespaces can ask for is then read, byte for byte.
"""

import random
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from prometheus_client import generate_latest

from dovetail.api import names
from dovetail.api.names import ConditionType
from dovetail.controllers.disruption.engine import DisruptionController, PastDecision
from dovetail.model.pod_records import PodRecord
from dovetail.model.refs import Redactable, Ref, Sentence
from dovetail.model.snapshot import Snapshot
from dovetail.planning.disruption.board import Candidate, DisruptionBoard
from dovetail.planning.disruption.methods import decide_pass
from dovetail.planning.disruption.validation import validated
from dovetail.ports import NODECLAIMS, Delete
from dovetail.scheduling.fast import World
from dovetail.scheduling.placement import BoundPod, NodeInfo, PodInfo, TopologyRule
from dovetail.sim.loop.virtual_loop import InlineCompute
from dovetail.web.debug import decisions
from dovetail.web.sources import BoardSource, ControllerSource, PushedSource, decided
from dovetail.web.stream import EVERYTHING, Stream, Visibility
from tests.harness import builders, manifests
from tests.harness.claims import Manifest
from tests.harness.disruption import drift, hold, play, pool
from tests.harness.provisioning import Setting
from tests.harness.snapshots import take_snapshot
from tests.harness.stage import real_time, stage
from tests.unit.planning.disruption.random_boards import Cluster, random_cluster

pytestmark = stage(play)

# No text of ours holds these by chance.
SPACES: Final = {"shop": "xq-shop", "bank": "xq-bank", "lab": "xq-lab"}


def someone(dice: random.Random) -> Visibility:
    """A reader with rights for some of the namespaces."""
    return Visibility(frozenset(dice.sample(sorted(SPACES.values()), dice.choice((0, 1, 2)))))


class Told:
    """Everything that a reader can get."""

    def __init__(self, source: BoardSource, history: Iterable[PastDecision], left_alone: dict[str, Sentence]) -> None:
        self._stream = Stream(source, InlineCompute())
        self._history = tuple(history)
        self._left_alone = left_alone

    async def to(self, sight: Visibility) -> str:
        return "\n".join([each async for each in self._answers(sight)])

    async def left_alone(self, node: str, sight: Visibility) -> str:
        """What the page says of a node, with everything that the reader may see."""
        details = await self._stream.details(f"Node/{node}", sight)
        return str(details.left_alone)

    async def _answers(self, sight: Visibility) -> AsyncIterator[str]:
        body, _, _ = await self._stream.whole(sight)
        yield body.decode()
        for member in self._stream.assessment.snapshot.nodes:
            details = await self._stream.details(str(member.object), sight)
            yield msgspec.json.encode(details, enc_hook=str).decode()
        async with aclosing(self._stream.events("", sight)) as events:
            yield (await anext(aiter(events))).decode()
        yield msgspec.json.encode(decisions(self._history, self._left_alone, sight)).decode()


def leaks(text: str, sight: Visibility, pods: Iterable[tuple[str, str]]) -> list[str]:
    """Names and namespaces in the text that the reader may not see."""
    hidden = [(namespace, name) for namespace, name in pods if not sight.may_see(namespace)]
    return sorted({word for pod in hidden for word in pod if word in text})


# -- random boards ----------------------------------------------------------------------------------------------------


def renamed(cluster: Cluster) -> Cluster:
    """The same with pods that have unmistakable names, in namespaces that have such."""
    problem = cluster.problem
    nodes = tuple(msgspec.structs.replace(each, pods=tuple(map(_bound, each.pods))) for each in problem.nodes)
    candidates = {reason: tuple(_candidate(each) for each in some) for reason, some in cluster.board.candidates.items()}
    world = World(nodes, problem.pools, problem.types, problem.daemons, problem.options)
    board = msgspec.structs.replace(
        cluster.board, world=world, owed=tuple(map(_pod, cluster.board.owed)), candidates=candidates
    )
    return msgspec.structs.replace(
        cluster, board=board, problem=msgspec.structs.replace(problem, nodes=nodes, pods=board.owed)
    )


def _candidate(candidate: Candidate) -> Candidate:
    return msgspec.structs.replace(candidate, pods=tuple(map(_pod, candidate.pods)))


def _pod(pod: PodInfo) -> PodInfo:
    rules = {
        field: tuple(map(_rule, getattr(pod, field)))
        for field in ("rules", "preferred_together", "preferred_apart", "preferred_spread")
    }
    return msgspec.structs.replace(pod, namespace=SPACES[pod.namespace], name=f"xq-pod-{pod.uid}", **rules)


def _bound(pod: BoundPod) -> BoundPod:
    return msgspec.structs.replace(pod, namespace=SPACES[pod.namespace], apart=tuple(map(_rule, pod.apart)))


def _rule(rule: TopologyRule) -> TopologyRule:
    spaces = None if rule.namespaces is None else frozenset(SPACES.get(each, each) for each in rule.namespaces)
    return msgspec.structs.replace(rule, namespaces=spaces)


def snapshot_of(board: DisruptionBoard) -> Snapshot:
    """Nodes that have the names of the board's, with the pods that would have to move."""
    candidates = {each.node: each for some in board.candidates.values() for each in some}
    reasons = (ConditionType.DRIFTED, ConditionType.CONSOLIDATABLE)
    # A drain that has no deadline says for which pods it waits.
    ending = {node: None if number % 3 else builders.CREATED for number, node in enumerate(candidates)}
    pods: list[PodRecord] = []
    for each in candidates.values():
        for pod in each.pods:
            told = {names.DO_NOT_DISRUPT: "true"} if len(pods) % 2 else {}
            pods.append(builders.pod(pod.name, namespace=pod.namespace, node=each.node, annotations=told))
    return take_snapshot(
        nodes=[builders.node(each.node, pool=each.pool, provider_id=each.node) for each in candidates.values()],
        claims=[
            builders.claim(each.claim, pool=each.pool, provider_id=each.node, true=reasons, deleted=ending[each.node])
            for each in candidates.values()
        ],
        pools=[builders.pool(name) for name in board.pools],
        pods=pods,
    )


def full(cluster: Cluster) -> DisruptionBoard:
    """The same board, if all other nodes had filled up meanwhile and no machine could be bought."""
    problem = cluster.problem
    nodes: list[NodeInfo] = [msgspec.structs.replace(each, requested=each.allocatable) for each in problem.nodes]
    world = World(nodes, problem.pools, {}, problem.daemons, problem.options)
    return msgspec.structs.replace(cluster.board, world=world)


class Pass(NamedTuple):
    """What a pass has said of a random board, and what the validation of its commands has."""

    board: DisruptionBoard
    history: list[PastDecision]
    left_alone: dict[str, Sentence]


def decided_on(seed: int) -> Pass:
    cluster = renamed(random_cluster(seed))
    decision = decide_pass(cluster.board, cluster.rules)
    later = full(cluster)
    history = [
        PastDecision(command=command, rejected=validated(command, later, cluster.rules).rejected)
        for command in decision.commands
    ]
    return Pass(cluster.board, history, dict(decision.refused))


@pytest.mark.parametrize("seed", range(40))
@stage(real_time)
async def test_no_sentence_of_the_engine_names_a_hidden_pod(seed: int) -> None:
    dice = random.Random(seed)
    board, history, left_alone = decided_on(seed)
    snapshot = snapshot_of(board)
    pods = [(pod.namespace, pod.name) for pod in snapshot.pods]
    source = PushedSource(title="t")
    source.push(board.at, snapshot, decisions=[decided(each) for each in history], left_alone=left_alone)
    told = Told(source, history, left_alone)
    sight = someone(dice)
    assert leaks(await told.to(sight), sight, pods) == []
    for node, why in left_alone.items():
        assert await told.left_alone(node, sight) == str(why.redacted(sight.may_see))
    everything = await told.to(EVERYTHING)
    assert all(msgspec.json.encode(str(why)).decode() in everything for why in left_alone.values())


def test_the_random_boards_make_the_engine_name_pods() -> None:
    """Else the test above would show nothing."""
    passes = [decided_on(seed) for seed in range(40)]
    refused = [str(why) for each in passes for why in each.left_alone.values()]
    rejected = [str(past.rejected.message) for each in passes for past in each.history if past.rejected is not None]
    assert sum("xq-pod-" in text for text in refused) >= 10
    assert sum("xq-pod-" in text for text in rejected) >= 10


# -- simulated clusters -----------------------------------------------------------------------------------------------


def odd_pods(dice: random.Random, number: int) -> Iterable[Manifest]:
    """A few pods, each of which gives the engine something to say."""
    for index in range(dice.choice((1, 2, 3))):
        name = f"xq-pod-{number}-{index}"
        annotations: dict[str, str] = {}
        spec: dict[str, Any] = {"cpu": dice.choice(("100m", "500m"))}
        match dice.randrange(8):
            case 0:
                annotations = {names.DO_NOT_DISRUPT: "true"}
            case 1:
                annotations = {names.DO_NOT_DISRUPT: "4h"}
            case 2:
                annotations = {names.DO_NOT_DISRUPT: f"not-{name}"}
            case 3:
                spec["nodeSelector"] = {"karpenter.sh/registered": "true"}
            case 4:
                spec["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": f"data-{name}"}}]
            case 5:
                spec["cpu"] = "3"
            case 6:
                annotations = {names.DISRUPTION_SCHEDULE: "0 2 * * *", names.DISRUPTION_SCHEDULE_DURATION: "1h"}
            case _:
                pass
        made = manifests.pod(name, annotations=annotations, **spec)
        made["metadata"] |= {"namespace": dice.choice(sorted(SPACES.values())), "labels": {"app": f"app-of-{name}"}}
        yield made


def guards(dice: random.Random, pods: Iterable[Manifest]) -> Iterable[Manifest]:
    """PodDisruptionBudgets that allow nothing, called as their pods are."""
    for pod in pods:
        if dice.random() < 0.3:
            made = manifests.pdb(f"pdb-of-{pod['metadata']['name']}", maxUnavailable=0)
            made["metadata"]["namespace"] = pod["metadata"]["namespace"]
            made["spec"]["selector"] = {"matchLabels": dict(pod["metadata"]["labels"])}
            yield made


@pytest.mark.parametrize("seed", range(4))
async def test_no_path_of_a_running_controller_names_a_hidden_pod(setting: Setting, seed: int) -> None:
    dice = random.Random(seed)
    sim = setting.sim
    await sim.apply(
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in SPACES.values())
    )
    await setting.begin(pool())
    claims = [f"c{number}" for number in range(6)]
    for number, claim in enumerate(claims):
        pods = list(odd_pods(dice, number))
        (node,) = await hold(setting, claim)
        await setting.bind(node, *pods)
        await sim.apply(*guards(dice, pods))
    await drift(setting, *dice.sample(claims[:-1], 2))
    (disruption,) = (each for each in setting.program.controllers if isinstance(each, DisruptionController))
    source = ControllerSource(setting.program.cluster, disruption, title="t")
    pods_seen: set[tuple[str, str]] = set()
    for step in range(6):
        await sim.run_for("20s")
        there = [pod["metadata"] for pod in sim.pods()]
        pods_seen |= {(meta["namespace"], meta["name"]) for meta in there if meta["namespace"] in SPACES.values()}
        told = Told(source, disruption.history, disruption.left_alone)
        sight = someone(dice)
        assert leaks(await told.to(sight), sight, pods_seen) == []
        metrics = generate_latest(setting.metrics.registry).decode()
        assert leaks(metrics, Visibility(frozenset()), pods_seen) == []
        if step == 2 and setting.claim("c5") is not None:  # a drain without a deadline names whom it waits for
            await sim.api.write(Delete(NODECLAIMS, "c5"))


# -- the parts --------------------------------------------------------------------------------------------------------


def test_a_hidden_part_is_replaced_and_the_rest_is_kept() -> None:
    secret, node = Ref("Pod", "payroll", "ledger-0"), Ref("Node", "", "n1")
    whole = Sentence(
        "Drifted: ", Sentence(Redactable(secret, "pod payroll/ledger-0 needs"), " 1 cpu on ", node), ", until 12"
    )
    assert str(whole) == "Drifted: pod payroll/ledger-0 needs 1 cpu on Node/n1, until 12"
    assert whole.redacted(lambda _: True) == whole
    hidden = "Drifted: a pod in a namespace that you may not list 1 cpu on Node/n1, until 12"
    assert str(whole.redacted(lambda _: False)) == hidden
