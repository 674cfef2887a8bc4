"""`mnemogate teams ...`: list, show, make, change and delete teams."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from gateway.cli.client import open_api
from gateway.cli.formatting import printable
from gateway.cli.options import GatewayOptions, json_option, print_json, print_rows, where_options
from gateway.cli.users import Listing


@click.group(cls=Listing, short_help="List, make and delete teams.")
def teams() -> None:
    """List teams (`list`, the default), show one, make or change one, delete one.

    A team's members see its shared blocks and find its passages.

    \b
    Examples:
      mnemogate teams
      mnemogate teams put platform --user ann --user bob --write
      mnemogate teams show platform
      mnemogate teams delete platform
    """


def _path(name: str, *segments: str) -> str:
    return "/".join(["/teams", *(quote(part, safe="") for part in (name, *segments))])


@teams.command("list", short_help="List teams by name.")
@json_option
@where_options
def list_(where: GatewayOptions, as_json: bool) -> None:
    """List the teams of the key's tenant.

    \b
    Example:
      mnemogate teams list
    """
    with open_api(where) as api:
        teams = list(api.pages("/teams", {"limit": 200}))
    hint = "There are no teams. Make one: mnemogate teams put NAME --user USER"
    print_rows(teams, _line, hint, as_json=as_json)


def _line(team: dict[str, Any]) -> str:
    """Return a team in one line."""
    line = f"{team['name']}  {team['members']} members  {team['description']}"
    return printable(line.rstrip())


@teams.command(short_help="Show a team and its members.")
@click.argument("name")
@json_option
@where_options
def show(where: GatewayOptions, name: str, as_json: bool) -> None:
    """Show a team and its members.

    \b
    Example:
      mnemogate teams show platform
    """
    with open_api(where) as api:
        team = api.call("GET", _path(name))
        members = list(api.pages(_path(name, "members"), {"limit": 200}))
    if as_json:
        print_json({**team, "members": members})
        return
    click.echo(printable(f"{team['name']}  {team['description']}".rstrip()))
    for member in members:
        click.echo(printable(member["user"] + (" (writes)" if member["write"] else "")))


@teams.command(short_help="Make a team, or change it.")
@click.argument("name")
@click.option("--user", "users", multiple=True, help="A user to put into it.")
@click.option("--remove", "removed", multiple=True, help="A user to take out of it.")
@click.option("--write", is_flag=True, help="The users may put passages into its memory too.")
@click.option("--description", help="What it is for.")
@json_option
@where_options
def put(
    where: GatewayOptions,
    name: str,
    users: tuple[str, ...],
    description: str | None,
    as_json: bool,
    **member_options: tuple[str, ...] | bool,
) -> None:
    """Make a team, or change its description and members.

    \b
    Examples:
      mnemogate teams put platform --user ann --user bob --write
      mnemogate teams put platform --remove bob
    """
    removed_users = member_options["removed"]
    write = member_options["write"]
    with open_api(where) as api:
        answer = api.send("GET", _path(name))
        if description is not None or answer.status_code == 404:
            api.call("PUT", _path(name), json={"description": description or ""})
        for user in users:
            api.call("PUT", _path(name, "members", user), json={"write": write})
        for user in removed_users if isinstance(removed_users, tuple) else ():
            api.call("DELETE", _path(name, "members", user))
        team = api.call("GET", _path(name))
    if as_json:
        print_json(team)
        return
    click.echo(f"The team {team['name']} has {team['members']} members.")


@teams.command(short_help="Delete a team and what it holds.")
@click.argument("name")
@json_option
@where_options
def delete(where: GatewayOptions, name: str, as_json: bool) -> None:
    """Delete a team, its memberships and its passages.

    \b
    Example:
      mnemogate teams delete platform
    """
    with open_api(where) as api:
        receipt = api.call("DELETE", _path(name))
    if as_json:
        print_json(receipt)
        return
    erased_counts = receipt["erased"]
    click.echo(
        f"The team {receipt['id']} is deleted, with {erased_counts['members']} memberships and "
        f"{erased_counts['passages']} passages."
    )
