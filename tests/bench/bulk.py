"""`python -m tests.bench.bulk --rows 100000`: what others feel during an import, a conversation
brought along, its deletion, and an erasure: how many of their turns went without memory, and how
long they and `/health` waited.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

import httpx

from tests.e2e.beside import BULK, beside, chat, passages, served


async def main(rows: int) -> None:
    body, said = passages(rows), chat(rows)
    with tempfile.TemporaryDirectory() as folder:
        async with served(Path(folder)) as client:

            async def nothing() -> httpx.Response:
                await asyncio.sleep(3)
                return httpx.Response(200)

            works = {
                "nothing": nothing,
                "import": lambda: client.post(
                    "/memory/v1/users/eve/import", content=body, headers=BULK
                ),
                "the same again": lambda: client.post(
                    "/memory/v1/users/eve/import", content=body, headers=BULK
                ),
                "export": lambda: client.get("/memory/v1/users/eve/export", headers=BULK),
                "bring": lambda: client.post(
                    "/memory/v1/users/eve/conversations", content=said, headers=BULK
                ),
                "delete": lambda: client.delete("/memory/v1/conversations/long", headers=BULK),
                "erase": lambda: client.delete("/memory/v1/users/eve", headers=BULK),
            }
            for name, work in works.items():
                answer, felt = await beside(client, work)
                print(
                    f"{name:>16}: {answer.status_code} {felt} "
                    f"{answer.text[:100] if answer.status_code != 200 else ''}",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    asyncio.run(main(parser.parse_args().rows))
