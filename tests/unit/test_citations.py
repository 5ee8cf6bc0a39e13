"""Every rule, section, decision record and seed that code, tests and docs cite exists in docs/design."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
DESIGN: Final = ROOT / "docs" / "design"
ADRS: Final = sorted((DESIGN / "adr").glob("[0-9]*.md"))
FOLDERS: Final = ("src", "tests", "bench", "docs", "examples")
SUFFIXES: Final = {".py", ".md", ".yaml", ".js", ".html", ".toml"}

# Citations that lead nowhere yet. Remove an entry when its section is written. Do not add any.
UNRESOLVED: Final[frozenset[str]] = frozenset()

RULE: Final = re.compile(r"\bR\d+[a-z]?\b")
ADR: Final = re.compile(r"\bADR-\d+\b")
# One proposal or several: seed 000; seeds 001 and 004; seeds 000, 001.
SEEDS: Final = re.compile(r"\bseeds?[ _]((?:\d{3}(?:, | and )?)+)(?!\d)", re.IGNORECASE)
SEED_HEADING: Final = re.compile(r"^## Seed (\d{3}): ", re.MULTILINE)
# A page and a section (02 §7.4), a section of the page cited before (§7.5), and ranges of items (03 §10.60–62).
SECTION: Final = re.compile(r"(?:\b([0-9A-Za-z]+) )?§(\d+(?:\.\d+)*)(?:[–-](\d+)\b)?")
# A whole page: decisions (04), or the contract of 04.
PAGE: Final = re.compile(r"(?<=[a-z] )(?:\((0\d)\)|of (0\d)\b(?! §))")
RULE_HEADING: Final = re.compile(r"^#+ (R\d+[a-z]?): ", re.MULTILINE)
SECTION_HEADING: Final = re.compile(r"#+ §(\d+(?:\.\d+)*) ")
ITEM: Final = re.compile(r"(\d+)\. ")
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
ANCHOR: Final = re.compile(r'^<a id="([^"]+)"></a>$', re.MULTILINE)
FENCE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)")


def sections(page: Path) -> Iterator[str]:
    """The sections of a page and the items of their numbered lists, as they are cited."""
    number = page.name[:2]
    section = ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if heading := SECTION_HEADING.match(line):
            section = heading[1]
            yield f"{number} §{section}"
        elif item := ITEM.match(line):
            yield f"{number} §{section}.{item[1]}"


def targets() -> list[str]:
    rules = RULE_HEADING.findall((DESIGN / "rules.md").read_text(encoding="utf-8"))
    records = [f"ADR-{page.name[:4]}" for page in ADRS]
    seeds = [f"seed {number}" for number in SEED_HEADING.findall((DESIGN / "seeds.md").read_text(encoding="utf-8"))]
    pages = sorted(DESIGN.glob("[0-9][0-9]-*.md"))
    whole = [page.name[:2] for page in pages]
    return rules + records + seeds + whole + [target for page in pages for target in sections(page)]


def citations(text: str, *, bare: bool = True) -> Iterator[str]:
    """Everything that the text cites. `bare`: a section without a page is of the page that was cited before."""
    yield from RULE.findall(text)
    yield from ADR.findall(text)
    yield from (f"seed {number}" for numbers in SEEDS.findall(text) for number in re.findall(r"\d{3}", numbers))
    yield from (in_brackets or bare_number for in_brackets, bare_number in PAGE.findall(text))
    page = ""
    for word, number, last in SECTION.findall(text):
        if re.fullmatch(r"\d\d|[A-Z]{2,}", word):
            page = word
        elif not bare:
            continue
        yield f"{page} §{number}"
        if last:
            start, dot, _ = number.rpartition(".")
            yield f"{page} §{start}{dot}{last}"


def sources() -> Iterator[Path]:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in sorted([*files, *ROOT.glob("*.md")]):
        if path.suffix in SUFFIXES and path != Path(__file__):
            yield path


def anchors(page: Path) -> set[str]:
    """Those that the page sets itself, and those that GitHub gives to its headings."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = (re.sub(r"[^\w\- ]", "", title.lower()).strip() for title in HEADING.findall(text))
    return {*ANCHOR.findall(text), *(title.replace(" ", "-") for title in titles)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("as R24a and R2–R4 say", {"R24a", "R2", "R4"}),
        ("RFC 3339, HR5, R5x7 and R2D2 are no rules", set()),
        ("(02 §10, §14.57; 03 §2)", {"02 §10", "02 §14.57", "03 §2"}),
        ("03 §3–§6", {"03 §3", "03 §6"}),
        ("03 §10.60–62", {"03 §10.60", "03 §10.62"}),
        ("02 §13 F3, §14.30-36", {"02 §13", "02 §14.30", "02 §14.36"}),
        ("Numbers are those of 05 §13.", {"05 §13"}),
        ("item 05 §7.1.4: filters", {"05 §7.1.4"}),
        ("DESIGN §5", {"DESIGN §5"}),
        ("§7 of nothing", {" §7"}),
        ("Seed 001; seeds 000, 004 and 009", {"seed 001", "seed 000", "seed 004", "seed 009"}),
        ("the random seed 12345 and 17 seeds", set()),
        ("which nodes to take (02), by the contract of 09; f(04) and 04", {"02", "09"}),
        ("as ADR-0001 and ADR-9999 explain", {"ADR-0001", "ADR-9999"}),
    ],
)
def test_citations_are_found(text: str, expected: set[str]) -> None:
    assert set(citations(text)) == expected


