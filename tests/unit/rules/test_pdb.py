"""PodDisruptionBudgets: which one selects a pod, what it allows, and whether it ever could (02 §4.4)."""

from collections.abc import Mapping

import msgspec
import pytest

from dovetail.api.objects import Toleration
from dovetail.model.pdb_records import PdbRecord
from dovetail.model.pod_records import PodRecord
from dovetail.rules.pdb import PdbIndex, desired_healthy, disruptions_allowed, never_allows, scaled
from dovetail.rules.protection import do_not_disrupt
from dovetail.rules.verdict import Rule, Verdict
from tests.harness.builders import at, pdb, pod

WEB = {"app": "web"}


def ask(subject: PodRecord, *pdbs: PdbRecord, others: tuple[PodRecord, ...] = ()) -> Verdict:
    return PdbIndex(pdbs, (subject, *others)).verdict(subject)


# -- matching ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guard", "labels", "selected"),
    [
        pytest.param(pdb(match=WEB, allowed=0), WEB, True, id="same labels"),
        pytest.param(pdb(match=WEB, allowed=0), {"app": "web", "tier": "front"}, True, id="more labels"),
        pytest.param(pdb(match=WEB, allowed=0), {"app": "db"}, False, id="other value"),
        pytest.param(pdb(match=WEB, allowed=0), {}, False, id="no labels"),
        pytest.param(pdb(match=WEB, namespace="shop", allowed=0), WEB, False, id="other namespace"),
        pytest.param(pdb(allowed=0), {}, True, id="the empty selector selects all"),
        pytest.param(pdb(allowed=0, namespace="shop"), {}, False, id="all of its namespace only"),
        pytest.param(pdb(selector=False, allowed=0), {}, False, id="no selector selects nothing"),
        pytest.param(pdb(expressions=[("app", "In", ["web", "api"])], allowed=0), WEB, True, id="In"),
        pytest.param(pdb(expressions=[("app", "NotIn", ["web"])], allowed=0), WEB, False, id="NotIn"),
        pytest.param(pdb(expressions=[("app", "NotIn", ["web"])], allowed=0), {}, True, id="NotIn without the key"),
        pytest.param(pdb(expressions=[("app", "Exists", [])], allowed=0), WEB, True, id="Exists"),
        pytest.param(pdb(expressions=[("app", "DoesNotExist", [])], allowed=0), WEB, False, id="DoesNotExist"),
        pytest.param(pdb(expressions=[("app", "Like", ["web"])], allowed=0), WEB, False, id="a bad selector"),
    ],
)
def test_selection(guard: PdbRecord, labels: Mapping[str, str], selected: bool) -> None:
    subject = pod(labels=labels)
    index = PdbIndex([guard], [subject])
    assert index.matching(subject) == ((guard,) if selected else ())
    verdict = index.verdict(subject)
    assert (verdict.rule, str(verdict.object), verdict.until) == (Rule.POD_DISRUPTION_BUDGET, "Pod/default/web-1", None)
    assert verdict.allowed is not selected
    if not selected:
        assert verdict.message == "no PodDisruptionBudget selects it"


def test_a_bad_selector_is_kept_as_a_problem() -> None:
    assert pdb(expressions=[("app", "Like", ["web"])]).selector_problem is not None
    assert pdb().selector_problem is None


def test_pods_of_one_workload_share_their_answer_and_others_have_their_own() -> None:
    pods = [pod("web-1", labels=WEB), pod("web-2", labels=WEB), pod("db-1", labels={"app": "db"})]
    index = PdbIndex([pdb(match=WEB, allowed=0)], pods)
    assert [index.verdict(each).allowed for each in pods] == [False, False, True]


def test_equal_labels_in_two_namespaces_have_two_answers() -> None:
    here, there = pod(labels=WEB), pod(labels=WEB, namespace="shop")
    index = PdbIndex([pdb(allowed=0), pdb(namespace="shop", allowed=1)], [here, there])
    assert (index.verdict(here).allowed, index.verdict(there).allowed) == (False, True)


def test_a_pod_that_the_index_was_not_made_with_is_matched_by_its_own_labels() -> None:
    # Nobody keeps the labels of such a pod alive, so the next pod's may have the same id.
    index, some = PdbIndex([pdb(match=WEB, allowed=0)], []), pod()
    for _ in range(10):
        assert not index.verdict(msgspec.structs.replace(some, labels={"app": "web"})).allowed
        assert index.verdict(msgspec.structs.replace(some, labels={"app": "db"})).allowed


