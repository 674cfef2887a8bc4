"""`mnemogate doctor`: check what `serve` needs. Changes nothing."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from gateway.cli.finding import Finding
from gateway.cli.keys import key_summary, keyless_provider_warnings, missing_admin_warning
from gateway.cli.options import CommandFailed, Serving, serve_options
from gateway.cli.proxy_check import check_proxies
from gateway.cli.store_check import check_stores
from gateway.cli.upstream_check import check_upstream
from gateway.cli.window_check import check_windows
from memory import installed_version

if TYPE_CHECKING:
    from gateway.config.settings import Settings

# Free on the disk: worth a note, and too few to serve.
LOW_MEBIBYTES, FULL_MEBIBYTES = 256, 8
COLOURS = {"ok": "green", "note": "yellow", "failed": "red"}


@click.command(short_help="Check the setup.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@serve_options
def doctor(serving: Serving, as_json: bool) -> None:
    """Check the configuration, data folder, database, proxies, upstreams, context windows and port.

    Takes the options of `serve`. Each problem is shown with the step that fixes it. The exit code
    is 1 if something would not work.

    \b
    Examples:
      mnemogate doctor --config gateway.toml
      mnemogate doctor --upstream http://127.0.0.1:11434/v1
    """
    findings = []
    for finding in checks(serving):
        findings.append(finding)
        if not as_json:
            click.echo(
                click.style(f"{finding.state:<7}", fg=COLOURS[finding.state])
                + f"{finding.what:<14}{finding.told}"
            )
    if as_json:
        click.echo(json.dumps([asdict(f) for f in findings], indent=2))
    if any(f.state == "failed" for f in findings):
        raise SystemExit(1)


def checks(serving: Serving) -> Iterator[Finding]:
    """Yield the results; if the configuration is unusable, the checks that need it are skipped."""
    from gateway.config.settings import ConfigError

    yield _version()
    try:
        settings = serving.settings()
    except ConfigError as e:
        yield Finding("configuration", "failed", str(e))
        return
    yield Finding(
        "configuration",
        "ok",
        f"{settings.mode}{', single-user' if settings.single_user else ''}; "
        f"{serving.config or 'defaults and environment'}",
    )
    if settings.mode == "managed":
        yield Finding(
            "keys",
            "note" if missing_admin_warning(settings) else "ok",
            "; ".join(filter(None, (key_summary(settings), missing_admin_warning(settings)))),
        )
    yield _data(settings)
    yield _full_text()
    yield _database(settings)
    yield from check_stores(settings)
    for text in keyless_provider_warnings(settings):
        yield Finding("provider key", "note", text)
    yield from check_proxies(settings, os.environ)
    for name in settings.providers:
        yield check_upstream(name, settings)
    yield _tokenizers(settings)
    yield _embedder(settings)
    yield from check_windows(settings)
    yield from _traces(settings)
    yield _port(settings)


def _version() -> Finding:
    return Finding(
        "version",
        "ok",
        f"mnemogate {installed_version() or 'unknown'}, Python {platform.python_version()} on "
        f"{sys.platform}",
    )


def _data(settings: Settings) -> Finding:
    folder = settings.data
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return Finding(
            "data folder",
            "failed",
            f"{folder} cannot be written. Set storage.data or MNEMOGATE_DATA to a folder of yours",
        )
    free_mebibytes = shutil.disk_usage(existing).free >> 20
    if free_mebibytes < LOW_MEBIBYTES:
        advice = (
            f"{free_mebibytes} MiB are free on the disk of {folder}: make room before it is full"
        )
        return Finding(
            "data folder", "note" if free_mebibytes >= FULL_MEBIBYTES else "failed", advice
        )
    return Finding(
        "data folder", "ok", f"{folder}{'' if folder.exists() else ' (created at the first start)'}"
    )


def _full_text() -> Finding:
    try:
        with sqlite3.connect(":memory:") as connection:
            connection.execute("CREATE VIRTUAL TABLE t USING fts5(x)")
    except sqlite3.Error as e:
        return Finding(
            "FTS5",
            "failed",
            f"this Python's SQLite {sqlite3.sqlite_version} has no full-text search ({e}): install "
            "a Python from python.org",
        )
    return Finding("FTS5", "ok", f"SQLite {sqlite3.sqlite_version}")


def _database(settings: Settings) -> Finding:
    from memory.stores.sql.engine.schema import REVISION

    path = settings.sqlite_file
    if path is None:
        return _server(settings)
    if not path.exists():
        return Finding("database", "ok", f"{path} (created at the first start)")
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=2)
        try:
            if connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
                return Finding("database", "ok", f"{path}, empty: its tables are about to be made")
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as e:
        step = "move it away, or put a copy in its place that `mnemogate db backup` made"
        return Finding("database", "failed", f"{path} cannot be read: {e}: {step}")
    found_version = row[0] if row else None
    if found_version != REVISION:
        return Finding(
            "database",
            "failed",
            f"{path} is at version {found_version}, this Mnemogate needs {REVISION}: run "
            "`mnemogate db upgrade`",
        )
    return Finding("database", "ok", f"{path}, version {found_version}")


def _server(settings: Settings) -> Finding:
    from memory import StoreUnavailable
    from memory.stores.sql.engine.postgres.postgres_probe import look, why_not_readable

    database = settings.database_shown
    try:
        version, found_version = look(settings.database)
    except (OSError, StoreUnavailable) as e:
        return Finding("database", "failed", f"{database} cannot be used: {e}")
    if found_version is None:
        return Finding(
            "database", "ok", f"{database}: Postgres {version} (tables: at the first start)"
        )
    if why := why_not_readable(settings.database, found_version):
        return Finding("database", "failed", f"{database}: {why}")
    return Finding("database", "ok", f"{database}: Postgres {version}, version {found_version}")


def _tokenizers(settings: Settings) -> Finding:
    from gateway.models.tokenizers import FAMILIES, folder, read_verified

    into = folder(settings.data)
    missing_families = [f for f in FAMILIES if read_verified(f, into) is None]
    if missing_families:
        return Finding(
            "tokenizers",
            "note",
            f"{', '.join(missing_families)} not in {into}: tokens are estimated; run "
            "`mnemogate fetch tokenizers` for exact counts",
        )
    return Finding("tokenizers", "ok", f"{', '.join(FAMILIES)} in {into}")


def _embedder(settings: Settings) -> Finding:
    from memory import is_installed

    name = settings.memory.embedder
    folder = settings.data / "embedder"
    if name == "onnx-minilm" and not is_installed(folder):
        return Finding(
            "embedder", "failed", f"its model is not in {folder}: run `mnemogate fetch embedder`"
        )
    return Finding("embedder", "ok", "none: search by words" if name == "none" else name)


def _traces(settings: Settings) -> Iterator[Finding]:
    from gateway.telemetry.traces import is_available

    if endpoint := settings.telemetry.traces:
        is_missing = not is_available()
        step = ""
        if is_missing:
            step = ": OpenTelemetry is missing, run pip install '.[otel]'"
        yield Finding("traces", "failed" if is_missing else "ok", f"{endpoint}{step}")


def _port(settings: Settings) -> Finding:
    from gateway.cli.embedded import bind_socket
    from gateway.cli.lockfile import running_url

    address = f"{settings.server.host}:{settings.server.port}"
    if url := running_url(settings.data):
        return Finding("port", "ok", f"a gateway serves this data folder at {url}")
    try:
        sock: socket.socket = bind_socket(settings.server.host, settings.server.port)
    except CommandFailed as e:
        return Finding("port", "failed", e.message)
    sock.close()
    return Finding("port", "ok", f"{address} is free")
