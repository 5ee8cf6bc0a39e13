"""A controller that does not run is told by its Lease, where that is certain."""

from datetime import timedelta

import pytest

from dovetail.api.names import DovetailMode
from dovetail.model.decider import DOVETAIL, Decider, DecidingController
from dovetail.model.finding import Finding, Severity
from dovetail.views.deciding import who_decides
from dovetail.views.leading import NO_CONTROLLER, missing_controllers
from tests.unit.views.test_deciding import BESIDE, LEADS, NOW, OWN, Raw, controller, documents, lease, made, pool

HOUR = timedelta(hours=1)
GUARD = Decider(DecidingController.DOVETAIL, mode=DovetailMode.GUARD)


def told(*objects: Raw, decider: Decider = DOVETAIL) -> list[Finding]:
    return list(missing_controllers(documents(*objects), decider, NOW))


def in_dump(*objects: Raw) -> list[str]:
    return [str(finding.message) for finding in missing_controllers(documents(*objects), DOVETAIL, None)]


def test_a_lease_without_holder_says_since_when() -> None:
    (problem,) = told(lease(LEADS, "", HOUR))
    assert (problem.rule, problem.severity) == (NO_CONTROLLER, Severity.ERROR)
    assert problem.message == (
        "no controller has held the Lease kube-system/karpenter-leader-election since 2026-11-17T09:00:00Z; "
        "nothing is decided until one runs"
    )
    assert problem.remedy == "see why it does not run: kubectl -n kube-system get deployments,pods"


def test_of_several_leases_one_that_is_held_is_enough() -> None:
    other = lease(LEADS, "karpenter-1_2", HOUR)
    other["metadata"]["namespace"] = "karpenter"
    assert not told(lease(LEADS, "dovetail-1_2"), other)
    assert not told(other, lease(LEADS, "dovetail-1_2"))
    assert who_decides(documents(lease(LEADS, "dovetail-1_2"), other), NOW).text == "dovetail"
    (problem,) = told(other, lease(LEADS, ""))
    assert "the Lease kube-system/" in str(problem.message)


def test_beside_karpenter_both_have_to_run() -> None:
    assert not told(lease(LEADS, "karpenter-1_2"), lease(BESIDE, "d-1_2"), decider=GUARD)
    (problem,) = told(lease(LEADS, "karpenter-1_2"), lease(BESIDE, "d-1_2", HOUR), decider=GUARD)
    assert str(problem.message).startswith("no dovetail guard has renewed the Lease kube-system/dovetail-beside-")
    assert len(told(lease(LEADS, ""), lease(BESIDE, ""), decider=GUARD)) == 2
    assert not told(lease(LEADS, "karpenter-1_2"), lease(BESIDE, "d-1_2", HOUR))


@pytest.mark.parametrize(
    "spec",
    [
        {"holderIdentity": "d_1"},
        {"holderIdentity": "d_1", "renewTime": "2027-01-01T00:00:00Z"},
        {"holderIdentity": "d_1", "renewTime": "2026-11-17T09:30:00Z", "leaseDurationSeconds": 3600},
        {"holderIdentity": "d_1", "renewTime": "2026-11-17T09:30:00Z", "leaseDurationSeconds": 2**62},
        {"holderIdentity": "d_1", "renewTime": "2026-11-17T09:59:59Z", "leaseDurationSeconds": -(2**62)},
        {"holderIdentity": 5},
        {"renewTime": "yesterday"},
    ],
)
def test_a_lease_that_cannot_be_judged_is_not_judged(spec: Raw) -> None:
    assert not told(made("Lease", LEADS, "coordination.k8s.io/v1", spec=spec), pool())


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": None}, {"holderIdentity": "", "renewTime": None}])
def test_a_lease_that_was_never_held_says_no_instant(spec: Raw) -> None:
    (problem,) = told(made("Lease", LEADS, "coordination.k8s.io/v1", metadata={"namespace": "x"}, spec=spec))
    assert problem.message == f"no controller has held the Lease x/{LEADS}; nothing is decided until one runs"


def test_other_leases_and_clusters_without_pools_say_nothing() -> None:
    assert not told(lease("node-1", "", HOUR))
    assert not told()
    assert not told(pool(), controller("d", OWN, "run"))
    assert told(pool(), lease("node-1", "n"))[0].severity is Severity.WARNING


def test_a_dump_is_judged_by_the_leases_that_it_has() -> None:
    assert not in_dump(pool())
    assert not in_dump(lease(LEADS, "d-1_2", 9 * HOUR))
    assert not in_dump(lease(LEADS, "d-1_2", 9 * HOUR), lease("node-1", "node-1", 9 * HOUR))
    assert in_dump(lease(LEADS, "d-1_2", 9 * HOUR), lease("node-1", "node-1", 8 * HOUR)) == [
        "no controller had renewed the Lease kube-system/karpenter-leader-election since 2026-11-17T01:00:00Z when the "
        "dump was taken; nothing is decided until one runs"
    ]
    assert in_dump(lease(LEADS, "", 9 * HOUR))
