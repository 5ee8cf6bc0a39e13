"""Is what the documentation and the examples show still so?

Outputs that changed are written anew by running this file: `.venv/bin/python -m tests.unit.cli.test_examples`.
"""

import re
import shlex
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from dovetail.api.documents import Document, read_documents
from dovetail.cli.common import output
from dovetail.model.finding import Finding, Severity
from tests.unit.cli.running import Program

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
# A block that shows a mistake is marked so, and lint must find something in it.
BLOCK = re.compile(r"^```(console|yaml|yaml mistake)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
# The example cluster has two pods with mistakes, as clusters do.
MEANT = {
    "examples/cluster.yaml": {
        ("Pod/ci/deploy-agent-75fd9c8b6f-l4mxn", "InvalidDoNotDisrupt"),
        ("Pod/shop/search-7f6b5d9c48-m3kqv", "InvalidDisruptionSchedule"),
    }
}
AT = datetime(2026, 3, 6, 16, 20, tzinfo=UTC)


class Block(NamedTuple):
    page: Path
    line: int
    kind: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def _blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2]) for found in BLOCK.finditer(text)]


BLOCKS = [block for page in PAGES for block in _blocks(page)]
CONSOLES = [block for block in BLOCKS if block.kind == "console"]
MANIFESTS = [
    (block.name, block.text.encode(), block.kind == "yaml mistake") for block in BLOCKS if block not in CONSOLES
]
MANIFESTS += [(str(path.relative_to(ROOT)), path.read_bytes(), "mistakes" in path.parts) for path in EXAMPLES]


def _output(console: str) -> str:
    """The block as it should be: its command and what that prints now."""
    command = console.partition("\n")[0]
    program, *arguments = shlex.split(command.removeprefix("$ "))
    assert program == "dovetail", f"a console block begins with `$ dovetail`, not {command}"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("NO_COLOR", "1")
        patch.setenv("COLUMNS", "80")
        patch.setattr(output, "SILENT_SECONDS", 3600.0)  # on a slow machine, that it takes long
        outcome = Program(patch, ROOT)(*arguments)
    assert not outcome.err or outcome.code == 2, outcome.err
    return f"{command}\n{outcome.out}{outcome.err}"


@pytest.mark.parametrize("block", CONSOLES, ids=[block.name for block in CONSOLES])
def test_output_shown_is_what_the_command_prints(block: Block) -> None:
    assert block.text == _output(block.text)


def _lint(documents: list[Document]) -> list[Finding]:
    try:
        module = import_module("dovetail.views.lint")
    except ModuleNotFoundError:
        pytest.skip("lint is not there yet")
    problems: list[Finding] = module.lint(documents, AT)
    return problems


@pytest.mark.parametrize(("name", "text", "mistaken"), MANIFESTS, ids=[name for name, _, _ in MANIFESTS])
def test_manifest_is_valid_or_meant_not_to_be(name: str, text: bytes, mistaken: bool) -> None:
    documents = list(read_documents(text, name))
    assert documents
    found = [problem for problem in _lint(documents) if problem.severity is not Severity.INFO]
    errors = {(str(problem.object), problem.rule) for problem in found if problem.severity is Severity.ERROR}
    assert found if mistaken else errors == MEANT.get(name, set())


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert not broken


def _refresh() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fresh = BLOCK.sub(
            lambda found: f"```console\n{_output(found[2])}```" if found[1] == "console" else found[0], text
        )
        if fresh != text:
            page.write_text(fresh, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    _refresh()
