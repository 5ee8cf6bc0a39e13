"""Fixtures: one control plane a test run, shared by all workers of pytest-xdist, and what a test makes in it.

The root conftest.py loads this as a plugin. The process that runs pytest holds the control plane's lease, so it ends
with the run however the run ends; the first test that asks for it has it started.
"""

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.cluster import folders, lease
from tests.cluster.access import Cluster, eventually
from tests.cluster.build import binary, locked
from tests.cluster.plane import ControlPlane

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = pytest.StashKey[Path]()
HELD: Final = pytest.StashKey[int]()
KEPT: Final = pytest.StashKey[bool]()
PLANES: Final = {"control_plane", "private_plane"}
IN_WORKER: Final = "dovetail_cluster"  # how pytest-xdist hands the folder to its workers


def pytest_configure(config: pytest.Config) -> None:
    """Prepares a place for the control plane and holds its lease; starts nothing yet."""
    given = getattr(config, "workerinput", {}).get(IN_WORKER)
    if given is not None:
        config.stash[FOLDER] = Path(given)
        return
    folder = folders.new()
    config.stash[FOLDER] = folder
    config.stash[HELD] = lease.hold(lease.make(folder))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a worker of pytest-xdist where the place is."""
    node.workerinput[IN_WORKER] = str(node.config.stash[FOLDER])


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Says where the logs are if something failed."""
    if exitstatus == pytest.ExitCode.TESTS_FAILED and (config.stash[FOLDER] / "url").exists():
        terminalreporter.write_line(f"logs of the control plane: {config.stash[FOLDER]}")
        config.stash[KEPT] = True


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the control plane, if there is one."""
    held = config.stash.get(HELD, None)
    if held is None:
        return
    del config.stash[HELD]
    os.close(held)
    folder = config.stash[FOLDER]
    eventually(lambda: not lease.watched(folder / "lease"), seconds=10, what=lambda: "the control plane still runs")
    (folders.keep_logs if config.stash.get(KEPT, False) else folders.remove)(folder)


@pytest.fixture(autouse=True)
def nothing_left_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """A connection that a test leaves open fails this test, by its ResourceWarning, and not a later one."""
    yield
    if PLANES & set(request.fixturenames):
        gc.collect()


@pytest.fixture(scope="session")
def control_plane(pytestconfig: pytest.Config) -> Cluster:
    """The control plane of this run. Others use it too: make things with unique names, and do not hurt it."""
    folder = pytestconfig.stash[FOLDER]
    with locked(folder / "lock"):
        if not (folder / "url").exists():
            binary()  # here, so that its progress is seen with -s
            start = [sys.executable, "-m", "tests.cluster", "serve", str(folder)]
            subprocess.run(start, cwd=ROOT, check=True)
    return Cluster(folder)


@pytest.fixture(scope="session")
def cluster_with_crds(control_plane: Cluster) -> Cluster:
    """The control plane of this run, with our definitions."""
    control_plane.install_crds()
    return control_plane


@pytest.fixture
def private_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane for this test alone, which may kill, pause and restart its components."""
    with ControlPlane(tmp_path / "plane") as plane:
        yield plane


@pytest.fixture(scope="session")
def unique_name() -> Callable[[str], str]:
    """Makes names that no other test uses: `unique_name("node")` is `node-3f9c2a7d1e`."""
    return lambda prefix: f"{prefix}-{uuid4().hex[:10]}"


@pytest.fixture
def namespace(control_plane: Cluster, unique_name: Callable[[str], str]) -> Iterator[str]:
    """A namespace for this test, deleted afterwards without waiting for it to be gone."""
    name = unique_name("test")
    control_plane.create("/api/v1/namespaces", {"metadata": {"name": name}})
    # No pod is admitted before its service account is there.
    control_plane.wait(f"/api/v1/namespaces/{name}/serviceaccounts/default", lambda _: True)
    yield name
    control_plane.delete(f"/api/v1/namespaces/{name}")
