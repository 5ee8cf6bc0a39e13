"""The page in a real browser: load, filter, open, follow, lose the server and find it again, and all by keyboard."""

import re
from pathlib import Path
from typing import Final

import msgspec
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from dovetail.api.documents import Document
from dovetail.cli.common.tree import ManifestTree
from dovetail.model.decider import DOVETAIL
from dovetail.model.refs import Sentence
from dovetail.model.snapshot import Snapshot
from dovetail.runtime.clock import SystemClock
from dovetail.state.intake import take_in
from dovetail.views.leading import missing_controllers
from dovetail.web.app import board_served
from dovetail.web.sources import FileSource, PushedSource
from tests.browser.clusters import NOW, cluster
from tests.browser.conftest import watched
from tests.browser.serving import Served
from tests.harness import builders

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "cluster.yaml"
NODES: Final = 13


@pytest.fixture(scope="module")
def example() -> Snapshot:
    return take_in(ManifestTree([str(EXAMPLE)]))[0]


def shown(snapshot: Snapshot, title: str = "example") -> PushedSource:
    """Time stands still, so that every run sees the same."""
    source = PushedSource(title=title, asking="-f examples/cluster.yaml", pace=0.0)
    source.push(NOW, snapshot)
    return source


def served(source: PushedSource, port: int = 0) -> Served:
    return Served(lambda: board_served(source, port=port))


def opened(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.locator("#status")).to_have_attribute("data-state", re.compile("live|still"))


def row(page: Page, name: str) -> Locator:
    return page.locator(".item.node", has=page.locator(".name", has_text=re.compile(f"^{re.escape(name)}$")))


def test_a_controller_that_does_not_run_is_told_above_all(page: Page) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "karpenter-leader-election", "namespace": "kube-system"},
        "spec": {"renewTime": "2026-03-06T16:00:00Z"},
    }
    stopped = missing_controllers([Document("", 1, 0, None, "", "Lease", value=lease)], DOVETAIL, NOW)
    source = FileSource(cluster(5, 1), SystemClock(), title="stopped", at=NOW, problems=list(stopped))
    with Served(lambda: board_served(source)) as server:
        opened(page, server.url)
        expect(page.locator("#missing")).to_have_text(
            "No controller has held the Lease kube-system/karpenter-leader-election since 2026-03-06 16:00 UTC; "
            "nothing is decided until one runs → see why it does not run: kubectl -n kube-system get deployments,pods"
        )


# -- signs -------------------------------------------------------------------------------------------------------------


def test_every_sign_is_in_the_legend_and_a_drain_has_a_deadline(page: Page, example: Snapshot) -> None:
    with served(shown(example)) as server:
        opened(page, server.url)
        for sign in ("expires gracefully", "forced", "may be disrupted", "pod forced", "pod evicted", "gone"):
            expect(page.locator("#legend li").get_by_text(sign, exact=True)).to_have_count(1)
        expect(page.locator("#nodes .countdown").first).to_have_text(re.compile("^deadline in "))
        row(page, "batch-2fp8k").click()
        expect(page.locator("#drawer .verdicts").first).to_have_text(re.compile(r"\(until .* \(in "))


def test_a_node_that_waits_is_not_stuck_and_the_drawer_names_the_reason_that_it_has(
    page: Page, example: Snapshot
) -> None:
    """Not why it was left alone for another one."""
    source = shown(example)
    source.push(
        NOW, example, left_alone={node.name: Sentence("Underutilized: too dear") for node in example.nodes}, pace=0.0
    )
    with served(source) as server:
        opened(page, server.url)
        tile = page.locator(".tile", has_text="Stuck")
        expect(tile).to_contain_text("4wait: they go without help")
        tile.get_by_role("button", name="4", exact=True).click()
        expect(page.locator("#count")).to_contain_text("4")
        page.locator(".item.node", has_text="general").first.click()
        expect(page.locator("#drawer .note")).to_have_text(re.compile("^Waits: Drifted "))
        expect(page.locator("#drawer")).not_to_contain_text("Left alone")


# -- load, filter, open ------------------------------------------------------------------------------------------------


