"""`--instance-types FILE`: the instance types of the simulated cloud, instead of the built-in ones."""

from collections.abc import Sequence
from typing import Final

import click

from dovetail.api.documents import InputError
from dovetail.cli.common.completion import complete_files
from dovetail.cli.common.files import read_file
from dovetail.cli.common.process import fail
from dovetail.model.instance_types import InstanceType
from dovetail.providers.catalogue import read_catalogue

INSTANCE_TYPES: Final = click.option(
    "--instance-types",
    metavar="FILE",
    shell_complete=complete_files,
    help="Instance types and prices in CSV or JSON, such as `dovetail catalogue` makes, instead of the built-in ones.",
)


BUILT_IN: Final = "the built-in catalogue"


def catalogue_in(file: str | None) -> Sequence[InstanceType] | None:
    """None for the built-in ones. Ends the program if the file cannot be read."""
    try:
        return None if file is None else read_instance_types(file)
    except ValueError as error:
        fail(f"--instance-types {error}")


def read_instance_types(path: str) -> tuple[InstanceType, ...] | None:
    """The catalogue in the file; None for the built-in one."""
    if not path:
        return None
    try:
        return read_catalogue(read_file(path), path)
    except InputError as error:
        raise ValueError(str(error)) from None
