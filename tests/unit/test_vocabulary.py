"""A class has a name of its own, which is a noun, and the glossary names places that exist."""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/dovetail"

# Class names that are meant to be defined in several modules, and why.
HOMONYMS: Mapping[str, str] = {}

# Participles and adjectives by which nobody can guess what an instance of the class is.
BARE = frozenset(
    re.findall(
        r"\w+",
        """
        Absurd Alike Allowed Annotated Armed Asked Begun Blocked Bound Cleaned Combined Conditioned Consulted
        Converted Counted Cut Decided Disrupted Drained Drawn Eligible Emptied Ended Evicted Expected Expired
        Explained Failed Followed Found Held Kept Known Left Lost Made Marked Met Moved Named Noted Offered Owed
        Paged Parked Parsed Past Placed Planned Prepared Read Recorded Refused Rejected Rendered Rescheduled
        Searched Seen Selected Standing Stored Told Touched Unmet Unread Unreadable Unsound Validated Waited Waiting
        Wanted
        """,
    )
)

PLACE = re.compile(r"^\| [^|]+ \| [^|]+ \| `([\w.]+)` \|$", re.MULTILINE)


@cache
def classes() -> Mapping[str, tuple[str, ...]]:
    """The modules that define each class name."""
    found = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(PACKAGE)))
    return {name: tuple(modules) for name, modules in found.items()}


def test_no_class_name_is_defined_in_two_modules() -> None:
    twice = {name: modules for name, modules in classes().items() if len(modules) > 1}
    assert {name: modules for name, modules in twice.items() if name not in HOMONYMS} == {}
    assert HOMONYMS.keys() <= twice.keys()


def test_no_class_is_a_bare_participle() -> None:
    assert {name: modules for name, modules in classes().items() if name.lstrip("_") in BARE} == {}


def places() -> list[str]:
    return PLACE.findall((ROOT / "docs/glossary.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("place", places())
def test_the_glossary_names_a_place_that_exists(place: str) -> None:
    module, _, name = place.rpartition(".")
    if _module(place) is None:
        path = _module(module)
        assert path is not None, f"there is no module {module}"
        assert name in {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}


def test_the_glossary_says_each_word_once() -> None:
    words = re.findall(
        r"^\| ([^|]+) \| [^|]+ \| `", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(words) == len(set(words)) == len(places())


def _module(dotted: str) -> Path | None:
    path = PACKAGE / dotted.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
