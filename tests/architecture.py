"""Draws docs/architecture.svg from the import graph and the import contracts: `python -m tests.architecture`.

A row is a package, in the order of the layers; a column is what it imports. Nothing here is written by hand: the layers
and which packages are pure come from the contracts in pyproject.toml, the numbers from the imports, the words from the
packages' docstrings. A test compares the drawing in the repository with what this makes.
"""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

import grimp

ROOT: Final = Path(__file__).parent.parent
DRAWING: Final = ROOT / "docs" / "architecture.svg"
SOURCE: Final = ROOT / "src" / "dovetail"
LAYERS: Final = "Imports go one way"
PURE: Final = "Decisions and views touch no clock, chance, host or network"

# Each is readable on white and on black.
_GREEN, _BLUE, _GREY = "#3a8a55", "#3b7fc4", "#78838f"
_CELL, _TOP, _LEFT, _MARGIN = 40, 118, 446, 16
_SOME, _MANY = 5, 25
_SANS: Final = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


class Package(NamedTuple):
    """A package or module right below `dovetail`."""

    name: str
    layer: int
    pure: bool
    sentence: str
    folders: tuple[str, ...]

    @property
    def colour(self) -> str:
        return _GREEN if self.pure else _BLUE


def packages() -> list[Package]:
    """From the top layer to the bottom one."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    by_name = {contract["name"]: contract for contract in contracts}
    pure = {_short(module) for module in by_name[PURE]["source_modules"]}
    return [
        Package(name, layer, name in pure, sentence(name), _folders(name))
        for layer, members in enumerate(by_name[LAYERS]["layers"])
        for name in map(_short, members.split("|"))
    ]


def imports() -> Counter[tuple[str, str]]:
    """How many modules of one package import how many of another, counted as pairs."""
    graph = grimp.build_graph("dovetail", cache_dir=None)
    return Counter(
        (_package(importer), _package(imported))
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
        if _package(importer) and _package(imported) and _package(importer) != _package(imported)
    )


def sentence(name: str) -> str:
    """The first sentence of the package's docstring."""
    file = SOURCE / name / "__init__.py"
    text = ast.get_docstring(ast.parse((file if file.exists() else SOURCE / f"{name}.py").read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


def drawing() -> str:
    """The whole SVG."""
    rows, counts = packages(), imports()
    size = _CELL * len(rows)
    width, height = _LEFT + size + _MARGIN, _TOP + size + 44
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' font-family="{_SANS}" font-size="13" role="img" aria-labelledby="title">',
        '<title id="title">The packages of Dovetail in layers, and how often each imports the others</title>',
        *_bands(rows, width),
        *(line for at, row in enumerate(rows) for line in _row(at, row, rows, counts)),
        *_legend(rows, size),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _bands(rows: Sequence[Package], width: int) -> Iterator[str]:
    """Every other layer has a shade, so that packages of one layer are seen together."""
    for at, row in enumerate(rows):
        if row.layer % 2 == 0:
            yield f'<rect x="0" y="{_y(at)}" width="{width}" height="{_CELL}" fill="{_GREY}" fill-opacity="0.09"/>'


def _row(at: int, row: Package, rows: Sequence[Package], counts: Counter[tuple[str, str]]) -> Iterator[str]:
    y, column = _y(at), _LEFT + _CELL * at
    yield f'<rect x="{_MARGIN}" y="{y + 7}" width="104" height="26" rx="6" fill="{row.colour}"/>'
    yield _text(_MARGIN + 52, y + 25, row.name, "#fff", 'font-weight="600" text-anchor="middle"')
    words = row.sentence.split(":")[0].split(";")[0].rstrip(".")
    folders = " · ".join(row.folders)
    yield _text(_MARGIN + 118, y + (18 if folders else 25), words, _GREY, 'font-size="12"')
    if folders:
        yield _text(_MARGIN + 118, y + 33, folders, _GREY, 'font-size="10.5" font-style="italic"')
    middle = column + _CELL // 2
    turned = f'text-anchor="start" font-weight="600" transform="rotate(-55 {middle} {_TOP - 10})"'
    yield _text(middle, _TOP - 10, row.name, row.colour, turned)
    yield f'<circle cx="{middle}" cy="{y + _CELL // 2}" r="3" fill="{_GREY}"/>'
    for other, imported in enumerate(rows):
        if count := counts[row.name, imported.name]:
            yield from _cell(_LEFT + _CELL * other, y, count, row.colour)


def _cell(x: int, y: int, count: int, colour: str) -> Iterator[str]:
    fill = colour if count >= _MANY else "none"
    if count >= _SOME:
        box = f'x="{x + 4}" y="{y + 7}" width="{_CELL - 8}" height="{_CELL - 14}" rx="5"'
        yield f'<rect {box} fill="{fill}" stroke="{colour}" stroke-opacity="{1 if count >= _MANY else 0.55}"/>'
    ink, weight = ("#fff", "600") if count >= _MANY else (colour, "400")
    anchored = f'text-anchor="middle" font-weight="{weight}" font-size="12"'
    yield _text(x + _CELL // 2, y + 24, str(count), ink, anchored)


def _legend(rows: Sequence[Package], size: int) -> Iterator[str]:
    """What it means; in the half that is empty, why it is."""
    y = _TOP + size + 27
    yield f'<rect x="{_MARGIN}" y="{y - 11}" width="14" height="14" rx="3" fill="{_GREEN}"/>'
    yield _text(_MARGIN + 21, y, "pure: no clock, network, chance or environment", _GREY, 'font-size="12"')
    yield f'<rect x="{_MARGIN + 330}" y="{y - 11}" width="14" height="14" rx="3" fill="{_BLUE}"/>'
    yield _text(_MARGIN + 351, y, "touches the world, or its simulation", _GREY, 'font-size="12"')
    yield _text(
        _LEFT + size, y, "numbers: imports from one module to another", _GREY, 'font-size="12" text-anchor="end"'
    )
    x, low = _LEFT + 60, _y(len(rows) * 2 // 3)  # beside the shorter sentences
    yield _text(x, low, "This half stays empty:", _GREY, 'font-size="15" font-weight="600"')
    yield _text(x, low + 21, "a package imports only what is below it.", _GREY, 'font-size="13"')
    yield _text(_MARGIN, _TOP - 46, "The packages, in layers", _GREY, 'font-size="17" font-weight="600"')
    yield _text(_MARGIN, _TOP - 24, "each row imports what its numbers stand under", _GREY, 'font-size="12"')


def _text(x: int, y: int, text: str, colour: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}" {more}>{escape(text)}</text>'


def _y(row: int) -> int:
    return _TOP + _CELL * row


def _short(module: str) -> str:
    return module.strip().removeprefix("dovetail.")


def _package(module: str) -> str:
    """Right below `dovetail`; nothing for the files of `dovetail` itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and not parts[1].startswith("_") else ""


def _folders(name: str) -> tuple[str, ...]:
    return tuple(sorted(each.parent.name for each in (SOURCE / name).glob("*/__init__.py")))


if __name__ == "__main__":
    DRAWING.write_text(drawing())
