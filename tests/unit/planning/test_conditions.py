"""The mechanics of conditions (01 §5.3). Timeouts and dashboards read them."""

from collections.abc import Mapping

import pytest

from dovetail.api import objects
from dovetail.api.names import ConditionReason, ConditionType
from dovetail.planning.conditions import FALSE, TRUE, UNKNOWN, Conditions
from tests.harness.builders import at

CREATED = at("2026-03-01T00:00:00Z")
EARLIER = at("2026-03-01T06:00:00Z")
NOW = at("2026-03-01T12:00:00Z")
LATER = at("2026-03-01T18:00:00Z")
DEPENDENTS = (ConditionType.LAUNCHED, ConditionType.REGISTERED, ConditionType.INITIALIZED)


def entry(
    type_: str, status: str = TRUE, *, since: str = "2026-03-01T06:00:00Z", generation: int = 1, reason: str = ""
) -> objects.Condition:
    return objects.Condition(
        type=type_,
        status=status,
        reason=reason or type_,
        last_transition_time=at(since),
        observed_generation=generation,
    )


def claim(*entries: objects.Condition, generation: int = 1, deleting: bool = False) -> objects.NodeClaim:
    return objects.NodeClaim(
        metadata=objects.ObjectMeta(
            name="c1",
            generation=generation,
            creation_timestamp=CREATED,
            deletion_timestamp=EARLIER if deleting else None,
        ),
        status=objects.NodeClaimStatus(conditions=list(entries)),
    )


def written(conditions: Conditions, *, generation: int = 1, deleting: bool = False) -> objects.NodeClaim:
    """The claim as it is when these conditions have been written."""
    return claim(*conditions.entries(), generation=generation, deleting=deleting)


def ready_claim(generation: int = 1) -> objects.NodeClaim:
    return claim(*(entry(name) for name in (*DEPENDENTS, ConditionType.READY)), generation=generation)


def is_changed(conditions: Conditions) -> bool:
    """Asked anew each time: to the type checker a property stays what it was."""
    return conditions.changed


def found(conditions: Conditions, name: ConditionType) -> objects.Condition:
    got = conditions.get(name)
    assert got is not None
    return got


# -- 1: reasons -------------------------------------------------------------------------------------------------------


def test_true_needs_no_reason() -> None:
    """01 §5.3.1."""
    conditions = Conditions(claim(), NOW)
    conditions.set(ConditionType.DRAINED)
    got = found(conditions, ConditionType.DRAINED)
    assert (got.status, got.reason, got.message) == (TRUE, "Drained", "")


def test_a_reason_and_a_message_stand() -> None:
    """01 §5.3.1."""
    conditions = Conditions(claim(), NOW)
    conditions.set(ConditionType.DRIFTED, reason="NodePoolDrifted", message="the pool has changed")
    got = found(conditions, ConditionType.DRIFTED)
    assert (got.reason, got.message) == ("NodePoolDrifted", "the pool has changed")


# -- 2: transitions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason", "message", "since"),
    [
        pytest.param(UNKNOWN, "Draining", "", EARLIER, id="nothing"),
        pytest.param(UNKNOWN, "Other", "", EARLIER, id="the reason"),
        pytest.param(UNKNOWN, "Draining", "5 pods", EARLIER, id="the message"),
        pytest.param(TRUE, "Draining", "", NOW, id="to True"),
        pytest.param(FALSE, "Draining", "", NOW, id="to False"),
    ],
)
def test_only_a_change_of_status_is_a_transition(status: str, reason: str, message: str, since: object) -> None:
    """01 §5.3.2."""
    conditions = Conditions(claim(entry(ConditionType.DRAINED, UNKNOWN, reason="Draining"), generation=2), NOW)
    conditions.set(ConditionType.DRAINED, status, reason, message)
    got = found(conditions, ConditionType.DRAINED)
    assert (got.status, got.reason, got.message) == (status, reason, message)
    assert got.last_transition_time == conditions.since(ConditionType.DRAINED) == since
    assert got.observed_generation == 2


