"""Runs coroutine tests on the loop of a stage: a function such as `play(scenario)` that runs a coroutine function with
what it acts on, usually in virtual time.

    pytestmark = stage(play)


    async def test_a_pod_without_protection_is_evicted(setting: Setting) -> None: ...


    @stage(cloud=True)
    async def test_a_machine_that_vanishes(setting: Setting) -> None: ...


    @pytest.mark.parametrize("seed", range(5))
    @stage(seed=PARAMETER, shuffle=True)
    async def test_in_any_order(setting: Setting) -> None: ...

The marker of a module names the stage; the marker of a test adds options or names another stage. Further arguments and
options go to the stage. An option that is `PARAMETER` is the parameter or fixture of the test with its name. `@gives`
says which parameters of tests a stage provides; a test takes those that it needs, besides its fixtures.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

import pytest

GIVEN: Final = object()  # until the stage runs
PARAMETER: Final[Any] = object()
F = TypeVar("F", bound=Callable[..., Any])
Scenario = Callable[..., Coroutine[Any, Any, None]]


@runtime_checkable
class RunsTest(Protocol):
    """The value of a fixture that is itself the stage of the test."""

    def run_test(self, test: Scenario) -> None:
        """Runs it to its end."""


def gives(*names: str) -> Callable[[F], F]:
    """Declares what a stage calls its scenario with, as tests name it."""

    def declare(play: F) -> F:
        play.gives = names  # type: ignore[attr-defined]
        return play

    return declare


@gives()
def real_time(scenario: Scenario) -> None:
    """A plain event loop, for tests that connect to real servers."""
    asyncio.run(scenario())


def _given(name: str) -> Any:
    @pytest.fixture(name=name)
    def value() -> object:
        return GIVEN

    return value


# A fixture for each name: pytest would refuse a parameter that it does not know.
_NAMES: Final = (
    "access",
    "api",
    "clock",
    "cloud",
    "cluster",
    "ground",
    "group",
    "health",
    "program",
    "provider",
    "queue",
    "running",
    "scrape",
    "server",
    "session",
    "setting",
    "sim",
    "source",
    "told",
    "world",
)
globals().update({name: _given(name) for name in _NAMES})


def stage(*play_and_arguments: Any, **options: Any) -> pytest.MarkDecorator:
    """The marker. `pytest.mark.stage(play)` would take `play` for the test that it decorates."""
    return pytest.mark.stage.with_args(*play_and_arguments, **options)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "stage(play, *arguments, **options): what runs a coroutine test")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Lets a test have parameters that only its stage reads."""
    if not inspect.iscoroutinefunction(metafunc.function):
        return
    for mark in metafunc.definition.iter_markers("stage"):
        metafunc.fixturenames.extend(name for name, value in mark.kwargs.items() if value is PARAMETER)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a coroutine test."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    values = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    for value in values.values():
        if isinstance(value, RunsTest):
            value.run_test(partial(test, **values))
            return True
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = {}
    for mark in reversed(list(pyfuncitem.iter_markers("stage"))):
        arguments = mark.args or arguments
        options |= mark.kwargs
    assert arguments, "a coroutine test needs the marker `stage`"
    play, *rest = arguments
    names: tuple[str, ...] = options.pop("gives", None) or play.gives
    fixtures = {name: value for name, value in values.items() if value is not GIVEN}
    missing = values.keys() - fixtures.keys() - set(names)
    assert not missing, f"{play.__name__} gives {names}, not {sorted(missing)}"

    def scenario(*given: Any) -> Coroutine[Any, Any, None]:
        provided = {name: value for name, value in zip(names, given, strict=False) if name in values}
        return test(**fixtures, **provided)  # type: ignore[no-any-return]

    request = pyfuncitem._request
    requested = {name: request.getfixturevalue(name) for name, value in options.items() if value is PARAMETER}
    play(scenario, *rest, **options | requested)
    return True
