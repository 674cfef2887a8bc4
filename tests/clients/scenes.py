"""What the Python programs share: where the gateway is, what is asked, and how each scene's facts
are told.

A program is `program.py <url of the gateway> <full or off> <user>`. It plays its scenes in order
and prints one JSON line for each: what that framework's user sees. No more than its own framework
and the standard library is there to import.
"""

import asyncio
import inspect
import json
import sys
import traceback
from pathlib import Path

URL, MEMORY, USER = sys.argv[1:]
HEADERS = {"X-Memory": MEMORY, "X-Memory-User": USER}
KEY = "sk-sentinel-4f1d"
MODEL = "gpt-4o-mini"
DEGREES = {"Oslo": 3, "Bergen": 7}
PROMPTS = json.loads(Path(__file__).with_name("prompts.json").read_text())

asked = []


def get_weather(city: str) -> int:
    """The temperature in a city."""
    asked.append(city)
    return DEGREES[city]


def cities():
    """The cities asked for since the last time."""
    found = sorted(asked)
    asked.clear()
    return found


async def failure(work):
    """The error that `work`, a function or a coroutine function, ends in: its classes, its code and
    its status.
    """
    try:
        done = work()
        if inspect.isawaitable(done):
            done = await done
    except Exception as e:
        return told(e)
    return {"instead": repr(done)}


def told(error):
    classes = [c.__name__ for c in type(error).__mro__]
    code = getattr(error, "code", None) or getattr(error, "provider_error_code", None)
    return {"classes": classes, "code": code, "status": getattr(error, "status_code", None)}


def play(*scenes):
    """Runs the scenes, each a function or a coroutine function, named after it."""

    async def all_of_them():
        for scene in scenes:
            try:
                facts = scene()
                if inspect.isawaitable(facts):
                    facts = await facts
            except Exception:
                facts = {"raised": traceback.format_exc()}
            print(json.dumps({"scene": scene.__name__, **facts}), flush=True)

    asyncio.run(all_of_them())