# -- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "expected", "message"),
    [
        pytest.param(0, False, "guard allows no disruption now", id="none left"),
        pytest.param(1, True, "guard allows 1 more", id="one left"),
        pytest.param(7, True, "guard allows 7 more", id="several left"),
    ],
)
def test_status_decides(allowed: int, expected: bool, message: str) -> None:
    verdict = ask(pod(), pdb(max_unavailable=1, allowed=allowed, expected=3))
    assert (verdict.allowed, verdict.until, verdict.message) == (expected, None, message)


@pytest.mark.parametrize("allowed", [0, 5])
def test_two_budgets_block_whatever_they_allow(allowed: int) -> None:
    verdict = ask(pod(labels=WEB), pdb("one", allowed=allowed), pdb("two", match=WEB, allowed=5))
    assert (verdict.allowed, verdict.until) == (False, None)
    assert verdict.message == "2 PodDisruptionBudgets select it, at most one may: one, two"


def test_two_budgets_block_even_an_unready_pod_that_both_always_allow() -> None:
    guards = [pdb(name, policy="AlwaysAllow", allowed=5) for name in ("one", "two")]
    assert not ask(pod(ready="False"), *guards).allowed


@pytest.mark.parametrize(
    ("policy", "ready", "allowed"),
    [
        pytest.param("AlwaysAllow", "False", True, id="AlwaysAllow and not ready"),
        pytest.param("AlwaysAllow", "True", False, id="AlwaysAllow but ready"),
        pytest.param("AlwaysAllow", "Unknown", True, id="AlwaysAllow, readiness unknown"),
        pytest.param("AlwaysAllow", None, True, id="AlwaysAllow, no Ready condition"),
        pytest.param("IfHealthyBudget", "False", False, id="IfHealthyBudget"),
        pytest.param("", "False", False, id="no policy"),
    ],
)
def test_always_allow(policy: str, ready: str | None, allowed: bool) -> None:
    assert ask(pod(ready=ready), pdb(policy=policy, allowed=0)).allowed is allowed


@pytest.mark.parametrize(
    ("healthy", "desired", "allowed"),
    [
        pytest.param(0, 1, False, id="too few are healthy"),
        pytest.param(1, 1, True, id="just enough are healthy"),
        pytest.param(2, 1, True, id="more than enough are healthy"),
        pytest.param(1, 0, False, id="none has to be healthy"),
        pytest.param(None, None, False, id="no status"),
    ],
)
@pytest.mark.parametrize("ready", ["False", "Unknown", None])
def test_a_pod_that_is_not_ready_goes_if_enough_are_healthy(
    healthy: int | None, desired: int | None, allowed: bool, ready: str | None
) -> None:
    guard = pdb(min_available=1, allowed=0, expected=2, healthy=healthy, desired=desired)
    assert ask(pod(ready=ready), guard).allowed is allowed
    assert not ask(pod(), guard).allowed, "a pod that is ready needs an eviction from the budget"


def test_without_status_the_healthy_pods_are_counted() -> None:
    ready, unready = pod("web-1"), pod("web-2", ready="False")
    assert ask(unready, pdb(min_available=1), others=(ready,)).allowed
    assert not ask(unready, pdb(min_available=2), others=(ready,)).allowed


TOLERATE_ALL = [Toleration(operator="Exists")]


@pytest.mark.parametrize(
    ("subject", "allowed"),
    [
        pytest.param(pod(), False, id="ordinary"),
        pytest.param(pod(owner=None), False, id="bare"),
        pytest.param(pod(owner="DaemonSet"), False, id="of a DaemonSet"),
        pytest.param(pod(owner="StatefulSet"), False, id="of a StatefulSet"),
        pytest.param(pod(ready="False"), False, id="not ready"),
        pytest.param(pod(phase="Unknown", ready="Unknown"), False, id="phase unknown"),
        pytest.param(pod(phase="", ready=None), False, id="without a status"),
        pytest.param(pod(phase="Pending", ready="False"), True, id="pending"),
        pytest.param(pod(owner="Node"), True, id="mirror"),
        pytest.param(pod(tolerations=TOLERATE_ALL), True, id="tolerates everything"),
        pytest.param(pod(phase="Succeeded"), True, id="succeeded"),
        pytest.param(pod(phase="Failed"), True, id="failed"),
        pytest.param(pod(deleted="2026-03-07T02:00:00Z"), True, id="terminating"),
    ],
)
@pytest.mark.parametrize("guards", [1, 2])
def test_what_is_never_evicted_is_skipped(subject: PodRecord, allowed: bool, guards: int) -> None:
    assert ask(subject, *[pdb(f"guard-{n}", allowed=0) for n in range(guards)]).allowed is allowed


