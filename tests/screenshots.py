"""`make screenshots`: the README's pictures, of a conversation with the demo's model."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from gateway.demo_model.server import start
from tests.conftest import running

FOLDER = Path(__file__).parents[1] / "docs/images"
SESSIONS = (
    ("My name is Ada and I like green tea.", "Remember that Grace arrives on Friday."),
    ("What is my name?", "What do I like?"),
)
CONFIG = {
    "models": {"mnemogate-demo": {"targets": [{"provider": "openai"}], "context_window": 8000}}
}
SIZE = {"width": 1100, "height": 720}


async def converse(live, user):
    """Play the sessions; return the id of the last answer's explain record."""
    explain = ""
    for session in SESSIONS:
        messages = [{"role": "system", "content": "You are a helpful assistant. " * 40}]
        for words in session:
            messages.append({"role": "user", "content": words})
            answer = await live.chat(messages, user=user, model="mnemogate-demo")
            answer.raise_for_status()
            messages.append(answer.json()["choices"][0]["message"])
            explain = answer.headers["x-memory-explain"]
    return explain


async def take(chromium, data):
    from playwright.async_api import async_playwright

    FOLDER.mkdir(exist_ok=True)
    with start() as model:
        async with running(model.url, data, CONFIG) as live, async_playwright() as play:
            explain = await converse(live, "ada")
            browser = await play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = await browser.new_page(viewport=SIZE)
            await page.goto(f"{live.root}/ui/sign-in")
            await page.fill("#key", (data / "token").read_text().strip())
            await page.click("main button")
            await page.get_by_role("heading", name="Users").wait_for()
            for name, path in (("user", "/user?user=ada"), ("request", f"/request?id={explain}")):
                await page.goto(f"{live.root}/ui{path}")
                await page.screenshot(path=FOLDER / f"dashboard-{name}.png")
                print(FOLDER / f"dashboard-{name}.png")
            await browser.close()


def main():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("make screenshots needs Chromium (Debian, Ubuntu: apt-get install chromium).")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(take(chromium, Path(folder)))


if __name__ == "__main__":
    main()
