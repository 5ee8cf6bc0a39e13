"""Would a claim be made otherwise today (02 §10, §14.57, §14.58)?"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import pytest

from dovetail.api import names, objects
from dovetail.api.names import ConditionReason
from dovetail.planning.nodeclaim.drift import Drift, drift_by_objects, drift_by_provider, is_offered, type_check_at
from dovetail.planning.timings import Timings
from dovetail.scheduling.requirements import Requirements, read_requirements
from tests.harness.builders import at

CREATED = at("2026-03-01T00:00:00Z")
LABELS = {
    names.NODEPOOL_LABEL: "default",
    names.INSTANCE_TYPE_LABEL: "c-4x-amd64-linux",
    names.ZONE_LABEL: "zone-a",
    names.CAPACITY_TYPE_LABEL: "spot",
    names.KWOK_INSTANCE_CPU_LABEL: "4",
}
MINUTE = timedelta(minutes=1)


def hashed(hash_: str | None = "1", version: str | None = "v3") -> dict[str, str]:
    found = {names.NODEPOOL_HASH: hash_, names.NODEPOOL_HASH_VERSION: version}
    return {key: value for key, value in found.items() if value is not None}


def claim(
    annotations: Mapping[str, str] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    launched: str = "True",
    drifted: str | None = None,
    uid: str = "uid-1",
    created: bool = True,
) -> objects.NodeClaim:
    conditions = [objects.Condition(type="Launched", status=launched, reason="Launched")]
    if drifted is not None:
        conditions.append(objects.Condition(type="Drifted", status="True", reason=drifted))
    return objects.NodeClaim(
        metadata=objects.ObjectMeta(
            name="c1",
            uid=uid,
            labels=dict(LABELS if labels is None else labels),
            annotations=dict(hashed() if annotations is None else annotations),
            creation_timestamp=CREATED if created else None,
        ),
        status=objects.NodeClaimStatus(conditions=conditions),
    )


def wants(key: str, operator: str, *values: str) -> objects.NodeSelectorRequirement:
    return objects.NodeSelectorRequirement(key=key, operator=operator, values=list(values))


def pool(
    annotations: Mapping[str, str] | None = None, *requirements: objects.NodeSelectorRequirement
) -> objects.NodePool:
    template = objects.NodeClaimTemplate(spec=objects.NodeClaimTemplateSpec(requirements=list(requirements)))
    return objects.NodePool(
        metadata=objects.ObjectMeta(name="default", annotations=dict(hashed() if annotations is None else annotations)),
        spec=objects.NodePoolSpec(template=template),
    )


NODEPOOL_DRIFTED, REQUIREMENTS_DRIFTED = ConditionReason.NODEPOOL_DRIFTED, ConditionReason.REQUIREMENTS_DRIFTED


# -- the hash ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "stood", "expected"),
    [
        pytest.param(hashed("1"), hashed("1"), None, None, id="the same"),
        pytest.param(hashed("1"), hashed("2"), None, Drift(NODEPOOL_DRIFTED), id="another"),
        pytest.param(hashed("1", None), hashed("2"), None, None, id="the claim has no version"),
        pytest.param(hashed(None), hashed("2"), None, None, id="the claim has no hash"),
        pytest.param(hashed("1"), hashed("2", None), None, None, id="the pool has no version"),
        pytest.param(hashed("1"), hashed(None), None, None, id="the pool has no hash"),
        pytest.param({}, {}, None, None, id="neither has any"),
        pytest.param(hashed("1", "v2"), hashed("2"), None, None, id="another version drifts nobody"),
        pytest.param(hashed("1", "v2"), hashed("2", "v2"), None, Drift(NODEPOOL_DRIFTED), id="both of an old version"),
        pytest.param(hashed("1"), hashed("2", "v2"), NODEPOOL_DRIFTED, Drift(NODEPOOL_DRIFTED), id="nor takes it back"),
        pytest.param(hashed("1"), hashed("2", "v2"), REQUIREMENTS_DRIFTED, None, id="what stood for another reason"),
        pytest.param(hashed("1"), hashed("1"), NODEPOOL_DRIFTED, None, id="reverted"),
        pytest.param({}, hashed("1"), NODEPOOL_DRIFTED, None, id="nothing left to compare"),
    ],
)
def test_hashes_of_one_version_are_compared(
    ours: Mapping[str, str], theirs: Mapping[str, str], stood: str | None, expected: Drift | None
) -> None:
    assert drift_by_objects(claim(ours, drifted=stood), pool(theirs)) == expected


@pytest.mark.parametrize("launched", ["False", "Unknown"])
def test_a_claim_that_is_not_launched_has_not_drifted(launched: str) -> None:
    subject = claim(hashed("1"), launched=launched, drifted=NODEPOOL_DRIFTED)
    assert drift_by_objects(subject, pool(hashed("2"))) == Drift("")


def test_a_claim_without_conditions_has_not_drifted() -> None:
    assert drift_by_objects(objects.NodeClaim(), pool(hashed("2"))) == Drift("")


# -- the requirements --------------------------------------------------------------------------------------------------

CPU, ZONE = names.KWOK_INSTANCE_CPU_LABEL, names.ZONE_LABEL


@pytest.mark.parametrize(
    ("requirements", "drifted"),
    [
        pytest.param((), False, id="none"),
        pytest.param((wants(ZONE, "In", "zone-a", "zone-b"),), False, id="within"),
        pytest.param((wants(ZONE, "In", "zone-b"),), True, id="narrowed"),
        pytest.param((wants(ZONE, "NotIn", "zone-a"),), True, id="excluded"),
        pytest.param((wants(ZONE, "NotIn", "zone-b"),), False, id="another is excluded"),
        pytest.param((wants(ZONE, "Exists"),), False, id="it is there"),
        pytest.param((wants(ZONE, "DoesNotExist"),), True, id="it must not be there"),
        pytest.param((wants(CPU, "Gt", "3"),), False, id="4 > 3"),
        pytest.param((wants(CPU, "Gt", "4"),), True, id="4 > 4"),
        pytest.param((wants(CPU, "Lt", "10"),), False, id="4 < 10, as numbers"),
        pytest.param((wants(CPU, "Lt", "4"),), True, id="4 < 4"),
        pytest.param((wants(ZONE, "Gt", "1"),), True, id="not a number"),
        pytest.param((wants("team", "In", "a"),), True, id="a key that is missing"),
        pytest.param((wants("team", "Exists"),), True, id="a key that has to be there"),
        pytest.param((wants("team", "Gt", "1"),), True, id="a number that is missing"),
        pytest.param((wants("team", "NotIn", "a"),), False, id="what is missing is not a"),
        pytest.param((wants("team", "DoesNotExist"),), False, id="a key that must be missing"),
        pytest.param((wants(names.ARCH_LABEL, "In", "amd64"),), True, id="no exemption for well-known keys"),
        pytest.param((wants("beta.kubernetes.io/instance-type", "In", "c-4x-amd64-linux"),), False, id="old name"),
        pytest.param((wants(ZONE, "In", "zone-a"), wants(CPU, "Lt", "4")), True, id="one of several"),
        pytest.param(
            (wants(CPU, "Gt", "many"), wants(ZONE, "In", "zone-b")), False, id="unreadable: nobody is drifted"
        ),
    ],
)
def test_labels_are_held_against_the_requirements(
    requirements: Sequence[objects.NodeSelectorRequirement], drifted: bool
) -> None:
    found = drift_by_objects(claim(), pool(None, *requirements))
    assert found == (Drift(REQUIREMENTS_DRIFTED) if drifted else None)


def test_the_hash_comes_first() -> None:
    assert drift_by_objects(claim(), pool(hashed("2"), wants(ZONE, "In", "zone-b"))) == Drift(NODEPOOL_DRIFTED)


# -- what is offered ---------------------------------------------------------------------------------------------------


def offering(zone: str, capacity_type: str) -> Requirements:
    return read_requirements([wants(ZONE, "In", zone), wants(names.CAPACITY_TYPE_LABEL, "In", capacity_type)])


@pytest.mark.parametrize(
    ("capacity_type", "offered", "expected"),
    [
        pytest.param("spot", [offering("zone-a", "spot")], True, id="it is"),
        pytest.param("spot", [offering("zone-b", "spot"), offering("zone-a", "spot")], True, id="among others"),
        pytest.param("spot", [offering("zone-b", "spot")], False, id="only in another zone"),
        pytest.param("spot", [offering("zone-a", "on-demand")], False, id="only as on-demand"),
        pytest.param("on-demand", [offering("zone-a", "reserved")], False, id="only as reserved"),
        pytest.param("reserved", [offering("zone-a", "reserved")], True, id="reserved"),
        pytest.param("reserved", [offering("zone-a", "on-demand")], True, id="reserved goes on as on-demand"),
        pytest.param("reserved", [offering("zone-a", "spot")], False, id="reserved, and only spot is left"),
        pytest.param("reserved", [offering("zone-b", "on-demand")], False, id="on-demand elsewhere"),
        pytest.param("spot", [], False, id="nothing"),
    ],
)
def test_an_offering_has_to_suit_the_labels(
    capacity_type: str, offered: Sequence[Requirements], expected: bool
) -> None:
    assert is_offered({**LABELS, names.CAPACITY_TYPE_LABEL: capacity_type}, offered) is expected


def test_the_type_is_checked_after_an_hour_and_every_half() -> None:
    timings = Timings()
    assert type_check_at(claim(), None, timings) == CREATED + 60 * MINUTE
    assert type_check_at(claim(), CREATED + 60 * MINUTE, timings) == CREATED + 90 * MINUTE
    assert type_check_at(claim(), CREATED + 5 * MINUTE, timings) == CREATED + 60 * MINUTE
    assert type_check_at(claim(created=False), None, timings) is None


# -- when to ask again -------------------------------------------------------------------------------------------------


def test_the_provider_has_the_last_word() -> None:
    now, timings = CREATED + 90 * MINUTE, Timings()
    assert drift_by_provider(claim(), offered=True, reason="", now=now, timings=timings).reason == ""
    assert (
        drift_by_provider(claim(), offered=True, reason="ImageDrift", now=now, timings=timings).reason == "ImageDrift"
    )
    lost = drift_by_provider(claim(), offered=False, reason="", now=now, timings=timings)
    assert lost.reason == ConditionReason.INSTANCE_TYPE_NOT_FOUND


def until(now: datetime, uid: str = "uid-1") -> datetime:
    found = drift_by_provider(claim(uid=uid), offered=True, reason="", now=now, timings=Timings()).until
    assert found is not None
    return found


def test_it_is_asked_again_every_five_minutes_at_the_same_moment() -> None:
    now = CREATED + 90 * MINUTE
    first = until(now)
    assert now < first <= now + 5 * MINUTE
    assert until(first) == first + 5 * MINUTE
    # One that comes between, or a little early, does not move it.
    assert until(first + 2 * MINUTE) == first + 5 * MINUTE
    assert until(first - timedelta(milliseconds=1)) == first + 5 * MINUTE


def test_claims_are_not_asked_about_together() -> None:
    moments = [until(CREATED + 90 * MINUTE, f"uid-{number}") for number in range(1000)]
    by_second = Counter(moment.replace(microsecond=0) for moment in moments)
    assert len(by_second) > 250
    assert max(by_second.values()) <= 15


def test_it_is_asked_again_when_the_claim_is_old_enough() -> None:
    old_at = CREATED + 60 * MINUTE
    moments = [until(old_at - timedelta(seconds=2), f"uid-{number}") for number in range(50)]
    assert max(moments) == old_at
