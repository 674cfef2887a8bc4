"""`mnemogate run -- PROGRAM ...`: start a client with the gateway as its server."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from urllib.parse import quote, urlsplit

import click

from gateway.cli.options import CommandFailed

# What clients read to find their server. Anthropic's append `/v1` themselves.
OPENAI, ANTHROPIC = "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"
ANTHROPIC_HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
# Of printable ASCII all but what ends a text in TOML, or begins an encoding.
PLAIN = " !#$&'+*(),-./:;<=>?@[]^_`{|}~"
CONNECT_SECONDS = 1.0


def variables_for(url: str, user: str | None, present: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that lead a client here.

    url: without `/v1`. present: the variables there are.
    """
    out = {OPENAI: f"{url}/v1", ANTHROPIC: url}
    if user:
        lines = [present.get(ANTHROPIC_HEADERS, ""), f"X-Memory-User: {quote(user, PLAIN)}"]
        out[ANTHROPIC_HEADERS] = "\n".join(line for line in lines if line)
    return out


def arguments_for(command: Sequence[str], url: str, user: str | None) -> list[str]:
    """Return the command with the arguments that its program needs, if it reads no variables."""
    if PurePath(command[0]).name != "codex":
        return list(command)
    provider = {
        "name": '"Mnemogate"',
        "base_url": f'"{url}/v1"',
        "wire_api": '"responses"',
        "env_key": '"OPENAI_API_KEY"',
        "supports_websockets": "false",
    }
    if user:
        provider["http_headers"] = f'{{ "X-Memory-User" = "{quote(user, PLAIN)}" }}'
    told = ["-c", 'model_provider="mnemogate"']
    for name, value in provider.items():
        told += ["-c", f"model_providers.mnemogate.{name}={value}"]
    return [command[0], *told, *command[1:]]


def is_listening(url: str) -> bool:
    """Tell whether somebody takes connections at a URL."""
    try:
        found = urlsplit(url)
        port = found.port or (443 if found.scheme == "https" else 80)
        with socket.create_connection((found.hostname or "", port), CONNECT_SECONDS):
            return True
    except (OSError, ValueError):
        return False


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--url", default="http://127.0.0.1:8080", show_default=True, help="The gateway.")
@click.option("--user", help="Whose memory; the gateway's own user where none is named.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(url: str, user: str | None, command: tuple[str, ...]) -> None:
    """Start a client with the gateway as its server, and print what was set.

    \b
    Examples:
      mnemogate run -- codex
      mnemogate run --user ada -- claude -p "What do you know about me?"
    """
    if shutil.which(command[0]) is None:
        raise CommandFailed(f"{command[0]} is not installed, or not in PATH. Install it first.")
    url = url.rstrip("/").removesuffix("/v1")
    found = variables_for(url, user, os.environ)
    asked = arguments_for(command, url, user)
    for name, value in found.items():
        click.echo(f"mnemogate: {name}={shlex.quote(value)}", err=True)
    if asked != list(command):
        click.echo(f"mnemogate: {shlex.join(asked)}", err=True)
    if not is_listening(url):
        click.echo(
            f"mnemogate: nothing answers at {url} yet: start `mnemogate serve`, or give --url.",
            err=True,
        )
    os.execvpe(asked[0], asked, {**os.environ, **found})  # noqa: S606 - the user's own command
