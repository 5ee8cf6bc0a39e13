"""The text of all metrics, as a scrape returns it."""

from prometheus_client import CollectorRegistry

from dovetail.observe.metrics import rendered


def exposition(registry: CollectorRegistry) -> bytes:
    return b"".join(rendered(registry.collect()))
