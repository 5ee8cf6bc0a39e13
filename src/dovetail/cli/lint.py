"""`dovetail lint`: what is wrong or surprising in manifests, before they are applied."""

import sys
from collections import Counter
from datetime import datetime

import click
import msgspec

from dovetail.cli.failing import fail
from dovetail.cli.files import documents_of, one_line_errors
from dovetail.cli.options import at_option, files_option, instant_or_now, output_option
from dovetail.cli.output import print_data, print_lines, problem_lines, without_cycle_search, working
from dovetail.model.problem import Problem, Severity
from dovetail.views.lint import lint


class Findings(msgspec.Struct, frozen=True):
    """What `-o json` prints."""

    problems: tuple[Problem, ...]


@click.command("lint")
@click.argument("arguments", nargs=-1, metavar="[PATH]...")
@files_option
@output_option
@at_option
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
@click.option("-q", "--quiet", is_flag=True, help="Leave out what is merely worth knowing.")
def command(
    *,
    arguments: tuple[str, ...],
    paths: tuple[str, ...],
    output: str,
    at: datetime | None,
    strict: bool,
    quiet: bool,
) -> None:
    """Find what is wrong or surprising in manifests before they are applied.

    Looks at the annotations of pods and pod templates, at NodePools and their budgets, at NodeClaims, Nodes and
    PodDisruptionBudgets. Each finding says what to write instead. Exits with 1 if there is an error.

    \b
      dovetail lint deploy/
      helm template . | dovetail lint -
    """
    everything = [*arguments, *paths]
    if not everything:
        fail("no input: name files or directories, or - for standard input")
    with one_line_errors(), working("reading and checking …"), without_cycle_search():
        problems = lint(documents_of(everything), instant_or_now(at))
    if quiet:
        problems = [problem for problem in problems if problem.severity is not Severity.INFO]
    counts = Counter(problem.severity for problem in problems)
    if output == "table":
        found = ", ".join(_counted(counts[severity], severity) for severity in Severity if counts[severity])
        print_lines([*problem_lines(problems), *([""] if problems else []), found or "nothing found"])
    else:
        print_data(Findings(problems=tuple(problems)), output)
    sys.exit(1 if counts[Severity.ERROR] or (strict and counts[Severity.WARNING]) else 0)


def _counted(count: int, severity: Severity) -> str:
    plural = "" if count == 1 or severity is Severity.INFO else "s"
    return f"{count} {severity.value}{plural}"
