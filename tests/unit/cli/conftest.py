"""The program as a fixture."""

from pathlib import Path

import pytest

from tests.unit.cli.running import Program


@pytest.fixture
def dovetail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    monkeypatch.setenv("NO_COLOR", "1")
    return Program(monkeypatch, tmp_path)
