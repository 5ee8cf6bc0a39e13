"""The names, labels and text of what is counted."""

import math

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from dovetail.observe.metrics import Metrics, RenderedMetric, Summary, decimal, labelled
from tests.harness.metrics_text import exposition


def made() -> Metrics:
    return Metrics(CollectorRegistry())


def lines(metrics: Metrics, start: str) -> list[str]:
    return [line for line in exposition(metrics.registry).decode().splitlines() if line.startswith(start)]


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("nodeclaims_created", "reason nodepool min_values_relaxed"),
        ("nodeclaims_disrupted", "reason nodepool capacity_type consolidation_policy termination_mode"),
        ("nodeclaims_terminated", "nodepool capacity_type zone"),
        ("nodeclaims_unhealthy_disrupted", "condition nodepool capacity_type image_id"),
        ("nodes_created", "nodepool zone"),
        ("nodes_terminated", "nodepool zone"),
        ("nodes_drained", "nodepool"),
        ("pods_drained", "reason"),
        ("pods_eviction_requests", "code"),
        ("pods_disruption_initiated", "reason nodepool capacity_type consolidation_policy termination_mode"),
    ],
)
def test_counters_have_upstreams_names_and_labels(name: str, labels: str) -> None:
    metrics = made()
    values = dict.fromkeys(labels.split(), "x")
    getattr(metrics, name).labels(**values).inc()
    shown = ",".join(f'{label}="x"' for label in labels.split())
    assert lines(metrics, f"karpenter_{name}_total") == [f"karpenter_{name}_total{{{shown}}} 1"]


@pytest.mark.parametrize(
    ("attribute", "name", "bounds"),
    [
        (
            "nodeclaims_termination_seconds",
            "karpenter_nodeclaims_termination_duration_seconds",
            [str(2**n) for n in range(12)],
        ),
        (
            "nodeclaims_instance_termination_seconds",
            "karpenter_nodeclaims_instance_termination_duration_seconds",
            [str(2**n) for n in range(11)],
        ),
    ],
)
def test_histograms_have_upstreams_buckets(attribute: str, name: str, bounds: list[str]) -> None:
    metrics = made()
    getattr(metrics, attribute).labels(nodepool="default").observe(3)
    found = [line.partition('le="')[2].partition('"')[0] for line in lines(metrics, f"{name}_bucket")]
    assert found == [*bounds, "+Inf"]
    assert lines(metrics, f"{name}_sum") == [f'{name}_sum{{nodepool="default"}} 3']


def test_lifetimes_reach_from_a_quarter_of_an_hour_to_thirty_days() -> None:
    metrics = made()
    metrics.nodes_lifetime_seconds.labels(nodepool="default").observe(1)
    found = lines(metrics, "karpenter_nodes_lifetime_duration_seconds_bucket")
    assert len(found) == 22
    assert 'le="900"' in found[0]
    assert 'le="2592000"' in found[-2]


def test_a_summary_tells_quantiles_of_the_latest_and_counts_all() -> None:
    registry = CollectorRegistry()
    summary = Summary("seconds", "How long.", "nodepool", registry=registry)
    for amount in [*([10_000.0] * 5), *map(float, range(1, 1001))]:
        summary.labels("a").observe(amount)
    text = exposition(registry).decode().splitlines()
    assert text == [
        "# HELP seconds How long.",
        "# TYPE seconds summary",
        *(
            f'seconds{{nodepool="a",quantile="{quantile}"}} {amount}'
            for quantile, amount in (("0", 1), ("0.5", 500), ("0.9", 900), ("0.99", 990), ("1", 1000))
        ),
        'seconds_count{nodepool="a"} 1005',
        'seconds_sum{nodepool="a"} 550500',
    ]


def test_everything_can_be_read_by_prometheus() -> None:
    metrics = made()
    metrics.nodes_termination_seconds.labels("default").observe(1.5)
    metrics.read_events(lambda: {"sent": 3, "failed": 1})
    metrics.read_undecodable(lambda: {"pods": 2})
    families = {family.name: family for family in text_string_to_metric_families(exposition(metrics.registry).decode())}
    fates = {sample.labels["fate"]: sample.value for sample in families["dovetail_events"].samples}
    assert fates == {"sent": 3, "failed": 1}
    assert families["dovetail_undecodable_objects"].samples[0].value == 2
    assert families["karpenter_nodes_termination_duration_seconds"].type == "summary"
    assert families["karpenter_build_info"].samples[0].labels.keys() == {"version", "goversion", "goarch", "commit"}
    assert {"process_resident_memory_bytes", "process_cpu_seconds"} <= families.keys()
    assert not any(name.endswith("_created") for name in families if name.startswith("dovetail"))


def test_two_programs_in_one_process_do_not_meet() -> None:
    first, second = made(), made()
    first.nodes_drained.labels(nodepool="a").inc()
    assert lines(first, "karpenter_nodes_drained_total{")
    assert not lines(second, "karpenter_nodes_drained_total{")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (2147483647.0, "2147483647"),
        (1e22, "10000000000000000000000"),
        (0.25, "0.25"),
        (1.5e-7, "0.00000015"),
        (-3.0, "-3"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_have_no_exponent(value: float, text: str) -> None:
    assert decimal(value) == text


def test_labels_are_escaped() -> None:
    assert labelled([("a", 'say "hi"\n\\o/')]) == r'a="say \"hi\"\n\\o/"'


def test_lines_that_are_text_already_are_passed_on() -> None:
    class Ready:
        def collect(self) -> list[RenderedMetric]:
            return [RenderedMetric("ages", "How old.", ['ages{node="n"} 1'])]

    registry = CollectorRegistry()
    registry.register(Ready())
    assert exposition(registry).decode().splitlines() == [
        "# HELP ages How old.",
        "# TYPE ages gauge",
        'ages{node="n"} 1',
    ]