def test_the_board_is_loaded_and_says_what_is_there(page: Page, example: Snapshot) -> None:
    with served(shown(example)) as server:
        opened(page, server.url)
        expect(page.locator("#count")).to_have_text(f"{NODES} nodes")
        expect(page.locator("#title")).to_have_text("example · Dovetail decides")
        expect(page.locator("#clock")).to_have_text("2026-03-06 16:20 UTC")
        expect(page.locator(".item.pool strong")).to_have_text(["batch", "general", "services", "no NodePool"])
        drawn = row(page, "batch-2fp8k")
        expect(drawn.locator(".c-free")).to_have_text("9h40m")
        assert "disruption-schedule: ml/trainer-0" in (drawn.get_attribute("aria-label") or "")
        # Two rules at once share the bar, then one goes on, then the node is free, then the window is over.
        assert drawn.locator("rect").count() == 5
        expect(page.locator(".tile", has_text="Stuck").locator(".big")).to_have_text("1")
        expect(page.locator(".tile", has_text="Who blocks")).to_contain_text("shop/checkout")
        expect(page.locator(".tile", has_text="Never free")).to_contain_text("All other nodes become free")


def test_nothing_is_scripted_or_styled_inline_and_nothing_comes_from_elsewhere(page: Page, example: Snapshot) -> None:
    with served(shown(example)) as server:
        answer = page.goto(server.url)
        assert answer is not None
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self'")
        assert "unsafe" not in policy
        expect(page.locator(".item.node").first).to_be_visible()
        text = answer.text()
        assert "style=" not in text
        assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
        assert re.findall(r"""(?:src|href)="(?:https?:)?//""", text) == []


def test_the_filter_stands_in_the_address(page: Page, example: Snapshot) -> None:
    with served(shown(example)) as server:
        opened(page, server.url)
        page.locator("#filter").fill("is:free")
        expect(page.locator("#count")).to_have_text(f"3 of {NODES} nodes")
        expect(page.locator(".item.node .name")).to_have_text(["batch-t5hxv", "general-4xk9d", "general-n9s4b"])
        assert "filter=is%3Afree" in page.url
        page.reload()
        expect(page.locator("#count")).to_have_text(f"3 of {NODES} nodes")
        expect(page.locator("#filter")).to_have_value("is:free")
        page.locator("#filter").fill("pool:batch trainer")
        expect(page.locator(".item.node .name")).to_have_text(["batch-2fp8k"])
        page.locator("#filter").fill("ns:ml")
        expect(page.locator(".item.node .name")).to_have_text(["batch-2fp8k", "batch-9dwlm", "batch-t5hxv"])
        page.locator("#filter").fill("ns:m")
        expect(page.locator(".empty")).to_have_text("No node matches the filter.")
        page.locator("#filter").fill("nobody-has-this")
        expect(page.locator(".empty")).to_have_text("No node matches the filter.")


def test_tiles_filter_and_open(page: Page, example: Snapshot) -> None:
    with served(shown(example)) as server:
        opened(page, server.url)
        page.locator(".tile", has_text="Stuck").locator("button.big").click()
        expect(page.locator("#count")).to_have_text(f"1 of {NODES} nodes")
        page.locator(".tile", has_text="Stuck").locator("button.big").click()
        expect(page.locator("#count")).to_have_text(f"{NODES} nodes")
        page.locator(".tile", has_text="Stuck").locator(".line").first.click()
        expect(page.locator("#drawer h2")).to_have_text("services-6bqnc")


def test_a_node_that_its_pool_holds_is_stuck_by_the_budget(page: Page) -> None:
    """It has drifted and is free, and its pool lets none go for that."""
    claim = builders.claim("held", provider_id="kwok://held", true=["Drifted"])
    pod = builders.pod("p", node="held")
    pool = builders.pool(budgets=[builders.budget("0", ["Drifted"])])
    member = builders.member(claim, builders.node("held"), [pod])
    snapshot = Snapshot(nodes=(member,), pods=(pod,), pools={pool.name: pool})
    with served(shown(snapshot)) as server:
        opened(page, server.url)
        line = page.locator(".tile", has_text="Stuck").locator(".line")
        expect(line).to_contain_text("held")
        expect(line).to_contain_text("Drifted")
        expect(line).to_contain_text("budget")
        line.click()
        expect(page.locator("#drawer h2")).to_have_text("held")


