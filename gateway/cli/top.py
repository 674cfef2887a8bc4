"""`mnemogate top`: turns in the terminal, as they end."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from gateway.cli.client import ManagementClient, open_api
from gateway.cli.formatting import printable
from gateway.cli.options import GatewayOptions, json_option, where_options

EVERY_SECONDS = 1.0
# A turn that began so long ago may end only now.
OVERLAP_SECONDS = 900.0
MAX_TURNS = 100
MAX_NAME_CHARACTERS = 24


@click.command(short_help="Watch turns as they end.")
@click.option(
    "--last",
    "turn_count",
    type=click.IntRange(0, MAX_TURNS),
    default=10,
    show_default=True,
    help="How many earlier turns to show first.",
)
@click.option("--once", is_flag=True, help="Show the earlier turns, and end.")
@json_option
@where_options
def top(where: GatewayOptions, turn_count: int, once: bool, as_json: bool) -> None:
    """Show turns with memory as they end: user, model, tokens added, memory calls. Ctrl-C ends.

    \b
    Examples:
      mnemogate top
      mnemogate top --json | jq .user
    """
    with open_api(where, makes=False) as api:
        watch = TurnWatch(api)
        try:
            turns = watch.fetch(time.time() - 86_400)
            for turn in turns[len(turns) - min(turn_count, len(turns)) :]:
                _show(turn, as_json=as_json)
            while not once:
                seen_ids = {turn["id"] for turn in turns}
                turns = watch.fetch(time.time() - OVERLAP_SECONDS)
                for turn in turns:
                    if turn["id"] not in seen_ids:
                        _show(turn, as_json=as_json)
                time.sleep(EVERY_SECONDS)
        except KeyboardInterrupt:
            click.echo(err=True)


class TurnWatch:
    """Fetches turns, and tells once when those that the store holds are missing."""

    def __init__(self, api: ManagementClient) -> None:
        self._api = api
        self._warning: str | None = None

    def fetch(self, since: float) -> list[dict[str, Any]]:
        """Return turns since a Unix time, oldest first."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))
        answer = self._api.call("GET", "/turns", params={"since": stamp, "limit": MAX_TURNS})
        if (warning := answer.get("warning")) != self._warning:
            self._warning = warning
            click.echo(warning or "The memory store is back.", err=True)
        return list(reversed(answer["data"]))


def _show(turn: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(turn, ensure_ascii=False))
        return
    calls = ", ".join(
        call["name"] + ("" if call["outcome"] == "ok" else f" ({call['outcome']})")
        for call in turn["calls"]
    )
    if turn["status"] == "degraded":
        calls = f"degraded: {printable(turn['reason'])}{', ' if calls else ''}{calls}"
    click.echo(
        f"{turn['created_at'][11:19]}  {_name(turn['user'] or 'nobody'):<12}  "
        f"{_name(turn['model'] or '-'):<16}  +{turn['injected_tokens']:<6}  {calls or '-'}"
    )


def _name(text: str) -> str:
    """Return a name as a terminal may show it."""
    return printable(text[:MAX_NAME_CHARACTERS])
