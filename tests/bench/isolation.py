"""Two tenants with the same names of everything, and users of one: who sees the other's words?

    python -m tests.bench.isolation [--most N] [--seed N]

Every object holds a word of its owner's alone (see isolation_objects). The other tenant's keys, a
user of the same tenant who is in no team and no project, and the owner outside the project then
look by every route of the management API, by the Letta door, on the three wires, over MCP, by
commands and in the dashboard, with the names that all have, with their own ids and with ids of the
first. Whatever is answered, and whatever reaches the model, must not hold a word that is not
theirs; and what the first one has must be as before. Refusals are counted apart.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.bench.isolation_looks import Looks
from tests.bench.isolation_objects import (
    FIRST,
    SECOND,
    Filler,
    add_tool,
    keys,
)
from tests.conftest import running
from tests.models import Model, call, calls, text

SEARCHES = ("archival_memory_search", "conversation_search", "file_search")


def reply(seen: Any, wire: Any) -> Any:
    """A model that searches everything before it answers."""
    if not seen.body:
        return 200, {"object": "list", "data": []}
    if seen.json["messages"][-1]["role"] == "tool":
        return text("I have looked.")
    names = {tool["function"]["name"] for tool in seen.json.get("tools", ())}
    wanted = [call(n, {"query": "river"}, f"c{n}") for n in SEARCHES if n in names]
    return calls(*wanted) if wanted else text("I cannot look.")


CONFIG = {
    "memory.recall": "always",
    "memory.tasks": "off",
    "memory.extract": "off",
    "toolbox": {"create": "trusted"},
    "tools": {"files": {"kind": "files"}},
}


async def play(data: Path, most: int, seed: int) -> Looks:
    """Play one run on a gateway of its own. most: looks of a kind, by each who looks."""
    async with Model(reply) as model:
        provider = {"base_url": model.url, "wires": ["chat"]}
        models = {"*": {"targets": [{"provider": "here"}]}}
        config = {**CONFIG, "keys": keys(), "providers": {"here": provider}, "models": models}
        async with running(model.url, data, config, key="") as live:
            for tenant in (FIRST, SECOND):
                await Filler(live, tenant).fill()
            await add_tool(live)
            run = Looks(live, model, most, seed)
            await run.look_around()
            return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=24, help="looks of a kind, by each who looks")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        run = asyncio.run(play(Path(folder), args.most, args.seed))
    print(
        f"{run.answered.total()} looks that were answered, {run.telling.total()} of them with "
        f"words of who looked, {run.refused.total()} refused, {len(run.leaks)} with a foreign word"
    )
    for name, counted in (("answered", run.answered), ("refused", run.refused)):
        print(f"  {name}: {_listed(counted)}")
    for leak in run.leaks[:20]:
        print(f"  {leak}")
    return 1 if run.leaks else 0


def _listed(counted: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counted.items()))


if __name__ == "__main__":
    sys.exit(main())