def test_times_are_as_coarse_as_the_apis() -> None:
    """01 §5.3.2."""
    conditions = Conditions(claim(), at("2026-03-01T12:00:00.999999Z"))
    conditions.set(ConditionType.DRAINED)
    assert conditions.since(ConditionType.DRAINED) == NOW


# -- 3: first times ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [TRUE, FALSE, UNKNOWN])
@pytest.mark.parametrize("name", DEPENDENTS)
def test_a_new_dependent_is_as_old_as_its_object(name: ConditionType, status: str) -> None:
    """01 §5.3.3."""
    conditions = Conditions(claim(), NOW)
    assert conditions.since(name) == CREATED
    conditions.set(name, status)
    # It is there as Unknown since creation; what differs from that is a transition.
    assert conditions.since(name) == (CREATED if status == UNKNOWN else NOW)


@pytest.mark.parametrize("name", [ConditionType.DRAINED, ConditionType.DISRUPTION_STATE, ConditionType.CONSOLIDATABLE])
def test_a_new_condition_that_the_root_does_not_depend_on_begins_now(name: ConditionType) -> None:
    """01 §5.3.3."""
    conditions = Conditions(claim(), NOW)
    conditions.set(name, UNKNOWN)
    assert conditions.since(name) == NOW
    assert conditions.since(ConditionType.READY) == NOW


def test_a_claim_that_is_not_created_yet_counts_from_now() -> None:
    """01 §5.3.3."""
    assert Conditions(objects.NodeClaim(), NOW).since(ConditionType.LAUNCHED) == NOW


# -- 4: generations ---------------------------------------------------------------------------------------------------


def generations(conditions: Conditions) -> Mapping[str, int]:
    return {each.type: each.observed_generation for each in conditions.entries()}


def test_setting_observes_the_generation() -> None:
    """01 §5.3.4."""
    conditions = Conditions(ready_claim(generation=3), NOW)
    conditions.set(ConditionType.LAUNCHED)
    assert generations(conditions) == {"Launched": 3, "Registered": 1, "Initialized": 1, "Ready": 3}


def test_on_a_deleting_object_all_are_observed() -> None:
    """01 §5.3.4."""
    stored = claim(*(entry(name) for name in (*DEPENDENTS, ConditionType.READY)), generation=2, deleting=True)
    conditions = Conditions(stored, NOW)
    conditions.set(ConditionType.DRAINED, UNKNOWN, ConditionReason.DRAINING)
    assert set(generations(conditions).values()) == {2}
    # So that the claim of a node that is going does not look as if it had never come up (03 §2).
    assert conditions.is_true(ConditionType.READY)
    assert conditions.since(ConditionType.READY) == EARLIER


def test_refreshing_observes_the_dependents_and_leaves_the_rest() -> None:
    """01 §5.3.4."""
    stored = claim(*(entry(name) for name in (*DEPENDENTS, ConditionType.DRIFTED, ConditionType.READY)), generation=2)
    conditions = Conditions(stored, NOW)
    conditions.refresh()
    assert generations(conditions) == {"Launched": 2, "Registered": 2, "Initialized": 2, "Drifted": 1, "Ready": 2}
    assert [each.last_transition_time for each in conditions.entries()] == [EARLIER] * 5
    assert conditions.is_true(ConditionType.READY)


# -- 5: what is missing -----------------------------------------------------------------------------------------------


def test_missing_dependents_are_unknown() -> None:
    """01 §5.3.5."""
    conditions = Conditions(claim(entry(ConditionType.LAUNCHED)), NOW)
    got = found(conditions, ConditionType.REGISTERED)
    assert (got.status, got.reason, got.message) == (
        UNKNOWN,
        "AwaitingReconciliation",
        "object is awaiting reconciliation",
    )
    assert got.observed_generation == 1
    assert conditions.get(ConditionType.DRAINED) is None
    assert conditions.status(ConditionType.DRAINED) == UNKNOWN
    assert conditions.since(ConditionType.DRAINED) is None
    assert is_changed(conditions)


