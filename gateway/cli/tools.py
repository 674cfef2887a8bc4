"""`mnemogate tools ...`: what is done with the tools of the operator."""

from __future__ import annotations

from typing import IO, Any

import click
import msgspec

from gateway.cli.client import open_api
from gateway.cli.formatting import printable
from gateway.cli.options import (
    CommandFailed,
    GatewayOptions,
    json_option,
    print_json,
    where_options,
)
from gateway.tools.python_source import SourceRefused, read_source

WORDS = {"run": "runs", "refuse": "is refused", "approve": "waits for a person"}


@click.group(short_help="Make tools, and check the rules on them.")
def tools() -> None:
    """Make tools from Python files, and check what rules on tools would say of calls.

    \b
    Examples:
      mnemogate tools put days_until.py
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


@tools.command(short_help="Make a tool from a Python file.")
@click.argument("file", type=click.File("rb"))
@click.option("--description", default="", help="In place of the function's docstring.")
@click.option(
    "--effect", type=click.Choice(["read", "write"]), help="What a run does to the world."
)
@click.option(
    "--sandbox",
    type=click.Choice(["monty", "bubblewrap"]),
    default="monty",
    show_default=True,
    help="Where it runs; bubblewrap needs an admin key.",
)
@json_option
@where_options
def put(where: GatewayOptions, file: IO[bytes], as_json: bool, **members: str | None) -> None:
    """Make a tool from a Python file, or replace it.

    FILE defines one function, after which the tool is named; - reads it from stdin.

    \b
    Example:
      mnemogate tools put days_until.py
    """
    try:
        source = file.read().decode()
        # The server checks it again, and for its own sandbox.
        name = read_source(source, "bubblewrap").name
    except UnicodeDecodeError as e:
        raise CommandFailed("The file is not UTF-8 text. Convert it.", exit_code=2) from e
    except SourceRefused as e:
        where_it_is = f"line {e.line}: " if e.line else ""
        raise CommandFailed(f"{where_it_is}{e}. Correct the file.", exit_code=2) from e
    sent = {"kind": "python", "source": source, **{n: v for n, v in members.items() if v}}
    with open_api(where) as api:
        tool = api.call("PUT", f"/tools/{name}", json=sent)
    if as_json:
        print_json(tool)
        return
    click.echo(f"{tool['name']} is at version {tool['version']}.")
    for warning in tool["warnings"]:
        click.echo(printable(warning), err=True)


def _describe(call: dict[str, Any]) -> str:
    """Return one line about a call: what happens, and which rule says so."""
    rule = "policy" if call["rule"] is None else f"rules[{call['rule']}]"
    line = f"{call['name']} {WORDS[call['verdict']]} ({rule})"
    return f"{line}  {call['message']}" if call["message"] else line
