"""Each test here is a coroutine that runs beside the simulated Karpenter, `[sim]`.

With `--peer` it runs beside the real one too, `[real]`.

Where the two differ the real one is right, and the simulated one is to be mended.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.access import Cluster
from tests.cluster.build import locked
from tests.cluster.fixtures import ROOT
from tests.harness.beside import BesideKarpenter, RealBeside, SimulatedBeside

# What concerns a whole cluster is tried on the simulated one elsewhere.
REAL_ONLY: Final = {"test_alone.py", "test_drive.py"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--peer", action="store_true", help="run tests/peer on the real Karpenter too")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path.name in REAL_ONLY and not config.getoption("--peer", default=False) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "beside" in metafunc.fixturenames:
        real = ["real"] if metafunc.config.getoption("--peer", default=False) else []
        metafunc.parametrize("beside", [*real, "sim"], indirect=True)


@pytest.fixture(scope="session")
def karpenter_plane(control_plane: Cluster) -> Cluster:
    """The control plane of this run, with a Karpenter that all tests share."""
    ready = control_plane.folder / "karpenter.ready"
    with locked(control_plane.folder / "karpenter.lock"):
        if not ready.exists():
            subprocess.run([sys.executable, "-m", "tests.peer", "serve", control_plane.folder], cwd=ROOT, check=True)
            ready.touch()
    return control_plane


@pytest.fixture
def beside(request: pytest.FixtureRequest) -> BesideKarpenter:
    """The cluster that the test acts on, with a Karpenter."""
    if request.param == "sim":
        return BesideKarpenter(SimulatedBeside())
    return BesideKarpenter(RealBeside(request.getfixturevalue("karpenter_plane")))
