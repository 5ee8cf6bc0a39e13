"""One control plane for all tests here, where no claims are but theirs."""

from collections.abc import Iterator

import pytest

from tests.cluster.plane import PATIENT, ControlPlane


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("disruption") / "plane", flags=PATIENT) as plane:
        plane.install_crds()
        yield plane
