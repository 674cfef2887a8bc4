"""The dashboard in a real browser: what a person does with it, by mouse, by keyboard, without
scripts; nothing of it harms, and everybody can use it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.conftest import SENTINEL_KEY, Live
from tests.gateway.ui.looking import HOSTILE, REMEMBER, shown

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(__file__).parents[2] / "vendor/axe-core/axe.min.js"
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed (apt-get install chromium)"
)
VIEWS = [
    "",
    "/user?user=ada",
    "/user/block/edit?user=ada&label=human",
    "/user/block/versions?user=ada&label=human",
    "/user/passages?user=ada",
    "/user/conversations?user=ada",
    "/user/turns?user=ada",
    "/user/erase?user=ada",
    "/feed",
    "/monitors",
    "/jobs?which=waiting",
    "/usage",
    "/usage?by=request",
    "/why?user=ada",
    "/connect",
    "/agents",
    "/agents/new",
    "/agents/import",
    "/agent?name=house",
    "/agent/profile?name=house",
]
OWN_AGENT = ["/agent/profile?name=support", "/agent/versions?name=support", "/agent?name=support"]
# Models by their names: the scripted one has no list to be asked for.
AGENTS = {
    "agents": {"house": {"model": "m", "title": "House", "instruction": "Be kind."}},
    "models": {name: {"targets": [{"provider": "openai"}]} for name in ("m", "gpt-*", "<*")},
}
SERIOUS = """async () => (await axe.run()).violations
    .filter(v => ["serious", "critical"].includes(v.impact))
    .map(v => v.id + ": " + v.nodes.map(n => n.html).join(" | ").slice(0, 300))"""


class Window:
    """A browser's context that notes what goes wrong in its pages."""

    def __init__(self, context: Any, live: Live) -> None:
        self.context, self.live = context, live
        self.faults: list[str] = []

    async def page(self, path: str = "") -> Any:
        page = await self.context.new_page()
        page.on("pageerror", lambda e: self.faults.append(str(e)))
        page.on("console", lambda m: self.faults.append(m.text) if m.type == "error" else None)
        page.on("dialog", lambda d: self.faults.append(f"dialog {d.message}"))
        await page.goto(f"{self.live.root}/ui{path}")
        return page

    async def sign_in(self, key: str = SENTINEL_KEY) -> Any:
        page = await self.page("/sign-in")
        await page.get_by_label("Key").fill(key)
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("heading", name="Users").wait_for()
        return page

    async def open(self, page: Any, path: str) -> None:
        await page.goto(f"{self.live.root}/ui{path}")


@contextlib.asynccontextmanager
async def browsing(live: Live, **options: Any) -> AsyncIterator[Window]:
    from playwright.async_api import async_playwright

    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = await browser.new_context(**options)
        context.set_default_timeout(20_000)
        window = Window(context, live)
        yield window
        await browser.close()
        assert window.faults == []


async def test_a_chat_is_corrected_undone_explained_forgotten_and_erased(data):
    """The whole story of whoever watches a memory, in one go: from an SDK's chat to signing out."""
    async with shown(data) as (live, _), browsing(live) as window:
        page = await window.sign_in()
        await page.get_by_role("link", name="Live").click()
        await page.get_by_text("No turns yet").wait_for()
        await _chat_by_sdk(live, "I like tea; Grace arrives on Friday", "When does Grace come?")
        newest = page.locator(".turn", has_text="archival_memory_search")
        await newest.wait_for()
        await _edit_and_undo(window, page)
        await page.get_by_role("link", name="Live").click()
        await _explain(page, newest)
        await _correct_passage(window, page)
        await window.open(page, "/user/passages?user=ada")
        await page.get_by_role("button", name="Set aside").click()
        await page.get_by_text("No passages yet").wait_for()
        await page.get_by_role("link", name="Those set aside").click()
        await page.get_by_text("set aside", exact=True).first.wait_for()
        await page.get_by_role("link", name="Erase").click()
        await page.get_by_label("Type the name").fill("ada")
        await page.get_by_role("button", name="Erase everything").click()
        await page.get_by_role("heading", name="Erased").wait_for()
        assert "messages" in await page.locator("main").inner_text()
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_role("heading", name="Sign in").wait_for()
        await window.open(page, "/feed")
        assert "sign-in" in page.url


async def _correct_passage(window: Window, page: Any) -> None:
    """From the list of users: a wrong passage is corrected in five clicks, and back in one."""
    await window.open(page, "")
    main = page.locator("main")
    await main.get_by_role("link", name="ada").click()
    await main.get_by_role("link", name="Passages").click()
    await main.get_by_text("Edit", exact=True).click()
    await main.locator("textarea:visible").first.fill("Grace arrives on Saturday")
    await main.get_by_role("button", name="Save").click()
    await main.get_by_text("Grace arrives on Saturday").first.wait_for()
    await main.get_by_role("button", name="Undo the newest change").click()
    await main.get_by_text("Grace arrives on Saturday").first.wait_for(state="detached")


