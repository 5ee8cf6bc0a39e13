"""Whether the nodes of a NodePool come up (01 §5.1)."""

import pytest

from dovetail.api import objects
from dovetail.api.names import ConditionType
from dovetail.planning.conditions import Conditions
from dovetail.planning.nodepool.registration_health import (
    RegistrationHistory,
    account,
    attempt,
    is_outdated,
    remembered,
)
from tests.harness.builders import at

NOW = at("2026-03-02T00:00:00Z")
HEALTHY = "NodeRegistrationHealthy"
T, F = "True", "False"


def claim(
    number: int, *, owner: str = "pool-1", launched: str = "True", reason: str = "", message: str = ""
) -> objects.NodeClaim:
    return objects.NodeClaim(
        metadata=objects.ObjectMeta(
            name=f"c{number}", uid=f"uid-{number}", owner_references=[objects.OwnerReference(uid=owner)]
        ),
        status=objects.NodeClaimStatus(
            conditions=[objects.Condition(type="Launched", status=launched, reason=reason, message=message)]
        ),
    )


def pool(
    status: str | None = None, *, generation: int = 1, observed: int = 1, class_observed: int = 1
) -> objects.NodePool:
    condition = objects.Condition(type=HEALTHY, status=status or "", observed_generation=observed)
    return objects.NodePool(
        metadata=objects.ObjectMeta(name="default", uid="pool-1", generation=generation),
        status=objects.NodePoolStatus(
            conditions=[] if status is None else [condition], node_class_observed_generation=class_observed
        ),
    )


def told(outcomes: str, *, history: RegistrationHistory = RegistrationHistory()) -> list[str]:  # noqa: B008  frozen
    """The condition's status after each outcome: `+` registered, `-` failed; empty while it was never set."""
    conditions = Conditions(pool(), NOW)
    statuses = []
    for number, outcome in enumerate(outcomes):
        latest = attempt(claim(number), registered=outcome == "+")
        history = account(pool(), history, [latest], conditions)
        entry = conditions.get(ConditionType.NODE_REGISTRATION_HEALTHY)
        statuses.append(entry.status if entry is not None else "")
    return statuses


@pytest.mark.parametrize(
    ("outcomes", "statuses"),
    [
        ("+", [T]),
        ("-", [""]),  # one failure says nothing yet
        ("--", ["", F]),
        ("+-", [T, T]),
        ("+--", [T, T, F]),
        ("--+", ["", F, F]),  # two failures remain
        ("--+++", ["", F, F, F, T]),  # the first failure is forgotten: one is left
        ("-+-", ["", T, F]),
        ("-+++-", ["", T, T, T, T]),
    ],
)
def test_two_failures_of_the_last_four(outcomes: str, statuses: list[str]) -> None:
    assert told(outcomes) == statuses


def test_why_it_is_unhealthy() -> None:
    launched, unlaunched = claim(1), claim(2, launched="Unknown", reason="LaunchFailed", message="no such type")
    conditions = Conditions(pool(), NOW)
    failures = [attempt(each, registered=False) for each in (launched, unlaunched)]
    account(pool(), RegistrationHistory(), failures, conditions)
    entry = conditions.get(ConditionType.NODE_REGISTRATION_HEALTHY)
    assert entry is not None
    assert (entry.status, entry.reason, entry.message) == (F, "LaunchFailed", "no such type")
    account(pool(), RegistrationHistory(), failures[::-1], conditions)
    entry = conditions.get(ConditionType.NODE_REGISTRATION_HEALTHY)
    assert entry is not None
    assert (entry.status, entry.reason) == (F, "RegistrationFailed")
    assert "c1" in entry.message


def test_a_launch_without_a_reason_still_gives_one() -> None:
    assert attempt(claim(1, launched="Unknown"), registered=False).reason == "RegistrationFailed"


def test_a_claim_counts_once() -> None:
    conditions = Conditions(pool(), NOW)
    again = [attempt(claim(1), registered=False)] * 3
    assert account(pool(), RegistrationHistory(), again, conditions).results == (("uid-1", False),)
    assert conditions.get(ConditionType.NODE_REGISTRATION_HEALTHY) is None


def test_claims_of_another_pool_of_the_same_name_do_not_count() -> None:
    conditions = Conditions(pool(), NOW)
    foreign = attempt(claim(1, owner="pool-0"), registered=True)
    assert account(pool(), RegistrationHistory(), [foreign], conditions) == RegistrationHistory()
    assert conditions.get(ConditionType.NODE_REGISTRATION_HEALTHY) is None


@pytest.mark.parametrize(("status", "results"), [(T, (T,)), (F, (F, F)), ("Unknown", ()), (None, ())])
def test_after_a_restart_the_condition_is_what_is_remembered(status: str | None, results: tuple[str, ...]) -> None:
    history = remembered(pool(status))
    assert tuple(T if registered else F for _, registered in history.results) == results
    assert history.status == (status or "Unknown")


@pytest.mark.parametrize(("status", "outcomes", "last"), [(T, "--", F), (T, "-", ""), (F, "+", ""), (F, "+++", T)])
def test_seeded_histories_go_on(status: str, outcomes: str, last: str) -> None:
    assert told(outcomes, history=remembered(pool(status)))[-1] == last


@pytest.mark.parametrize(
    ("found", "class_generation", "outdated"),
    [
        (pool(T), 1, False),
        (pool("Unknown"), 1, False),
        (pool(T, generation=2), 1, True),
        (pool(T), 2, True),
        (pool(T), None, False),  # a class that is not there says nothing
        (pool(None), 1, True),
    ],
)
def test_when_all_starts_over(found: objects.NodePool, class_generation: int | None, outdated: bool) -> None:
    node_class = objects.NodeClass(metadata=objects.ObjectMeta(generation=class_generation or 0))
    assert is_outdated(found, None if class_generation is None else node_class) == outdated
