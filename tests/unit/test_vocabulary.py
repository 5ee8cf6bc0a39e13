"""A class has a name of its own, which is a noun; each word for users and contributors has a place that exists."""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/dovetail"

# Names of classes and types that are meant to be defined in several modules, and why.
HOMONYMS: Mapping[str, str] = {
    "Change": "the simulated server logs changes of stored objects, the state those of values that are kept of them",
}

# Participles and adjectives by which nobody can guess what an instance of the class is.
BARE = frozenset(
    re.findall(
        r"\w+",
        """
        Absurd Alike Allowed Annotated Armed Asked Begun Blocked Bound Cleaned Combined Conditioned Consulted
        Converted Counted Cut Decided Declared Disrupted Drafted Drained Drawn Eligible Emptied Ended Evicted
        Expected Expired Explained Failed Followed Found Held Kept Known Left Lost Made Marked Met Moved Named Noted
        Offered Owed Paged Parked Parsed Past Placed Planned Prepared Read Recorded Refused Rejected Rendered
        Required Rescheduled Searched Seen Selected Standing Stored Strict Told Touched Unmet Unread Unreadable
        Unsound Validated Waited Waiting Wanted
        """,
    )
)

GLOSSARY = ROOT / "docs/glossary.md"
WORDS = ROOT / "docs/design/words.md"
WORD = re.compile(r"^\| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
WORD_WITH_PLACE = re.compile(r"^\| ([^|]+) \| (?:[^|]+ \| )?`([\w.]+)` \|$", re.MULTILINE)


@cache
def classes() -> Mapping[str, tuple[str, ...]]:
    """The modules that define each class name."""
    return _modules_by_name(_class_name)


def _modules_by_name(name_of: Callable[[ast.stmt], str | None]) -> Mapping[str, tuple[str, ...]]:
    modules = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if (name := name_of(node)) is not None:
                modules[name].append(str(path.relative_to(PACKAGE)))
    return {name: tuple(paths) for name, paths in modules.items()}


def _class_name(node: ast.stmt) -> str | None:
    return node.name if isinstance(node, ast.ClassDef) else None


def _type_name(node: ast.stmt) -> str | None:
    """The name of a class, or of a type alias: a module's name in CamelCase that is no type variable."""
    match node:
        case ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]):
            is_variable = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "TypeVar"
            return name if re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", name) and not is_variable else None
    return _class_name(node)


def test_no_type_name_is_defined_in_two_modules() -> None:
    twice = {name: modules for name, modules in _modules_by_name(_type_name).items() if len(modules) > 1}
    assert {name: modules for name, modules in twice.items() if name not in HOMONYMS} == {}
    assert HOMONYMS.keys() <= twice.keys()


def test_no_class_is_a_bare_participle() -> None:
    assert {name: modules for name, modules in classes().items() if name.lstrip("_") in BARE} == {}


def places() -> list[tuple[str, str]]:
    return WORD_WITH_PLACE.findall(WORDS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("place", dict.fromkeys(place for _, place in places()))
def test_a_word_has_a_place_that_exists(place: str) -> None:
    module, _, name = place.rpartition(".")
    if _module(place) is None:
        path = _module(module)
        assert path is not None, f"there is no module {module}"
        assert name in {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}


def test_each_word_is_explained_once() -> None:
    of_the_code, _, of_users = WORDS.read_text(encoding="utf-8").partition("\n## Where words of the glossary live\n")
    explained = [word for word, _ in WORD_WITH_PLACE.findall(of_the_code)]
    for_users = [word for word in WORD.findall(GLOSSARY.read_text(encoding="utf-8")) if word not in {"word", "---"}]
    assert len(explained) > 20
    assert len(for_users) > 50
    assert len({*explained, *for_users}) == len(explained) + len(for_users)
    assert sorted(for_users) == sorted(word for word, _ in WORD_WITH_PLACE.findall(of_users))


def _module(dotted: str) -> Path | None:
    path = PACKAGE / dotted.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