async def _chat_by_sdk(live: Live, *questions: str) -> None:
    async with openai.AsyncOpenAI(base_url=live.url, api_key=SENTINEL_KEY) as client:
        for words in questions:
            await client.chat.completions.create(
                model="gpt-4o-mini", messages=[{"role": "user", "content": words}], user="ada"
            )


async def _edit_and_undo(window: Window, first: Any) -> None:
    """Edits a block in one window, sees it in another, and undoes it."""
    await first.get_by_role("link", name="Users").click()
    await first.get_by_role("link", name="ada").click()
    second = await window.page("/user?user=ada")
    card = second.locator("#block-human")
    await card.get_by_text("Likes tea").wait_for()
    await first.get_by_role("link", name="Edit human").click()
    await first.get_by_label("Text of human").fill("Likes coffee")
    await first.get_by_role("button", name="Save").click()
    await first.locator("#block-human").get_by_text("Likes coffee").wait_for()
    await card.get_by_text("Likes coffee").wait_for()
    await first.get_by_role("button", name="Undo the last edit of human").click()
    await card.get_by_text("Likes tea").wait_for()
    assert await first.locator("#block-human").get_by_text("Likes tea").count() == 1


async def _explain(page: Any, turn: Any) -> None:
    """Finds out why a fact was in a request."""
    await turn.get_by_role("link", name="details").click()
    await page.get_by_role("heading", name="What the memory added").wait_for()
    text = await page.locator("main").inner_text()
    for part in ("Likes tea", "Grace arrives on Friday", "When does Grace come?"):
        assert part in text
    assert "Automatic recall" in text


async def test_everybody_can_use_every_view(data):
    async with shown(data, **AGENTS) as (live, _):
        await live.memory("PUT", "/agents/support", json={"model": "m", "blocks": [{"label": "a"}]})
        await live.chat("I like tea", user="ada")
        explain = (await live.chat("When does Grace come?", user="ada")).headers["x-memory-explain"]
        for scheme in ("light", "dark"):
            async with browsing(live, color_scheme=scheme) as window:
                await window.context.add_init_script(path=AXE)
                page = await window.sign_in("sk-root")
                for path in (*VIEWS, *OWN_AGENT, f"/request?id={explain}", "/keys", "/sign-in"):
                    tenant = "&tenant=acme" if "user=" in path or "name=" in path else ""
                    await window.open(page, path + tenant)
                    assert await page.evaluate(SERIOUS) == [], f"{path} in {scheme}"


async def test_no_view_is_wider_than_a_phone(data):
    async with (
        shown(data, **AGENTS) as (live, _),
        browsing(live, viewport={"width": 360, "height": 700}) as window,
    ):
        long = {"title": "x" * 250, "model": "m", "instruction": "y" * 500}
        await live.memory("PUT", "/agents/support", json=long)
        await live.chat("x" * 3000, user="ada" + "a" * 200)
        await live.chat("I like tea", user="ada")
        page = await window.sign_in()
        for path in (*VIEWS, *OWN_AGENT):
            await window.open(page, path)
            assert await page.evaluate("document.documentElement.scrollWidth") <= 360, path


async def test_pages_read_and_forms_work_without_scripts(data):
    async with (
        shown(data, **AGENTS) as (live, _),
        browsing(live, java_script_enabled=False) as window,
    ):
        await live.chat("I like tea", user="ada")
        page = await window.sign_in()
        for path in VIEWS:
            await window.open(page, path)
            assert await page.locator("h1").count() == 1, path
        await window.open(page, "/user?user=ada")
        await page.get_by_role("link", name="Edit human").click()
        await page.get_by_label("Text of human").fill("Likes coffee")
        await page.get_by_role("button", name="Save").click()
        await page.locator("#block-human").get_by_text("Likes coffee").wait_for()


async def test_the_keyboard_alone_reaches_and_edits_a_block(data):
    async with shown(data) as (live, _), browsing(live) as window:
        await live.chat("I like tea", user="ada")
        page = await window.sign_in()
        await window.open(page, "/user?user=ada")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"
        for _ in range(40):
            if await page.evaluate("document.activeElement.textContent.startsWith('Edit')"):
                break
            await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        field = page.get_by_label("Text of human")
        await field.wait_for()
        await field.focus()
        await page.keyboard.type("Kind. ")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await page.locator("#block-human").get_by_text("Kind.").wait_for()


