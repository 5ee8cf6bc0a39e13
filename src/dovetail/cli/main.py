"""The `dovetail` program, also installed as `kubectl-dovetail`.

Subcommands are imported when they are called, so that `--help` and shell completion answer at once.
"""

import sys
from importlib import import_module
from io import TextIOWrapper

import click

from dovetail import __version__
from dovetail.cli.common.process import ends_at_once, fail
from dovetail.interrupts import INTERRUPTED

# Name, module and the line that `dovetail --help` shows for it.
_COMMANDS = {
    "explain": "Say whether pods and nodes may be disrupted now, and if not, why and until when.",
    "forecast": "Say when nodes will be free, expire or be forced out, and what budgets will allow.",
    "plan": "Say what the controller would do right now, what it would save, and why other nodes stay.",
    "simulate": "Simulate the next days of a scenario, a dump or a live cluster.",
    "catalogue": "Make a table of instance types and prices for plan and simulate.",
    "demo": "Watch a week of a simulated cluster; needs no cluster and no network.",
    "record": "Write a dump of the cluster for the other commands, without secrets.",
    "lint": "Find mistakes and surprises in manifests before they are applied.",
    "dashboard": "Serve a page that shows when each node is free, who blocks it, and what budgets allow.",
    "top": "Show in the terminal what the dashboard shows, live.",
    "run": "Run the controller: launch, drain and remove nodes.",
    "guard": "Keep Karpenter off the nodes whose pods are not to be disrupted now.",
    "drive": "Decide which nodes are disrupted, and have Karpenter launch, drain and terminate them.",
    "roll": "Have nodes replaced gracefully, under budgets and windows.",
    "manifests": "Print the manifests that install the controller.",
    "cleanup": "Remove everything that Dovetail puts on objects, to go back to Karpenter.",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        with ends_at_once():
            command: click.Command = import_module(f"dovetail.cli.commands.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> object:
        """As usual. Ctrl-C is one line; a terminal has already printed `^C` on its own."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if sys.stderr.isatty():
                click.echo(err=True)
            fail("interrupted", code=INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dovetail")
def program() -> None:
    """Node disruptions that fit around your workloads.

    Only `run`, `guard`, `drive`, `roll` and `cleanup` write to a cluster; the others read a live cluster or a dump.
    Exit codes: 0 fine, 1 problems found or a named object is blocked, 2 wrong usage or unreadable input, 3 the cluster
    cannot be reached.
    """


def main() -> None:
    """Run the command line and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names in objects and files can be anything
    if sys.stdout is None:
        fail("standard output is closed")
    try:
        name = "kubectl dovetail" if sys.argv[0].endswith("kubectl-dovetail") else "dovetail"
        program.main(prog_name=name, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(2)
    except click.UsageError as error:
        help_ = f"; see {error.ctx.command_path} --help" if error.ctx is not None else ""
        fail(error.format_message().rstrip(".") + help_)
    except OSError as error:  # a full disk, for example; click handles a closed pipe
        fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
    except click.Abort:  # Ctrl-C
        fail("interrupted", code=INTERRUPTED)
