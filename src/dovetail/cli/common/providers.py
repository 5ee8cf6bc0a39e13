"""`--provider`: which of the installed providers to use."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import click

from dovetail.providers.bundle import DEFAULT, ProviderBundle, UnknownProvider, installed

PROVIDERS: Final = cache(installed)


class ProviderParam(click.ParamType[str]):
    """The name of an installed provider."""

    name = "provider"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        return f"[{'|'.join(PROVIDERS().usable)}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            PROVIDERS().named(value)
        except UnknownProvider as error:
            self.fail(str(error), param, ctx)
        return str(value)


def provider_option(*, envvar: str | None = None) -> Callable[[Any], Any]:
    """The option. Its help names the providers that cannot be used, and why."""
    broken = "".join(f" Cannot be used: {name} ({why})." for name, why in PROVIDERS().broken.items())
    return click.option(
        "--provider",
        type=ProviderParam(),
        default=DEFAULT,
        show_default=True,
        envvar=envvar,
        show_envvar=envvar is not None,
        help=f"Who launches and ends machines.{broken}",
    )


def provider_named(name: str) -> ProviderBundle:
    return PROVIDERS().named(name)
