"""`dovetail run`: the controller."""

import asyncio
import logging
import sys

import click

from dovetail.cli.common.process import fail
from dovetail.cli.run.options import RunOptions, run_options
from dovetail.observe.logs import start_logging

log = logging.getLogger(__name__)


@click.command("run")
@run_options
def command(options: RunOptions) -> None:
    """Run the controller: launch, drain and remove nodes as NodePools and NodeClaims say.

    Runs until SIGTERM or Ctrl-C; then it finishes its current work and releases its Lease. A second Ctrl-C ends it at
    once. Of several replicas one acts. `dovetail manifests` prints the manifests that install it.

    Exit codes: 0 stopped, 1 the Lease was lost or a part failed, 2 wrong usage, 3 the cluster cannot be reached.
    """
    try:
        start_logging(
            options.log_level,
            outputs=options.log_output_paths,
            error_outputs=options.log_error_output_paths,
            form=options.log_format,
        )
    except OSError as error:
        fail(f"cannot log to {error.filename}: {error.strerror}")
    for gate in options.unsupported_gates:
        log.warning("unknown or unsupported feature gate ignored", extra={"gate": gate})
    sys.exit(_run(options))


def _run(options: RunOptions) -> int:
    # Imported here: the client takes a second to import, and `--help` must be quick.
    from dovetail.cli.run.assembly import ENDINGS, ClusterUnreachable, PortTaken, run  # noqa: PLC0415
    from dovetail.kube import KubeConfigError  # noqa: PLC0415

    try:
        asyncio.run(run(options))
    except (KubeConfigError, PortTaken) as error:
        fail(str(error))
    except ClusterUnreachable as error:
        fail(str(error), code=3)
    except ENDINGS as error:
        log.error("controller ended", extra={"error": str(error)}, exc_info=error.__cause__)
        return 1
    return 0
