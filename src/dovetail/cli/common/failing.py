"""How the program gives up: an exit code and one line. Imports next to nothing, for `--help` must be quick."""

import sys
from typing import NoReturn

import click

from dovetail.values.foreign_text import plain


def fail(line: str, *, code: int = 2) -> NoReturn:
    """End with this line on standard error, and exit code 2: wrong usage or unreadable input. 3: no cluster."""
    click.echo(f"dovetail: {plain(line)}", err=True)
    sys.exit(code)
