"""What is kept from one board to the next is what a board made from nothing would say."""

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from dovetail.api.names import CANDIDATE_TAINT, DISRUPTED_TAINT
from dovetail.model.node_records import ClaimRecord, InstanceLabels, NodeRecord
from dovetail.model.pdb_records import PdbRecord
from dovetail.model.pod_records import PodRecord
from dovetail.model.pool_records import PoolRecord
from dovetail.model.rule_settings import BudgetSemantics, RuleSettings
from dovetail.model.snapshot import Snapshot
from dovetail.views.assessment import assess
from dovetail.views.board.maker import BoardMaker
from dovetail.views.explain.verdicts import explain
from tests.browser.clusters import NOW, PROTECTIONS, cluster
from tests.harness import builders
from tests.harness.snapshots import take_snapshot
from tests.harness.soak import examples

DAY = timedelta(days=1)


class Records:
    """A cluster whose records are edited at random."""

    def __init__(self, nodes: int, seed: int) -> None:
        self.chance = Random(seed)
        snapshot = cluster(nodes, seed)
        self.pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
        self.nodes = {member.node.name: member.node for member in snapshot.nodes if member.node is not None}
        self.claims = {member.claim.name: member.claim for member in snapshot.nodes if member.claim is not None}
        self.pools = dict(snapshot.pools)
        self.pdbs = {(pdb.namespace, pdb.name): pdb for pdb in snapshot.pdbs}

    def snapshot(self) -> Snapshot:
        return take_snapshot(
            pods=self.pods.values(),
            nodes=self.nodes.values(),
            claims=self.claims.values(),
            pools=self.pools.values(),
            pdbs=self.pdbs.values(),
        )

    def edit(self, at: datetime) -> None:
        edits: list[Callable[[datetime], None]] = [
            self._edit_pod,
            self._edit_pod,
            self._remove_pod,
            self._add_pod,
            self._edit_node,
            self._edit_claim,
            self._edit_pool,
            self._edit_pdb,
            self._edit_machine,
            lambda _: None,
        ]
        self.chance.choice(edits)(at)

    def _edit_pod(self, at: datetime) -> None:
        key = self.chance.choice(list(self.pods))
        changes: list[dict[str, Any]] = [
            {"ready": self.chance.choice([True, False])},
            {"phase": self.chance.choice(["Pending", "Running", "Succeeded"])},
            {"priority": self.chance.choice([0, 0, 1000])},
            {"node_name": self.chance.choice(["", *self.nodes])},
            {"deleted_at": at + timedelta(seconds=30)},
        ]
        self.pods[key] = msgspec.structs.replace(self.pods[key], **self.chance.choice(changes))

    def _remove_pod(self, _at: datetime) -> None:
        if len(self.pods) > 1:
            del self.pods[self.chance.choice(list(self.pods))]

    def _add_pod(self, _at: datetime) -> None:
        protected = self.chance.choice([{}, *PROTECTIONS])
        app = self.chance.choice(["cart", "ledger", "redis"])
        pod: PodRecord = builders.pod(
            f"{app}-{self.chance.randrange(10**6)}",
            namespace=self.chance.choice(["shop", "pay", "data"]),
            node=self.chance.choice(list(self.nodes)),
            labels={"app": app},
            created="2026-03-06T12:00:00Z",
            grace=self.chance.choice([0, 30, 7200]),
            **protected,  # type: ignore[arg-type]
        )
        self.pods[pod.namespace, pod.name] = pod

    def _edit_node(self, _at: datetime) -> None:
        name = self.chance.choice(list(self.nodes))
        node: NodeRecord = self.nodes[name]
        changes: list[dict[str, Any]] = [
            {"ready": not node.ready},
            {"do_not_disrupt": self.chance.choice([None, "true", "200h", "nonsense"])},
            {"taints": ((CANDIDATE_TAINT, "PreferNoSchedule"),)},
            {"taints": ((DISRUPTED_TAINT, "NoSchedule"),)},
            {"taints": ()},
        ]
        self.nodes[name] = msgspec.structs.replace(node, **self.chance.choice(changes))

    def _edit_claim(self, at: datetime) -> None:
        name = self.chance.choice(list(self.claims))
        claim: ClaimRecord = self.claims[name]
        changes: list[dict[str, Any]] = [
            {"deleted_at": at, "termination_timestamp": None},
            {"deleted_at": None},
            {"expire_after_ns": self.chance.choice([None, 150, 160, 170, 180])},
            {"grace_period_ns": self.chance.choice([None, 3600 * 10**9])},
            {"last_pod_event_at": at},
            {"conditions": {**claim.conditions, "DisruptionReason": claim.conditions["Initialized"]}},
            {"conditions": {**claim.conditions, "Drifted": claim.conditions["Initialized"]}},
        ]
        change = self.chance.choice(changes)
        if isinstance(hours := change.get("expire_after_ns"), int):
            change = {"expire_after_ns": hours * 3600 * 10**9}
        self.claims[name] = msgspec.structs.replace(claim, **change)

    def _edit_pool(self, _at: datetime) -> None:
        name = self.chance.choice(list(self.pools))
        pool: PoolRecord = self.pools[name]
        budgets = [
            builders.budget("10%"),
            builders.budget("0", ["Empty"], f"{self.chance.randrange(60)} * * * *", "20m"),
        ]
        changes: list[dict[str, Any]] = [
            {"budgets": tuple(budgets)},
            {"consolidate_after_ns": self.chance.choice([None, 300 * 10**9])},
            {"graceful_expire_after_ns": self.chance.choice([None, 140 * 3600 * 10**9])},
        ]
        self.pools[name] = msgspec.structs.replace(pool, **self.chance.choice(changes))

    def _edit_pdb(self, _at: datetime) -> None:
        key = self.chance.choice(list(self.pdbs))
        pdb: PdbRecord = self.pdbs[key]
        changes: list[dict[str, Any]] = [
            {"disruptions_allowed": self.chance.choice([None, 0, 1])},
            {"expected_pods": self.chance.choice([None, 9])},
            {"current_healthy": self.chance.choice([None, 9])},
        ]
        self.pdbs[key] = msgspec.structs.replace(pdb, **self.chance.choice(changes))

    def _edit_machine(self, _at: datetime) -> None:
        name = self.chance.choice(list(self.nodes))
        machine = InstanceLabels(zone=self.chance.choice("abc"))
        self.nodes[name] = msgspec.structs.replace(self.nodes[name], machine=machine)


