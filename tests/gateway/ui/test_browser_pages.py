"""The pages of tools, approvals, shared memory and files in a real browser: one for all of them."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from gateway.storage.tool_pins import ToolPin
from gateway.tools.approval_wait import wait_for_decision
from memory.management.approvals import ApprovalRequest
from tests.e2e.operator_tools import ToolServer
from tests.gateway.management.managing import KEYS
from tests.gateway.ui.looking import HOSTILE, shown
from tests.gateway.ui.test_browser import AXE, CHROMIUM, SERIOUS, browsing
from tests.gateway.ui.test_tool_pages import SOURCE, definition

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]
GRANTING = [
    {**key, "tools": ["*"], "approve": True} if key["name"] == "app" else key for key in KEYS
]
TENANT = "tenant=acme"
VIEWS = [
    f"/tools?{TENANT}",
    f"/tool?name=weather&{TENANT}",
    f"/tool?name=add&{TENANT}",
    f"/tools/new?{TENANT}",
    f"/tool/source?name=add&{TENANT}",
    f"/tool/versions?name=add&{TENANT}",
    f"/tools/server?entry=probe&{TENANT}",
    f"/approvals?{TENANT}",
]
# Counts the sounds, since a browser without a screen has no loudspeaker.
COUNT_SOUNDS = """window.sounds = 0;
const start = OscillatorNode.prototype.start;
OscillatorNode.prototype.start = function () { window.sounds += 1; return start.call(this); };"""
# Controls that Tab should reach, and whether the focused one has an outline.
CONTROLS = """() => [...document.querySelectorAll(
    'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]')]
    .filter(e => e.checkVisibility() && !e.disabled).length"""
WATCH_FOCUS = """() => {
    window.reached = [];
    document.addEventListener('focusin', event => {
        const style = getComputedStyle(event.target);
        const visible = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
        window.reached.push([event.target, visible]);
    });
}"""
REACHED = """() => ({
    distinct: new Set(window.reached.map(([element]) => element)).size,
    hidden: window.reached.filter(r => !r[1]).map(([e]) => e.outerHTML.slice(0, 120)),
})"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory):
    """A gateway with something on each page, and hostile text wherever a stranger may write it."""
    async with ToolServer(weather=HOSTILE, broken=(500, HOSTILE)) as server:
        city = {"city": {"type": "string", "description": HOSTILE}}
        tools = {
            "weather": server.entry("weather", description=HOSTILE, parameters=city),
            "broken": server.entry("broken"),
            "probe": {"kind": "mcp", "url": "http://127.0.0.1:9/mcp", "enabled": False},
        }
        data = tmp_path_factory.mktemp("pages")
        async with shown(data, "Hi.", tools=tools, keys=GRANTING) as (live, _):
            await _fill(live)
            yield live


async def _fill(live):
    root = {"headers": {"authorization": "Bearer sk-root"}}
    body = {"kind": "python", "source": SOURCE}
    await live.memory("PUT", f"/tools/add?{TENANT}", json=body, **root)
    run = {"arguments": {"city": "Oslo"}}
    await live.memory("POST", f"/tools/broken/run?{TENANT}", json=run, **root)
    kind = live.gateway.toolbox.entries["probe"].kind
    kind.pins = {HOSTILE: ToolPin(HOSTILE, "h1", definition("Looks."), "h2", definition(HOSTILE))}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def window(site):
    """The one browser, signed in as an admin; its contexts are as cheap as pages."""
    async with browsing(site, viewport={"width": 1100, "height": 900}) as window:
        await window.context.add_init_script(COUNT_SOUNDS)
        await window.context.add_init_script(path=AXE)
        page = await window.sign_in("sk-root")
        await page.close()
        yield window


def ask(live, tool="delete_all", arguments='{"path": "/"}'):
    """Let a call wait for a person, as a turn does."""
    wanted = ApprovalRequest("acme", "ann", "default", "c1", "req_1", tool, arguments, 30)
    return asyncio.ensure_future(wait_for_decision(live.gateway.memory, wanted))


@pytest.mark.parametrize("path", VIEWS)
async def test_everybody_can_use_each_page(window, path):
    """Wide and at a phone's width, light and dark, by keyboard, with hostile text as text."""
    page = await window.page(path)
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        assert await page.evaluate(SERIOUS) == [], scheme
    assert await page.evaluate("window.hit") is None
    assert await page.locator("main img, main script").count() == 0
    await page.set_viewport_size({"width": 390, "height": 800})
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    await _tab_through(page)
    await page.close()


async def _tab_through(page):
    """Tab reaches each control once, and each shows that it has focus."""
    controls = await page.evaluate(CONTROLS)
    await page.evaluate(WATCH_FOCUS)
    for _ in range(controls):
        await page.keyboard.press("Tab")
    assert await page.evaluate(REACHED) == {"distinct": controls, "hidden": []}


async def test_a_tool_runs_by_keyboard_and_shows_its_result(window):
    page = await window.page(f"/tool?name=add&{TENANT}")
    await page.get_by_label("a required").fill("4")
    await page.get_by_label("a required").press("Tab")
    await page.get_by_role("button", name="Run", exact=True).focus()
    await page.keyboard.press("Enter")
    await page.get_by_text("✓ ok").wait_for()
    assert await page.locator("#ran pre").inner_text() == "6"
    await page.close()


async def test_calls_that_wait_appear_with_a_sound_a_count_and_are_decided(window, site):
    page = await window.page(f"/approvals?{TENANT}")
    await page.get_by_text("No call waits.").wait_for()
    first, second = ask(site, HOSTILE), ask(site)
    await page.get_by_text("2 calls wait").wait_for()
    assert await page.title() == "(2) Approvals · Mnemogate"
    assert await page.evaluate("window.sounds") >= 1
    assert await page.evaluate("window.hit") is None
    card = page.locator(".approval", has_text="delete_all")
    await card.get_by_label("Reason").fill("Not today.")
    await card.get_by_role("button", name="Refuse").press("Enter")
    await page.locator(".approval.over", has_text="Not today.").wait_for()
    assert (await second).status == "denied"
    assert (await second).reason == "Not today."
    await page.get_by_label("Sound when a call begins to wait").uncheck()
    await page.get_by_text("1 call waits").wait_for()
    before = await page.evaluate("window.sounds")
    third = ask(site, "send_mail")
    await page.get_by_text("2 calls wait").wait_for()
    assert await page.evaluate("window.sounds") == before
    await page.reload()
    assert not await page.get_by_label("Sound when a call begins to wait").is_checked()
    assert await page.title() == "(2) Approvals · Mnemogate"
    third.cancel()
    await page.locator(".approval.over", has_text="send_mail").wait_for()
    await page.get_by_role("button", name="Allow").click()
    await page.get_by_text("No call waits.").wait_for()
    assert (await first).status == "allowed"
    assert await page.title() == "Approvals · Mnemogate"
    await page.close()
