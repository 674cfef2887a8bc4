"""`mnemogate serve`: the gateway as a process. It says where it is, whose keys it takes and where the memory lies."""
from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import click

from gateway.cli.keys import counted, lacking, unkeyed
from gateway.cli.options import Failed, config_option, settings_from

if TYPE_CHECKING:
    from gateway.front import Front
    from gateway.settings import Settings


@click.command(short_help="Run the gateway.")
@config_option
@click.option("--host", help="The address to listen on.  [default: 127.0.0.1, this machine alone]")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 takes a free one.  [default: 8080]")
@click.option("--workers", type=int, default=1, show_default=True, help="Processes. This version runs one.")
@click.option("--upstream", help="The base URL of an OpenAI-compatible server, in place of the configured one.")
def serve(config: Path | None, host: str | None, port: int | None, workers: int, upstream: str | None) -> None:
    """Run the gateway until Ctrl-C or SIGTERM; answers that are on their way finish first. SIGHUP reads the
    configuration anew, without an interruption.

    Without a configuration: in front of OpenAI, on 127.0.0.1:8080, every client bringing its own key, the memory in your
    data folder.

    \b
    Examples:
      mnemogate serve
      mnemogate serve --upstream http://127.0.0.1:11434/v1      (Ollama)
      mnemogate serve --config gateway.toml --host 0.0.0.0
    """
    if workers != 1:
        raise Failed(f"--workers {workers}: this version serves with one worker. Leave the option out; one takes many connections at once.", exit_code=2)
    from gateway.cli.hosted import bound

    gc.disable()  # until everything is imported: all of it stays
    stopped = Event()  # not an exception: those are lost where they meet a callback of the interpreter's
    for number in (signal.SIGINT, signal.SIGTERM):  # until the server takes over: a stop during the start is no failure
        signal.signal(number, lambda *_: stopped.set())

    def read() -> Settings:
        return settings_from(config, server__host=host, server__port=port, upstream=upstream)

    settings = read()
    with bound(settings.server.host, settings.server.port) as sock:
        _serve(settings, sock, Reread(config, read) if config else None, stopped)


@dataclass(frozen=True, slots=True)
class Reread:
    """What a SIGHUP does. read: gives the settings as at the start, the same options and environment over the file."""

    config: Path
    read: Callable[[], Settings]

    def into(self, app: Front) -> None:
        """Puts the file's settings in force, or says why the running ones stay."""
        from gateway.settings import ConfigError

        try:
            settings = self.read()
            waiting = app.reload(settings)
        except (ConfigError, OSError) as e:
            click.echo(f"Mnemogate keeps its running configuration, the one in {self.config} cannot be used: {e}", err=True)
            return
        click.echo(f"Mnemogate read {self.config} anew", err=True)
        if waiting:
            click.echo(f"  warning    changed, but in force only after a restart: {', '.join(waiting)}", err=True)
        for text in warnings(settings):
            click.echo(f"  warning    {text}", err=True)


def _serve(settings: Settings, sock: socket.socket, reread: Reread | None, stopped: Event) -> None:
    from gateway.app import create_app
    from gateway.cli.hosted import url_of
    from gateway.cli.running import noted
    from gateway.server import serve as run

    url = url_of(sock)
    try:
        app = create_app(settings)
    except OSError as e:
        raise Failed(f"The data folder {settings.data} cannot be used: {e.strerror}. Set storage.data or MNEMOGATE_DATA to a folder of yours.") from e
    with noted(settings.data, url) as other:
        for line in told(settings, url):
            click.echo(line, err=True)
        if other:
            click.echo(f"  warning    {other} already serves this data folder: run one gateway per folder", err=True)
        run(app, [sock], reread=(lambda: reread.into(app)) if reread else None, stopped=stopped)


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
        lines.append("  users      single-user: this machine alone, one memory for all its apps (user 'me', unless a request names another)")
    if settings.mode == "managed":
        lines.append(f"  keys       {counted(settings)}")
    lines += [f"  upstream   {name}: {shown_url(provider.base_url)} ({way_of(provider, os.environ)})" for name, provider in settings.providers.items()]
    lines += [f"  memory     {settings.data} ({settings.database.partition('+')[0].partition(':')[0]})"]
    lines += [f"  warning    {text}" for text in warnings(settings)]
    return lines


def warnings(settings: Settings) -> list[str]:
    """What is allowed but may surprise."""
    from gateway.errors import shown_url

    conversation = "a request that names no user is remembered within its own conversation only"
    out = [f"the key {k.name!r} names nobody (no default_user): {conversation}" for k in settings.keys if not k.default_user]
    out += [f"the key {k.name!r} has fewer than 16 characters and could be guessed: `mnemogate keys create` makes one that cannot" for k in settings.keys if k.short]
    out += [text] if (text := lacking(settings)) else []
    out += unkeyed(settings)
    if settings.mode == "own-key" and not settings.single_user:
        out.append(f"keys name nobody: {conversation}")
    out += [f"providers.{name}.base_url is {shown_url(p.base_url)}: no http or https address, every call is a 502"
            for name, p in settings.providers.items() if not p.base_url.startswith(("http://", "https://"))]
    return out + [f"providers.{name}.base_url is {shown_url(p.base_url)}: Anthropic's API is at .../v1, without it every call is a 404"
                  for name, p in settings.providers.items() if p.kind == "anthropic" and not p.base_url.rstrip("/").endswith("/v1")]
