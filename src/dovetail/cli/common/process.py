"""How the process ends, and its limit of file handles. Imports little, because `--help` must be quick."""

import resource
import sys
from contextlib import suppress
from typing import NoReturn

import click

from dovetail.values.foreign_text import plain


def fail(line: str, *, code: int = 2) -> NoReturn:
    """Print this line on standard error and exit. Code 2: wrong usage or unreadable input; 3: no cluster."""
    click.echo(f"dovetail: {plain(line)}", err=True)
    sys.exit(code)


def allow_all_handles() -> None:
    """Raise the soft limit of file handles to the hard limit: it is often only 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems do not grant their hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
