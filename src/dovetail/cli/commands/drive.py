"""`dovetail drive`: decides which nodes are disrupted, and has Karpenter launch, drain and end them."""

import sys
from functools import partial

import click

from dovetail.cli.beside.options import DriveRunOptions, drive_options
from dovetail.cli.run.starting import exit_code_of, start_log


@click.command("drive")
@drive_options
def command(options: DriveRunOptions) -> None:
    """Decide which nodes are disrupted, and have Karpenter launch, drain and terminate them.

    To keep Karpenter from deciding, drive puts karpenter.sh/do-not-disrupt on every Node, marked with
    dovetail.dev/held. It creates NodeClaims as replacements, and deletes NodeClaims once their pods have a place:
    within budgets by reason, and inside the windows of pods. Karpenter does the rest, also for pending pods. NodePools
    with replicas stay with Karpenter. `dovetail cleanup` removes everything again.

    Runs until SIGTERM or Ctrl-C; after a restart it carries on the commands that have begun. With several replicas,
    one acts. `dovetail manifests --mode drive` prints the manifests that install it; `dovetail drive --dry-run` logs
    what it would write, and writes nothing.

    Exit codes: 0 stopped, 1 the Lease was lost or a part failed, 2 wrong usage, 3 the cluster cannot be reached.
    """
    start_log(options)
    # Imported here: the client takes a second to import, and `--help` must be quick.
    from dovetail.cli.beside.assembly import run_drive  # noqa: PLC0415

    sys.exit(exit_code_of(partial(run_drive, options)))