def test_a_pool_has_dependents_of_its_own() -> None:
    """01 §5.3.5."""
    pool = objects.NodePool(metadata=objects.ObjectMeta(creation_timestamp=CREATED, generation=1))
    conditions = Conditions(pool, NOW)
    assert [each.type for each in conditions.entries()] == ["ValidationSucceeded", "NodeClassReady", "Ready"]
    conditions.set(ConditionType.NODE_REGISTRATION_HEALTHY, FALSE, ConditionReason.REGISTRATION_FAILED)
    assert conditions.status(ConditionType.READY) == UNKNOWN
    conditions.set(ConditionType.VALIDATION_SUCCEEDED)
    conditions.set(ConditionType.NODECLASS_READY)
    assert conditions.is_true(ConditionType.READY)


# -- 6: the root ------------------------------------------------------------------------------------------------------


def root_of(*stored: objects.Condition, generation: int = 1) -> tuple[str, str, str]:
    """The root, once something that has nothing to do with it was set."""
    conditions = Conditions(claim(*stored, generation=generation), NOW)
    conditions.set(ConditionType.CONSOLIDATABLE)
    got = found(conditions, ConditionType.READY)
    assert got.observed_generation == generation
    return got.status, got.reason, got.message


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        pytest.param(
            (entry("Launched"), entry("Registered"), entry("Initialized")), (TRUE, "Ready", ""), id="all are true"
        ),
        pytest.param(
            (entry("Launched"), entry("Registered"), entry("Initialized", UNKNOWN)),
            (UNKNOWN, "ReconcilingDependents", "Initialized=Unknown"),
            id="one is unknown",
        ),
        pytest.param(
            (entry("Launched"), entry("Registered", FALSE), entry("Initialized", UNKNOWN)),
            (FALSE, "UnhealthyDependents", "Registered=False"),
            id="one is false",
        ),
        pytest.param(
            (
                entry("Launched", UNKNOWN, since="2026-03-01T01:00:00Z"),
                entry("Registered", UNKNOWN, since="2026-03-01T03:00:00Z"),
                entry("Initialized", UNKNOWN, since="2026-03-01T02:00:00Z"),
            ),
            (UNKNOWN, "ReconcilingDependents", "Registered=Unknown, Initialized=Unknown, Launched=Unknown"),
            id="the newest first",
        ),
    ],
)
def test_the_root_follows_from_its_dependents(
    stored: tuple[objects.Condition, ...], expected: tuple[str, str, str]
) -> None:
    """01 §5.3.6."""
    assert root_of(*stored) == expected


def test_what_was_observed_before_the_last_change_counts_for_nothing() -> None:
    """01 §5.3.6."""
    current, outdated = entry("Launched", generation=2), entry("Registered", generation=1)
    assert root_of(current, outdated, entry("Initialized", generation=2), generation=2) == (
        UNKNOWN,
        "ReconcilingDependents",
        "Registered=True",
    )
    outdated = entry("Registered", FALSE, generation=1)
    status, _, message = root_of(current, outdated, entry("Initialized", generation=2), generation=2)
    assert (status, message) == (UNKNOWN, "Registered=False")


def test_conditions_of_other_kinds_do_not_count() -> None:
    """01 §5.3.6."""
    conditions = Conditions(ready_claim(), NOW)
    conditions.set(ConditionType.DRAINED, FALSE)
    assert conditions.is_true(ConditionType.READY)
    assert conditions.since(ConditionType.READY) == EARLIER


def test_the_root_has_transitions_of_its_own() -> None:
    """01 §5.3.6."""
    conditions = Conditions(claim(*(entry(name) for name in DEPENDENTS[:2])), NOW)
    conditions.set(ConditionType.INITIALIZED)
    conditions = Conditions(written(conditions), LATER)
    assert (conditions.is_true(ConditionType.READY), conditions.since(ConditionType.READY)) == (True, NOW)
    conditions.set(ConditionType.REGISTERED, FALSE, ConditionReason.MULTIPLE_NODES_FOUND)
    assert (conditions.status(ConditionType.READY), conditions.since(ConditionType.READY)) == (FALSE, LATER)


