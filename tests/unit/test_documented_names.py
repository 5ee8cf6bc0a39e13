"""Every event reason and every metric is on a user page, where people look them up."""

import re
from pathlib import Path
from typing import Final

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.names import EventReason
from dovetail.observe.disruption_metrics import DisruptionMetrics
from dovetail.observe.metrics import Metrics

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGES: Final = "\n".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md")))


@pytest.mark.parametrize("reason", EventReason)
def test_event_reasons_are_documented(reason: EventReason) -> None:
    assert f"`{reason}`" in PAGES


def test_metrics_are_documented() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    DisruptionMetrics(registry)
    documented = set(re.findall(r"`([a-z_]+)`", PAGES))
    metrics = {family.name for family in registry.collect() if not family.name.startswith("process_")}
    assert {name for name in metrics if not {name, f"{name}_total"} & documented} == set()
