"""A real Postgres on a port of its own, whose databases tests copy, and which they may stop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from memory.stores.sql.engine.database import Database
from tests.sockets import free_port

PASSWORD = "sentinel-pg-4d20"
# For each of the server's own programs, on a busy machine.
SECONDS = 60
_numbers = itertools.count(1)


def binaries() -> Path | None:
    """The folder of the newest Postgres programs; Debian keeps them out of PATH."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda f: int(f.parent.name))
    return folders[-1] if folders else None


def installed_binaries() -> Path:
    """The same; without them, what needs a server is skipped."""
    if (found := binaries()) is None:
        pytest.skip("postgres is not installed (Debian, Ubuntu: apt-get install postgresql)")
    return found


def as_nobody() -> dict[str, Any]:
    """Postgres refuses to run as root."""
    return {"user": "nobody", "group": "nogroup"} if os.getuid() == 0 else {}


class PostgresServer:
    """postgres as a child of the tests.

    safe: it flushes what it commits. buffers: its own cache of pages.
    """

    def __init__(self, folder: Path, *, safe: bool = False, buffers: str = "64MB") -> None:
        self.folder, self._bin, self._safe = folder / "pg", installed_binaries(), safe
        self._buffers = buffers
        self.port = free_port()
        self.child: subprocess.Popen[bytes] | None = None
        self._template = ""

    def url(self, database: str = "postgres", user: str = "mnemogate") -> str:
        return f"postgresql+asyncpg://{user}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def create(self) -> None:
        """Make the folder of its data."""
        self._make_folder()
        word = self.folder.parent / "pg-password"
        word.write_text(PASSWORD)
        if os.getuid() == 0:
            shutil.chown(word, "nobody", "nogroup")
        self._run(
            "initdb", "-D", str(self.folder), "-U", "mnemogate", "-A", "scram-sha-256",
            f"--pwfile={word}", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync",
        )  # fmt: skip

    def archive_to(self, folder: Path) -> None:
        """Start it again, and from now on keep its log in this folder too."""
        self._own(folder)
        self.run(
            "ALTER SYSTEM SET archive_mode = on",
            # A file is there when all of it is.
            f"ALTER SYSTEM SET archive_command = 'cp %p {folder}/part && mv {folder}/part "
            f"{folder}/%f'",
        )
        self.stop(signal.SIGINT)
        self.start()

    def back_up_to(self, folder: Path) -> None:
        """Make a base backup."""
        self._own(folder)
        self._run(
            "pg_basebackup", "-D", str(folder), "-d", self.url().replace("+asyncpg", ""),
            "-X", "none", "-c", "fast", "--no-sync", "--no-manifest",
        )  # fmt: skip

    def restore(self, backup: Path, archive: Path, moment: str) -> None:
        """Be what a server was at a moment: its base backup, and its log after that."""
        shutil.copytree(backup, self.folder)
        with (self.folder / "postgresql.auto.conf").open("a") as settings:
            settings.write(
                f"archive_mode = off\nrestore_command = 'cp {archive}/%f %p'\n"
                f"recovery_target_time = '{moment}'\nrecovery_target_action = promote\n"
            )
        (self.folder / "recovery.signal").touch()
        for path in (self.folder, *self.folder.rglob("*")):
            if os.getuid() == 0:
                shutil.chown(path, "nobody", "nogroup")
        self.start()
        until = time.monotonic() + SECONDS
        while self.run("SELECT pg_is_in_recovery()")[0][0]:
            if time.monotonic() > until:
                raise RuntimeError(f"the server did not reach {moment}")
            time.sleep(0.05)

    def create_standby(self, primary: PostgresServer) -> None:
        """Copy a primary into its folder, in place of what is there, to follow it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._make_folder()
        self._run(
            "pg_basebackup", "-D", str(self.folder), "-d", primary.url().replace("+asyncpg", ""),
            "-R", "-X", "stream", "-c", "fast", "--no-sync",
        )  # fmt: skip

    def commit_with_standby(self) -> None:
        """From now on a commit waits until the standby has it."""
        self.run("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        until = time.monotonic() + SECONDS
        following = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        while not self.run(following):
            if time.monotonic() > until:
                raise RuntimeError("the standby does not follow")
            time.sleep(0.02)

    def promote(self) -> None:
        """Make a standby the primary, and wait until it is."""
        self.run(f"SELECT pg_promote(true, {SECONDS})")

    def _make_folder(self) -> None:
        self._own(self.folder)

    @staticmethod
    def _own(folder: Path) -> None:
        """Make a folder of whoever runs the server."""
        folder.mkdir()
        if os.getuid() == 0:
            shutil.chown(folder, "nobody", "nogroup")
            folder.chmod(0o700)
            # It must reach its folder.
            for each in folder.parents:
                if each.stat().st_uid == 0 and each.stat().st_mode & 0o001 == 0:
                    each.chmod(each.stat().st_mode | 0o011)

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        until = time.monotonic() + SECONDS
        self.child = self._spawn()
        while True:
            try:
                self.run("SELECT 1")
                return
            # It starts, or recovers.
            except (OSError, asyncpg.PostgresError):
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
            # What it was before may hold its port or memory.
            if self.child.poll() is not None:
                self.child = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        quick = () if self._safe else ("-c", "fsync=off", "-c", "full_page_writes=off")
        return subprocess.Popen(
            [
                str(self._bin / "postgres"), "-D", str(self.folder), "-p", str(self.port),
                "-h", "127.0.0.1", "-k", "", "-c", "max_connections=300",
                "-c", f"shared_buffers={self._buffers}",
                "-c", "max_locks_per_transaction=128", *quick,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **as_nobody(),
        )  # fmt: skip

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """SIGQUIT stops it at once, as a crash does; SIGINT in order."""
        if self.child and self.child.poll() is None:
            self.child.send_signal(how)
            try:
                self.child.wait(SECONDS / 4)
            except subprocess.TimeoutExpired:  # it was asked while it started
                self.child.kill()
                self.child.wait(SECONDS)

    def freeze(self) -> None:
        """From now on it takes connections and says nothing."""
        for pid in self._pids():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self._pids():
            os.kill(pid, signal.SIGCONT)

    def database(self, secret: bytes) -> str:
        """The URL of a new, empty database with the tables of this version."""
        name = f"t{os.getpid()}_{next(_numbers)}"
        if not self._template:
            self._template = f"template_{os.getpid()}"
            self.run(f"CREATE DATABASE {self._template}")
            asyncio.run(_make_tables(self.url(self._template), secret))
        self.run(f"CREATE DATABASE {name} TEMPLATE {self._template} STRATEGY FILE_COPY")
        return self.url(name)

    def empty(self) -> str:
        """The URL of a new database without tables."""
        name = f"e{os.getpid()}_{next(_numbers)}"
        self.run(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop(self, url: str) -> None:
        self.run(f"DROP DATABASE IF EXISTS {url.rsplit('/', 1)[1]} WITH (FORCE)")

    def run(self, *statements: str, database: str = "postgres") -> list[Any]:
        """Run statements; return the rows of the last one. Needs a thread without a loop."""
        return asyncio.run(_run(self.url(database), statements))

    def _pids(self) -> list[int]:
        found = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text()
        return [self.child.pid, *map(int, found.split())]

    def _run(self, program: str, *arguments: str) -> None:
        found = subprocess.run(
            [str(self._bin / program), *arguments],
            capture_output=True,
            timeout=SECONDS,
            check=False,
            **as_nobody(),
        )
        if found.returncode:
            raise RuntimeError(f"{program}: {found.stderr.decode()[-500:]}")


async def _run(url: str, statements: tuple[str, ...]) -> list[Any]:
    conn = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        for statement in statements:
            found = await conn.fetch(statement)
    finally:
        await conn.close()
    return found


async def _make_tables(url: str, secret: bytes) -> None:
    db = Database(url, secret=secret)
    await db.open()
    await db.close()


@contextlib.contextmanager
def postgres_server(*, safe: bool = False, buffers: str = "64MB") -> Iterator[PostgresServer]:
    """Start a server in a folder of its own; both go with the context. See `PostgresServer`."""
    with tempfile.TemporaryDirectory(prefix="mnemogate-pg-") as folder:
        server = PostgresServer(Path(folder), safe=safe, buffers=buffers)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
