"""`mnemogate serve`: the gateway as a process. It says where it is, whose keys it takes and where the memory lies."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
from threading import Event
from typing import TYPE_CHECKING

import click

from gateway.cli.keys import counted, lacking, unkeyed
from gateway.cli.options import Failed, Serving, serve_options
from gateway.cli.tenants import unseen

if TYPE_CHECKING:
    from gateway.front import Front
    from gateway.settings import Settings

log = logging.getLogger("mnemogate")


@click.command(short_help="Run the gateway.")
@serve_options
def serve(serving: Serving) -> None:
    """Run the gateway until Ctrl-C or SIGTERM; answers that are on their way finish first. SIGHUP reads the
    configuration anew, without an interruption. Each request leaves a line in the log, on standard error.

    Without a configuration: in front of OpenAI, on 127.0.0.1:8080, every client bringing its own key, the memory in your
    data folder.

    \b
    Examples:
      mnemogate serve
      mnemogate serve --upstream http://127.0.0.1:11434/v1      (Ollama)
      mnemogate serve --config gateway.toml --host 0.0.0.0
    """
    if serving.workers != 1:
        raise Failed(
            f"--workers {serving.workers}: this version serves with one worker. Leave the option out; one takes many connections at once.",
            exit_code=2,
        )
    from gateway.cli.hosted import bound

    gc.disable()  # until everything is imported: all of it stays
    stopped = (
        Event()
    )  # not an exception: those are lost where they meet a callback of the interpreter's
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # until the server takes over: a stop during the start is no failure
        signal.signal(number, lambda *_: stopped.set())
    settings = serving.settings()
    with bound(settings.server.host, settings.server.port) as sock:
        _serve(settings, sock, serving, stopped)


def reread(serving: Serving, app: Front) -> None:
    """What a SIGHUP does: puts the file's settings in force, the same options and environment over it, or says why the running
    ones stay. Told in the log, since the loop waits for nobody who reads."""
    from gateway.settings import ConfigError

    try:
        settings = serving.settings()
        waiting = app.reload(settings)
    except (ConfigError, OSError) as e:
        log.error(
            "Mnemogate keeps its running configuration, the one in %s cannot be used: %s",
            serving.config,
            e,
        )  # noqa: TRY400 - the message says it all
        return
    log.info("Mnemogate read %s anew", serving.config)
    if waiting:
        log.warning("changed, but in force only after a restart: %s", ", ".join(waiting))
    for text in warnings(settings):
        log.warning("%s", text)


def _serve(settings: Settings, sock: socket.socket, serving: Serving, stopped: Event) -> None:
    from gateway import logs
    from gateway.app import create_app
    from gateway.cli.hosted import url_of
    from gateway.cli.running import noted
    from gateway.probe import warn_of
    from gateway.server import serve as run

    url = url_of(sock)
    try:
        app = create_app(settings)
    except OSError as e:
        raise Failed(
            f"The data folder {settings.data} cannot be used: {e.strerror}. Set storage.data or MNEMOGATE_DATA to a folder of yours."
        ) from e
    with noted(settings.data, url) as other:
        lines = told(settings, url)
        lines += [f"  warning    {text}" for text in unseen(settings)]
        if other:
            lines.append(
                f"  warning    {other} already serves this data folder: run one gateway per folder"
            )
        sink = logs.begin(serving.log_format, serving.log_level)
        for line in lines:
            if serving.log_format == "json":
                (log.warning if line.startswith("  warning") else log.info)(
                    "%s", " ".join(line.split())
                )
            else:
                click.echo(line, err=True)
        try:
            run(
                app,
                [sock],
                beside=lambda: warn_of(settings),
                reread=(lambda: reread(serving, app)) if serving.config else None,
                stopped=stopped,
                log_config=None,
            )
        finally:
            sink.close()


MODES = {
    "managed": "managed keys: a client needs one of yours, the provider's keys stay here",
    "open": "open: no key is asked for, the provider's keys are spent by whoever reaches this port",
    "own-key": "own-key: each client sends its provider's key, which goes upstream; a key is a tenant of its own",
}


def told(settings: Settings, url: str) -> list[str]:
    """What an operator should know at the start."""
    from gateway.errors import shown_url
    from gateway.upstream.ways import way_of

    mode = MODES[settings.mode]
    if settings.single_user and settings.mode != "managed":
        mode = mode.replace("; a key is a tenant of its own", "")
    lines = [f"Mnemogate serves {url}/v1", f"  mode       {mode}"]
    if settings.single_user and settings.mode != "managed":
        lines.append(
            "  users      single-user: this machine alone, one memory for all its apps (user 'me', unless a request names another)"
        )
    if settings.mode == "managed":
        lines.append(f"  keys       {counted(settings)}")
    lines += [
        f"  upstream   {name}: {shown_url(provider.base_url)} ({way_of(provider, os.environ)})"
        for name, provider in settings.providers.items()
    ]
    lines += [
        f"  memory     {settings.data} ({settings.database.partition('+')[0].partition(':')[0]})"
    ]
    lines += [f"  warning    {text}" for text in warnings(settings)]
    return lines


def warnings(settings: Settings) -> list[str]:
    """What is allowed but may surprise."""
    from gateway.errors import shown_url

    conversation = "a request that names no user is remembered within its own conversation only"
    out = [
        f"the key {k.name!r} names nobody (no default_user): {conversation}"
        for k in settings.keys
        if not k.default_user
    ]
    out += [
        f"the key {k.name!r} has fewer than 16 characters and could be guessed: `mnemogate keys create` makes one that cannot"
        for k in settings.keys
        if k.short
    ]
    out += [text] if (text := lacking(settings)) else []
    out += unkeyed(settings)
    if settings.mode == "own-key" and not settings.single_user:
        out.append(f"keys name nobody: {conversation}")
    return out + [
        f"providers.{name}.base_url is {shown_url(p.base_url)}: Anthropic's API is at .../v1, without it every call is a 404"
        for name, p in settings.providers.items()
        if p.kind == "anthropic" and not p.base_url.rstrip("/").endswith("/v1")
    ]