def test_every_citation_leads_to_a_rule_or_section() -> None:
    known = set(targets())
    places: dict[str, str] = {}
    for path in sources():
        # In Markdown a section without a page is a link, which has a test of its own.
        for citation in citations(path.read_text(encoding="utf-8"), bare=path.suffix != ".md"):
            places.setdefault(citation, str(path.relative_to(ROOT)))
    dangling = {citation: place for citation, place in places.items() if citation not in known}
    assert {citation: place for citation, place in dangling.items() if citation not in UNRESOLVED} == {}
    assert set(dangling) >= UNRESOLVED, "these lead somewhere, or nobody cites them: remove them from UNRESOLVED"


def test_no_rule_and_no_section_is_there_twice() -> None:
    assert [target for target, times in Counter(targets()).items() if times > 1] == []


def test_items_are_numbered_without_a_gap() -> None:
    known = set(targets())
    for target in known:
        start, dot, number = target.rpartition(".")
        if dot and int(number) > 1:
            assert f"{start}.{int(number) - 1}" in known, target


def test_the_contents_list_every_rule_once() -> None:
    text = (DESIGN / "rules.md").read_text(encoding="utf-8")
    contents = text[text.index("## Contents") : text.index("## Terms")]
    rules = RULE_HEADING.findall(text)
    assert sorted(re.findall(r"\[(R\d+[a-z]?)\]", contents)) == sorted(rules)


@pytest.mark.parametrize("record", ADRS, ids=lambda record: record.name)
def test_decision_records_have_the_four_parts(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert text.startswith(f"# ADR-{record.name[:4]}: ")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Alternatives", "Consequences"]


def test_the_index_lists_every_decision_record_under_its_title() -> None:
    text = (DESIGN / "adr" / "README.md").read_text(encoding="utf-8")
    titles = [(record, record.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")) for record in ADRS]
    rows = [f"| [{title[:8]}]({record.name}) | {title[10:]} |" for record, title in titles]
    assert [line for line in text.splitlines() if line.startswith("| [")] == rows
    assert [record.name[:4] for record in ADRS] == [f"{number:04}" for number in range(1, len(ADRS) + 1)]


PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_heading(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        there = (page.parent / target).resolve() if target else page
        assert anchor in anchors(there), f"{target}#{anchor}"
