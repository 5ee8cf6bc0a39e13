"""The files that describe the project agree with the project: changelog, Makefile, hooks, templates and entry pages."""

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dovetail import __version__

ROOT: Final = Path(__file__).parents[2]
TEMPLATES: Final = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_changelog_has_an_unreleased_part_and_a_dated_section_for_this_version() -> None:
    sections = re.findall(r"^## \[(.+?)\](.*)$", read("CHANGELOG.md"), re.MULTILINE)
    assert sections[0] == ("Unreleased", "")
    assert __version__ in dict(sections)
    assert [date for _, date in sections[1:] if not re.fullmatch(r" - \d{4}-\d\d-\d\d", date)] == []


def test_make_help_lists_every_target_in_a_group() -> None:
    makefile = read("Makefile")
    targets = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert targets is not None
    printed = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert sorted(re.findall(r"^  make (\S+) ", printed, re.MULTILINE)) == sorted(targets[1].split())
    assert printed.partition("\n\n")[0].strip().startswith("make help")


def test_hooks_run_the_checks_of_make_check() -> None:
    (repository,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert repository["repo"] == "local"
    tools = {hook["entry"].removeprefix(".venv/bin/").split()[0] for hook in repository["hooks"]}
    recipe = re.search(r"^check:.*?\n\n", read("Makefile"), re.MULTILINE | re.DOTALL)
    assert recipe is not None
    assert tools == set(re.findall(r"\$\(BIN\)/(\S+)", recipe[0]))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_issue_templates_are_forms_with_distinct_fields(template: Path) -> None:
    form: dict[str, Any] = yaml.safe_load(template.read_text(encoding="utf-8"))
    if template.name == "config.yml":
        assert set(form) <= {"blank_issues_enabled", "contact_links"}
        return
    assert {"name", "description", "body"} <= set(form)
    fields = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(fields) == len(set(fields)) > 0


@pytest.mark.parametrize("page", ["SECURITY.md", "ROADMAP.md", "CHANGELOG.md"])
def test_links_of_entry_pages_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", read(page))
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_readme_leads_to_every_entry_page() -> None:
    readme = read("README.md")
    pages = ["CONTRIBUTING.md", "CHANGELOG.md", "ROADMAP.md", "SECURITY.md", "LICENSE"]
    assert [page for page in pages if f"]({page})" not in readme] == []
