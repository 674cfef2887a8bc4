"""The pages of tools, approvals, shared memory and files in a real browser: one for all of them."""

from __future__ import annotations

import asyncio
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio

from gateway.storage.tool_pins import ToolPin
from gateway.tools.approval_wait import wait_for_decision
from memory.management.approvals import ApprovalRequest
from tests.e2e.operator_tools import ToolServer
from tests.gateway.management.managing import KEYS
from tests.gateway.ui.looking import HOSTILE, shown
from tests.gateway.ui.test_browser import AXE, CHROMIUM, SERIOUS, browsing
from tests.gateway.ui.test_browser import VIEWS as OLDER_VIEWS
from tests.gateway.ui.test_tool_pages import SOURCE, definition
from tests.models import call, calls

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
    f"/shared?{TENANT}",
    f"/shared/block?{TENANT}&id=",
    f"/shared/edit?{TENANT}&id=",
    f"/shared/versions?{TENANT}&id=",
    f"/shared/graph?{TENANT}",
    f"/teams?{TENANT}",
    f"/team?name=platform&{TENANT}",
    f"/projects?{TENANT}",
    f"/project?name=apollo&{TENANT}",
    f"/tenant?{TENANT}",
    f"/agent/inbox?name=house&user=ann&{TENANT}",
    f"/user?user=ann&{TENANT}",
    f"/user/files?user=ann&q=kumquat&{TENANT}",
    f"/user/skills?user=ann&{TENANT}",
    f"/user/skill?user=ann&id=deploy-app&{TENANT}",
    f"/user/reflections?user=ann&{TENANT}",
    f"/user/file?user=ann&line=301&end=301&{TENANT}&id=",
    f"/request?{TENANT}&id=",
]
# Counts the sounds, since a browser without a screen has no loudspeaker.
COUNT_SOUNDS = """window.sounds = 0;
const start = OscillatorNode.prototype.start;
OscillatorNode.prototype.start = function () { window.sounds += 1; return start.call(this); };"""
# Notes the controls that Tab should reach, and those that it reaches, with what shows the focus.
WATCH_FOCUS = """() => {
    const kinds = 'a[href], button, input:not([type=hidden]), select, textarea, summary, ' +
        '[tabindex="0"]';
    window.controls = [...document.querySelectorAll(kinds)]
        .filter(e => e.checkVisibility() && !e.disabled && e.tabIndex >= 0)
        .filter(e => e.type !== 'radio' || e.checked);  // a group is one stop
    window.reached = [];
    document.addEventListener('focusin', event => {
        const style = getComputedStyle(event.target);
        const visible = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
        window.reached.push([event.target, visible]);
    });
    return window.controls.length;
}"""
REACHED = """() => {
    const name = element => element.outerHTML.slice(0, 120);
    const elements = window.reached.map(([element]) => element);
    const order = [...new Set(elements)].filter(e => window.controls.includes(e))
        .map(e => window.controls.indexOf(e));
    return {
        missed: window.controls.filter(e => !elements.includes(e)).map(name),
        unseen: window.reached.filter(r => !r[1]).map(([e]) => name(e)),
        // A page may begin in a field: from there on, and round once.
        jumps: order.filter((place, i) => i && place < order[i - 1]).length > 1,
    };
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory):
    """A gateway with something on each page, and hostile text wherever a stranger may write it."""
    async with ToolServer(weather=HOSTILE, broken=(500, HOSTILE)) as server:
        city = {"city": {"type": "string", "description": HOSTILE}}
        tools = {
            "weather": server.entry("weather", description=HOSTILE, parameters=city),
            "broken": server.entry("broken"),
            "files": {"kind": "files"},
            "probe": {"kind": "mcp", "url": "http://127.0.0.1:9/mcp", "enabled": False},
        }
        data = tmp_path_factory.mktemp("pages")
        agents = {"house": {"model": "m", "title": HOSTILE}}
        script = (calls(call("weather", {"city": "Oslo"}), call("broken", {"city": "Rome"})), "Hi.")
        more = {"agents": agents, "memory.skills": {"mode": "review"}}
        async with shown(data, *script, tools=tools, keys=GRANTING, **more) as (live, _):
            await _fill(live)
            live.shared = await _fill_shared(live)
            live.file = await _fill_files(live)
            await _fill_skills(live)
            answer = await live.chat("Weather?", user="ann")
            await live.chat("I like tea", user="ada")
            live.explain = answer.headers["x-memory-explain"]
            yield live


async def _fill(live):
    root = {"headers": {"authorization": "Bearer sk-root"}}
    body = {"kind": "python", "source": SOURCE}
    await live.memory("PUT", f"/tools/add?{TENANT}", json=body, **root)
    run = {"arguments": {"city": "Oslo"}}
    await live.memory("POST", f"/tools/broken/run?{TENANT}", json=run, **root)
    kind = live.gateway.toolbox.entries["probe"].kind
    kind.pins = {HOSTILE: ToolPin(HOSTILE, "h1", definition("Looks."), "h2", definition(HOSTILE))}


async def _fill_skills(live):
    """Write a skill with hostile text."""
    skill = {"name": "deploy-app", "description": "Deploys.", "text": HOSTILE}
    await live.memory("POST", "/users/ann/skills", json=skill)


async def _fill_files(live):
    """Upload a file of many lines, with hostile text in one; return its id."""
    text = "".join(f"Line {i}.\n" for i in range(1, 301)) + f"The kumquat {HOSTILE}\n"
    name = "notes%3Cscript%3E.md"
    sent = await live.memory("PUT", f"/users/ann/files/{name}", content=text.encode())
    ident = sent.json()["id"]
    async with asyncio.timeout(60):
        while (await live.memory("GET", f"/users/ann/files/{ident}")).json()["status"] != "ready":
            await asyncio.sleep(0.05)
    return ident


def ident_of(site, path):
    """Return the id that a path lacks."""
    if not path.endswith("id="):
        return ""
    pages = {"/request": site.explain, "/user/file": site.file}
    return pages.get(path.partition("?")[0], site.shared)


async def _fill_shared(live):
    """Make a team, a project, a message and a block, each with hostile text; return the block."""
    people = [{"user": HOSTILE}, {"user": "ann", "write": True}]
    block = {"label": "goals", "description": HOSTILE, "value": f"Ship.\n{HOSTILE}"}
    made = await live.memory("POST", "/shared-blocks", json={**block, "members": people})
    assert made.status_code == 201, made.text
    for path in ("/teams/platform", "/projects/apollo"):
        await live.memory("PUT", path, json={"description": HOSTILE})
    await live.memory("PUT", "/teams/platform/members/ann", json={"write": True})
    passage = {"content": HOSTILE, "tags": [HOSTILE[:30]]}
    for path in ("/teams/platform", "/projects/apollo", "/tenant"):
        await live.memory("POST", f"{path}/passages", json=passage)
    message = {"text": HOSTILE, "from": HOSTILE}
    await live.memory("POST", "/agents/house/inbox?user=ann", json=message)
    return made.json()["id"]


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
async def test_everybody_can_use_each_page(window, site, path):
    """Wide and at a phone's width, light and dark, by keyboard, with hostile text as text."""
    page = await window.page(path + ident_of(site, path))
    assert await page.locator("h1").count() == 1
    assert not (await page.title()).startswith("Error")
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
    """Tab reaches each control, in the order of the page, and each shows that it has focus."""
    controls = await page.evaluate(WATCH_FOCUS)
    # Some browsers also stop at what can be scrolled.
    for _ in range(controls + 5):
        await page.keyboard.press("Tab")
    assert await page.evaluate(REACHED) == {"missed": [], "unseen": [], "jumps": False}


