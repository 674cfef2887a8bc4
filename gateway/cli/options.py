"""What the commands share: failures, and common options."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gateway.config.settings import Settings
    from gateway.server.log_output import Format

LEVELS = ("debug", "info", "warning", "error")


class CommandFailed(click.ClickException):
    """Ends the command. The message says what was wrong and what to do."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance


def config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="MNEMOGATE_CONFIG",
        help="The configuration, a TOML file; config/gateway.toml shows every setting.  [default: "
        "none; env: MNEMOGATE_CONFIG]",
    )(command)


def settings_from(config: Path | None, **overrides: Any) -> Settings:
    """Return the settings as `serve` would see them.

    overrides: dotted members, with dots written as `__`. Raises ConfigError.
    """
    from gateway.config.loader import load

    return load(config, overrides={k.replace("__", "."): v for k, v in overrides.items()})


@dataclass(frozen=True, slots=True)
class Serving:
    """Options of `serve`.

    host, port, upstream: override the configuration; None for its own. as_worker: one of several,
    started by their parent.
    """

    config: Path | None
    host: str | None
    port: int | None
    upstream: str | None
    workers: int
    log_format: Format
    log_level: str
    as_worker: bool = False

    def arguments(self) -> list[str]:
        """Return the command that is given these options, but for the port and the workers."""
        options = {"config": self.config, "host": self.host, "upstream": self.upstream}
        out = ["serve", "--log-format", self.log_format, "--log-level", self.log_level]
        for name, value in options.items():
            if value is not None:
                out += [f"--{name}", str(value)]
        return out

    def settings(self) -> Settings:
        """Return the settings with these options applied. Raises ConfigError."""
        return settings_from(
            self.config, server__host=self.host, server__port=self.port, upstream=self.upstream
        )


UPSTREAM_HELP = (
    "The base URL of an OpenAI-compatible server, or of Anthropic's, in place of the configured "
    "one."
)
WORKERS_HELP = (
    "Processes on one port. More than one need Postgres and Redis: storage.database, storage.redis."
)
PORT_HELP = "The port; 0 takes a free one.  [default: 8080]"
HOST_HELP = "The address to listen on.  [default: 127.0.0.1, this machine only]"


def serve_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `serve`, passed as one `serving`."""

    @click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default="info",
        show_default=True,
        help="The log level; debug includes /health and /ready.",
    )
    @click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Format of the log on standard error: text lines or JSON objects.",
    )
    @click.option("--upstream", help=UPSTREAM_HELP)
    @click.option("--as-worker", is_flag=True, hidden=True, help="One of several.")
    @click.option(
        "--workers", type=click.IntRange(1, 64), default=1, show_default=True, help=WORKERS_HELP
    )
    @click.option("--port", type=click.IntRange(0, 65535), help=PORT_HELP)
    @click.option("--host", help=HOST_HELP)
    @config_option
    @wraps(command)
    def wrapped(**options: Any) -> Any:
        names = [f.name for f in fields(Serving)]
        return command(serving=Serving(*(options.pop(n) for n in names)), **options)

    return wrapped


def with_database(config: Path | None) -> Settings:
    """Return the settings, if the database exists. Raises ConfigError, CommandFailed."""
    settings = settings_from(config)
    path = settings.sqlite_file
    if path and not path.exists():
        raise CommandFailed(f"There is no database at {path} yet.")
    return settings


def private(folder: Path) -> None:
    """Create the folder and its missing parents, for this user only.

    mkdir applies its mode to the last one only.
    """
    for part in (*reversed(folder.parents), folder):
        if not part.exists():
            part.mkdir(exist_ok=True, mode=0o700)


json_option = click.option("--json", "as_json", is_flag=True, help="As JSON.")


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_result(message: str, result: Any, *, as_json: bool) -> None:
    """Print what a command came to: in words, or as JSON if that was asked for."""
    if as_json:
        print_json(result)
    else:
        click.echo(message)


def print_rows(
    rows: Sequence[Any], line_of: Callable[[Any], str], hint: str, *, as_json: bool
) -> None:
    """Print a line for each row, or all as JSON; without any, a hint on standard error."""
    if as_json:
        print_json(rows)
        return
    for row in rows:
        click.echo(line_of(row))
    if not rows:
        click.echo(hint, err=True)


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """Which gateway a command is meant for.

    url: of a running one, None to look for one. key: None for the local token.
    """

    config: Path | None
    url: str | None
    key: str | None

    def settings(self) -> Settings:
        return settings_from(self.config)


def _whole(ctx: click.Context, option: click.Parameter, url: str | None) -> str | None:
    """Return the base of a URL. Raises BadParameter, with the corrected URL, without a scheme."""
    from gateway.config.addresses import complete_url

    try:
        complete_url(url)
    except ValueError as e:
        raise click.BadParameter(str(e)) from e
    if url:
        return url.rstrip("/").removesuffix("/v1")
    return None


def where_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --config, --url and --key, passed as one `where`."""

    @click.option(
        "--key",
        envvar="MNEMOGATE_KEY",
        help="A key of that gateway.  [default: the local token of this machine; env: "
        "MNEMOGATE_KEY]",
    )
    @click.option(
        "--url",
        envvar="MNEMOGATE_URL",
        callback=_whole,
        help="A running gateway, such as http://127.0.0.1:8080.  [default: the one that runs on "
        "this data folder; env: MNEMOGATE_URL]",
    )
    @config_option
    @wraps(command)
    def wrapped(config: Path | None, url: str | None, key: str | None, **options: Any) -> Any:
        return command(where=GatewayOptions(config, url, key), **options)

    return wrapped
