"""`dovetail cleanup`: the way back to Karpenter, for which nothing of ours may be left on objects (R38)."""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

import click
import msgspec

from dovetail.api import names
from dovetail.api.objects import Lease
from dovetail.cli.cleanup.cleaner import CleanedObject, CleanupOutcome, clean, live_leases
from dovetail.cli.common.options import OUTPUT
from dovetail.cli.common.output import print_data, print_lines, working
from dovetail.cli.common.process import fail
from dovetail.ports import ApiError
from dovetail.runtime.clock import SystemClock
from dovetail.values.foreign_text import plain

_WORDS: Final = {
    CleanupOutcome.CLEANED: "cleaned",
    CleanupOutcome.WOULD_CLEAN: "would be cleaned",
    CleanupOutcome.FAILED: "could not be cleaned",
}


class CleanupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `dovetail cleanup` was told."""

    kubeconfig: str | None
    context: str | None
    leader_election_name: str
    dry_run: bool
    force: bool
    output: str
    quiet: bool


class CleanupReport(msgspec.Struct, frozen=True, rename="camel"):
    """What `-o json` prints."""

    dry_run: bool
    objects: tuple[CleanedObject, ...]


@click.command("cleanup")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@click.option("--force", is_flag=True, help="Do it even if a controller is running, which may put everything back.")
@OUTPUT
@click.option("-q", "--quiet", is_flag=True, help="Only say what could not be cleaned.")
@click.option(
    "--leader-election-name",
    default=names.LEADER_ELECTION_LEASE,
    show_default=True,
    help="The Lease by which a running controller is known, in any namespace.",
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="Where the cluster is. By default KUBECONFIG, in a pod its own cluster, or ~/.kube/config.",
)
@click.option("--context", metavar="NAME", help="The context of the kubeconfig; by default its current one.")
def command(**given: object) -> None:
    """Remove what only Dovetail puts on objects, for the way back to Karpenter.

    That is the taint karpenter.sh/candidate on Nodes, what NodeClaims tell of commands and states, and what NodePools
    tell of their budgets. Nodes that were about to be replaced take pods again, unless they are being deleted already.
    Stop the controller first. What you wrote yourself stays: annotations of pods, fields of NodePools.

    Exit codes: 0 cleaned, 1 a controller is running or an object could not be cleaned, 2 wrong usage, 3 the cluster
    cannot be reached.
    """
    options = msgspec.convert(given, CleanupOptions)
    report = _run(options)
    if options.output == "table":
        if lines := lines_of(report, quiet=options.quiet):
            print_lines(lines)
    else:
        print_data(report, options.output)
    sys.exit(1 if any(each.error is not None for each in report.objects) else 0)


def _run(options: CleanupOptions) -> CleanupReport:
    # Here, because the client takes a second to import, and `--help` should not.
    from dovetail.kube import KubeConfigError  # noqa: PLC0415

    try:
        with working("looking at the cluster …"):
            return asyncio.run(_cleaned(options))
    except KubeConfigError as error:
        fail(str(error))
    except _CleanupRefused as refusal:
        fail(str(refusal), code=1)
    except ApiError as error:
        fail(f"the cluster cannot be reached: {error}", code=3)


class _CleanupRefused(Exception):
    """What is removed now would be back in a moment."""

    def __init__(self, live: Sequence[Lease]) -> None:
        held = (f"{each.metadata.namespace}/{each.metadata.name} by {each.spec.holder_identity}" for each in live)
        super().__init__(f"a controller is running (Lease held: {', '.join(held)}): stop it first, or say --force")


async def _cleaned(options: CleanupOptions) -> CleanupReport:
    from dovetail.kube import connect  # noqa: PLC0415

    async with connect(kubeconfig=options.kubeconfig, context=options.context) as api:
        if not (options.dry_run or options.force):
            live = await live_leases(api, SystemClock(), options.leader_election_name)
            if live:
                raise _CleanupRefused(live)
        return CleanupReport(options.dry_run, await clean(api, dry_run=options.dry_run))


def lines_of(report: CleanupReport, *, quiet: bool = False) -> list[str]:
    """For people: what goes from which object, and what could not be done."""
    lines = [] if quiet else _table([each for each in report.objects if each.error is None])
    failed = ((each.object, each.error) for each in report.objects if each.error is not None)
    lines += [f"{click.style('failed', fg='red')}  {plain(name)}: {plain(error)}" for name, error in failed]
    return lines if quiet else [*lines, *([""] if lines else []), _summary(report)]


def _table(rows: Sequence[CleanedObject]) -> list[str]:
    """A line for every change, the object named at its first."""
    if not rows:
        return []
    width = max(len("OBJECT"), *(len(plain(row.object)) for row in rows)) + 3
    lines = [f"{'OBJECT':<{width}}REMOVED"]
    for row in rows:
        first = [plain(row.object), *[""] * (len(row.changes) - 1)]
        lines += [f"{name:<{width}}{plain(change)}" for name, change in zip(first, row.changes, strict=True)]
    return lines


def _summary(report: CleanupReport) -> str:
    counts = Counter(each.fate for each in report.objects)
    said = [f"{count} object{'' if count == 1 else 's'} {_WORDS[fate]}" for fate, count in counts.items()]
    return ", ".join(said) or "nothing to clean up"
