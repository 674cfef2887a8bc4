"""`mnemogate jobs run`: a process that runs background jobs, and answers no request."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.options import CommandFailed, config_option, private, settings_from

if TYPE_CHECKING:
    from gateway.config.settings import Settings
    from gateway.server.middleware import GatewayMiddleware


@click.command(short_help="Run background jobs, and answer no request.")
@config_option
def run(config: Path | None) -> None:
    """Run background jobs until Ctrl-C or SIGTERM, beside gateways on the same Postgres database.

    Gateways with `server.jobs = false` run none, so that long jobs or an embedder do not slow
    down their answers. In own-key mode leave `server.jobs` on: only the gateway that got a
    client's key can run the jobs that need it.

    \b
    Example:
      mnemogate jobs run --config gateway.toml
    """
    settings = settings_from(config)
    if not settings.storage.is_postgres:
        raise CommandFailed(
            "The memory is one SQLite file, whose gateway runs its jobs. Set storage.database to "
            "postgresql+asyncpg://... first.",
            exit_code=2,
        )
    asyncio.run(_run(_prepare(settings)))


def _prepare(settings: Settings) -> GatewayMiddleware:
    """Return the application of these settings, which runs jobs whatever they say of gateways."""
    from gateway.app import create_app
    from gateway.cli.tenants import why_not_shared
    from gateway.config.secret_file import server_secret
    from gateway.server import log_output

    private(settings.data)
    if why := why_not_shared(settings, server_secret(settings)):
        raise CommandFailed(f"{settings.database_shown}: {why}.", exit_code=2)
    log_output.begin("text", "info")
    click.echo(f"Mnemogate runs the jobs of {settings.database_shown}", err=True)
    server = settings.server.model_copy(update={"jobs": True})
    return create_app(settings.model_copy(update={"server": server}))


async def _run(app: GatewayMiddleware) -> None:
    """Open the memory and work until a signal comes; what runs then goes back to the queue."""
    stop_event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_event.set)
    async with app.lifespan():
        await stop_event.wait()
