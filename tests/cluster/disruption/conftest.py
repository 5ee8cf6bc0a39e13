"""One control plane for all tests here, where no claims are but theirs, and one run of all timelines."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.disruption.playing import Endings, play
from tests.cluster.plane import PATIENT, ControlPlane

HERE: Final = Path(__file__).parent


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("disruption") / "plane", flags=PATIENT) as plane:
        plane.install_crds()
        yield plane


@pytest.fixture(scope="package")
def endings(request: pytest.FixtureRequest, plane: ControlPlane) -> Endings:
    """Of the timelines that were asked for, in whichever module."""
    timelines: list[Any] = [
        item.callspec.params["timeline"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path.parent == HERE and "endings" in item.fixturenames
    ]
    return asyncio.run(play(plane, timelines))
