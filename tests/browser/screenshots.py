"""Makes the pictures of the README from the real page: `python -m tests.browser.screenshots [FOLDER]`."""

import re
import sys
from pathlib import Path
from typing import Final, NamedTuple

from playwright.sync_api import Browser, expect, sync_playwright

from dovetail.api.names import ConditionType
from dovetail.web.app import board_served
from dovetail.web.sources import PushedSource
from tests.browser.clusters import NOW, cluster
from tests.browser.conftest import CHROMIUM
from tests.browser.serving import Served

FOLDER: Final = Path(__file__).parents[2] / "docs" / "images"
NODES: Final = 60


class Picture(NamedTuple):
    """What is chosen on the page, and how large it is."""

    name: str
    scheme: str
    address: str
    width: int = 1440
    height: int = 860


def pictures(node: str) -> list[Picture]:
    return [
        Picture("dashboard-light", "light", f"#node=Node/{node}"),
        Picture("dashboard-dark", "dark", "#range=7d"),
    ]


def main(folder: Path) -> None:
    snapshot = cluster(NODES, seed=4)
    held = next(
        member.name
        for member in snapshot.nodes
        if member.pool == "general"
        and member.claim is not None
        and member.claim.is_true(ConditionType.DRIFTED)
        and any(pod.annotations for pod in member.pods)
    )
    source = PushedSource(title="production-eu", pace=0.0)
    source.push(NOW, snapshot)
    folder.mkdir(parents=True, exist_ok=True)
    with Served(lambda: board_served(source)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for picture in pictures(held):
            take(browser, server.url, picture, folder / f"{picture.name}.png")
            print(folder / f"{picture.name}.png")
        browser.close()


def take(browser: Browser, url: str, picture: Picture, file: Path) -> None:
    viewport = {"width": picture.width, "height": picture.height}
    page = browser.new_page(viewport=viewport, color_scheme=picture.scheme)  # type: ignore[arg-type]
    page.goto(url + picture.address)
    expect(page.locator("#status")).to_have_attribute("data-state", re.compile("live|still"))
    expect(page.locator(".item.node").first).to_be_visible()
    if "node=" in picture.address:
        expect(page.locator("#drawer .commands")).to_be_attached()
    page.screenshot(path=file)
    page.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