def test_rows_are_sorted(page: Page, example: Snapshot) -> None:
    with served(shown(example)) as server:
        opened(page, server.url + "#filter=pool:general")
        names = page.locator(".item.node .name")
        expect(names).to_have_text(
            ["general-4xk9d", "general-8vtqz", "general-hq6rl", "general-n9s4b", "general-pd7cj"]
        )
        page.locator("#sort").select_option("free")
        expect(names).to_have_text(
            ["general-4xk9d", "general-hq6rl", "general-n9s4b", "general-pd7cj", "general-8vtqz"]
        )
        page.get_by_role("button", name="Pods").click()
        expect(names.first).to_have_text("general-4xk9d")
        assert "sort=pods" in page.url


def test_the_drawer_has_every_verdict_pods_history_and_commands(page: Page, example: Snapshot) -> None:
    with served(shown(example)) as server:
        opened(page, server.url)
        row(page, "general-pd7cj").click()
        drawer = page.locator("#drawer")
        expect(drawer.locator(".reason-name")).to_have_text(["Empty", "Drifted", "Underutilized", "Expired"])
        wanted = drawer.locator(".reason[open]")
        expect(wanted.locator(".reason-name")).to_have_text("Underutilized")
        expect(wanted.locator(":scope > .verdicts > li > span > code")).to_have_text(
            ["node-do-not-disrupt", "initialized", "deleting", "nodepool", "consolidate-after", "pods", "budget"]
        )
        expect(wanted).to_contain_text("shop/invoice-worker-66d8f7c5d4-p8xjd")
        expect(drawer.locator(".pods tbody tr")).to_have_count(4)
        expect(drawer.locator(".history")).to_contain_text("created")
        command = "dovetail explain -f examples/cluster.yaml node/general-pd7cj"
        expect(drawer.locator(".commands code").first).to_have_text(command)
        drawer.locator(".copy").first.click()
        expect(drawer.locator(".copy").first).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == command
        drawer.locator("summary", has_text="as a table").click()
        expect(drawer.locator(".picture tbody tr").first).to_contain_text("node-do-not-disrupt: Node/general-pd7cj")
        page.reload()
        expect(drawer.locator("h2")).to_have_text("general-pd7cj")
        drawer.get_by_role("button", name="Close").click()
        expect(drawer).to_be_hidden()
        assert "node=" not in page.url


def test_the_back_button_closes_the_drawer(page: Page, example: Snapshot) -> None:
    with served(shown(example)) as server:
        opened(page, server.url)
        row(page, "general-n9s4b").click()
        expect(page.locator("#drawer h2")).to_have_text("general-n9s4b")
        page.go_back()
        expect(page.locator("#drawer")).to_be_hidden()


# -- every drawing has a table ----------------------------------------------------------------------------------------


def test_the_table_says_what_the_lines_show(page: Page, example: Snapshot) -> None:
    with served(shown(example)) as server:
        opened(page, server.url)
        page.get_by_role("button", name="Table").click()
        drawn = page.locator(".item.node", has_text="batch-9dwlm")
        expect(drawn.locator(".c-now")).to_have_text("draining: do-not-disrupt, disruption-schedule")
        expect(drawn.locator(".c-forced-by")).to_have_text("Mon 09:00")
        expect(drawn.locator(".c-held-by")).to_have_text("ml/notebook-anna-0, ml/feature-backfill-9wz4r")
        budgets = page.get_by_role("table", name="What the budgets of general allow")
        expect(budgets.locator("tr").nth(1)).to_contain_text("Drifted0 allowed1 in uselimit 0")
        expect(budgets.locator("tr").nth(1)).to_contain_text("Fri 17:00 1 of 2")
        assert page.locator(".item svg").count() == 0


def test_a_tip_says_what_is_under_the_pointer(page: Page, example: Snapshot) -> None:
    with served(shown(example)) as server:
        opened(page, server.url)
        row(page, "batch-2fp8k").locator("svg").hover(position={"x": 30, "y": 12})
        expect(page.locator("#hint")).to_contain_text("disruption-schedule: ml/trainer-0")
        page.locator(".item.pool", has_text="general").locator("svg").hover(position={"x": 5, "y": 20})
        expect(page.locator("#hint")).to_contain_text("Drifted: 0 of 0 allowed, 1 in use, by budgets[0]")


# -- live --------------------------------------------------------------------------------------------------------------


def grown(snapshot: Snapshot) -> Snapshot:
    """With one node more."""
    new = builders.member(
        builders.claim("newcomer", pool="general", provider_id="kwok://newcomer"),
        builders.node("newcomer", pool="general"),
    )
    return msgspec.structs.replace(snapshot, nodes=(*snapshot.nodes, new))


