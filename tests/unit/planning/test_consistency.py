"""Whether a node is what its claim was promised (02 §11)."""

import pytest

from dovetail.api import objects
from dovetail.controllers.nodeclaim.consistency import shape_flaws


def flaws(requests: objects.Quantities, promised: objects.Quantities, found: objects.Quantities) -> list[str]:
    claim = objects.NodeClaim(
        spec=objects.NodeClaimSpec(resources=objects.ResourceRequirements(requests=requests)),
        status=objects.NodeClaimStatus(capacity=promised),
    )
    return shape_flaws(claim, objects.Node(status=objects.NodeStatus(capacity=found)))


@pytest.mark.parametrize(
    ("promised", "found"),
    [("4", "4"), ("4", "3600m"), ("10Gi", "9Gi"), ("4", "8"), ("0", "0"), (4, 3.6), ("nonsense", "1")],
)
def test_enough(promised: str | float, found: str | float) -> None:
    assert flaws({"cpu": "1"}, {"cpu": promised}, {"cpu": found}) == []


def test_less_than_nine_tenths() -> None:
    assert flaws({"cpu": "1"}, {"cpu": "4"}, {"cpu": "3599m"}) == [
        "expected 4 of resource cpu, but found 3599m (89.9% of expected)"
    ]


@pytest.mark.parametrize("found", [{}, {"cpu": "0"}, {"cpu": "nonsense"}])
def test_missing(found: objects.Quantities) -> None:
    (flaw,) = flaws({"cpu": "1"}, {"cpu": "4"}, found)
    assert "0.0%" in flaw


def test_only_what_is_asked_for_counts() -> None:
    assert flaws({"cpu": "1"}, {"cpu": "4", "memory": "16Gi"}, {"cpu": "4"}) == []
    assert flaws({"gpu": "1"}, {"cpu": "4"}, {}) == []


def test_all_are_told_in_order() -> None:
    found = flaws({"memory": "1Gi", "cpu": "1"}, {"cpu": "4", "memory": "16Gi"}, {"cpu": "2", "memory": "8Gi"})
    assert [flaw.split()[4].rstrip(",") for flaw in found] == ["cpu", "memory"]
