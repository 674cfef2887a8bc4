"""`mnemogate agents ...`: list, show, make and delete agents."""

from __future__ import annotations

import json
from typing import IO, Any
from urllib.parse import quote

import click

from gateway.cli.client import open_api
from gateway.cli.formatting import printable
from gateway.cli.options import (
    CommandFailed,
    GatewayOptions,
    json_option,
    print_json,
    print_rows,
    where_options,
)
from gateway.cli.users import Listing


@click.group(cls=Listing, short_help="List, make and delete agents.")
def agents() -> None:
    """List agents (`list`, the default), show one, make one, delete one.

    A client calls an agent as the model "agent:NAME".

    \b
    Examples:
      mnemogate agents
      mnemogate agents show support
      mnemogate agents put support support.json
      mnemogate agents delete support
    """


def agent_path(name: str, *segments: str) -> str:
    return "/".join(["/agents", quote(name, safe=""), *segments])


@agents.command("list", short_help="List the agents that the key may use.")
@click.option("--tag", help="Only agents with this tag.")
@json_option
@where_options
def list_(where: GatewayOptions, tag: str | None, as_json: bool) -> None:
    """List the agents that the key may use, those of the configuration too.

    \b
    Example:
      mnemogate agents list --tag sales
    """
    with open_api(where) as api:
        all_agents = list(api.pages("/agents", {"limit": 200, **({"tag": tag} if tag else {})}))
    hint = "There are no agents yet. Make one: mnemogate agents put NAME FILE"
    print_rows(all_agents, _line, hint, as_json=as_json)


def _line(agent: dict[str, Any]) -> str:
    """Return an agent in one line of a list."""
    facts = [agent["model"] or "no model of its own", f"home {agent['home']}", agent["source"]]
    title = printable(agent["title"] or agent["description"])
    return "  ".join([agent["name"], ", ".join(facts), *([title] if title else [])])


@agents.command(short_help="Show the profile of an agent.")
@click.argument("name")
@json_option
@where_options
def show(where: GatewayOptions, name: str, as_json: bool) -> None:
    """Show the profile of an agent, by its name or id. `put` takes its JSON.

    \b
    Examples:
      mnemogate agents show support
      mnemogate agents show support --json > support.json
    """
    with open_api(where) as api:
        agent = api.call("GET", agent_path(name))
    if as_json:
        print_json(agent)
        return
    for member, value in agent.items():
        if value not in ("", None, [], {}):
            if isinstance(value, str):
                text = value
            else:
                text = json.dumps(value, ensure_ascii=False)
            click.echo(f"{member}: {printable(text)}")


@agents.command(short_help="Make an agent, or replace its profile.")
@click.argument("name")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@json_option
@where_options
def put(where: GatewayOptions, name: str, file: IO[str], as_json: bool) -> None:
    """Make the agent NAME, or replace its profile by what FILE says (JSON; - reads it from stdin).

    \b
    Examples:
      mnemogate agents put support support.json
      echo '{"model": "gpt-4o-mini"}' | mnemogate agents put support -
    """
    try:
        profile = json.load(file)
    except ValueError as e:
        raise CommandFailed(f"{file.name} is not JSON: {e}") from e
    with open_api(where) as api:
        agent = api.call("PUT", agent_path(name), json=profile)
    if as_json:
        print_json(agent)
        return
    click.echo(f"The agent {agent['name']} is at version {agent['version']}. Clients call it as")
    click.echo(f'the model "agent:{agent["name"]}".')


@agents.command(short_help="Delete an agent.")
@click.argument("name")
@click.option(
    "--memory",
    type=click.Choice(["keep", "erase"]),
    help="What becomes of its memory.  [default: erase where it has one of its own, else keep]",
)
@json_option
@where_options
def delete(where: GatewayOptions, name: str, memory: str | None, as_json: bool) -> None:
    """Delete the profile of an agent; undo in the API restores it, but no erased memory.

    \b
    Example:
      mnemogate agents delete support --memory keep
    """
    params = {"memory": memory} if memory else {}
    with open_api(where) as api:
        receipt = api.call("DELETE", agent_path(name), params=params)
    if as_json:
        print_json(receipt)
        return
    counts = [f"{count} {kind}" for kind, count in receipt["erased"].items() if count]
    click.echo(
        f"The agent {receipt['agent']} is deleted. Erased: {', '.join(counts) or 'nothing'}."
    )
