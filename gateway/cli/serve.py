"""`mnemogate serve`: the gateway as a process.

At the start it shows its URL, which keys it accepts and where the memory is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from threading import Event
from typing import TYPE_CHECKING, NoReturn

import click

from gateway.cli.keys import (
    describe_peers,
    key_summary,
    keyless_provider_warnings,
    missing_admin_warning,
)
from gateway.cli.options import CommandFailed, Serving, private, serve_options
from gateway.cli.tenants import unseen, why_not_shared
from gateway.cli.upstream_address import check_upstreams, complete_settings

if TYPE_CHECKING:
    from gateway.config.settings import Settings
    from gateway.server.middleware import GatewayMiddleware

log = logging.getLogger("mnemogate")


@click.command(short_help="Run the gateway.")
@serve_options
def serve(serving: Serving) -> None:
    """Run the gateway until Ctrl-C or SIGTERM; requests in progress finish first.

    SIGHUP reloads the configuration without interruption. Each request writes a line to the log on
    standard error.

    Without a configuration it forwards to OpenAI, listens on 127.0.0.1:8080, each client sends its
    own key, and the memory is stored in your data folder.

    \b
    Examples:
      mnemogate serve
      mnemogate serve --upstream http://127.0.0.1:11434/v1      (Ollama)
      mnemogate serve --upstream https://api.anthropic.com/v1
      mnemogate serve --config gateway.toml --host 0.0.0.0
    """
    if serving.workers > 1:
        _serve_with_workers(serving)
    from gateway.cli.embedded import bind_socket
    from gateway.cli.workers import bind_shared, end_with_parent

    # Until everything is imported, since all of it stays.
    gc.disable()
    # Not an exception, which is lost if raised in a callback of the interpreter.
    stop_event = Event()
    # Until the server takes over: stopping during the start is not a failure.
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):
        signal.signal(number, lambda *_: stop_event.set())
    settings = serving.settings()
    if serving.as_worker:
        end_with_parent()
    bind = bind_shared if serving.as_worker else bind_socket
    with bind(settings.server.host, settings.server.port) as sock:
        _serve(settings, sock, serving, stop_event)


def _serve_with_workers(serving: Serving) -> NoReturn:
    """Run several workers until a signal ends them."""
    from gateway.cli.embedded import url_of
    from gateway.cli.lockfile import hold_lock
    from gateway.cli.workers import WorkerProcesses, bind_shared, check_workers, command_of
    from gateway.config.secret_file import server_secret
    from gateway.server import log_output

    settings = serving.settings()
    check_workers(settings, serving.workers)
    private(settings.data)
    with bind_shared(settings.server.host, settings.server.port) as sock:
        url = url_of(sock)
        with hold_lock(settings.data, url) as other_url:
            _refuse_second(settings, other_url)
            _check_database(settings, server_secret(settings))
            lines = [*startup_lines(settings, url), f"  workers    {serving.workers}"]
            sink = log_output.begin(serving.log_format, serving.log_level)
            _show_startup(lines, as_json=serving.log_format == "json")
            workers = WorkerProcesses(
                command_of(serving.arguments(), sock.getsockname()[1]),
                serving.workers,
                settings.server.drain_seconds,
                lambda: _can_reread(serving),
            )
            try:
                sys.exit(workers.run())
            finally:
                sink.close()


def _can_reread(serving: Serving) -> bool:
    """Tell whether the configuration can be reloaded; log why not."""
    from gateway.config.settings import ConfigError

    try:
        serving.settings()
    except (ConfigError, OSError) as e:
        _log_unusable(serving, e)
        return False
    return True


def _log_unusable(serving: Serving, error: Exception) -> None:
    log.error(
        "Mnemogate keeps its running configuration, since %s cannot be used: %s",
        serving.config,
        error,
    )


async def reread(serving: Serving, app: GatewayMiddleware) -> None:
    """Reload the configuration (SIGHUP), with the same options and environment.

    It is read in a thread, since the database is asked for its keys. If it cannot be used, the
    running one stays. Reported in the log, since the event loop must not wait for a terminal.
    """
    from gateway.config.settings import ConfigError

    try:
        settings = await asyncio.to_thread(serving.settings)
        settings = await complete_settings(serving, settings, waits=False)
        waiting_settings = app.reload(settings)
    except (ConfigError, OSError) as e:
        _log_unusable(serving, e)
        return
    log.info("Mnemogate reloaded %s", serving.config)
    if waiting_settings:
        log.warning("changed, but only applied after a restart: %s", ", ".join(waiting_settings))
    for text in warnings(settings):
        log.warning("%s", text)


def _show_startup(lines: list[str], *, as_json: bool) -> None:
    """Show the start-up lines, as text or in the log."""
    for line in lines:
        if as_json:
            if line.startswith("  warning"):
                tell = log.warning
            else:
                tell = log.info
            tell("%s", " ".join(line.split()))
        else:
            click.echo(line, err=True)


def _serve(settings: Settings, sock: socket.socket, serving: Serving, stop_event: Event) -> None:
    from gateway.app import create_app
    from gateway.cli.embedded import url_of
    from gateway.cli.lockfile import hold_lock
    from gateway.server import log_output
    from gateway.server.uvicorn_server import serve as run

    url = url_of(sock)
    try:
        app = create_app(settings)
    except OSError as e:
        raise CommandFailed(
            f"The data folder {settings.data} cannot be used: {e.strerror}. Set storage.data or "
            "MNEMOGATE_DATA to a folder of yours."
        ) from e
    lock = contextlib.nullcontext() if serving.as_worker else hold_lock(settings.data, url)
    with lock as other_url:
        _refuse_second(settings, other_url)
        _check_database(settings, app.gateway.secret)
        lines = [] if serving.as_worker else startup_lines(settings, url)
        if not serving.as_worker:
            lines += [f"  warning    {text}" for text in unseen(settings)]
        sink = log_output.begin(serving.log_format, serving.log_level)
        _show_startup(lines, as_json=serving.log_format == "json")
        try:
            run(
                app,
                [sock],
                side_task=lambda: check_upstreams(serving, app),
                reread=(lambda: reread(serving, app)) if serving.config else None,
                stop_event=stop_event,
                log_config=None,
            )
        finally:
            sink.close()


def _refuse_second(settings: Settings, other_url: str | None) -> None:
    """Refuse to start beside another gateway of the same data folder."""
    if other_url:
        raise CommandFailed(
            f"{other_url} serves the data folder {settings.data} already. Stop it first, or give "
            "this one a folder of its own: storage.data, or MNEMOGATE_DATA.",
            exit_code=2,
        )


def _check_database(settings: Settings, secret: bytes) -> None:
    """Refuse to start on a Postgres database that this worker could not share.

    One that cannot be asked is waited for, without memory.
    """
    if settings.storage.is_postgres and (why := why_not_shared(settings, secret)):
        raise CommandFailed(f"{settings.database_shown}: {why}.", exit_code=2)


MODES = {
    "managed": "managed keys: clients need one of yours; providers' keys stay here",
    "open": "open: no key is needed; anyone who reaches this port uses the providers' keys",
    "own-key": "own-key: each client sends its provider's key, which is forwarded; each key is its "
    "own tenant",
}


def startup_lines(settings: Settings, url: str) -> list[str]:
    """Return what an operator should know at the start."""
    from gateway.errors import redact_url
    from gateway.upstream.factory import connection_options

    mode = MODES[settings.mode]
    if settings.single_user and settings.mode != "managed":
        mode = mode.replace("; each key is its own tenant", "")
    lines = [f"Mnemogate serves {url}/v1", f"  mode       {mode}"]
    if settings.single_user and settings.mode != "managed":
        lines.append(
            "  users      single-user: this machine only, one memory for all its apps (user "
            "'me', unless a request names another)"
        )
    if settings.is_keyless:
        lines.append(f"  peers      {describe_peers(settings)}")
        if settings.server.letta:
            key = "any key"
            if not settings.server.letta_open:
                key = f"the key in {settings.data / 'token'}"
            lines.append(f"  letta      Letta clients: base_url {url}, {key}")
    if settings.mode == "managed":
        lines.append(f"  keys       {key_summary(settings)}")
    lines += [
        f"  upstream   {name}: {redact_url(provider.base_url)} "
        f"({connection_options(provider, os.environ)})"
        for name, provider in settings.providers.items()
    ]
    lines += [
        f"  memory     {settings.data} ({settings.database.partition('+')[0].partition(':')[0]})",
        *unasked_costs(settings),
    ]
    lines += [f"  warning    {text}" for text in warnings(settings)]
    return lines


def unasked_costs(settings: Settings) -> list[str]:
    """Return what the memory may spend without being asked."""
    memory = settings.memory
    models = {
        "auto": "for models that take no tools, or called none in their last 8 turns with them",
        "always": "for every model",
    }
    out = []
    if memory.extract in models:
        out.append(
            f"  extract    {memory.extract}: {models[memory.extract]}, "
            f"{memory.summarizer or 'the same model'} reads a user's messages "
            f"of {memory.extraction.every_turns} turns, in one call of some 1,000 to 3,000 tokens"
        )
    if memory.recall in models:
        out.append(
            f"  recall     {memory.recall}: {models[memory.recall]}, at most 5 remembered "
            "items, of 600 tokens together, are added to a message"
        )
    return out


def warnings(settings: Settings) -> list[str]:
    """Return warnings about what is allowed but may be surprising."""
    from gateway.errors import redact_url

    conversation = "a request that names no user is only remembered within its conversation"
    out = [
        f"the key {k.name!r} names nobody (no default_user): {conversation}"
        for k in settings.keys
        if not k.default_user
    ]
    out += [
        f"the key {k.name!r} has fewer than 16 characters and could be guessed; create a "
        "better one with `mnemogate keys "
        "create`"
        for k in settings.keys
        if k.short
    ]
    if text := missing_admin_warning(settings):
        out += [text]
    out += keyless_provider_warnings(settings)
    if settings.mode == "own-key" and not settings.single_user:
        out.append(f"keys name nobody: {conversation}")
    return out + [
        f"providers.{name}.base_url is {redact_url(p.base_url)}: Anthropic's API is at .../v1, "
        "without /v1 every call is a 404"
        for name, p in settings.providers.items()
        if p.kind == "anthropic" and not p.base_url.rstrip("/").endswith("/v1")
    ]
