"""Every option of every command is on the command's page, and every option on a command's page exists."""

import re
from pathlib import Path
from typing import Final

import click
import pytest

from dovetail.cli.main import program

DOCS: Final = Path(__file__).parents[3] / "docs"
CONTEXT: Final = click.Context(program)
COMMANDS: Final = program.list_commands(CONTEXT)
# Pages that are not named after their command.
PAGES: Final = {"run": "running", "manifests": "running", "guard": "beside-karpenter"}
# `demo` accepts the options that all commands share. It refuses files, and its week has its own start.
NOT_SHOWN: Final = {("demo", "--filename"), ("demo", "--at")}


def page(command: str) -> str:
    return (DOCS / f"{PAGES.get(command, command)}.md").read_text(encoding="utf-8")


def options(command: str) -> list[click.Option]:
    found = program.get_command(CONTEXT, command)
    assert found is not None
    parts = found.commands.values() if isinstance(found, click.Group) else [found]
    return [each for part in parts for each in part.params if isinstance(each, click.Option) and not each.hidden]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_on_the_page_of_its_command(command: str) -> None:
    text = page(command)
    missing = [
        option.opts
        for option in options(command)
        for names in [[*option.opts, *option.secondary_opts]]
        if not any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) for name in names)
        and not any((command, name) in NOT_SHOWN for name in names)
    ]
    assert missing == []


@pytest.mark.parametrize("command", COMMANDS)
def test_option_tables_name_only_options_that_exist(command: str) -> None:
    commands = [each for each in COMMANDS if PAGES.get(each, each) == PAGES.get(command, command)]
    known = {name for each in commands for option in options(each) for name in [*option.opts, *option.secondary_opts]}
    rows = re.findall(r"^\| (`-.*?) \|", page(command), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(--?[a-z-]+)", row)} - known == set()
