"""Says at the end of a run how many crash points were lived through."""

from typing import Any

from tests.sim.crash.test_crash_points import POINTS


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Adds up what the tests have noted; pytest-xdist brings it here from its workers."""
    reports = [
        report for found in terminalreporter.stats.values() for report in found if hasattr(report, "user_properties")
    ]
    counts = [value for report in reports for name, value in report.user_properties if name == POINTS]
    if counts:
        terminalreporter.write_line(f"crash points lived through: {sum(counts)}, in {len(counts)} flows")
