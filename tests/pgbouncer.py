"""A real PgBouncer before the Postgres of the tests."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

from tests.postgres_server import PASSWORD, SECONDS, PostgresServer, as_nobody
from tests.sockets import free_port

CONFIG = """[databases]
* = host=127.0.0.1 port={server} user=mnemogate password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = 4
max_client_conn = 2000
query_wait_timeout = 20
server_lifetime = 3600
log_connections = 0
log_disconnections = 0
log_stats = 0
{more}
"""
# From this version on.
KEEPS_STATEMENTS = (1, 21)


def binary() -> str | None:
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


class PgBouncer:
    """pgbouncer as a child of the tests.

    folder: that the server's user can reach. mode: of its pools. statements: it may keep.
    """

    def __init__(
        self, folder: Path, server: PostgresServer, mode: str = "transaction", statements: int = 512
    ) -> None:
        self._server, self._mode = server, mode
        self._statements = statements if self.version() >= KEEPS_STATEMENTS else 0
        self.port = free_port()
        self._config = folder / f"pgbouncer-{self.port}.ini"
        self._is_wanted = False
        self.child: subprocess.Popen[bytes] | None = None

    @property
    def keeps_statements(self) -> bool:
        return self._statements > 0

    @staticmethod
    def version() -> tuple[int, int]:
        told = subprocess.run([binary(), "--version"], capture_output=True, check=True).stdout
        found = re.search(rb"PgBouncer (\d+)\.(\d+)", told)
        return int(found[1]), int(found[2])

    def url(self, url: str) -> str:
        """The URL of a database of the server, through it."""
        return url.replace(f":{self._server.port}/", f":{self.port}/")

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        more = ""
        if self.version() >= KEEPS_STATEMENTS:
            more = f"max_prepared_statements = {self._statements}"
        self._config.write_text(
            CONFIG.format(
                server=self._server.port, port=self.port, mode=self._mode, more=more,
                password=PASSWORD,
            )
        )  # fmt: skip
        self._spawn()
        self._is_wanted = True
        threading.Thread(target=self._keep_running, daemon=True).start()
        until = time.monotonic() + SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if time.monotonic() > until or self.child.poll() is not None:
                    raise
                time.sleep(0.02)

    def _spawn(self) -> None:
        with self._config.with_suffix(".log").open("ab") as log:
            self.child = subprocess.Popen(
                [binary(), str(self._config)],
                stdout=subprocess.DEVNULL,
                stderr=log,
                **as_nobody(),
            )

    def _keep_running(self) -> None:
        """Start it again when it ended by itself, as a service manager does.

        PgBouncer 1.18 ends now and then when a client cancels a query ("bad client state").
        """
        while self.child and self.child.wait() is not None and self._is_wanted:
            self._spawn()

    def stop(self) -> None:
        self._is_wanted = False
        if self.child and self.child.poll() is None:
            self.child.kill()
            self.child.wait(SECONDS)
