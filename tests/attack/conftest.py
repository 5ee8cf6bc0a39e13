"""The program as a fixture, as the tests of the command line have it."""

from tests.unit.cli.conftest import dovetail

__all__ = ["dovetail"]