def test_the_root_is_derived_and_never_set() -> None:
    """01 §5.3.6."""
    with pytest.raises(AssertionError):
        Conditions(claim(), NOW).set(ConditionType.READY)


# -- 7: order ---------------------------------------------------------------------------------------------------------


def test_the_oldest_transition_comes_first_and_the_root_last() -> None:
    """01 §5.3.7."""
    stored = claim(
        entry("Ready", UNKNOWN, since="2026-03-01T00:00:00Z"),
        entry("Registered", since="2026-03-01T05:00:00Z"),
        entry("Launched", since="2026-03-01T04:00:00Z"),
        entry("Consolidatable", since="2026-03-01T04:30:00Z"),
    )
    conditions = Conditions(stored, NOW)
    conditions.set(ConditionType.DRAINED, UNKNOWN)
    order = ["Initialized", "Launched", "Consolidatable", "Registered", "Drained", "Ready"]
    assert [each.type for each in conditions.entries()] == order


def test_of_equal_age_they_stay_in_their_order() -> None:
    """01 §5.3.7."""
    conditions = Conditions(claim(entry("Registered"), entry("Initialized"), entry("Launched")), NOW)
    assert [each.type for each in conditions.entries()] == ["Registered", "Initialized", "Launched", "Ready"]


# -- 8: clearing ------------------------------------------------------------------------------------------------------


def test_a_condition_that_the_root_does_not_depend_on_can_go() -> None:
    """01 §5.3.8."""
    conditions = Conditions(ready_claim(), NOW)
    conditions.set(ConditionType.DRIFTED)
    conditions = Conditions(written(conditions), LATER)
    assert not is_changed(conditions)
    conditions.clear(ConditionType.DRIFTED)
    conditions.clear(ConditionType.CONSOLIDATABLE)  # it was not there
    assert is_changed(conditions)
    assert conditions.get(ConditionType.DRIFTED) is None
    assert conditions.is_true(ConditionType.READY)


@pytest.mark.parametrize("name", [*DEPENDENTS, ConditionType.READY])
def test_the_root_and_its_dependents_cannot_be_removed(name: ConditionType) -> None:
    """01 §5.3.8."""
    with pytest.raises(AssertionError):
        Conditions(ready_claim(), NOW).clear(name)


# -- 9: writing -------------------------------------------------------------------------------------------------------


def test_what_is_said_again_is_no_change() -> None:
    """01 §5.3.9."""
    conditions = Conditions(claim(), NOW)
    conditions.set(ConditionType.LAUNCHED)
    conditions.set(ConditionType.DRAINED, UNKNOWN, ConditionReason.DRAINING)
    again = Conditions(written(conditions), LATER)
    assert not is_changed(again)
    again.set(ConditionType.LAUNCHED)
    again.set(ConditionType.DRAINED, UNKNOWN, ConditionReason.DRAINING)
    again.refresh()
    assert not is_changed(again)
    again.set(ConditionType.DRAINED)
    assert is_changed(again)


def test_what_is_said_again_of_a_deleting_object_is_no_change() -> None:
    """01 §5.3.9."""
    stored = claim(*(entry(name) for name in (*DEPENDENTS, ConditionType.READY)), generation=2, deleting=True)
    conditions = Conditions(stored, NOW)
    assert not is_changed(conditions)
    conditions.set(ConditionType.DRAINED, UNKNOWN, ConditionReason.DRAINING)
    assert is_changed(conditions)
    again = Conditions(written(conditions, generation=2, deleting=True), LATER)
    again.set(ConditionType.DRAINED, UNKNOWN, ConditionReason.DRAINING)
    assert not is_changed(again)


def test_every_field_is_written() -> None:
    """01 §5.3.9."""
    conditions = Conditions(ready_claim(), NOW)
    conditions.set(ConditionType.DRAINED)
    assert conditions.body()[-2] == {
        "type": "Drained",
        "status": "True",
        "reason": "Drained",
        "message": "",
        "lastTransitionTime": "2026-03-01T12:00:00Z",
        "observedGeneration": 1,
    }
