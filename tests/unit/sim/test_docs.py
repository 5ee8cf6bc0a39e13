"""Does the scenario in docs/simulated-cluster.md do what the page says?"""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "simulated-cluster.md"


def test_the_scenario_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == "3\n"
