"""Dumps of simulated clusters, and what the command line says of them."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
from click.testing import CliRunner

from dovetail.cli.main import program
from dovetail.ports import (
    DAEMONSETS,
    KWOK_NODECLASSES,
    NAMESPACES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PDBS,
    PODS,
    Resource,
)
from dovetail.values.timestamp import format_time
from tests.harness.logs import logging_restored
from tests.harness.provisioning import Setting

KINDS: list[Resource[Any]] = [
    NAMESPACES,
    KWOK_NODECLASSES,
    NODEPOOLS,
    NODECLAIMS,
    NODES,
    PDBS,
    DAEMONSETS,
    PODS,
]


def dump(setting: Setting) -> bytes:
    """As `kubectl get -o json` prints it."""
    items = [body for kind in KINDS for body in setting.sim.objects(kind)]
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})


class Printed(NamedTuple):
    """What a command has printed."""

    code: int
    lines: list[str]

    @property
    def body(self) -> list[str]:
        """What comes below the head: below the line that says when."""
        return self.lines[next((at + 1 for at, line in enumerate(self.lines) if line.startswith("At ")), 0) :]

    @property
    def answer(self) -> str:
        """The first sentence of `explain KIND/NAME`, and the next step."""
        return " ".join(line.strip() for line in self.body[1:3])


def asked(setting: Setting, *arguments: str) -> Printed:
    """A command about the cluster as it is now: `asked(setting, "explain", "node/a")`."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        path.write_bytes(dump(setting))
        options = ["-f", str(path), "--at", format_time(setting.now())]
        return printed([arguments[0], *options, *arguments[1:]])


def printed(arguments: Sequence[str], stdin: bytes = b"") -> Printed:
    """What the program prints, called with these arguments, at a width that does not depend on the terminal."""
    with logging_restored():
        result = CliRunner(env={"COLUMNS": "120"}).invoke(program, arguments, input=stdin, catch_exceptions=False)
    return Printed(result.exit_code, result.stdout.splitlines())
