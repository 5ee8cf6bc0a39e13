"""The program as a fixture."""

from pathlib import Path

import pytest

from dovetail.cli.common import output
from tests.unit.cli.running import Program


@pytest.fixture
def dovetail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # whatever cluster the tests' user has is not ours to read
    monkeypatch.setenv("DOVETAIL_DECIDER", "dovetail")  # most inputs of tests show nobody who decides
    monkeypatch.setattr(output, "SILENT_SECONDS", 3600.0)  # a slow machine must not change what is printed
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    return Program(monkeypatch, tmp_path)