async def test_hostile_text_runs_nowhere(data):
    script = ({**REMEMBER}, HOSTILE)
    async with shown(data, *script, **AGENTS) as (live, _), browsing(live) as window:
        hostile = {"model": HOSTILE, "title": HOSTILE, "instruction": HOSTILE, "tags": [HOSTILE]}
        await live.memory("PUT", "/agents/support", json={**hostile, "metadata": HOSTILE})
        page = await window.sign_in()
        await page.get_by_role("link", name="Live").click()
        await page.get_by_text("No turns yet").wait_for()
        await live.chat(HOSTILE, user="ada", model=HOSTILE[:40])
        await live.memory("PUT", "/users/ada/blocks/human", json={"value": HOSTILE})
        await page.locator(".turn").wait_for()
        for path in (*VIEWS, *OWN_AGENT):
            await window.open(page, path)
            assert await page.evaluate("window.hit") is None, path
            assert await page.locator("main img, main script").count() == 0, path


async def test_a_framed_page_stays_empty(data):
    async with shown(data) as (live, _), browsing(live) as window:
        page = await window.sign_in()
        await page.route(
            "**/frame",
            lambda route: route.fulfill(
                content_type="text/html", body=f'<iframe src="{live.root}/ui"></iframe>'
            ),
        )
        await page.goto(f"{live.root}/frame")
        await page.wait_for_timeout(500)
        framed = page.frames[1]
        assert await framed.get_by_role("heading", name="Users").count() == 0
        assert re.search("frame-ancestors|X-Frame", " ".join(window.faults))
        window.faults.clear()


async def test_the_tick_turns_green_with_the_first_request(data):
    async with shown(data) as (live, _), browsing(live) as window:
        page = await window.sign_in()
        await page.get_by_role("link", name="Connect", exact=True).click()
        await page.get_by_text("Waiting for the first request").wait_for()
        await live.chat("I like tea", user="ada")
        await page.get_by_text("The first remembered request has arrived").wait_for()


@pytest.mark.parametrize("scripts", [True, False])
async def test_an_agent_is_made_and_tried_in_a_minute_without_a_configuration(data, scripts):
    """By a phone's width and the keyboard alone; the block changes as it talks."""
    options = {"viewport": {"width": 390, "height": 800}, "java_script_enabled": scripts}
    models = {"models": {"gpt-4o-mini": {"targets": [{"provider": "openai"}]}}}
    script = (REMEMBER, "Noted.", "Tea.")
    async with shown(data, *script, **models) as (live, _), browsing(live, **options) as window:
        page = await window.sign_in()
        began = time.monotonic()
        await page.get_by_role("link", name="Agents").click()
        await page.get_by_role("link", name="Make an agent").click()
        name = page.get_by_role("textbox", name="Name Clients call it")
        await name.fill("support")
        # Model, title, description, instruction.
        for text in ("", "Support", "", "You are Sam."):
            await page.keyboard.press("Tab")
            await page.keyboard.type(text)
        await page.get_by_label("Title").press("Enter")
        message = page.get_by_label("Message")
        await message.fill("I like tea")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await page.locator(".said.assistant", has_text="Noted.").wait_for()
        block = page.locator("#block-human")
        assert await block.locator(".added").inner_text() == "+ Likes tea"
        assert await message.input_value() == ""
        await message.fill("What do I like?")
        await page.get_by_role("button", name="Send").click()
        await page.locator(".said.assistant", has_text="Tea.").wait_for()
        assert await page.locator(".said").count() == 4
        assert await block.locator("pre").inner_text() == "Likes tea"
        assert time.monotonic() - began < 60
        agent = (await live.memory("GET", "/agents/support")).json()
        assert (agent["model"], agent["title"]) == ("gpt-4o-mini", "Support")
        assert agent["instruction"] == "You are Sam."
        await _edit_agent(page)
        agent = (await live.memory("GET", "/agents/support")).json()
        assert [block["label"] for block in agent["blocks"]] == ["persona", "rules"]


async def _edit_agent(page: Any) -> None:
    """Adds a block, finds its label refused, and corrects that."""
    await page.get_by_role("link", name="Profile").click()
    await page.get_by_role("button", name="Add a block").click()
    label = page.get_by_role("group", name="Block 2").get_by_label("Label")
    await label.fill("Not a label")
    await page.get_by_role("button", name="Save").last.click()
    await page.get_by_text("a label must match").wait_for()
    assert await label.get_attribute("aria-invalid") == "true"
    await label.fill("rules")
    await page.get_by_role("button", name="Save").last.click()
    await page.get_by_role("link", name="Try it").wait_for()
    await page.locator("#block-rules").wait_for()