@pytest.mark.parametrize("seed", range(examples(12, quick=4)))
def test_boards_and_explanations_of_what_changed_are_those_made_from_nothing(seed: int) -> None:
    records = Records(12, seed)
    chance, at, boards, before = records.chance, NOW, BoardMaker(), None
    for _ in range(20):
        for _ in range(chance.choice([0, 1, 1, 2])):
            records.edit(at)
        at += timedelta(seconds=chance.choice([-600, 0, 0.5, 7, 61, 900, 5 * 3600, 30 * 3600]))
        end = at.replace(minute=0, second=0, microsecond=0) + 2 * DAY
        semantics = BudgetSemantics.UPSTREAM if chance.random() < 0.02 else BudgetSemantics.SEED
        # Records may also be equal without being the same.
        snapshot = msgspec.structs.replace(records.snapshot(), settings=RuleSettings(budgets=semantics))
        before = assess(snapshot, at, before=before)
        fresh = assess(snapshot, at)
        assert boards.make(before, end) == BoardMaker().make(fresh, end)
        assert explain(before) == explain(fresh)


def test_a_changed_pod_costs_the_assessment_and_the_row_of_its_node_alone() -> None:
    snapshot = cluster(500, 3)
    steady = [member for member in snapshot.nodes if member.claim is not None and member.claim.deleted_at is None]
    snapshot = msgspec.structs.replace(
        snapshot, nodes=tuple(steady), pods=tuple(pod for member in steady for pod in member.pods)
    )
    boards, end = BoardMaker(), NOW + 7 * DAY
    assessment = assess(snapshot, NOW)
    board = boards.make(assessment, end)
    changed = next(pod for pod in snapshot.pods if pod.namespace == "ci")
    edited = take_snapshot(
        pods=[msgspec.structs.replace(pod, ready=False) if pod is changed else pod for pod in snapshot.pods],
        nodes=[member.node for member in snapshot.nodes if member.node is not None],
        claims=[member.claim for member in snapshot.nodes if member.claim is not None],
        pools=snapshot.pools.values(),
        pdbs=snapshot.pdbs,
    )
    later = assess(edited, NOW + timedelta(seconds=3), before=assessment)
    assessed = [node.member.name for old, node in zip(assessment.nodes, later.nodes, strict=True) if node is not old]
    assert assessed == [changed.node_name]
    following = boards.make(later, end)
    assert [row.name for old, row in zip(board.rows, following.rows, strict=True) if row is not old] == assessed
