"""Does docs/architecture.md show the packages as they are?"""

import re
from typing import Final

import pytest

from tests.architecture import DRAWING, ROOT, SOURCE, drawing, packages

_PAGE: Final = (ROOT / "docs" / "architecture.md").read_text()
_PATH: Final = re.compile(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?|[a-z_]+\.py)(?:::\w+)?`")


def test_the_drawing_is_what_the_imports_make() -> None:
    assert DRAWING.read_text() == drawing(), "imports have changed: run `make architecture` and look at the drawing"


def test_the_contract_of_the_layers_names_every_package() -> None:
    there = {each.parent.name for each in SOURCE.glob("*/__init__.py")}
    there |= {each.stem for each in SOURCE.glob("*.py") if not each.stem.startswith("__")}
    assert {package.name for package in packages()} == there


@pytest.mark.parametrize("name", [package.name for package in packages()])
def test_the_page_has_a_sentence_about_every_package(name: str) -> None:
    assert f"| `{name}` |" in _PAGE


def test_every_path_on_the_page_is_there() -> None:
    paths = {match[1] for match in _PATH.finditer(_PAGE)}
    assert [path for path in sorted(paths) if not any((top / path).exists() for top in (SOURCE, ROOT))] == []
    assert paths
