"""Settings shared by all tests."""

import os
from typing import Any, Final

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.cluster.fixtures"]
CRASH_POINTS: Final = "crash points"
MEASURED: Final = "measured"

# Time limits per example would make tests depend on the machine; `make bench` measures speed instead. What every change
# must pass tries the same examples each time; `make soak` looks for new ones.
settings.register_profile(
    "default", max_examples=250, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", parent=settings.get_profile("default"), max_examples=20_000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What tests noted, brought here from the workers of pytest-xdist: how many crash points were lived through, and
    what was measured."""
    reports = [report for found in terminalreporter.stats.values() for report in found if _is_call(report)]
    noted = [note for report in reports for note in getattr(report, "user_properties", ())]
    points = [value for name, value in noted if name == CRASH_POINTS]
    if points:
        terminalreporter.write_line(f"crash points lived through: {sum(points)}, in {len(points)} flows")
    for text in (value for name, value in noted if name == MEASURED):
        terminalreporter.write_line(text)


def _is_call(report: Any) -> bool:
    return getattr(report, "when", None) == "call"
