"""`dovetail lint`: finds mistakes and surprises in manifests before they are applied."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator

import click
import msgspec

from dovetail.api.documents import Document
from dovetail.cli.common.files import documents_of, one_line_errors
from dovetail.cli.common.options import CommonOptions, common_options
from dovetail.cli.common.output import (
    Times,
    count,
    print_data,
    print_lines,
    problem_lines,
    without_cycle_search,
    working,
)
from dovetail.cli.common.process import fail
from dovetail.model.finding import Finding, Severity
from dovetail.values.foreign_text import plain
from dovetail.views.lint import lint
from dovetail.views.lint.openings import openings
from dovetail.views.lint.subject import subject_of


class LintReport(msgspec.Struct, frozen=True, rename="camel"):
    """What `-o json` prints."""

    problems: tuple[Finding, ...]
    read: dict[str, int]
    """How many objects of each kind."""
    left_out: int
    """Objects of other namespaces."""


@click.command("lint")
@click.argument("arguments", nargs=-1, metavar="[PATH]...")
@common_options(
    ahead="Also print when the windows of each schedule open within this span.",
    namespace="Only objects of this namespace, and cluster-scoped ones.  [default: all]",
    quiet="Only errors and warnings; leave out information and the count.",
    verbose="Also print which objects were read.",
    live=False,
)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
@without_cycle_search()
def command(*, arguments: tuple[str, ...], common: CommonOptions, strict: bool) -> None:
    """Find mistakes and surprises in manifests before they are applied.

    Checks the annotations of pods and pod templates, NodePools and their budgets, NodeClaims, Nodes and
    PodDisruptionBudgets. Each finding says what to write instead. Exits with 1 if there is an error.

    \b
      dovetail lint deploy/
      helm template . | dovetail lint -
    """
    everything = [*arguments, *common.paths]
    if not everything:
        fail("no input: name files or directories, or - for standard input")
    reading = _LintInput(documents_of(everything), common)
    with one_line_errors(), working("reading and checking …"):
        problems = lint(reading, common.at) + reading.ahead
    if common.quiet:
        problems = [problem for problem in problems if problem.severity is not Severity.INFO]
    counts = Counter(problem.severity for problem in problems)
    if common.output == "table":
        lines = problem_lines(problems, Times(common.at, common.zone))
        if not common.quiet:
            lines += [*([""] if problems else []), *_summary(counts, reading, verbose=common.verbose)]
        if lines:
            print_lines(lines)
    else:
        print_data(LintReport(tuple(problems), dict(reading.read), reading.left_out), common.output)
    sys.exit(1 if counts[Severity.ERROR] or (strict and counts[Severity.WARNING]) else 0)


class _LintInput(Iterable[Document]):
    """The documents to check, and counts of them."""

    def __init__(self, documents: Iterable[Document], common: CommonOptions) -> None:
        self._documents = documents
        self._common = common
        self.read: Counter[str] = Counter()
        self.left_out = 0
        self.ahead: list[Finding] = []

    def __iter__(self) -> Iterator[Document]:
        namespace, at, end = self._common.namespace, self._common.at, self._common.end
        for document in self._documents:
            if namespace is not None and subject_of(0, document).namespace not in {"", namespace}:
                self.left_out += 1
                continue
            self.read[document.kind] += 1
            if end is not None:
                self.ahead += openings(document, at, end)
            yield document


def _summary(counts: Counter[Severity], reading: _LintInput, *, verbose: bool) -> list[str]:
    found = ", ".join(
        f"{counts[severity]} info" if severity is Severity.INFO else count(counts[severity], severity.value)
        for severity in Severity
        if counts[severity]
    )
    lines = [found or "nothing found"]
    if verbose:
        kinds = ", ".join(f"{number} {plain(kind)}" for kind, number in reading.read.most_common())
        lines.append(f"read {count(reading.read.total(), 'object')}" + (f": {kinds}" if kinds else ""))
    if reading.left_out:
        lines.append(f"left out {count(reading.left_out, 'object')} of other namespaces")
    return lines
