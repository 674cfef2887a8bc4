"""Checks of `mnemogate doctor` on context windows: configured, reported by a server, unknown."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.cli.finding import Finding
from gateway.errors import GatewayError

if TYPE_CHECKING:
    from gateway.config.settings import Settings
    from gateway.routing.router import Router, Target
    from gateway.upstream.base import Transport
    from gateway.upstream.window_probe import WindowProbe

# Models of a server, where the configuration names none.
MAX_LISTED = 5
MAX_SHOWN = 10
# A conversation with memory and tools soon fills less.
SMALL_TOKENS = 8192


@dataclass(slots=True)
class WindowReport:
    """Context windows of the models. reported_windows: reported by their servers, in tokens."""

    reported_windows: dict[str, int] = field(default_factory=dict)
    unknown_windows: set[str] = field(default_factory=set)


def check_windows(settings: Settings) -> Iterator[Finding]:
    """Yield what is known of the context windows of the models that the gateway serves."""
    from gateway.config.settings import ConfigError

    try:
        report = asyncio.run(_examine(settings))
    except ConfigError:
        # The check of the upstream tells it.
        return
    if report.unknown_windows:
        names = sorted(report.unknown_windows)
        yield Finding(
            "window",
            "note",
            f"unknown for {_join(names)}: long conversations are not summarised ahead; set "
            f'context_window in [models."{names[0]}"]',
        )
    if small_windows := {
        name: n for name, n in report.reported_windows.items() if n <= SMALL_TOKENS
    }:
        yield Finding(
            "window",
            "note",
            f"{_join(f'{name}: {n:,} tokens' for name, n in small_windows.items())}, as the server "
            "says, is little: start the server with more (Ollama: OLLAMA_CONTEXT_LENGTH=32768)",
        )
    fine = [
        f"{name}: {n:,} tokens"
        for name, n in report.reported_windows.items()
        if name not in small_windows
    ]
    if fine or not (report.unknown_windows or small_windows):
        yield Finding("window", "ok", _join(fine) or "from the configuration and models.toml")


def _join(parts: Iterator[str] | list[str]) -> str:
    names_shown = list(parts)
    more_count = ""
    if len(names_shown) > MAX_SHOWN:
        more_count = f" and {len(names_shown) - MAX_SHOWN} more"
    return ", ".join(names_shown[:MAX_SHOWN]) + more_count


async def _examine(settings: Settings) -> WindowReport:
    """Ask the servers that can tell. Raises ConfigError."""
    from gateway.models.facts import ModelFacts, facts_file
    from gateway.routing.router import Router
    from gateway.upstream.factory import (
        build_upstreams,
        connection_options,
        open_provider_transport,
    )
    from gateway.upstream.window_probe import build_probes

    transports: dict[str, Transport] = {}
    try:
        for name, provider in settings.providers.items():
            transports[name] = open_provider_transport(
                name, connection_options(provider, os.environ), 1
            )
        facts = ModelFacts.load(facts_file())
        router = Router(settings, build_upstreams(settings, transports), facts)
        probes = build_probes(settings.providers, transports)
        report = WindowReport()
        for name, target in await _list_targets(settings, router, probes):
            await _examine_target(report, name, target, probes)
        return report
    finally:
        for transport in transports.values():
            await transport.aclose()


async def _list_targets(
    settings: Settings, router: Router, probes: Mapping[str, WindowProbe]
) -> list[tuple[str, Target]]:
    """Return the targets by model; of a prefix and of `*`, those of models that a server lists."""
    targets = []
    for entry, model in settings.models.items():
        names = [entry]
        if entry.endswith("*"):
            names = [
                listed_name
                for target in router.targets_of(entry, model)
                if target.asks
                for listed_name in await _list_models(probes, target)
                if listed_name.startswith(entry[:-1])
            ]
        targets += [(name, target) for name in names for target in router.targets_of(name, model)]
    return targets


async def _list_models(probes: Mapping[str, WindowProbe], target: Target) -> list[str]:
    """Return a few models that a server lists; none if it does not answer."""
    try:
        return (await probes[target.provider].list_models(_credential(target)))[:MAX_LISTED]
    except (GatewayError, TimeoutError):
        return []


async def _examine_target(
    report: WindowReport, name: str, target: Target, probes: Mapping[str, WindowProbe]
) -> None:
    """Ask the server of a target for its window, unless the configuration has it."""
    tokens = None
    if target.asks:
        try:
            tokens = (await probes[target.provider].ask(target.model, _credential(target))).tokens
        except (GatewayError, TimeoutError):
            # The check of the upstream tells that it does not answer.
            tokens = None
    if tokens is not None:
        report.reported_windows[name] = min(tokens, report.reported_windows.get(name, tokens))
    elif target.window is None:
        report.unknown_windows.add(name)


def _credential(target: Target) -> bytes | None:
    key = target.settings.api_key
    if key:
        return b"Bearer " + key.get_secret_value().encode()
    return None
