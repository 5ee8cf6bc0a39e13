"""`dovetail cleanup`: removes what Dovetail put on objects, for the way back to Karpenter (R38)."""

import asyncio
import sys
from collections import Counter
from typing import Any, Final

import click
import msgspec

from dovetail.api import names
from dovetail.cli.cleanup.cleaner import CleanedObject, CleanupOutcome, clean, is_karpenters, live_leases
from dovetail.cli.common.options import CONTEXT, KUBECONFIG, OUTPUT
from dovetail.cli.common.output import count, print_data, print_lines, table, working
from dovetail.cli.common.process import fail
from dovetail.cli.common.refusals import why_no_answer
from dovetail.ports import ApiError
from dovetail.runtime.clock import SystemClock
from dovetail.values.foreign_text import plain

_WORDS: Final = {
    CleanupOutcome.CLEANED: "cleaned",
    CleanupOutcome.WOULD_CLEAN: "would be cleaned",
    CleanupOutcome.FAILED: "could not be cleaned",
}


class CleanupReport(msgspec.Struct, frozen=True, rename="camel"):
    """What `-o json` prints."""

    dry_run: bool
    objects: tuple[CleanedObject, ...]


@click.command("cleanup")
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@click.option("--force", is_flag=True, help="Clean up even if a controller is running, which may put everything back.")
@OUTPUT
@click.option("-q", "--quiet", is_flag=True, help="Only print what could not be cleaned.")
@click.option(
    "--leader-election-name",
    default=names.LEADER_ELECTION_LEASE,
    show_default=True,
    help="The name of the Lease that a running controller holds, in any namespace.",
)
@KUBECONFIG
@CONTEXT
def command(*, output: str, quiet: bool, **given: Any) -> None:
    """Remove everything that Dovetail puts on objects, to go back to Karpenter.

    That is the taint karpenter.sh/candidate on Nodes, the records of commands and states on NodeClaims, and the use of
    budgets in the status of NodePools. Nodes that were about to be replaced accept pods again, unless they are being
    deleted. What guard and drive have put on Nodes, NodeClaims and pods is removed too, even while Karpenter runs.
    Stop Dovetail first. What you wrote stays: annotations of pods, fields of NodePools.

    Exit codes: 0 cleaned, 1 a controller is running or an object could not be cleaned, 2 wrong usage, 3 the cluster
    cannot be reached.
    """
    report = _run(**given)
    if output == "table":
        if lines := lines_of(report, quiet=quiet):
            print_lines(lines)
    else:
        print_data(report, output)
    sys.exit(1 if any(cleaned.error is not None for cleaned in report.objects) else 0)


def _run(**given: Any) -> CleanupReport:
    # Imported here: the client takes a second to import, and `--help` must be quick.
    from dovetail.kube import KubeConfigError  # noqa: PLC0415

    try:
        with working("looking at the cluster …"):
            return asyncio.run(_cleaned(**given))
    except KubeConfigError as error:
        fail(str(error))
    except ApiError as error:
        fail(why_no_answer(error), code=3)


async def _cleaned(
    *, kubeconfig: str | None, context: str | None, leader_election_name: str, dry_run: bool, force: bool
) -> CleanupReport:
    from dovetail.kube import connect  # noqa: PLC0415

    async with connect(kubeconfig=kubeconfig, context=context) as api:
        live = [
            lease
            for name in (leader_election_name, names.BESIDE_LEASE)
            for lease in await live_leases(api, SystemClock(), name)
        ]
        others = [lease for lease in live if await is_karpenters(api, lease)]
        ours = [
            f"{lease.metadata.namespace}/{lease.metadata.name} by {lease.spec.holder_identity}"
            for lease in live
            if lease not in others
        ]
        if ours and not (dry_run or force):  # it would put everything back
            fail(f"a controller is running (Lease held: {', '.join(ours)}): stop it first, or use --force", code=1)
        return CleanupReport(dry_run, await clean(api, dry_run=dry_run, karpenter=bool(others)))


def lines_of(report: CleanupReport, *, quiet: bool = False) -> list[str]:
    """For people: what is removed from which object, and what failed."""
    rows = [
        (plain(cleaned.object) if number == 0 else "", plain(change))
        for cleaned in report.objects
        if cleaned.error is None
        for number, change in enumerate(cleaned.changes)
    ]
    lines = table([("OBJECT", "REMOVED"), *rows]) if rows and not quiet else []
    failed = ((cleaned.object, cleaned.error) for cleaned in report.objects if cleaned.error is not None)
    lines += [f"{click.style('failed', fg='red')}  {plain(name)}: {plain(error)}" for name, error in failed]
    counts = Counter(cleaned.fate for cleaned in report.objects)
    summary = ", ".join(f"{count(number, 'object')} {_WORDS[fate]}" for fate, number in counts.items())
    return lines if quiet else [*lines, *([""] if lines else []), summary or "nothing to clean up"]
