"""Settings shared by all tests."""

import gc
import os
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

pytest_plugins = ["tests.cluster.fixtures", "tests.harness.stage"]
_TESTS: Final = Path(__file__).parent
# In this order, after all others: once up, a control plane stays, and takes part of a core even when nobody asks it.
_LAST: Final = ("cluster", "browser", "contract")
# What shares one run, one browser or one control plane. Another worker would start its own.
_TOGETHER: Final = (
    "browser/",
    "cluster/disruption/",
    "cluster/scheduling/",
    "cluster/termination/test_restarts.py",
    "cluster/termination/test_seed_timelines.py",
    "cluster/test_live_reading.py",
    "cluster/test_run.py",
)
CRASH_POINTS: Final = "crash points"
MEASURED: Final = "measured"

# Time limits per example would make tests depend on the machine; `make bench` measures speed instead. What every change
# must pass tries the same examples each time; `make soak` looks for new ones.
settings.register_profile(
    "default", max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
# A mutant only has to be noticed; the smallest example that notices it takes a minute to find.
settings.register_profile("mutation", parent=settings.get_profile("default"), phases=(Phase.explicit, Phase.generate))
settings.register_profile("quick", parent=settings.get_profile("default"), max_examples=25)
settings.register_profile("soak", parent=settings.get_profile("default"), max_examples=20_000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


class _Workers(LoadScopeScheduling):  # type: ignore[misc]
    """Each test goes to whoever is free, but for those that belong together."""

    def _split_scope(self, nodeid: str) -> str:
        name = nodeid.removeprefix("tests/")
        return next((prefix for prefix in _TOGETHER if name.startswith(prefix)), nodeid)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        # What is finished would be counted again after each of the 10,000 tests.
        units = self.assigned_work[node]
        for finished in [name for name, unit in units.items() if all(unit.values())]:
            del units[finished]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _Workers(config, log)


def pytest_collection_finish() -> None:
    """Frees the garbage collector from looking at all tests again and again: some collect the garbage on purpose."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """See `_LAST`."""
    folders = ["", *_LAST]
    items.sort(key=lambda item: folders.index(_folder(item) if _folder(item) in _LAST else ""))


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).parts[0]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What tests noted, brought here from the workers of pytest-xdist: how many crash points were lived through, and
    what was measured."""
    reports = [report for group in terminalreporter.stats.values() for report in group if _is_call(report)]
    noted = [note for report in reports for note in getattr(report, "user_properties", ())]
    points = [value for name, value in noted if name == CRASH_POINTS]
    if points:
        terminalreporter.write_line(f"crash points lived through: {sum(points)}, in {len(points)} flows")
    for text in (value for name, value in noted if name == MEASURED):
        terminalreporter.write_line(text)


def _is_call(report: Any) -> bool:
    return getattr(report, "when", None) == "call"
