"""Seed 002, NodeClaim termination grace period: its spec, its scenario, its warnings."""

from datetime import datetime, timedelta

import pytest

from dovetail.api import objects
from dovetail.model.node_records import claim_record
from dovetail.model.pod_records import PodRecord
from dovetail.rules.deadlines import forced_deletion, node_deadline
from dovetail.rules.pdb import PdbIndex
from dovetail.values.duration import DAY
from tests.harness.builders import at, claim, pdb, pod
from tests.seeds.documents import SEED_002_ALTERNATIVE, SEED_002_SPEC
from tests.seeds.reading import read, read_pool

DELETED = "2026-03-04T12:00:00Z"


def minutes(count: float) -> datetime:
    return at(DELETED) + timedelta(minutes=count)


def test_proposed_spec_is_read() -> None:
    record = claim_record(read(SEED_002_SPEC, objects.NodeClaim))
    assert record.grace_period_ns == DAY
    assert node_deadline(record) is None  # nothing runs before deletion


def test_the_alternative_spec_on_the_disruption_block_is_not_offered() -> None:
    assert read_pool(SEED_002_ALTERNATIVE).grace_period_ns is None


def test_measured_from_when_deletion_is_first_initiated() -> None:
    record = claim(created="2026-01-01T00:00:00Z", deleted=DELETED, grace_period="24h")
    assert node_deadline(record) == at("2026-03-05T12:00:00Z")


def test_nil_waits_for_ever() -> None:
    assert node_deadline(claim(deleted=DELETED)) is None


def test_zero_forces_all_pods_at_once() -> None:
    deadline = node_deadline(claim(deleted=DELETED, grace_period="0s"))
    assert deadline == at(DELETED)
    forced = forced_deletion(pod(grace=600), deadline, at(DELETED))
    assert forced is not None
    assert (forced.at, forced.grace_seconds) == (at(DELETED), 1)


# -- "Optimizing pod deletion behavior when eviction is blocked" ------------------------------------------------------

LABELS = {"app": "slow"}


def replicas(evicted: int) -> list[PodRecord]:
    """Three replicas of 10m grace; so many of them were evicted as the drain began."""
    gone_at = "2026-03-04T12:10:00Z"
    return [pod(f"p-{n}", labels=LABELS, grace=600, deleted=gone_at if n < evicted else None) for n in range(3)]


def test_scenario_the_pdb_lets_one_go_at_a_time() -> None:
    before, after = replicas(0), replicas(1)
    guard = pdb(match=LABELS, max_unavailable=1)
    assert PdbIndex([guard], before).verdict(before[1]).allowed
    # The controller's status, once one is on its way.
    blocked = pdb(match=LABELS, max_unavailable=1, allowed=0, expected=3)
    assert not PdbIndex([blocked], after).verdict(after[1]).allowed


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(0, (5, 600), id="planned from the start"),
        pytest.param(4.99, (5, 600), id="just before"),
        pytest.param(5, (5, 600), id="at +5m, with all of their grace"),
        pytest.param(6, (6, 540), id="a minute late, a minute less"),
    ],
)
def test_scenario_all_that_are_left_at_5_minutes_are_deleted_together(now: float, expected: tuple[float, int]) -> None:
    deadline = node_deadline(claim(deleted=DELETED, grace_period="15m"))
    assert deadline == minutes(15)
    evicted, *waiting = replicas(1)
    assert forced_deletion(evicted, deadline, minutes(now)) is None
    forced = [forced_deletion(each, deadline, minutes(now)) for each in waiting]
    assert [(each.at, each.grace_seconds) for each in forced if each] == [(minutes(expected[0]), expected[1])] * 2


# -- documented warnings ----------------------------------------------------------------------------------------------


def test_warning_2_a_grace_above_the_nodes_is_cut_to_it_and_starts_at_once() -> None:
    deadline = node_deadline(claim(deleted=DELETED, grace_period="5m"))
    assert deadline is not None
    forced = forced_deletion(pod(grace=600), deadline, at(DELETED))
    assert forced is not None
    assert (forced.at, forced.grace_seconds) == (at(DELETED), 300)


def test_warning_3_pods_are_deleted_against_their_pdb_before_the_deadline() -> None:
    subject = pod(grace=600)
    deadline = node_deadline(claim(deleted=DELETED, grace_period="15m"))
    assert deadline is not None
    forced = forced_deletion(subject, deadline, at(DELETED))
    assert forced is not None
    assert forced.at < deadline
    assert not PdbIndex([pdb(max_unavailable=0)], [subject]).verdict(subject).allowed


def test_a_pod_is_deleted_at_node_timeout_less_its_own_grace() -> None:
    deadline = node_deadline(claim(deleted=DELETED, grace_period="24h"))
    assert deadline is not None
    for grace in (0, 1, 30, 3600):
        forced = forced_deletion(pod(grace=grace), deadline, at(DELETED))
        assert forced is not None
        assert forced.at == deadline - timedelta(seconds=grace)