def test_it_is_asked_although_do_not_disrupt_already_blocks() -> None:
    guarded = pod(do_not_disrupt="true")
    assert not do_not_disrupt(guarded, at("2026-03-07T02:00:00Z")).allowed
    assert not ask(guarded, pdb(allowed=0)).allowed
    assert ask(guarded, pdb(allowed=1)).allowed


def test_a_budget_that_can_never_allow_says_so() -> None:
    assert ask(pod(), pdb(max_unavailable=0)).message == "guard can never allow it: maxUnavailable is 0"
    verdict = ask(pod(), pdb(min_available=3, allowed=0, expected=3))
    assert verdict.message == "guard can never allow it: minAvailable 3 leaves none of 3 to spare"


# -- arithmetic without status ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "total", "expected"),
    [
        (0, 10, 0),
        (3, 10, 3),
        (12, 10, 12),
        ("0%", 10, 0),
        ("1%", 10, 1),
        ("10%", 10, 1),
        ("11%", 10, 2),
        ("50%", 3, 2),
        ("33%", 3, 1),
        ("34%", 3, 2),
        ("99%", 100, 99),
        ("100%", 7, 7),
        ("150%", 2, 3),
        ("50%", 0, 0),
        ("50", 10, None),
        ("%", 10, None),
        ("-5%", 10, None),
        ("5.5%", 10, None),
        (" 5%", 10, None),
        ("5%\n", 10, None),
        ("\u0665%", 10, None),
        ("half", 10, None),
        ("", 10, None),
        ("1234567890%", 10, None),
    ],
)
def test_counts_and_percentages_round_up(value: int | str, total: int, expected: int | None) -> None:
    assert scaled(value, total) == expected


@pytest.mark.parametrize(
    ("guard", "expected", "healthy", "desired", "allowed"),
    [
        pytest.param(pdb(min_available=2), 3, 3, 2, 1, id="min 2 of 3"),
        pytest.param(pdb(min_available=2), 3, 2, 2, 0, id="min 2, 2 healthy"),
        pytest.param(pdb(min_available=2), 3, 1, 2, 0, id="min 2, 1 healthy: never negative"),
        pytest.param(pdb(min_available=0), 3, 3, 0, 3, id="min 0"),
        pytest.param(pdb(min_available=5), 3, 3, 5, 0, id="min above all"),
        pytest.param(pdb(min_available="50%"), 3, 3, 2, 1, id="min 50% of 3 is 2"),
        pytest.param(pdb(min_available="67%"), 3, 3, 3, 0, id="min 67% of 3 is 3"),
        pytest.param(pdb(min_available="100%"), 3, 3, 3, 0, id="min 100%"),
        pytest.param(pdb(max_unavailable=1), 3, 3, 2, 1, id="max 1 of 3"),
        pytest.param(pdb(max_unavailable=1), 3, 2, 2, 0, id="max 1, one already down"),
        pytest.param(pdb(max_unavailable=5), 3, 3, 0, 3, id="max above all"),
        pytest.param(pdb(max_unavailable="50%"), 3, 3, 1, 2, id="max 50% of 3 is 2"),
        pytest.param(pdb(max_unavailable="1%"), 3, 3, 2, 1, id="max 1% of 3 is 1"),
        pytest.param(pdb(max_unavailable="0%"), 3, 3, 3, 0, id="max 0%"),
        pytest.param(pdb(max_unavailable="200%"), 3, 3, 0, 3, id="max 200%"),
        pytest.param(pdb(max_unavailable=1, min_available=3), 3, 3, 2, 1, id="both given: max speaks"),
        pytest.param(pdb(max_unavailable=1), 0, 0, 0, 0, id="no pods"),
        pytest.param(pdb(), 3, 3, None, 0, id="neither"),
        pytest.param(pdb(min_available="half"), 3, 3, None, 0, id="unreadable min"),
        pytest.param(pdb(max_unavailable="half"), 3, 3, None, 0, id="unreadable max"),
    ],
)
def test_arithmetic(guard: PdbRecord, expected: int, healthy: int, desired: int | None, allowed: int) -> None:
    assert desired_healthy(guard, expected) == desired
    assert disruptions_allowed(guard, expected=expected, healthy=healthy) == allowed


