"""What the demo shows of tools: one over HTTP on the demo's own server, and a Markdown file."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gateway.cli.client import user_path
from gateway.cli.options import CommandFailed

if TYPE_CHECKING:
    from gateway.cli.client import ManagementClient

FILE = "house.md"
CONTENT = b"""# The house

## Keys

The spare key hangs behind the blue door.

## Garden

Water the tomatoes on Mondays and Thursdays.
"""
SESSION: tuple[str, bool, tuple[str, ...]] = (
    "Session 3",
    False,
    ("What is the weather in Oslo?", "What do my files say about the spare key?"),
)
READING_SECONDS = 20.0
POLL_SECONDS = 0.05


def settings_of_tools(url: str) -> dict[str, Any]:
    """Return the settings of the tools. url: of the server that a tool asks."""
    weather = {
        "kind": "http",
        "url": f"{url}/weather/{{city}}",
        "description": "Tells the weather in a city.",
        "parameters": {"city": {"type": "string", "description": "The city's name"}},
        "required": ["city"],
        "result": "/weather",
    }
    return {
        "toolbox.grant": ["*"],
        "tools": {"get_weather": weather, "files": {"kind": "files"}},
    }


def upload_file(api: ManagementClient, user: str) -> None:
    """Store the file, and wait until it can be searched. Raises CommandFailed."""
    path = user_path(user, "files", FILE)
    api.call("PUT", path, content=CONTENT)
    until = time.monotonic() + READING_SECONDS
    while (stored_file := api.call("GET", path))["status"] in ("received", "reading"):
        if time.monotonic() > until:
            raise CommandFailed(f"{FILE} was not read within {READING_SECONDS:g} s.")
        time.sleep(POLL_SECONDS)
    if stored_file["status"] != "ready":
        raise CommandFailed(f"{FILE} could not be read: {stored_file['reason']}")
