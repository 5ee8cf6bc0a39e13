"""Starts the log and the loop of a controller process, and turns its end into an exit code."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from dovetail.cli.common.process import fail
from dovetail.cli.run.options import ProcessOptions
from dovetail.observe.logs import start_logging

log = logging.getLogger(__name__)


def start_log(options: ProcessOptions) -> None:
    """Ends the program if it cannot log."""
    try:
        start_logging(
            options.log_level,
            outputs=options.log_output_paths,
            error_outputs=options.log_error_output_paths,
            form=options.log_format,
        )
    except OSError as error:
        fail(f"cannot log to {error.filename}: {error.strerror}")


def exit_code_of(process: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Runs the process to its end."""
    # Imported here: the client takes a second to import, and `--help` must be quick.
    from dovetail.cli.run.process import ENDINGS, ClusterUnreachable, PortTaken  # noqa: PLC0415
    from dovetail.kube import KubeConfigError  # noqa: PLC0415

    try:
        asyncio.run(process())
    except (KubeConfigError, PortTaken) as error:
        fail(str(error))
    except ClusterUnreachable as error:
        fail(str(error), code=3)
    except ENDINGS as error:
        log.error("controller ended", extra={"error": str(error)}, exc_info=error.__cause__)
        return 1
    return 0
