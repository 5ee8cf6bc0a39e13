"""`dovetail guard`: keeps Karpenter off the nodes whose pods are not to be disrupted now."""

import sys
from functools import partial

import click

from dovetail.cli.beside.options import GuardRunOptions, guard_options
from dovetail.cli.run.starting import exit_code_of, start_log


@click.command("guard")
@guard_options
def command(options: GuardRunOptions) -> None:
    """Keep Karpenter off the nodes whose pods are not to be disrupted now.

    Karpenter still decides. Guard puts karpenter.sh/do-not-disrupt on Nodes while their pods are protected by
    disruption schedules or by a do-not-disrupt with a duration, and then removes it. It marks what it writes with
    dovetail.dev/held, and never touches an annotation that you wrote. `dovetail cleanup` removes everything again.

    Runs until SIGTERM or Ctrl-C. With several replicas, one acts. `dovetail manifests --mode guard` prints the
    manifests that install it; `dovetail guard --dry-run` logs what it would write, and writes nothing.

    Exit codes: 0 stopped, 1 the Lease was lost or a part failed, 2 wrong usage, 3 the cluster cannot be reached.
    """
    start_log(options)
    # Imported here: the client takes a second to import, and `--help` must be quick.
    from dovetail.cli.beside.assembly import run_guard  # noqa: PLC0415

    sys.exit(exit_code_of(partial(run_guard, options)))
