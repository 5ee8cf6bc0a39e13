"""Each test here is a coroutine that runs on the real control plane and on the simulated one: `[real]` and `[sim]`.

Where the two differ the real one is right, and the simulator is to be mended; until then `sim_differs` says so.
"""

import pytest

from tests.contract.backends import Cluster, RealCluster, SimulatedCluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sim_differs(reason): the simulator does not yet do as the real one does")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        differs = item.get_closest_marker("sim_differs")
        if differs is not None and isinstance(item, pytest.Function) and "sim" in item.callspec.params.values():
            item.add_marker(pytest.mark.xfail(strict=True, reason=differs.args[0]))


@pytest.fixture(params=["real", "sim"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """The cluster that the test acts on."""
    if request.param == "sim":
        return SimulatedCluster()
    return RealCluster(request.getfixturevalue("cluster_with_crds"))


@pytest.fixture(params=["real", "sim"])
def lone_cluster(request: pytest.FixtureRequest) -> Cluster:
    """A cluster in which nobody else has nodes."""
    if request.param == "sim":
        return SimulatedCluster()
    return RealCluster(request.getfixturevalue("private_plane"))