@pytest.mark.parametrize("path", [*OLDER_VIEWS, "/keys", "/jobs", "/user/move?user=ada"])
async def test_tab_reaches_every_control_of_the_other_pages(window, path):
    page = await window.page(f"{path}{'&' if '?' in path else '?'}{TENANT}")
    assert not (await page.title()).startswith("Error")
    await _tab_through(page)
    await page.close()


async def test_times_are_those_of_the_viewer(site):
    """The same moment in another zone, on pages and in what a live page gets later."""
    async with browsing(site, timezone_id="Asia/Kathmandu", locale="en-GB") as window:
        page = await window.sign_in("sk-root")
        await window.open(page, f"/feed?{TENANT}")
        shown_time = page.locator(".turn time").first
        at = await shown_time.get_attribute("datetime")
        local = datetime.fromisoformat(at).astimezone(ZoneInfo("Asia/Kathmandu"))
        assert f"{local:%H:%M:%S}" in await shown_time.inner_text()
        assert (await shown_time.get_attribute("title")).endswith("UTC")
        turns = await page.locator(".turn").count()
        await site.chat("One more", user="ann")
        await page.locator(".turn").nth(turns).wait_for()
        for text in await page.locator(".turn time").all_inner_texts():
            assert "UTC" not in text


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


async def test_a_block_that_two_write_is_live_and_edited_in_place(window, site):
    page = await window.page(f"/shared/block?{TENANT}&id={site.shared}")
    card = page.locator("article.block")
    for writer, line in (("one", "Tea."), ("two", "Coffee.")):
        body = {"content": f"{line} says {writer}"}
        await site.memory("POST", f"/shared-blocks/{site.shared}/append", json=body)
        await card.get_by_text(f"{line} says {writer}").wait_for()
    await card.get_by_role("link", name="Edit goals").press("Enter")
    await page.get_by_label("Text of goals").fill("Rest.")
    await page.get_by_role("button", name="Save").press("Enter")
    await card.get_by_text("Rest.").wait_for()
    await card.get_by_role("button", name="Undo the last edit of goals").click()
    await card.get_by_text("Coffee. says two").wait_for()
    await page.close()


async def test_a_file_is_uploaded_searched_and_opened_at_the_hit(window):
    page = await window.page(f"/user/files?user=bob&{TENANT}")
    text = "".join(f"Line {i}.\n" for i in range(1, 400)) + "The quince is ripe.\n"
    notes = {"name": "notes.md", "mimeType": "text/markdown", "buffer": text.encode()}
    await page.get_by_label("At most").set_input_files(notes)
    await page.get_by_role("button", name="Upload").press("Enter")
    await page.get_by_text("✓ ready").wait_for()
    await page.get_by_role("searchbox", name="Search").fill("quince")
    await page.get_by_role("searchbox", name="Search").press("Enter")
    await page.get_by_role("link", name="notes.md, line 400").click()
    line = page.locator("#main .lines p", has_text="quince")
    await line.wait_for()
    assert await line.evaluate(
        "e => e.getBoundingClientRect().top >= 0 && e.getBoundingClientRect().top < innerHeight"
    )
    await page.close()
