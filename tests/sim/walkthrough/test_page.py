"""Do docs/disruption.md and docs/cleanup.md show what the program says?

What has changed is written anew by running this file, `.venv/bin/python -m tests.sim.walkthrough.test_page`.
"""

import re
from pathlib import Path

import msgspec
import pytest

from tests.sim.walkthrough.decision import Shown, decision

DOCS = Path(__file__).parents[3] / "docs"
PAGES = (DOCS / "disruption.md", DOCS / "cleanup.md")
BLOCK = re.compile(r"(<!-- shown: (\w+) -->\n```\w+\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def shown() -> Shown:
    return decision()


def _filled(page: str, shown: Shown) -> str:
    return BLOCK.sub(lambda found: found[1] + str(getattr(shown, found[2])), page)


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_what_is_shown_is_what_is_said(page: Path, shown: Shown) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == _filled(text, shown)


def test_all_of_it_is_shown(shown: Shown) -> None:
    there = [found[2] for page in PAGES for found in BLOCK.finditer(page.read_text(encoding="utf-8"))]
    assert sorted(there) == sorted(field.name for field in msgspec.structs.fields(shown))


def test_it_is_the_same_each_time(shown: Shown) -> None:
    assert shown == decision()


if __name__ == "__main__":
    fresh = decision()
    for page in PAGES:
        page.write_text(_filled(page.read_text(encoding="utf-8"), fresh), encoding="utf-8")
