"""`mnemogate run -- PROGRAM ...`: start a client with the gateway as its server."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from urllib.parse import quote, urlsplit

import click

from gateway.cli.client import local
from gateway.cli.lockfile import running_url
from gateway.cli.options import CommandFailed, config_option, settings_from

# What clients read to find their server. Anthropic's append `/v1` themselves.
OPENAI = "OPENAI_BASE_URL"
ANTHROPIC = "ANTHROPIC_BASE_URL"
ANTHROPIC_HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
# Of printable ASCII all but what ends a text in TOML, or begins an encoding.
PLAIN = " !#$&'+*(),-./:;<=>?@[]^_`{|}~"
CONNECT_SECONDS = 1.0
# In place of the project's name, where none is given.
GIT_ROOT = "\x1f"
DEFAULT_URL = "http://127.0.0.1:8080"
PROXIES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
NO_PROXIES = ("NO_PROXY", "no_proxy")


@dataclass(frozen=True, slots=True)
class MemoryOwner:
    """Whose memory a client uses: a user, one of their agents, in a project.

    The gateway's own user where none is named.
    """

    user: str | None = None
    agent: str | None = None
    project: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers that say so."""
        values = {
            "X-Memory-User": self.user,
            "X-Memory-Agent": self.agent,
            "X-Memory-Project": self.project,
        }
        return {name: quote(value, PLAIN) for name, value in values.items() if value}


def variables_for(url: str, owner: MemoryOwner, present: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that lead a client here.

    url: without `/v1`. present: the variables there are.
    """
    out = {OPENAI: f"{url}/v1", ANTHROPIC: url}
    if owner.headers:
        lines = [present.get(ANTHROPIC_HEADERS, "")]
        lines += [f"{name}: {value}" for name, value in owner.headers.items()]
        out[ANTHROPIC_HEADERS] = "\n".join(line for line in lines if line)
    if local(url):
        out |= _past_proxies(urlsplit(url).hostname or "", present)
    return out


def _past_proxies(host: str, present: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that keep a proxy out of the way to a gateway on this machine."""
    if not any(present.get(name) for name in PROXIES):
        return {}
    values = [present.get(name, "") for name in NO_PROXIES]
    hosts = [part.strip() for text in values for part in text.split(",") if part.strip()]
    value = ",".join(dict.fromkeys([*hosts, host]))
    return dict.fromkeys(NO_PROXIES, value)


def arguments_for(command: Sequence[str], url: str, owner: MemoryOwner) -> list[str]:
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
    if owner.headers:
        pairs = ", ".join(f'"{name}" = "{value}"' for name, value in owner.headers.items())
        provider["http_headers"] = f"{{ {pairs} }}"
    options = ["-c", 'model_provider="mnemogate"']
    for name, value in provider.items():
        options += ["-c", f"model_providers.mnemogate.{name}={value}"]
    return [command[0], *options, *command[1:]]


def _data_of(config: Path | None) -> Path:
    from gateway.config.settings import ConfigError, data_folder

    try:
        return settings_from(config).data
    except ConfigError:
        return data_folder()


def describe_letta(config: Path | None, url: str) -> str:
    """Return how a Letta client reaches the gateway on this machine; "" where it has no token."""
    token = _data_of(config) / "token"
    if not (local(url) and token.exists()):
        return ""
    return f"Letta clients: base_url {url}, and as api_key the local token in {token}"


def name_project(folder: Path) -> str:
    """Return the name of the git repository that a folder is in. Raises CommandFailed."""
    for place in (folder, *folder.parents):
        # A file where it is a work tree or a submodule.
        if (place / ".git").exists():
            return place.name
    raise CommandFailed(
        f"{folder} is in no git repository, whose name would be the project's. Give the name: "
        "--project NAME."
    )


def find_gateway(config: Path | None) -> str:
    """Return the URL of the gateway that runs on the data folder, or on the demo's."""
    data = _data_of(config)
    return running_url(data) or running_url(data / "demo") or DEFAULT_URL


def is_listening(url: str) -> bool:
    """Tell whether somebody takes connections at a URL."""
    try:
        address = urlsplit(url)
        port = address.port or (443 if address.scheme == "https" else 80)
        with socket.create_connection((address.hostname or "", port), CONNECT_SECONDS):
            return True
    except (OSError, ValueError):
        return False


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--url",
    envvar="MNEMOGATE_URL",
    help="The gateway.  [default: the one that runs on this data folder, else "
    "http://127.0.0.1:8080; env: MNEMOGATE_URL]",
)
@click.option("--user", help="Whose memory; the gateway's own user where none is named.")
@click.option("--agent", help="A memory of its own, apart from that user's other agents.")
@click.option(
    "--project",
    is_flag=False,
    flag_value=GIT_ROOT,
    metavar="[NAME]",
    help="A part of the memory for this project.  [without NAME: the git repository's name]",
)
@config_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    url: str | None, config: Path | None, command: tuple[str, ...], **whose: str | None
) -> None:
    """Start a client with the gateway as its server, and print what was set.

    \b
    Examples:
      mnemogate run -- codex
      mnemogate run -- claude -p "What do you know about me?"
      mnemogate run --agent work -- codex
      mnemogate run --project -- claude
    """
    if shutil.which(command[0]) is None:
        raise CommandFailed(f"{command[0]} is not installed, or not in PATH. Install it first.")
    url = (url or find_gateway(config)).rstrip("/").removesuffix("/v1")
    if whose["project"] == GIT_ROOT:
        whose["project"] = name_project(Path.cwd())
    owner = MemoryOwner(**whose)
    variables = variables_for(url, owner, os.environ)
    arguments = arguments_for(command, url, owner)
    for name, value in variables.items():
        click.echo(f"mnemogate: {name}={shlex.quote(value)}", err=True)
    if arguments != list(command):
        click.echo(f"mnemogate: {shlex.join(arguments)}", err=True)
    if letta := describe_letta(config, url):
        click.echo(f"mnemogate: {letta}", err=True)
    if not is_listening(url):
        click.echo(
            f"mnemogate: nothing answers at {url} yet: start `mnemogate serve`, or give --url.",
            err=True,
        )
    os.execvpe(arguments[0], arguments, {**os.environ, **variables})  # noqa: S606 - the user's own command
