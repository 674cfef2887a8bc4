"""`mnemogate mcp`: the memory for a program that starts its tool servers itself, over stdio."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from gateway.cli.client import local_token, token_for
from gateway.cli.lockfile import running_url
from gateway.cli.options import CommandFailed, GatewayOptions, where_options
from gateway.cli.run import MemoryOwner
from memory import installed_version

if TYPE_CHECKING:
    import httpx

    from gateway.config.settings import Settings

TIMEOUT_SECONDS = 60.0
# Of a message; a longer line is read in parts, which are no JSON.
LINE_BYTES = 1 << 22


@click.command("mcp", short_help="The memory as an MCP server, over standard input and output.")
@click.option("--agent", help="Use this agent's memory of the user.")
@click.option(
    "--user",
    envvar="MNEMOGATE_USER",
    help="Whose memory it is.  [default: the key's own user; env: MNEMOGATE_USER]",
)
@click.option("--project", help="Use the user's part of the memory in this project.")
@where_options
def mcp(where: GatewayOptions, user: str | None, agent: str | None, project: str | None) -> None:
    """Offer the memory to a program that starts its MCP servers itself.

    It relays to the running gateway; where none runs, it opens the database.

    \b
    Examples:
      mnemogate mcp --user ada
      claude mcp add memory -- mnemogate mcp
      MNEMOGATE_URL=https://memory.example MNEMOGATE_KEY="$KEY" mnemogate mcp --user ada
    """
    asyncio.run(_serve(where, MemoryOwner(user, agent, project)))


async def _serve(where: GatewayOptions, owner: MemoryOwner) -> None:
    from gateway.mcp.stdio import StdioRelay

    out = sys.stdout.buffer
    lines = sys.stdin.buffer

    def write(line: bytes) -> None:
        out.write(line + b"\n")
        out.flush()

    async def read() -> bytes:
        return await asyncio.to_thread(lines.readline, LINE_BYTES)

    with ExitStack() as exit_stack:
        gateway = GatewayFinder(where, exit_stack)
        await StdioRelay(_relay_to(gateway, owner), write).run(read)


class GatewayFinder:
    """Finds the gateway of a data folder, at each message anew; opens the database if none runs."""

    def __init__(self, where: GatewayOptions, exit_stack: ExitStack) -> None:
        self._where = where
        self._exit_stack = exit_stack
        self._settings: Settings | None = None
        self._own_url = ""
        self._opening = asyncio.Lock()

    async def find(self) -> tuple[str, str | None]:
        """Return a URL and the key for it. Raises CommandFailed, ConfigError."""
        async with self._opening:
            return await asyncio.to_thread(self._find)

    def _find(self) -> tuple[str, str | None]:
        if self._settings is None:
            self._settings = self._where.settings()
        settings = self._settings
        where = self._where
        if url := where.url or running_url(settings.data):
            self._close_own()
            return url, where.key or token_for(url, settings)
        if not self._own_url:
            from gateway.cli.embedded import bind_socket, serve_in_thread

            serving = serve_in_thread(settings, bind_socket("127.0.0.1", 0))
            self._own_url = self._exit_stack.enter_context(serving)
        return self._own_url, where.key or local_token(settings.data)

    def _close_own(self) -> None:
        """Leave the database to the gateway that runs now."""
        if self._own_url:
            self._own_url = ""
            self._exit_stack.pop_all().close()


def _relay_to(
    gateway: GatewayFinder, owner: MemoryOwner
) -> Callable[[bytes, dict[str, str]], Awaitable[bytes]]:
    """Return what sends a message to the gateway."""
    # Of this process alone, by which the gateway tells it from other programs of the same key.
    agent = f"mnemogate-mcp/{installed_version() or 'unknown'} ({secrets.token_hex(8)})"
    clients: list[httpx.AsyncClient] = []

    async def relay(line: bytes, headers: dict[str, str]) -> bytes:
        import httpx

        from gateway.errors import GatewayError
        from gateway.mcp.stdio import check_answer

        if not clients:
            clients.append(httpx.AsyncClient(timeout=TIMEOUT_SECONDS, trust_env=False))
        request_headers = {
            **owner.headers,
            **headers,
            "user-agent": agent,
            "content-type": "application/json",
        }
        try:
            url, key = await gateway.find()
            if key:
                request_headers["authorization"] = f"Bearer {key}"
            response = await clients[0].post(
                f"{url}/mcp", content=line.strip(), headers=request_headers
            )
        except (CommandFailed, ValueError) as e:
            raise GatewayError(str(e)) from e
        except httpx.HTTPError as e:
            raise GatewayError(f"The gateway does not answer: {e}. Is it running?") from e
        return check_answer(response.content)

    return relay
