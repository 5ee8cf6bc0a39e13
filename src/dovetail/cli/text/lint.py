"""Shows the findings of `lint`: by file for people, and for GitHub and tools that read SARIF."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final
from urllib.parse import quote

import click
import msgspec

from dovetail import __version__
from dovetail.cli.common.output import Times, problem_lines
from dovetail.model.finding import Finding, Severity
from dovetail.values.foreign_text import plain

_GITHUB: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_SARIF: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def lines_by_file(problems: Sequence[Finding], times: Times) -> list[str]:
    """The findings below the name of their file."""
    lines: list[str] = []
    for file, findings in groupby(problems, lambda problem: problem.file):
        places = [msgspec.structs.replace(problem, file=_place(problem)) for problem in findings]
        heading = [click.style(plain(file), underline=True)] if file else []
        lines += [*([""] if lines else []), *heading, *problem_lines(places, times)]
    return lines


def _place(problem: Finding) -> str:
    return f"line {problem.line}" if isinstance(problem.line, int) else ""


# -- GitHub -----------------------------------------------------------------------------------------------------------


def github_lines(problems: Iterable[Finding]) -> Iterator[str]:
    """Workflow commands: GitHub shows them beside the lines of a pull request."""
    for problem in problems:
        place = {"file": problem.file, "line": str(problem.line) if isinstance(problem.line, int) else ""}
        shown = {**place, "title": problem.rule}
        properties = ",".join(f"{name}={_property(text)}" for name, text in shown.items() if text)
        yield f"::{_GITHUB[problem.severity]} {properties}::{_data(_sentence(problem))}"


def _sentence(problem: Finding) -> str:
    subject = " ".join(filter(None, (str(problem.object), problem.field)))
    remedy = f"\n→ {problem.remedy}" if problem.remedy else ""
    return f"{subject + ': ' if subject else ''}{problem.message}{remedy}"


def _data(text: str) -> str:
    lines = [plain(line) for line in text.split("\n")]
    return "%0A".join(line.replace("%", "%25") for line in lines)


def _property(text: str) -> str:
    return plain(text).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")


# -- SARIF ------------------------------------------------------------------------------------------------------------


def sarif_text(problems: Sequence[Finding]) -> str:
    """SARIF 2.1.0, for code scanning."""
    rules = sorted({problem.rule for problem in problems})
    driver = {
        "name": "dovetail lint",
        "version": __version__,
        "rules": [{"id": rule, "name": rule} for rule in rules],
    }
    results = [_result(problem, rules.index(problem.rule)) for problem in problems]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=2)


def _result(problem: Finding, rule: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": problem.rule,
        "ruleIndex": rule,
        "level": _SARIF[problem.severity],
        "message": {"text": _sentence(problem)},
        "partialFingerprints": {"dovetail/v1": f"{problem.object} {problem.field}"},
    }
    if problem.file:
        location: dict[str, Any] = {"artifactLocation": {"uri": quote(problem.file)}}
        if isinstance(problem.line, int):
            location["region"] = {"startLine": problem.line}
        result["locations"] = [{"physicalLocation": location}]
    return result
