"""The table of readings in docs/conformance.md is what the rules take as settings.

To write it anew: `.venv/bin/python -m tests.unit.test_conformance`.
"""

from pathlib import Path

from dovetail.model.decider import parse_decider
from dovetail.model.rule_settings import READINGS, settings_of

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
BEGIN = "<!-- made from READINGS in src/dovetail/model/rule_settings.py -->\n\n"
END = "\n<!-- end -->"
COLUMNS = {
    "Karpenter before 1.12": "karpenter@1.11",
    "Karpenter": "karpenter",
    "with Dovetail's guard": "dovetail:guard",
    "with Dovetail's drive": "dovetail:drive",
    "Dovetail": "dovetail",
}


def table() -> str:
    settings = [settings_of(parse_decider(decider)) for decider in COLUMNS.values()]
    rows = [["", *COLUMNS], ["---"] * (len(COLUMNS) + 1)]
    rows += [[each.what, *(each.words[getattr(one, each.field)] for one in settings)] for each in READINGS]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def written(page: str) -> str:
    """The page with the table as it should be."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text()
    assert BEGIN in page
    assert page == written(page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