def test_without_status_it_counts_the_pods_it_sees() -> None:
    guard = pdb(match=WEB, max_unavailable=1)
    ready = [pod(f"web-{n}", labels=WEB) for n in range(3)]
    apart = [
        pod("db-1", labels={"app": "db"}, ready="False"),
        pod("web-8", labels=WEB, phase="Succeeded"),
        pod("web-9", labels=WEB, deleted="2026-03-07T02:00:00Z"),
        pod("web-0", labels=WEB, namespace="shop", ready="False"),
    ]
    index = PdbIndex([guard], [*ready, *apart])
    assert (index.expected(guard), index.allowed(guard)) == (3, 1)
    assert index.verdict(ready[0]).message == "guard allows 1 more"

    index = PdbIndex([guard], [*ready[:2], pod("web-2", labels=WEB, ready="False")])
    assert (index.expected(guard), index.allowed(guard)) == (3, 0)
    figures = "2 of 3 pods are healthy, and 2 must be; it allows one when 1 more is healthy"
    assert index.verdict(ready[0]).message == f"guard allows no disruption now: {figures}"


def test_the_pods_may_come_as_an_iterator() -> None:
    pods = [pod("web-1"), pod("web-2")]
    index = PdbIndex(iter([pdb(max_unavailable=1)]), iter(pods))
    assert [index.verdict(each).message for each in pods] == ["guard allows 1 more"] * 2


def test_status_stands_over_the_pods_it_sees() -> None:
    guard = pdb(max_unavailable=1, allowed=2, expected=9)
    index = PdbIndex([guard], [pod()])
    assert (index.expected(guard), index.allowed(guard)) == (9, 2)


def test_expected_pods_of_the_status_serve_the_arithmetic() -> None:
    # Ten are expected but one is seen: 10 - 1 = 9 must stay healthy.
    guard = pdb(max_unavailable=1, expected=10)
    assert PdbIndex([guard], [pod()]).allowed(guard) == 0


# -- never ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guard", "expected", "why"),
    [
        pytest.param(pdb(max_unavailable=0), 3, "maxUnavailable is 0", id="max 0"),
        pytest.param(pdb(max_unavailable="0%"), None, "maxUnavailable is 0%", id="max 0%"),
        pytest.param(pdb(max_unavailable="000%"), 3, "maxUnavailable is 000%", id="max 000%"),
        pytest.param(pdb(max_unavailable=1), 3, None, id="max 1"),
        pytest.param(pdb(max_unavailable="1%"), 3, None, id="max 1%: rounds up to 1"),
        pytest.param(pdb(max_unavailable=1), 0, None, id="max 1, no pods"),
        pytest.param(
            pdb(max_unavailable="all"), 3, "maxUnavailable 'all' is neither a number nor a percentage", id="max all"
        ),
        pytest.param(pdb(min_available="100%"), None, "minAvailable is 100%", id="min 100%"),
        pytest.param(pdb(min_available="101%"), 3, "minAvailable is 101%", id="min 101%"),
        pytest.param(pdb(min_available="99%"), 100, None, id="min 99% of 100"),
        pytest.param(pdb(min_available="99%"), 99, "minAvailable 99% leaves none of 99 to spare", id="min 99% of 99"),
        pytest.param(pdb(min_available="99%"), None, None, id="min 99% of who knows"),
        pytest.param(pdb(min_available="67%"), 3, "minAvailable 67% leaves none of 3 to spare", id="min 67% of 3"),
        pytest.param(pdb(min_available="66%"), 3, None, id="min 66% of 3"),
        pytest.param(pdb(min_available=3), 3, "minAvailable 3 leaves none of 3 to spare", id="min 3 of 3"),
        pytest.param(pdb(min_available=4), 3, "minAvailable 4 leaves none of 3 to spare", id="min 4 of 3"),
        pytest.param(pdb(min_available=2), 3, None, id="min 2 of 3"),
        pytest.param(pdb(min_available=3), None, None, id="min 3 of who knows"),
        pytest.param(pdb(min_available=3), 0, None, id="min 3, no pods"),
        pytest.param(pdb(min_available=0), 3, None, id="min 0"),
        pytest.param(
            pdb(min_available="all"), 3, "minAvailable 'all' is neither a number nor a percentage", id="min all"
        ),
        pytest.param(pdb(), 3, "it sets neither minAvailable nor maxUnavailable", id="neither"),
    ],
)
def test_never_allows(guard: PdbRecord, expected: int | None, why: str | None) -> None:
    assert never_allows(guard, expected) == why


def test_pods_are_counted_where_some_budget_has_no_status() -> None:
    """Most dumps have every status, and then nobody counts."""
    web = [pod(f"web-{number}", labels=WEB) for number in range(3)]
    told = pdb(name="told", match={"app": "db"}, allowed=1)
    fresh = pdb(name="fresh", match=WEB, max_unavailable=1, allowed=None, expected=None)
    assert PdbIndex([told, fresh], web).allowed(fresh) == 1
    assert PdbIndex([told, fresh], web).expected(fresh) == 3
