"""The version before this one and this one serve one Postgres database, while it is upgraded.

The version before is the last commit of this repository's history whose tables were older. Its
workers serve under load; `mnemogate db upgrade` runs; then each is replaced by one of this version.
Every request must be answered, and what an answer promised must be stored once.
"""

from __future__ import annotations

import asyncio
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from memory.stores.sql.engine.schema import REVISION
from tests import stores
from tests.e2e.fleet_faults import FaultyFleet
from tests.gateway.cli.command import ROOT, environment

SCHEMA = "memory/stores/sql/engine/schema.py"
# Of load, in each state.
BEFORE_SECONDS = AMID_SECONDS = AFTER_SECONDS = 10.0
# In which a balancer stops sending to a worker, before it is told to end.
FORGET_SECONDS = 5.0


def main() -> str:
    """Roll from the version before to this one; return what was done. Raises AssertionError."""
    commit, revision = version_before()
    with tempfile.TemporaryDirectory(prefix="mnemogate-before-") as name:
        _unpack(commit, Path(name))
        fleet = asyncio.run(_roll(Path(name)))
    return (
        f"rolling: from {commit[:10]} (tables {revision}) to this version (tables {REVISION}): "
        f"{fleet.done['ok']:,} answers kept once, {fleet.done['degraded']:,} told to be without "
        "memory, none refused, none lost"
    )


def version_before() -> tuple[str, str]:
    """Return the newest commit of older tables, and their revision.

    Raises LookupError where the history is not there.
    """
    for commit in _git("rev-list", "--first-parent", "HEAD", "--", SCHEMA).split():
        for parent in _parents(commit):
            if (revision := _revision_at(parent)) < REVISION:
                return parent, revision
    raise LookupError("The history does not reach back to older tables: fetch all of it.")


def _parents(commit: str) -> Iterator[str]:
    found = _git("rev-list", "--parents", "-n", "1", commit).split()[1:2]
    yield from found


def _revision_at(commit: str) -> str:
    found = re.search(r'^REVISION = "(\d+)"', _git("show", f"{commit}:{SCHEMA}"), re.MULTILINE)
    return found[1] if found else REVISION


def _git(*words: str) -> str:
    found = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True)
    return found.stdout.decode()


def _unpack(commit: str, folder: Path) -> None:
    packed = subprocess.run(
        ["git", "archive", commit],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")


async def _roll(before: Path) -> RollingFleet:
    fleet = RollingFleet(before)
    async with fleet.running():
        await asyncio.sleep(BEFORE_SECONDS)
        await fleet.upgrade()
        await asyncio.sleep(AMID_SECONDS)
        await fleet.replace_workers()
        await asyncio.sleep(AFTER_SECONDS)
    return fleet


class RollingFleet(FaultyFleet):
    """Workers of the version before, which are replaced. before: its sources."""

    def __init__(self, before: Path) -> None:
        super().__init__(seed=int(time.time()), workers=2, soon=30.0)
        self._sources = before

    def _make_database(self) -> str:
        url = self.primary.empty()
        self._run_upgrade(url)
        return url

    async def upgrade(self) -> None:
        """Upgrade the tables to this version's, while the version before serves."""
        self._sources = ROOT
        await asyncio.to_thread(self._run_upgrade, self.primary.url(self._database))
        query = "SELECT version_num FROM alembic_version"
        rows = await asyncio.to_thread(self.primary.run, query, database=self._database)
        assert rows[0][0] == REVISION

    async def replace_workers(self) -> None:
        """Start one of this version in place of each, which finishes what it has begun."""
        url = self._url_over([self.primary.port])
        for number, old in enumerate(self._workers):
            new = self._start(self._size + number, url)
            await self._wait_until_ready(new)
            self._workers[number] = new
            await asyncio.sleep(FORGET_SECONDS)
            assert await asyncio.to_thread(old.stopped) == 0, old.lines[-5:]

    def _run_upgrade(self, url: str) -> None:
        env = {"MNEMOGATE_STORAGE__DATABASE": url, "MNEMOGATE_STORAGE__SECRET": stores.SECRET.hex()}
        subprocess.run(
            [sys.executable, "-m", "gateway", "db", "upgrade"],
            cwd=self._sources,
            env=environment(self._folder, **env),
            check=True,
            stdout=subprocess.DEVNULL,
        )
