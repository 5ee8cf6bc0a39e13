"""In what the engine differs beside Karpenter (10 §I.4)."""

from collections.abc import Sequence

import msgspec
import pytest

from dovetail.api import names, objects
from dovetail.api.names import DovetailMode
from dovetail.model.decider import DOVETAIL, KARPENTER, Decider, DecidingController
from dovetail.model.node_records import AwaitedReplacements, ClaimRecord
from dovetail.planning.disruption.execution import BY_DOVETAIL, BY_KARPENTER, execution_of
from dovetail.planning.disruption.replacing import ConsolidationOptions
from dovetail.planning.nodepool.hash import pool_annotations, pool_hash
from dovetail.rules.states import state_of
from tests.harness.builders import at, claim, member, node

OURS = (names.BESIDE_DISRUPTED_TAINT, "NoSchedule")
KARPENTERS = (names.DISRUPTED_TAINT, "NoSchedule")
WRITTEN = {names.NODEPOOL_HASH: "theirs", names.NODEPOOL_HASH_VERSION: "v9"}


def in_command(*, true: Sequence[str] = ()) -> ClaimRecord:
    awaits = AwaitedReplacements(deadline=at("2026-03-04T11:00:00Z"))
    return msgspec.structs.replace(claim(true=true), awaits=awaits)


@pytest.mark.parametrize(
    ("of", "taint", "state"),
    [
        pytest.param(in_command(), OURS, "S3", id="the marks of drive"),
        pytest.param(claim(), OURS, "S1", id="our taint, without a record"),
        pytest.param(in_command(), KARPENTERS, "S1", id="a record, with the taint of Karpenter"),
        pytest.param(claim(true=["DisruptionReason"]), OURS, "S1", id="Karpenter's condition, with our taint"),
        pytest.param(claim(true=["DisruptionReason"]), KARPENTERS, "S3", id="the marks of Karpenter"),
    ],
)
def test_a_node_is_in_s3_by_the_marks_of_one_of_them(of: ClaimRecord, taint: tuple[str, str], state: str) -> None:
    assert state_of(member(of, node(taints=[taint]))) == state


def test_beside_karpenter_its_marks_are_those_of_another() -> None:
    taken = objects.NodeClaim(
        status=objects.NodeClaimStatus(conditions=[objects.Condition(type="DisruptionReason", status="True")])
    )
    tainted = objects.Node(spec=objects.NodeSpec(taints=[objects.Taint(key=KARPENTERS[0], effect=KARPENTERS[1])]))
    assert BY_KARPENTER.is_claim_of_another(taken)
    assert BY_KARPENTER.is_node_of_another(tainted)
    assert not BY_KARPENTER.is_claim_of_another(objects.NodeClaim())
    assert not BY_KARPENTER.is_node_of_another(objects.Node())
    assert not BY_DOVETAIL.is_claim_of_another(taken)
    assert not BY_DOVETAIL.is_node_of_another(tainted)


def test_karpenter_computes_hashes_its_own_way() -> None:
    pool = objects.NodePool(metadata=objects.ObjectMeta(name="default", annotations={**WRITTEN, "other": "x"}))
    assert BY_KARPENTER.hash_annotations(pool) == WRITTEN
    assert BY_DOVETAIL.hash_annotations(pool) == pool_annotations(pool_hash(pool.spec.template))
    assert BY_KARPENTER.hash_annotations(objects.NodePool()) == {}


def test_under_drive_nodes_are_only_removed_and_drained_without_waves() -> None:
    drive = Decider(DecidingController.DOVETAIL, mode=DovetailMode.DRIVE)
    assert execution_of(drive).options() == ConsolidationOptions(replaces=False, in_waves=False)
    for decider in (DOVETAIL, KARPENTER, Decider(DecidingController.DOVETAIL, mode=DovetailMode.GUARD)):
        assert execution_of(decider).options(spot_to_spot=True) == ConsolidationOptions(spot_to_spot=True)
