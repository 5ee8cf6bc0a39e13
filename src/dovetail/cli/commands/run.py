"""`dovetail run`: the controller."""

import logging
import sys
from functools import partial

import click

from dovetail.cli.run.options import RunOptions, run_options
from dovetail.cli.run.starting import exit_code_of, start_log

log = logging.getLogger(__name__)


@click.command("run")
@run_options
def command(options: RunOptions) -> None:
    """Run the controller: launch, drain and remove nodes as NodePools and NodeClaims say.

    Runs until SIGTERM or Ctrl-C; then it finishes its current work and releases its Lease. A second Ctrl-C ends it at
    once. With several replicas, one acts. `dovetail manifests` prints the manifests that install it.

    Exit codes: 0 stopped, 1 the Lease was lost or a part failed, 2 wrong usage, 3 the cluster cannot be reached.
    """
    start_log(options)
    for gate in options.unsupported_gates:
        log.warning("unknown or unsupported feature gate ignored", extra={"gate": gate})
    # Imported here: the client takes a second to import, and `--help` must be quick.
    from dovetail.cli.run.assembly import run  # noqa: PLC0415

    sys.exit(exit_code_of(partial(run, options)))
