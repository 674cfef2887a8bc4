"""A turn, a passage and a search through `mnemogate serve` with the optional parts that the
environment names; run by `sealed`.

argv: the data folder; `vectors`, where passages must become some; a file that must come to be, if
any; the command of a server to run beside.
"""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import httpx

from gateway.demo_model.server import start


def waited(what, seconds=60):
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            raise SystemExit(f"waited in vain for {what}")
        time.sleep(0.1)


def vectors(data):
    with contextlib.closing(sqlite3.connect(f"file:{data}/mnemogate.db?mode=ro", uri=True)) as db:
        return db.execute("SELECT count(*) FROM vectors").fetchone()[0]


def turn(url, data, wanted, file):
    chat = {
        "model": "mnemogate-demo",
        "messages": [{"role": "user", "content": "My name is Ada, and I like green tea."}],
    }
    assert (
        httpx.post(
            f"{url}/v1/chat/completions",
            json=chat,
            headers={"authorization": "Bearer k"},
            timeout=60,
        ).headers["x-memory-status"]
        == "ok"
    )
    token = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
    passages = f"{url}/memory/v1/users/me/passages"
    assert (
        httpx.post(passages, json={"content": "green tea"}, headers=token, timeout=60).status_code
        == 200
    )
    if wanted:
        waited(lambda: vectors(data))
    assert httpx.get(f"{passages}/search", params={"q": "tea"}, headers=token, timeout=60).json()[
        "data"
    ]
    if file:
        waited((data / file).exists)


def main():
    data, wanted, file, beside = (
        Path(sys.argv[1]),
        sys.argv[2] == "vectors",
        sys.argv[3],
        sys.argv[4:],
    )
    with contextlib.ExitStack() as stack:
        if beside:
            stack.callback(subprocess.Popen(beside, stdout=subprocess.DEVNULL).kill)
        upstream = stack.enter_context(start())
        serve = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "--port", "0", "--upstream", upstream.url],
            stderr=subprocess.PIPE,
            text=True,
        )
        stack.callback(serve.wait)
        stack.callback(serve.terminate)
        url = serve.stderr.readline().split()[2].removesuffix("/v1")
        turn(url, data, wanted, file)
        # In which what was loaded may call home.
        time.sleep(2)
    print("done")


if __name__ == "__main__":
    main()
