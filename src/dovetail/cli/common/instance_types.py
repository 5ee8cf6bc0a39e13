"""`--instance-types FILE`: which machines does the simulated cloud sell, if not those that are built in?"""

from collections.abc import Sequence
from typing import Final

import click

from dovetail.cli.common.failing import fail
from dovetail.cli.run.values import read_instance_types
from dovetail.model.instance_types import InstanceType

INSTANCE_TYPES: Final = click.option(
    "--instance-types", metavar="FILE", help="A JSON file of instance types, instead of the built-in ones."
)


def catalogue_in(file: str | None) -> Sequence[InstanceType] | None:
    """None for the built-in ones. Ends the program if the file cannot be read."""
    try:
        return None if file is None else read_instance_types(file)
    except ValueError as error:
        fail(f"--instance-types {error}")
