"""In a cluster the page asks for a token, and the real API server says whom it stands for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.sync_api import Page, expect

from dovetail.kube import connect
from dovetail.runtime.clock import SystemClock
from dovetail.web.access import ReviewAuthorizer
from dovetail.web.app import board_served
from dovetail.web.sources import LiveSource
from tests.browser.serving import Served
from tests.cluster.access import Cluster


def served(cluster: Cluster) -> Served:
    @asynccontextmanager
    async def serving() -> AsyncIterator[int]:
        clock = SystemClock()
        async with connect(kubeconfig=str(cluster.kubeconfig)) as api, asyncio.TaskGroup() as following:
            source = LiveSource(api, clock, title="live")
            tasks = [following.create_task(reflector.run()) for reflector in source.reflectors]
            await source.wait_synced(30.0)
            async with board_served(source, access=ReviewAuthorizer(api, clock)) as port:
                yield port
            for task in tasks:
                task.cancel()

    return Served(serving)


def test_a_token_opens_the_board_and_stays_in_the_tab(signing_in: Page, cluster_with_crds: Cluster) -> None:
    page = signing_in
    with served(cluster_with_crds) as server:
        page.goto(server.url)
        expect(page.locator("#sign-in")).to_be_visible()
        page.locator("#token").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#sign-in-problem")).to_have_text("the token is unknown to the cluster, or has expired")
        page.locator("#token").fill(cluster_with_crds.token)
        page.get_by_role("button", name="Show the board").click()
        expect(page.locator("#status")).to_have_attribute("data-state", "live")
        expect(page.locator("#sign-in")).to_be_hidden()
        page.reload()
        expect(page.locator("#status")).to_have_attribute("data-state", "live")
        assert page.context.cookies() == []
        assert page.evaluate("Object.keys(localStorage)") == []
