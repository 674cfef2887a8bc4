"""`mnemogate tools ...`: what is done with the tools of the operator."""

from __future__ import annotations

from typing import IO, Any
from urllib.parse import quote

import click
import msgspec

from gateway.cli.client import open_api
from gateway.cli.options import (
    CommandFailed,
    GatewayOptions,
    json_option,
    print_json,
    print_result,
    where_options,
)

WORDS = {"run": "runs", "refuse": "is refused", "approve": "waits for a person"}


@click.group(short_help="Check the rules on tools; accept tools of servers.")
def tools() -> None:
    """Check what rules on tools would say of calls, and accept tools of servers.

    \b
    Examples:
      mnemogate tools check rules.json
      mnemogate tools accept github
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


@tools.command(short_help="Accept tools of a server that wait.")
@click.argument("entry")
@click.argument("names", nargs=-1)
@click.option("--hash", "digest", help="Only if this is still the hash of what is accepted.")
@json_option
@where_options
def accept(
    where: GatewayOptions, entry: str, names: tuple[str, ...], digest: str | None, as_json: bool
) -> None:
    """Accept new and changed tools of the MCP server behind ENTRY: NAMES, or all that wait.

    \b
    Examples:
      mnemogate tools accept github
      mnemogate tools accept github create_issue --hash 3f2a...
    """
    sent = {"tools": list(names) or None, "hash": digest}
    with open_api(where) as api:
        answer = api.call("POST", f"/tools/entries/{quote(entry, safe='')}/accept", json=sent)
    print_result(
        f"Accepted: {', '.join(answer['accepted']) or 'nothing waits'}", answer, as_json=as_json
    )


@tools.command(short_help="Read again which tools a server lists.")
@click.argument("entry")
@json_option
@where_options
def refresh(where: GatewayOptions, entry: str, as_json: bool) -> None:
    """Read again what the MCP server behind ENTRY lists, and show the state of each tool.

    \b
    Example:
      mnemogate tools refresh github
    """
    with open_api(where) as api:
        answer = api.call("POST", f"/tools/entries/{quote(entry, safe='')}/refresh")
    lines = [f"{t['status']:8} {t['name']}  {t['reason']}".rstrip() for t in answer["tools"]]
    print_result("\n".join(lines) or "It lists no tool.", answer, as_json=as_json)
