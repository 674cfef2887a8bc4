"""A gateway inside this process: its socket, and a thread that serves it during a command."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gateway.cli.options import CommandFailed

if TYPE_CHECKING:
    from gateway.config.settings import Settings
    from gateway.server.middleware import GatewayMiddleware
    from gateway.server.uvicorn_server import GatewayServer

START_SECONDS = 20.0


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises CommandFailed, with the next step, if the address cannot be used.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server((str(address[0]), port), family=family, backlog=2048)
    except OSError as e:
        address_text = f"{host}:{port}"
        if isinstance(e, socket.gaierror):
            raise CommandFailed(
                f"The host {host!r} cannot be resolved: {e.strerror}. Use an address of this "
                "machine: 127.0.0.1, or 0.0.0.0 for all."
            ) from e
        import errno

        if e.errno == errno.EADDRINUSE:
            raise CommandFailed(
                f"{address_text} is in use. Stop what runs there, or choose another port: --port "
                f"{port + 1 if port < 65535 else 8081}"
            ) from e
        raise CommandFailed(
            f"{address_text} cannot be opened: {e.strerror}. Choose another --host or --port."
        ) from e


def url_of(sock: socket.socket) -> str:
    """Return the URL by which a client on this machine reaches the socket."""
    host, port = sock.getsockname()[:2]
    # only compared, not bound
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{host}:{port}"


def _build(settings: Settings) -> tuple[GatewayMiddleware, GatewayServer]:
    """Return the application and what serves it, without searches for garbage meanwhile.

    All that is imported stays: to search it took a tenth of a command's time.
    """
    from gateway.server.garbage import begin_searches

    gc.disable()
    try:
        from gateway.app import create_app
        from gateway.server.uvicorn_server import server_for

        app = create_app(settings)
        return app, server_for(app, log_level="error")
    finally:
        begin_searches()


@contextmanager
def serve_in_thread(
    settings: Settings, sock: socket.socket, patience: float = 5.0
) -> Iterator[str]:
    """Serve the settings on the socket while the context lasts; yield the URL.

    patience: seconds to drain. Raises ConfigError, or CommandFailed if the memory store cannot be
    opened.
    """
    app, server = _build(settings)
    thread = threading.Thread(target=server.run, args=([sock],), name="mnemogate", daemon=True)
    thread.start()
    try:
        until = time.monotonic() + START_SECONDS
        while not (server.started and app.gateway.memory.ready):
            if reason := app.gateway.memory.upgrade_reason:
                raise CommandFailed(f"{settings.database_shown}: {reason}")
            if not thread.is_alive() or time.monotonic() > until:
                raise CommandFailed(
                    f"The memory store {settings.database_shown} cannot be opened. Run `mnemogate "
                    "doctor` to find out why."
                )
            time.sleep(0.01)
        yield url_of(sock)
    finally:
        if server.started and thread.is_alive():
            server.drain()
            thread.join(patience)
        server.should_exit = server.force_exit = True
        thread.join(2)
        sock.close()
