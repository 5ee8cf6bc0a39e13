"""What rules say where Karpenter decides, and where it differs from Dovetail (R56)."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api import names, objects
from dovetail.model.decider import DOVETAIL, parse_decider
from dovetail.model.node_records import NodeRecord, node_record
from dovetail.model.pod_records import PodInterner, PodRecord
from dovetail.model.pool_records import pool_record
from dovetail.model.rule_settings import DEFAULT_SETTINGS, READINGS, RuleSettings, settings_of
from dovetail.rules.protection import node_do_not_disrupt, pod_problems, protection
from dovetail.rules.verdict import Remark, Verdict
from tests.harness.builders import at

CREATED, STARTED = "2026-03-06T10:00:00Z", "2026-03-06T10:05:00Z"
DECIDERS = ("karpenter", "karpenter@1.11", "karpenter@1.12", "dovetail", "dovetail:guard", "dovetail:drive")
KARPENTER = "karpenter@1.15"


def decided(by: str) -> RuleSettings:
    return settings_of(parse_decider(by))


def pod(by: str, *, started: str | None = STARTED, **annotations: str) -> PodRecord:
    written = {f"karpenter.sh/{key.replace('_', '-')}": value for key, value in annotations.items()}
    body: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "shop", "creationTimestamp": CREATED, "annotations": written},
        "status": {"phase": "Running", "startTime": started},
    }
    return PodInterner(settings=decided(by)).pod(msgspec.convert(body, objects.Pod))


def node(by: str, value: str) -> NodeRecord:
    meta = {"name": "n", "creationTimestamp": CREATED, "annotations": {names.DO_NOT_DISRUPT: value}}
    return node_record(msgspec.convert({"metadata": meta}, objects.Node), decided(by))


def blocking(subject: PodRecord, now: str = "2026-03-06T12:00:00Z") -> list[Verdict]:
    return [verdict for verdict in protection(subject, at(now)) if not verdict.allowed]


def remarks(subject: PodRecord) -> list[tuple[str, str]]:
    """What allows because it is not read, and why."""
    return [
        (each.message, each.remark or "") for each in protection(subject, at(STARTED)) if each.allowed and each.remark
    ]


@pytest.mark.parametrize(
    ("by", "until"),
    [
        ("karpenter", "2026-03-06T14:05:00Z"),
        ("karpenter@1.12.0", "2026-03-06T14:05:00Z"),
        ("dovetail", "2026-03-06T14:00:00Z"),
        ("dovetail:guard", "2026-03-06T14:00:00Z"),
        ("dovetail:drive", "2026-03-06T14:00:00Z"),
    ],
)
def test_a_duration_counts_from_the_start_in_karpenter_and_from_creation_in_dovetail(by: str, until: str) -> None:
    (verdict,) = blocking(pod(by, do_not_disrupt="4h"))
    assert verdict.until == at(until)
    assert verdict.message == f"protected for 4h from {'creation' if 'dovetail' in by else 'start'}, until {until}"
    assert not blocking(pod(by, do_not_disrupt="4h"), until)


def test_before_its_start_a_duration_protects() -> None:
    (verdict,) = blocking(pod(KARPENTER, started=None, do_not_disrupt="4h"))
    assert verdict.message == "protected for 4h from its start, which is still to come"


def test_karpenter_before_1_12_ignores_durations() -> None:
    ignored = pod("karpenter@1.11.3", do_not_disrupt="4h")
    message = "Karpenter 1.11.3 ignores durations, which count from Karpenter 1.12 on"
    assert remarks(ignored) == [(f"not in force: {message}", Remark.NOT_IN_FORCE)]
    (problem,) = pod_problems(ignored)
    assert (problem.rule, problem.message) == ("NotInForce", f"nothing protects the pod: {message}")
    assert blocking(pod("karpenter@1.11.3", do_not_disrupt="true"))


@pytest.mark.parametrize("value", ["yes", "1d", "True", "", "0s", "-4h", "4 hours"])
def test_karpenter_ignores_what_it_cannot_read_and_dovetail_protects(value: str) -> None:
    """The dangerous reading comes first: nothing protects the pod."""
    ignored, protected = pod(KARPENTER, do_not_disrupt=value), pod("dovetail", do_not_disrupt=value)
    assert not blocking(ignored)
    assert blocking(protected)
    ((message, remark),) = remarks(ignored)
    assert remark == Remark.MISTAKE
    assert "Karpenter ignores it, so nothing protects the pod, which Dovetail would protect" in message
    (problem,) = pod_problems(ignored)
    assert (problem.rule, problem.message) == ("InvalidDoNotDisrupt", message)


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ("1d", 'write "true", and remove it after 24h'),
        ("4 hours", 'write "true", and remove it after 4h'),
        ("4", 'write "true", and remove it when its time is over'),
        ("0s", 'remove the annotation if the pod needs no protection, or write "true"'),
        ("soon", 'write "true" or "false"'),
    ],
)
def test_a_remedy_names_no_duration_where_none_counts(value: str, remedy: str) -> None:
    """Under Karpenter 1.11 `24h` for `1d` would protect nothing either."""
    (problem,) = pod_problems(pod("karpenter@1.11", do_not_disrupt=value))
    assert problem.remedy == remedy
    (newer,) = pod_problems(pod("karpenter@1.12", do_not_disrupt=value))
    assert newer.remedy != remedy
    if value != "0s":
        assert 'neither "true" nor "false", and durations count from Karpenter 1.12 on' in str(problem.message)


@pytest.mark.parametrize("value", ["true", "false"])
@pytest.mark.parametrize("by", DECIDERS)
def test_true_and_false_mean_the_same_to_both(by: str, value: str) -> None:
    assert bool(blocking(pod(by, do_not_disrupt=value))) == (value == "true")
    assert not pod_problems(pod(by, do_not_disrupt=value))


@pytest.mark.parametrize(
    "schedule",
    [
        {"disruption_schedule": "0 2 * * 6", "disruption_schedule_duration": "4h"},
        {"disruption_block_schedule": "0 9 * * *", "disruption_block_schedule_duration": "8h"},
        {"disruption_schedule": "nonsense"},
    ],
)
def test_karpenter_does_not_read_schedules(schedule: dict[str, str]) -> None:
    unread = pod(KARPENTER, **schedule)
    message = "Karpenter does not read it; it needs dovetail guard, drive or run"
    assert remarks(unread) == [(f"not in force: {message}", Remark.NOT_IN_FORCE)]
    (problem,) = pod_problems(unread)
    assert problem.message == f"it does not protect the pod: {message}"
    assert problem.remedy == (
        'use dovetail guard, drive or run, or protect the pod by karpenter.sh/do-not-disrupt: "true"'
    )
    (beside,) = pod_problems(pod(KARPENTER, do_not_disrupt="true", **schedule))
    assert (beside.message, beside.remedy) == (message, "use dovetail guard, drive or run")
    assert not remarks(pod("dovetail:guard", disruption_schedule="0 2 * * 6"))


@pytest.mark.parametrize("by", DECIDERS)
def test_durations_on_nodes_count_only_where_dovetail_chooses_nodes(by: str) -> None:
    verdict = node_do_not_disrupt(node(by, "4h"), at(STARTED))
    assert verdict.allowed == (by not in ("dovetail", "dovetail:drive"))
    assert verdict.remark == (Remark.NOT_IN_FORCE if verdict.allowed else None)
    assert not node_do_not_disrupt(node(by, "true"), at(STARTED)).allowed


@pytest.mark.parametrize("by", DECIDERS)
def test_graceful_expiry_is_dovetails(by: str) -> None:
    body = {"metadata": {"name": "p"}, "spec": {"disruption": {"gracefulExpireAfter": "72h"}}}
    record = pool_record(msgspec.convert(body, objects.NodePool), decided(by))
    assert (record.graceful_expire_after_ns is None) == bool(record.unread_graceful) == by.startswith("karpenter")


def test_of_an_unknown_version_the_current_one_is_assumed() -> None:
    assert decided("karpenter").durations == decided(KARPENTER).durations


def test_dovetails_settings_are_the_default() -> None:
    assert settings_of(DOVETAIL) == DEFAULT_SETTINGS


@pytest.mark.parametrize("by", DECIDERS)
def test_every_difference_has_words_for_every_decider(by: str) -> None:
    settings = decided(by)
    assert {each.field for each in READINGS} == set(RuleSettings.__struct_fields__) - {"decider"}
    for each in READINGS:
        assert each.words[getattr(settings, each.field)]


@pytest.mark.parametrize("by", DECIDERS)
def test_only_dovetail_ends_an_instance_at_the_deadline_with_pods_on_it(by: str) -> None:
    settings = decided(by)
    assert settings.ends_at_deadline == (by == "dovetail")
    assert settings.in_drains.ends_at_deadline == settings.ends_at_deadline


texts = st.sampled_from(["true", "false", "4h", "1d", "yes", "", "0s", "0 2 * * 6", "0 9 * * 1-5;x", "8h", "9999h"])
written = st.dictionaries(st.sampled_from(names.PROTECTION_ANNOTATIONS), texts)


@given(annotations=written, moment=st.sampled_from([CREATED, STARTED, "2026-03-07T02:00:00Z", "2026-03-07T09:00:00Z"]))
def test_karpenter_never_protects_what_dovetail_does_not_but_by_the_start_of_the_pod(
    annotations: dict[str, str], moment: str
) -> None:
    """And Dovetail's own reading does not depend on when a pod has started."""
    given_ = {key.removeprefix("karpenter.sh/").replace("-", "_"): value for key, value in annotations.items()}
    plain = pod("dovetail", started=None, **given_)
    assert pod("dovetail", **given_) == plain
    for by in ("karpenter@1.11", KARPENTER):
        theirs = pod(by, started=CREATED, **given_)
        assert not blocking(theirs, moment) or blocking(plain, moment)
        assert bool(remarks(theirs)) <= bool(pod_problems(theirs))
