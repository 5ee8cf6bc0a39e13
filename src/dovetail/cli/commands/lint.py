"""`dovetail lint`: finds mistakes and surprises in manifests before they are applied."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import click
import msgspec

from dovetail.api.documents import Document
from dovetail.api.field_lines import field_line
from dovetail.cli.common.baseline import BaselineEntry, read_baseline, save_baseline, without_old
from dovetail.cli.common.completion import complete_files
from dovetail.cli.common.counting import counting
from dovetail.cli.common.files import one_line_errors
from dovetail.cli.common.options import DECIDER_VARIABLE, CommonOptions, common_options
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
from dovetail.cli.common.tree import ManifestTree, SkippedFile, SkipReason
from dovetail.cli.text.lint import github_lines, lines_by_file, sarif_text
from dovetail.model.decider import DOVETAIL, KARPENTER, Decider
from dovetail.model.finding import Finding, Severity
from dovetail.model.rule_settings import RuleSettings, settings_of
from dovetail.values.foreign_text import plain
from dovetail.views.deciding import NOTHING_SHOWS, who_decides
from dovetail.views.findings.joined import joined
from dovetail.views.findings.subject import subject_of
from dovetail.views.lint import CHECKED_KINDS, NOT_CHECKED, is_checked, lint
from dovetail.views.lint.openings import openings


class LintReport(msgspec.Struct, frozen=True, rename="camel"):
    """What `-o json` prints."""

    problems: tuple[Finding, ...]
    read: dict[str, int]
    """How many objects of each kind."""
    left_out: int
    """Objects of other namespaces."""
    files: int
    """Files with manifests."""
    skipped: tuple[SkippedFile, ...]
    """Files of directories that are no manifests."""
    in_baseline: int
    """Old findings, which are not among the problems."""
    decider: Decider
    """Whose rules the findings follow."""
    otherwise: int
    """How many findings differ where Dovetail decides; 0 if nobody had to assume who does."""


@click.command("lint")
@click.argument("arguments", nargs=-1, metavar="[PATH]...", shell_complete=complete_files)
@common_options(
    ahead="Also print when the windows of each schedule open within this span.",
    namespace="Only objects of this namespace, and cluster-scoped ones.  [default: all]",
    quiet="Only errors and warnings; leave out information and the count.",
    verbose="Also print which objects were read, and which files are no manifests.",
    live=False,
)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json", "github", "sarif"]),
    default="text",
    show_default=True,
    help="For CI: annotations of GitHub, a SARIF log, or the same as -o json.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Leave out files and folders of this name, or this path if it has a slash. Can be repeated.",
)
@click.option("--baseline", metavar="FILE", help="Do not report the findings in this file.")
@click.option("--write-baseline", metavar="FILE", help="Write all findings to this file, and exit with 0.")
@without_cycle_search()
def command(
    *,
    arguments: tuple[str, ...],
    common: CommonOptions,
    strict: bool,
    format_: str,
    exclude: tuple[str, ...],
    baseline: str | None,
    write_baseline: str | None,
) -> None:
    """Find mistakes and surprises in manifests before they are applied.

    Checks the annotations of pods and pod templates, NodePools and their budgets, NodeClaims, Nodes and
    PodDisruptionBudgets. Each finding says what to write instead. Exits with 1 if there is an error.

    A directory is searched for manifests; files that are none are counted.

    \b
      dovetail lint .
      helm template . | dovetail lint -
    """
    everything = [*arguments, *common.paths]
    if not everything:
        fail("no input: name files or directories, or - for standard input")
    if common.output != "table" and format_ != "text":
        fail("give either -o or --format, not both")
    old: Counter[BaselineEntry] = Counter()
    # A single file has no steps to count.
    spinner = nullcontext() if any(map(os.path.isdir, everything)) else working("reading and checking …")
    with one_line_errors(), counting("checking") as tick, spinner:
        if baseline is not None:
            old = read_baseline(baseline)
        reading = _LintInput(everything, common, exclude, tick)
        problems = reading.checked()
        if write_baseline is not None:
            number = save_baseline(write_baseline, problems)
            print_lines([f"wrote {count(number, 'finding')} to {plain(write_baseline)}"])
            return
    before = len(problems)
    if baseline is not None:
        problems = without_old(problems, baseline, old)
    reading.in_baseline, reading.gone = before - len(problems), old.total()
    if common.quiet:
        problems = [problem for problem in problems if problem.severity is not Severity.INFO]
    _print(problems, reading, common, format_)
    counts = Counter(problem.severity for problem in problems)
    sys.exit(1 if counts[Severity.ERROR] or (strict and counts[Severity.WARNING]) else 0)


class _LintInput(Iterable[Document]):
    """The documents to check, and counts of them."""

    def __init__(
        self, paths: Sequence[str], common: CommonOptions, exclude: Sequence[str], tick: Callable[[int, int], None]
    ) -> None:
        self._common = common
        # Of objects that are not parsed, neither the namespace nor the windows are known.
        self.tree = ManifestTree(
            paths, exclude=exclude, is_read=is_checked if common.namespace is None else None, tick=tick
        )
        self.read: Counter[str] = Counter()
        self.left_out = 0
        self.ahead: list[Finding] = []
        self.decider = KARPENTER
        self.otherwise = 0
        """How many findings differ where Dovetail decides, if the user may not have thought of that."""
        self.in_baseline = 0
        self.gone = 0

    def checked(self) -> list[Finding]:
        """All findings, with their lines. Raises InputError."""
        tree = self.tree
        common, documents = self._common, list(self)
        settings = settings_of(common.decider or who_decides(documents), common.budgets)
        self.decider = settings.decider
        problems = self._found(documents, settings)
        if tree.searched and common.decider is None and settings.decider.reason == NOTHING_SHOWS:
            other = self._found(documents, settings_of(DOVETAIL, common.budgets))
            self.otherwise = _differing(problems, other)
        problems += self.ahead
        self.read.update(tree.unread)
        if not tree.searched:
            return problems
        by_file = sorted([*tree.problems, *problems], key=lambda problem: (not problem.file, problem.file))
        return _with_lines(by_file)

    def _found(self, documents: Sequence[Document], settings: RuleSettings) -> list[Finding]:
        tree = self.tree
        return lint(documents, self._common.at, unit_of=tree.unit_of, not_read=tree.unread, settings=settings)

    def __iter__(self) -> Iterator[Document]:
        namespace, at, end = self._common.namespace, self._common.at, self._common.end
        for document in self.tree:
            if namespace is not None and subject_of(0, document).namespace not in {"", namespace}:
                self.left_out += 1
                continue
            self.read[document.kind] += 1
            if end is not None:
                self.ahead += openings(document, at, end)
            yield document


def _differing(some: Iterable[Finding], others: Iterable[Finding]) -> int:
    """How many findings only one of the two has, or has with another message."""
    messages, other_messages = (
        {(finding.rule, finding.object, finding.field, finding.file): str(finding.message) for finding in findings}
        for findings in (some, others)
    )
    keys = messages.keys() | other_messages.keys()
    return sum(messages.get(key) != other_messages.get(key) for key in keys)


def _with_lines(problems: Sequence[Finding]) -> list[Finding]:
    """The findings with the lines of their fields instead of those of their objects."""
    texts: dict[str, list[str]] = {}
    findings = []
    for problem in problems:
        if isinstance(problem.line, int) and not problem.file.endswith(".gz"):
            if problem.file not in texts:
                try:
                    texts[problem.file] = Path(problem.file).read_text(encoding="utf-8").splitlines()
                except (OSError, UnicodeError):
                    texts[problem.file] = []
            if texts[problem.file]:
                line = field_line(texts[problem.file], problem.line, problem.field)
                findings.append(msgspec.structs.replace(problem, line=line))
                continue
        findings.append(problem)
    return findings


def _print(problems: Sequence[Finding], reading: _LintInput, common: CommonOptions, format_: str) -> None:
    if common.output != "table" or format_ == "json":
        tree = reading.tree
        report = LintReport(
            *(tuple(problems), dict(reading.read), reading.left_out),
            *(tree.files, tuple(tree.skipped), reading.in_baseline),
            *(reading.decider, reading.otherwise),
        )
        print_data(report, "json" if format_ == "json" else common.output)
    elif format_ == "sarif":
        print_lines([sarif_text([problem for problem in problems if problem.file])])  # code scanning wants a place
    else:
        times = Times(common.at, common.zone)
        if reading.tree.searched:  # the summary counts them
            problems = [problem for problem in problems if problem.rule != NOT_CHECKED]
        if format_ == "github":
            lines = list(github_lines(problems))
        else:
            problems = joined(problems)
            lines = lines_by_file(problems, times) if reading.tree.searched else problem_lines(problems, times)
        if not common.quiet:
            lines += [*([""] if problems else []), *_summary(problems, reading, verbose=common.verbose)]
        if lines:
            print_lines(lines)


def _summary(problems: Sequence[Finding], reading: _LintInput, *, verbose: bool) -> list[str]:
    counts, tree = Counter(problem.severity for problem in problems), reading.tree
    tally = ", ".join(
        f"{counts[severity]} info" if severity is Severity.INFO else count(counts[severity], severity.value)
        for severity in Severity
        if counts[severity]
    )
    if not reading.read and not problems:
        lines = ["nothing checked: there are no manifests" if tree.searched else "nothing checked: the input is empty"]
    else:
        lines = [tally or "nothing found"]
    if tree.searched and reading.read:
        files = len({problem.file for problem in problems if problem.file})
        lines[0] += f" in {count(files, 'file')}" if files else ""
    if verbose or (tree.searched and reading.read):
        kinds = ", ".join(f"{number} {plain(kind)}" for kind, number in reading.read.most_common() if verbose)
        in_files = f" in {count(tree.files, 'file')}" if tree.searched else ""
        others = sum(number for kind, number in reading.read.items() if kind not in CHECKED_KINDS)
        of_them = f", {others} of kinds that lint does not check" if others and tree.searched else ""
        read = f"read {count(reading.read.total(), 'object')}{in_files}{of_them}"
        lines.append(f"{read}: {kinds}" if kinds else read)
    if reading.read:
        lines.append(plain(reading.decider.sentence))
    if reading.otherwise:
        differ = "finding differs" if reading.otherwise == 1 else "findings differ"
        how = f"--decider {DOVETAIL.text}, or {DECIDER_VARIABLE}={DOVETAIL.text} in the environment"
        lines.append(f"{reading.otherwise} {differ} where Dovetail decides: {how}")
    if reading.in_baseline:
        lines.append(f"left out {count(reading.in_baseline, 'old finding')} of the baseline")
    if reading.gone:
        gone = count(reading.gone, "finding")
        lines.append(f"the baseline has {gone} too many: what is mended can be removed with --write-baseline")
    if tree.skipped:
        lines.append(_skipped(tree.skipped, verbose=verbose))
        if verbose:
            lines += [f"  {plain(file.file)}: {_why(file)}" for file in tree.skipped]
    if tree.excluded:
        lines.append(f"excluded {tree.excluded} {'file or folder' if tree.excluded == 1 else 'files and folders'}")
    if reading.left_out:
        lines.append(f"left out {count(reading.left_out, 'object')} of other namespaces")
    return lines


def _skipped(skipped: Sequence[SkippedFile], *, verbose: bool) -> str:
    reasons = Counter(file.reason for file in skipped).most_common()
    named = ", ".join(reason.counted(number) for reason, number in reasons)
    text = f"{count(len(skipped), 'file')} without manifests: {named}" + ("" if verbose else " (-v lists them)")
    if any(file.reason is SkipReason.TEMPLATE for file in skipped):
        text += "; render templates first: helm template … | dovetail lint -"
    return text


def _why(file: SkippedFile) -> str:
    return plain(f"{file.reason}, {file.detail}" if file.detail else file.reason)
