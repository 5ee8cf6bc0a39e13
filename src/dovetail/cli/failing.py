"""How the program gives up: exit code 2 and one line. Imports next to nothing, for `--help` must be quick."""

import sys
from typing import NoReturn

import click


def fail(line: str) -> NoReturn:
    """End with exit code 2 and this line on standard error."""
    click.echo(f"dovetail: {line}", err=True)
    sys.exit(2)
