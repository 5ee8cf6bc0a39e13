"""Is every name there once, spelled as Kubernetes demands, and as the clusters that exist have it?"""

import re
from collections import Counter
from enum import StrEnum

import pytest

from dovetail.api import names

CONSTANTS = {key: value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)}
ENUMS: dict[str, type[StrEnum]] = {
    key: value
    for key, value in vars(names).items()
    if isinstance(value, type) and issubclass(value, StrEnum) and value is not StrEnum
}

# The same word for two things, each time because it is the same matter seen twice.
MEANT_TWICE = {
    "Drifted": {"Reason", "ConditionType"},
    "Expired": {"Reason", "ConditionType"},  # R20: the condition gives rise to the reason
    "NodeLost": {"ConditionType", "EventReason"},
    "AwaitingVolumeDetachment": {"ConditionReason", "EventReason"},
}


def test_there_is_something_to_test() -> None:
    assert set(ENUMS) == {
        "TaintEffect",
        "CapacityType",
        "DovetailMode",
        "ConsolidationPolicy",
        "Reason",
        "ConditionType",
        "ConditionReason",
        "EventReason",
    }
    assert len(CONSTANTS) > 50


def test_no_value_twice() -> None:
    twice = {value for value, count in Counter(CONSTANTS.values()).items() if count > 1}
    assert twice == set()


@pytest.mark.parametrize("enum", ENUMS.values(), ids=ENUMS)
def test_no_member_is_an_alias(enum: type[StrEnum]) -> None:
    assert len(enum.__members__) == len(list(enum))


def test_no_value_in_two_places_unless_meant() -> None:
    homes: dict[str, set[str]] = {value: {"constant"} for value in CONSTANTS.values()}
    for name, enum in ENUMS.items():
        for member in enum:
            homes.setdefault(member.value, set()).add(name)
    assert {value: home for value, home in homes.items() if len(home) > 1} == MEANT_TWICE


@pytest.mark.parametrize(("key", "value"), CONSTANTS.items(), ids=CONSTANTS)
def test_keys_are_qualified_names(key: str, value: str) -> None:
    """A label, annotation, taint or finalizer is `domain/name`; what ends otherwise says so in its own name."""
    if "/" not in value or key.endswith(("_PREFIX", "API_VERSION")):
        return
    domain, name = value.split("/")
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", domain)
    assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", name)


@pytest.mark.parametrize("enum", [names.Reason, names.ConditionType, names.ConditionReason, names.EventReason])
def test_reasons_and_types_are_one_word(enum: type[StrEnum]) -> None:
    """Condition reasons must match this (metav1), and events are easier to filter if theirs do."""
    for member in enum:
        assert re.fullmatch(r"[A-Z][A-Za-z0-9]{1,62}", member.value)


def test_member_names_follow_their_values() -> None:
    exceptions = {names.EventReason.INSUFFICIENT_CAPACITY}
    for enum in ENUMS.values():
        for member in set(enum) - exceptions:
            assert member.name.replace("_", "") == member.value.replace("-", "").upper()


def test_composed_names() -> None:
    assert f"{names.GROUP}/{names.VERSION}" == names.API_VERSION
    assert f"{names.KWOK_GROUP}/{names.KWOK_VERSION}" == names.KWOK_API_VERSION
    # 01 §6: <group of the node class>/<its kind in lower case>
    assert f"{names.KWOK_GROUP}/{names.KWOK_NODECLASS_KIND.lower()}" == names.KWOK_NODECLASS_LABEL


def test_candidates_are_never_found_by_the_disrupted_key() -> None:
    assert names.DISRUPTED_TAINT not in names.CANDIDATE_TAINT  # R22
    assert names.CANDIDATE_TAINT not in names.DISRUPTED_TAINT


def test_well_known_labels() -> None:
    assert len(names.WELL_KNOWN_LABELS) == 12
    assert set(CONSTANTS.values()) > names.WELL_KNOWN_LABELS
    assert names.HOSTNAME_LABEL not in names.WELL_KNOWN_LABELS  # 01 §4.1: nobody may require it


def test_old_labels_lead_to_well_known_ones() -> None:
    assert set(names.NORMALISED_LABELS.values()) < names.WELL_KNOWN_LABELS
    assert not set(names.NORMALISED_LABELS) & names.WELL_KNOWN_LABELS


# Objects in clusters carry these words: whoever changes one breaks them, and the migration to and from upstream (R37).
KARPENTER_KEYS = """
    capacity-type candidate disrupted disruption-block-duration disruption-block-schedule disruption-command
    disruption-replacement-of disruption-schedule disruption-schedule-duration do-not-disrupt do-not-repair
    do-not-sync-taints initialized
    nodeclaim-min-values-relaxed nodeclaim-termination-timestamp nodepool nodepool-hash nodepool-hash-version
    registered termination unregistered v1
"""
CONDITIONS = """
    ConsistentStateFound Consolidatable DisruptionReason DisruptionState Drained Drifted Expired Initialized
    InstanceTerminating Launched NodeClassReady NodeLost NodeRegistrationHealthy Ready Registered ValidationSucceeded
    VolumesDetached
"""
EVENTS = """
    AwaitingVolumeDetachment BudgetReadingDiffers BudgetWithoutEffect CannotHold ConsolidationBackoff
    ConsolidationCandidate ConsolidationFinished ConsolidationRejected Disrupted DisruptionBlocked
    DisruptionLaunching DisruptionRolledBack DisruptionTerminating DisruptionWaitingReadiness
    DoNotDisruptGracePeriodElapsed DoNotDisruptUntil Evicted FailedConsistencyCheck FailedDraining FailedScheduling
    FailedTermination Held HoldLeft InsufficientCapacityError InvalidBudget InvalidDisruptionCommand
    InvalidDisruptionSchedule InvalidDoNotDisrupt InvalidMark NoCompatibleInstanceTypes NodeClassNotReady NodeLost
    NodeRepairBlocked Nominated Released ReplacementFailed StampUndone Stamped TakenWhileBlocked
    TerminationGracePeriodExpiring Unconsolidatable UnregisteredTaintMissing
"""


def test_the_words_in_clusters_stay() -> None:
    ours = {value.partition("/")[2] for value in CONSTANTS.values() if value.startswith("karpenter.sh/")}
    assert ours == set(KARPENTER_KEYS.split())
    assert set(names.ConditionType) == set(CONDITIONS.split())
    assert set(names.EventReason) == set(EVENTS.split())
    assert set(names.Reason) == {"Empty", "Drifted", "Underutilized", "Expired", "Unhealthy", "Interrupted"}
