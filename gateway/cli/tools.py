"""`mnemogate tools ...`: what is done with the tools of the operator."""

from __future__ import annotations

from typing import IO, Any

import click
import msgspec

from gateway.cli.client import open_api
from gateway.cli.options import (
    CommandFailed,
    GatewayOptions,
    json_option,
    print_json,
    where_options,
)

WORDS = {"run": "runs", "refuse": "is refused", "approve": "waits for a person"}


@click.group(short_help="Check the rules on tools.")
def tools() -> None:
    """Check what rules on tools would say of calls.

    \b
    Example:
      mnemogate tools check rules.json
    """


@tools.command(short_help="Show what rules say of calls.")
@click.argument("file", type=click.File("rb"))
@json_option
@where_options
def check(where: GatewayOptions, file: IO[bytes], as_json: bool) -> None:
    """Show what rules would say of the calls of a turn, without running one.

    FILE is JSON, and - reads it from stdin: `rules` as in a profile, `rounds` with the calls of
    each reply, and `policy`, if it is not allow.

    \b
    Example of FILE:
      {"rules": [{"type": "max_count", "tools": ["a"], "count": 1}],
       "rounds": [[{"name": "a"}, {"name": "a"}]]}

    \b
    Example:
      mnemogate tools check rules.json
    """
    try:
        sent = msgspec.json.decode(file.read())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise CommandFailed(f"The file is not JSON: {e}. Correct it.", exit_code=2) from e
    with open_api(where) as api:
        answer = api.call("POST", "/tools/check", json=sent)
    if as_json:
        print_json(answer)
        return
    for i, calls in enumerate(answer["rounds"]):
        for call in calls:
            click.echo(f"round {i + 1}  {_describe(call)}")
    if answer["ended"]:
        click.echo("The turn has ended.")
    if answer["unmet"]:
        click.echo(f"Required before the turn ends: {', '.join(answer['unmet'])}")


def _describe(call: dict[str, Any]) -> str:
    """Return one line about a call: what happens, and which rule says so."""
    rule = "policy" if call["rule"] is None else f"rules[{call['rule']}]"
    line = f"{call['name']} {WORDS[call['verdict']]} ({rule})"
    return f"{line}  {call['message']}" if call["message"] else line