def test_changes_appear_by_themselves(page: Page, example: Snapshot) -> None:
    source = shown(example)
    with served(source) as server:
        opened(page, server.url)
        expect(page.locator("#count")).to_have_text(f"{NODES} nodes")
        page.locator("#filter").fill("newcomer")
        expect(page.locator("#count")).to_have_text(f"0 of {NODES} nodes")
        source.push(NOW, grown(example))
        expect(page.locator("#count")).to_have_text(f"1 of {NODES + 1} nodes")
        source.push(NOW, example)
        expect(page.locator("#count")).to_have_text(f"0 of {NODES} nodes")


def test_time_that_passes_moves_the_board(page: Page, example: Snapshot) -> None:
    source = shown(example)
    with served(source) as server:
        opened(page, server.url)
        expect(row(page, "general-8vtqz").locator(".c-free")).to_have_text("5h40m")
        source.push(builders.at("2026-03-06T22:00:00Z"), example)
        expect(page.locator("#clock")).to_have_text("2026-03-06 22:00 UTC")
        expect(row(page, "general-8vtqz").locator(".c-free")).to_have_text("now")


def test_an_open_drawer_follows_its_node(page: Page, example: Snapshot) -> None:
    source = shown(example)
    with served(source) as server:
        opened(page, server.url + "#node=Node/general-8vtqz")
        expect(page.locator("#drawer .instants")).to_contain_text("2026-03-06 22:00 UTC (in 5h40m)")
        without = tuple(
            msgspec.structs.replace(member, pods=()) if member.name == "general-8vtqz" else member
            for member in example.nodes
        )
        source.push(NOW, msgspec.structs.replace(example, nodes=without))
        expect(page.locator("#drawer h3").first).to_have_text("Pods (0)")


def test_the_server_restarts(page: Page, example: Snapshot) -> None:
    with served(shown(example, "first")) as server:
        opened(page, server.url)
        expect(page.locator("#title")).to_have_text("first · Dovetail decides")
        port = server.port
    expect(page.locator("#status")).to_have_attribute("data-state", "down")
    expect(page.locator("#count")).to_have_text(f"{NODES} nodes")  # what was known is still there
    with served(shown(grown(example), "second"), port):
        expect(page.locator("#status")).to_have_attribute("data-state", "still")
        expect(page.locator("#title")).to_have_text("second · Dovetail decides")
        expect(page.locator("#count")).to_have_text(f"{NODES + 1} nodes")


# -- by keyboard only --------------------------------------------------------------------------------------------------


