"""`mnemogate tools ...`: list, show and run the operator's tools, and check rules on them."""

from __future__ import annotations

import json
from typing import IO, Any
from urllib.parse import quote

import click
import msgspec

from gateway.cli.client import open_api
from gateway.cli.formatting import printable
from gateway.cli.options import (
    CommandFailed,
    GatewayOptions,
    json_option,
    print_json,
    print_result,
    print_rows,
    where_options,
)
from gateway.cli.users import Listing

WORDS = {"run": "runs", "refuse": "is refused", "approve": "waits for a person"}


@click.group(
    cls=Listing, short_help="List, show and run tools; check rules, accept tools of servers."
)
def tools() -> None:
    """List the tools of [tools] (`list`, the default), show one, or run one by hand.

    \b
    Examples:
      mnemogate tools
      mnemogate tools show weather
      mnemogate tools run weather '{"city": "Oslo"}'
      mnemogate tools put days_until.py
      mnemogate tools check rules.json
      mnemogate tools accept github
    """


@tools.command("list", short_help="List the tools that the key may grant or use.")
@json_option
@where_options
def list_(where: GatewayOptions, as_json: bool) -> None:
    """List the tools that the key may grant or use, with their state.

    \b
    Example:
      mnemogate tools list
    """
    with open_api(where) as api:
        tools = api.call("GET", "/tools")["data"]
    hint = "There are no tools here. docs/tools.md says how to grant one."
    print_rows(tools, _line, hint, as_json=as_json)


def _line(tool: dict[str, Any]) -> str:
    """Return a tool in one line of a list."""
    facts = [tool["status"], tool["kind"], tool["effect"] or "-", f"{tool['tokens']} tokens"]
    why = tool["reason"] or tool["description"]
    return "  ".join([tool["name"], ", ".join(facts), printable(why)]).rstrip()


@tools.command("show", short_help="Show a tool with its parameters.")
@click.argument("name")
@where_options
def show(where: GatewayOptions, name: str) -> None:
    """Show a tool: its parameters, its state, its newest error.

    \b
    Example:
      mnemogate tools show weather
    """
    with open_api(where) as api:
        print_json(api.call("GET", f"/tools/{quote(name, safe='')}"))


@tools.command("run", short_help="Run a tool by hand.")
@click.argument("name")
@click.argument("arguments", default="{}")
@click.option("--user", default="", help="For whom it runs.")
@json_option
@where_options
def run(where: GatewayOptions, name: str, arguments: str, user: str, as_json: bool) -> None:
    """Run a tool by hand, with ARGUMENTS as a JSON object. Needs an admin key.

    \b
    Example:
      mnemogate tools run weather '{"city": "Oslo"}'
    """
    try:
        argument_values = json.loads(arguments)
    except ValueError as e:
        raise CommandFailed(f"the arguments are no JSON: {e}") from e
    if not isinstance(argument_values, dict):
        raise CommandFailed('give the arguments as a JSON object, such as {"city": "Oslo"}')
    with open_api(where) as api:
        body = {"arguments": argument_values, "user": user}
        run_report = api.call("POST", f"/tools/{quote(name, safe='')}/run", json=body)
    print_result(run_report["result"], run_report, as_json=as_json)
    if run_report["status"] != "ok":
        raise CommandFailed(f"the run ended with the status {run_report['status']}")


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
      mnemogate tools accept github
    """
    try:
        body = msgspec.json.decode(file.read())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise CommandFailed(f"The file is not JSON: {e}. Correct it.", exit_code=2) from e
    with open_api(where) as api:
        answer = api.call("POST", "/tools/check", json=body)
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
    from gateway.tools.python_source import SourceRefused, read_source

    try:
        source = file.read().decode()
        # The server checks it again, and for its own sandbox.
        name = read_source(source, "bubblewrap").name
    except UnicodeDecodeError as e:
        raise CommandFailed("The file is not UTF-8 text. Convert it.", exit_code=2) from e
    except SourceRefused as e:
        where_it_is = f"line {e.line}: " if e.line else ""
        raise CommandFailed(f"{where_it_is}{e}. Correct the file.", exit_code=2) from e
    body = {"kind": "python", "source": source, **{n: v for n, v in members.items() if v}}
    with open_api(where) as api:
        tool = api.call("PUT", f"/tools/{name}", json=body)
    if as_json:
        print_json(tool)
        return
    click.echo(f"{tool['name']} is at version {tool['version']}.")
    for warning in tool["warnings"]:
        click.echo(printable(warning), err=True)


def _describe(call: dict[str, Any]) -> str:
    """Return one line about a call: what happens, and which rule says so."""
    rule = "policy"
    if call["rule"] is not None:
        rule = f"rules[{call['rule']}]"
    line = f"{call['name']} {WORDS[call['verdict']]} ({rule})"
    if call["message"]:
        return f"{line}  {call['message']}"
    return line


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
    body = {"tools": list(names) or None, "hash": digest}
    with open_api(where) as api:
        answer = api.call("POST", f"/tools/entries/{quote(entry, safe='')}/accept", json=body)
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
