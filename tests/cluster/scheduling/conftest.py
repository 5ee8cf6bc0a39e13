"""One real scheduler for all tests here."""

from collections.abc import Iterator

import pytest

from tests.cluster.scheduling.plane import Extender, SchedulingPlane


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulingPlane]:
    with Extender() as extender, SchedulingPlane(tmp_path_factory.mktemp("scheduling") / "plane", extender) as started:
        yield started
