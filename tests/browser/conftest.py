"""A real browser, if there is one: Debian's chromium, driven by Playwright."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a browser they cannot run at all."""
    for item in items:
        if CHROMIUM is None and "tests/browser/" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason="no chromium on the PATH (on Debian: apt-get install chromium)"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--enable-precise-memory-info"]
        )
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of 1280 × 800. After the test: it had no errors, said nothing to the console, and asked no other host."""
    yield from watched(
        browser, viewport={"width": 1280, "height": 800}, permissions=["clipboard-read", "clipboard-write"]
    )


@pytest.fixture
def signing_in(browser: Browser) -> Iterator[Page]:
    """A page that is refused at first, of which the browser tells on the console."""
    yield from watched(browser, refused=True, viewport={"width": 1280, "height": 800})


def watched(browser: Browser, *, refused: bool = False, **options: Any) -> Iterator[Page]:
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(15_000)
    errors: list[str] = []
    hosts: set[str] = set()

    def said(message: ConsoleMessage) -> None:
        # The browser itself tells of connections that fail, which tests of reconnecting cause on purpose.
        expected = "net::ERR_" in message.text or (refused and "401 (Unauthorized)" in message.text)
        if message.type in {"error", "warning"} and not expected:
            errors.append(f"{message.type}: {message.text}")

    def asked(request: Request) -> None:
        hosts.add(request.url.split("/")[2].split(":")[0])

    page.on("console", said)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}"))
    page.on("request", asked)
    yield page
    context.close()
    assert errors == []
    assert hosts <= {"127.0.0.1"}