def test_everything_by_keyboard(page: Page, example: Snapshot) -> None:
    with served(shown(example)) as server:
        opened(page, server.url)
        expect(page.locator(".item.node").first).to_be_visible()
        focused = page.locator(":focus")
        page.keyboard.press("Tab")
        expect(focused).to_have_id("skip")
        page.keyboard.press("Enter")
        expect(focused).to_have_class(re.compile("item pool"))
        page.keyboard.press("ArrowDown")
        expect(focused).to_contain_text("batch-2fp8k")
        assert focused.evaluate("node => getComputedStyle(node).outlineStyle") == "solid"
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#said")).to_contain_text("blocked by; disruption-schedule: ml/trainer-0; until Sat 02:00")
        expect(page.locator("#hint")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#hint")).to_be_hidden()
        page.keyboard.press("Enter")
        expect(page.locator("#drawer h2")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.locator("#drawer")).to_be_hidden()
        expect(focused).to_contain_text("batch-2fp8k")
        page.keyboard.press("End")
        expect(focused).to_contain_text("system-0")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowLeft")  # closes the pool
        expect(focused).to_have_attribute("aria-expanded", "false")
        page.keyboard.press("ArrowDown")
        expect(focused).to_contain_text("general")
        page.keyboard.press("/")
        expect(focused).to_have_id("filter")
        page.keyboard.type("is:stuck")
        expect(page.locator("#count")).to_have_text(f"1 of {NODES} nodes")
        page.keyboard.press("ArrowDown")
        expect(focused).to_have_class(re.compile("item"))
        page.keyboard.press("t")
        expect(page.get_by_role("button", name="Table")).to_have_attribute("aria-pressed", "true")
        page.keyboard.press("d")
        expect(page.get_by_role("button", name="7 d")).to_have_attribute("aria-pressed", "true")
        page.keyboard.press("?")
        expect(page.locator("#keys")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#keys")).to_be_hidden()
        assert {"view=table", "range=7d", "closed=batch", "filter=is%3Astuck"} <= set(page.url.split("#")[1].split("&"))


def test_the_focus_survives_changes(page: Page, example: Snapshot) -> None:
    source = shown(example)
    with served(source) as server:
        opened(page, server.url)
        row(page, "general-n9s4b").focus()
        source.push(NOW, grown(example))
        expect(page.locator("#count")).to_have_text(f"{NODES + 1} nodes")
        expect(page.locator(":focus")).to_contain_text("general-n9s4b")
        page.locator(".tile", has_text="Stuck").locator("button.big").focus()
        source.push(NOW, example)
        expect(page.locator("#count")).to_have_text(f"{NODES} nodes")
        expect(page.locator(":focus")).to_have_text("1")


# -- names that are markup ---------------------------------------------------------------------------------------------

MARKUP: Final = "<img src=x onerror=alert(1)>\"'&<script>alert(2)</script>"


def test_markup_in_names_and_annotations_stays_text(page: Page) -> None:
    node = builders.node(MARKUP, pool=MARKUP, provider_id="kwok://m")
    pods = [
        builders.pod(MARKUP, namespace="a<b>", node=MARKUP, labels={"app": MARKUP}, do_not_disrupt=MARKUP),
        builders.pod("b", namespace="a<b>", node=MARKUP, schedule=MARKUP, duration="1h"),
    ]
    claim = builders.claim(MARKUP, pool=MARKUP, provider_id="kwok://m", true=["Drifted"])
    snapshot = Snapshot(
        nodes=(builders.member(claim, node, pods),), pods=tuple(pods), pools={MARKUP: builders.pool(MARKUP)}
    )
    with served(shown(snapshot, MARKUP)) as server:
        opened(page, server.url)
        expect(page.locator("#title")).to_have_text(f"{MARKUP} · Dovetail decides")
        expect(page.locator(".item.node .name")).to_have_text(MARKUP)
        expect(page.locator(".item.pool strong")).to_have_text(MARKUP)
        page.locator(".item.node").click()
        expect(page.locator("#drawer h2")).to_have_text(MARKUP)
        expect(page.locator(".pods tbody")).to_contain_text(f"a<b>/{MARKUP}")
        expect(page.locator(".commands")).to_contain_text("alert(2)")
        page.locator("#problems").click()
        expect(page.locator("#drawer")).to_contain_text("onerror")
        page.get_by_role("button", name="Table").click()
        expect(page.locator(".item.node .c-held-by")).to_contain_text(MARKUP)
        page.locator("#filter").fill(MARKUP)
        assert page.locator("img, main script").count() == 0


# -- themes ------------------------------------------------------------------------------------------------------------

PAIRS: Final = [
    ("--ink", "--surface"),
    ("--ink", "--page"),
    ("--ink", "--raised"),
    ("--soft", "--surface"),
    ("--soft", "--page"),
    ("--soft", "--raised"),
    ("--accent", "--surface"),
    ("--accent", "--accent-ground"),
    ("--alarm", "--surface"),
    ("--alarm", "--alarm-ground"),
    ("--warn", "--surface"),
    ("--warn", "--warn-ground"),
]
CONTRAST: Final = """([one, other]) => {
  const light = (name) => {
    const probe = document.createElement('i');
    probe.style.color = getComputedStyle(document.documentElement).getPropertyValue(name);
    document.body.append(probe);
    const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
    probe.remove();
    const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = parts.map((part) => linear(part / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(browser: Browser, example: Snapshot, scheme: str) -> None:
    for page in watched(browser, color_scheme=scheme, viewport={"width": 1280, "height": 800}):
        with served(shown(example)) as server:
            opened(page, server.url)
            assert {pair: found for pair in PAIRS if (found := page.evaluate(CONTRAST, list(pair))) < 4.5} == {}


def test_the_theme_is_switched_and_kept(page: Page, example: Snapshot) -> None:
    with served(shown(example)) as server:
        opened(page, server.url)
        page.locator("#theme").click()
        page.locator("#theme").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_times_in_the_zone_of_the_browser(browser: Browser, example: Snapshot) -> None:
    for page in watched(browser, timezone_id="Asia/Tokyo", viewport={"width": 1280, "height": 800}):
        with served(shown(example)) as server:
            opened(page, server.url)
            page.get_by_role("button", name="Local").click()
            expect(page.locator("#clock")).to_have_text("2026-03-07 01:20")
