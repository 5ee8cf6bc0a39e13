"""The program as a process: how it ends, and how much it may open. Imports little: `--help` must be quick."""

import resource
import sys
from contextlib import suppress
from typing import NoReturn

import click

from dovetail.values.foreign_text import plain


def fail(line: str, *, code: int = 2) -> NoReturn:
    """End with this line on standard error, and exit code 2: wrong usage or unreadable input. 3: no cluster."""
    click.echo(f"dovetail: {plain(line)}", err=True)
    sys.exit(code)


def allow_all_handles() -> None:
    """Raise the soft limit of file handles to the hard one: shells and container runtimes often set it to 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems name a hard limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
