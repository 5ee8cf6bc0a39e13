"""Each test here is a coroutine that runs beside the simulated Karpenter, `[sim]`.

With `--peer` it runs beside the real one too, `[real]`.

Where the two differ the real one is right, and the simulated one is to be mended.
"""

import pytest

from tests.contract.backends import RealCluster
from tests.harness.beside import BesideKarpenter, SimulatedBeside


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--peer", action="store_true", help="run tests/peer on the real Karpenter too")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "beside" in metafunc.fixturenames:
        real = ["real"] if metafunc.config.getoption("--peer", default=False) else []
        metafunc.parametrize("beside", [*real, "sim"], indirect=True)


@pytest.fixture
def beside(request: pytest.FixtureRequest) -> BesideKarpenter:
    """The cluster that the test acts on, with a Karpenter."""
    if request.param == "sim":
        return BesideKarpenter(SimulatedBeside())
    return BesideKarpenter(RealCluster(request.getfixturevalue("karpenter_plane")))
