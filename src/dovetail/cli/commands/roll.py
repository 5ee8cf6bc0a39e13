"""`dovetail roll`: replaces nodes gracefully because somebody asks, under budgets and windows (10 §I.3)."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from dovetail.cli.common.completion import complete_workloads
from dovetail.cli.common.evidence import evidence
from dovetail.cli.common.named_objects import NODE_KINDS, named_objects
from dovetail.cli.common.options import CONTEXT, KUBECONFIG, OUTPUT, ClusterSource, now, reading_options
from dovetail.cli.common.output import Times, count, missing_lines, print_data, print_lines, table, working
from dovetail.cli.common.process import ends_at_once, fail
from dovetail.cli.common.refusals import why_no_answer
from dovetail.cli.roll.roller import RolledNode, RollTarget, act, targets_by_name
from dovetail.model.finding import Finding
from dovetail.planning.rolling import RollOutcome, RollStep, asking, undoing
from dovetail.ports import ApiError, KubeApi
from dovetail.runtime.clock import SystemClock
from dovetail.values.foreign_text import plain
from dovetail.views.deciding import who_decides

if TYPE_CHECKING:
    from dovetail.api.objects import NodeClaim


_WORDS: Final = {
    RollOutcome.ASKED: "marked for replacement",
    RollOutcome.WOULD_ASK: "would be marked for replacement",
    RollOutcome.ALREADY_ASKED: "already marked",
    RollOutcome.UNDONE: "no longer marked",
    RollOutcome.WOULD_UNDO: "would no longer be marked",
    RollOutcome.NOT_ASKED: "not marked",
    RollOutcome.HAS_BEGUN: "already being replaced",
    RollOutcome.GONE: "gone",
    RollOutcome.FAILED: "failed",
}


class RollReport(msgspec.Struct, frozen=True, rename="camel"):
    """What `-o json` prints."""

    dry_run: bool
    nodes: tuple[RolledNode, ...]
    problems: tuple[Finding, ...] = ()
    """Controllers that do not run, so that nobody does what was asked."""


@click.command("roll")
@click.argument("objects", nargs=-1, required=True, metavar="KIND/NAME...", shell_complete=complete_workloads)
@click.option("--watch", "-w", is_flag=True, help="Show what each node waits for, until all of them are gone.")
@click.option("--undo", is_flag=True, help="Remove the mark of nodes whose replacement has not begun.")
@click.option("--dry-run", is_flag=True, help="Print which nodes would be marked, and write nothing.")
@OUTPUT
@reading_options
@KUBECONFIG
@CONTEXT
def command(
    *,
    objects: tuple[str, ...],
    watch: bool,
    output: str,
    undo: bool,
    dry_run: bool,
    **given: Any,
) -> None:
    """Have nodes replaced gracefully: node/n1, nodeclaim/default-x1, or all nodes of nodepool/default.

    The command marks NodeClaims, and the controller (run, guard or drive) replaces their nodes like drifted ones:
    within the budgets for Drifted, when the windows of their pods allow it, with a new node first. Nothing is forced.
    To see what a node waits for, use --watch or dovetail explain.

    Exit codes: 0 done (with --watch: all nodes are gone), 1 a NodeClaim could not be marked, or somebody removed
    its mark, 2 wrong usage or no such object, 3 the cluster cannot be reached.
    """
    if watch and (undo or dry_run):
        fail("--watch cannot be used with --undo or --dry-run: no node would go")
    source = ClusterSource((), **given)
    with ends_at_once():
        report = _run(_rolled(source, objects, undo=undo, dry_run=dry_run))
        if output == "table":
            print_lines([*roll_lines(report.nodes), *missing_lines(report.problems, Times(now(), UTC))])
        else:
            print_data(report, output)
        done = all(rolled.outcome is not RollOutcome.FAILED for rolled in report.nodes)
        if watch:
            tell = partial(click.echo, err=output != "table")
            done = _run(_watched(source, report.nodes, tell)) and done
    sys.exit(0 if done else 1)


def _run(work: Any) -> Any:
    # Imported here: the client takes a second to import, and `--help` must be quick.
    from dovetail.kube import KubeConfigError  # noqa: PLC0415

    try:
        return asyncio.run(work)
    except KubeConfigError as error:
        fail(str(error))
    except ApiError as error:
        fail(why_no_answer(error), code=3)


async def _rolled(source: ClusterSource, objects: Sequence[str], *, undo: bool, dry_run: bool) -> RollReport:
    from dovetail.kube import connect  # noqa: PLC0415

    async with connect(kubeconfig=source.kubeconfig, context=source.context) as api:
        with working("asking …"):
            nodes = await roll(api, objects, undo=undo, dry_run=dry_run)
            shown = await evidence(api, SystemClock())
            return RollReport(dry_run, nodes, tuple(shown.missing(who_decides(shown.documents, shown.at))))


async def roll(
    api: KubeApi, objects: Sequence[str], *, undo: bool = False, dry_run: bool = False
) -> tuple[RolledNode, ...]:
    """Ask for the nodes that the objects mean, or take it back. Ends the program if there is no such object."""
    by_name = await targets_by_name(api)
    meant: dict[str, RollTarget] = {}
    for text, targets in zip(
        objects, named_objects(by_name, objects, "", kinds=NODE_KINDS, place="cluster"), strict=True
    ):
        if targets is None:
            fail(f"{text} has no NodeClaim, so no controller can replace it")
        meant |= {target.claim.metadata.uid: target for target in targets}
    at = now()
    step_of: Callable[[NodeClaim], RollStep] = undoing if undo else lambda claim: asking(claim, at)
    return await act(api, meant.values(), step_of, dry_run=dry_run)


async def _watched(source: ClusterSource, nodes: Sequence[RolledNode], tell: Callable[[str], None]) -> bool:
    from dovetail.cli.common.live_board import followed  # noqa: PLC0415  (it takes long to import)
    from dovetail.cli.common.output import be_silent  # noqa: PLC0415
    from dovetail.cli.roll.progress import RollProgress  # noqa: PLC0415

    be_silent()
    async with AsyncExitStack() as stack:
        live = await stack.enter_async_context(followed(source))
        return await RollProgress(live, nodes, tell).follow()


def roll_lines(nodes: Sequence[RolledNode]) -> list[str]:
    """A row for each node, what failed, and a summary."""
    rows = [
        (rolled.node or "-", rolled.node_claim, rolled.node_pool or "-", _WORDS[rolled.outcome]) for rolled in nodes
    ]
    lines = table([("NODE", "NODECLAIM", "POOL", "ROLL"), *(tuple(map(plain, row)) for row in rows)]) if rows else []
    failed = (rolled for rolled in nodes if rolled.error is not None)
    lines += [
        f"{click.style('failed', fg='red')}  {plain(rolled.node_claim)}: {plain(rolled.error or '')}"
        for rolled in failed
    ]
    counts = Counter(rolled.outcome for rolled in nodes)
    summary = ", ".join(f"{count(number, 'node')} {_WORDS[outcome]}" for outcome, number in counts.items())
    return [*lines, *([""] if lines else []), summary or "there is no NodeClaim; nothing to do"]
