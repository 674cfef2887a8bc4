"""`mnemogate shared ...`: list, show, make, change and delete shared blocks."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import quote

import click

from gateway.cli.client import ManagementClient, open_api
from gateway.cli.formatting import printable
from gateway.cli.options import GatewayOptions, json_option, print_json, print_rows, where_options
from gateway.cli.users import Listing

IDENT = re.compile(r"block_[0-9a-f]{32}")


@click.group(cls=Listing, short_help="List, make and delete shared blocks.")
def shared() -> None:
    """List shared blocks (`list`, the default), show one, make or change one, delete one.

    A shared block is part of the memory of all its members.

    \b
    Examples:
      mnemogate shared
      mnemogate shared put family "Dinner is at seven." --user ann --user bob --write
      mnemogate shared show block_0123
      mnemogate shared delete block_0123
    """


def _path(ident: str, *segments: str) -> str:
    return "/".join(["/shared-blocks", *(quote(part, safe="") for part in (ident, *segments))])


@shared.command("list", short_help="List shared blocks by label.")
@click.option("--label", help="Only blocks with this label.")
@click.option("--user", help="Only blocks that this user sees.")
@click.option("--agent", help="Only blocks of this agent, or that the user sees with it.")
@click.option("--team", help="Only blocks of this team.")
@click.option("--project", help="Only blocks of this project.")
@json_option
@where_options
def list_(where: GatewayOptions, as_json: bool, **filters: str | None) -> None:
    """List the shared blocks of the key's tenant.

    \b
    Example:
      mnemogate shared list --user ann
    """
    params = {name: value for name, value in filters.items() if value}
    with open_api(where) as api:
        blocks = list(api.pages("/shared-blocks", {"limit": 200, **params}))
    hint = "There are no shared blocks. Make one: mnemogate shared put LABEL TEXT"
    print_rows(blocks, _line, hint, as_json=as_json)


def _line(block: dict[str, Any]) -> str:
    """Return a block in one line of a list."""
    size = f"{len(block['value'])}/{block['limit']} characters"
    members = ", ".join(map(_describe_member, block["members"])) or "no members"
    return "  ".join([block["id"], block["label"], size, printable(members)])


def _describe_member(member: dict[str, Any]) -> str:
    if member.get("everyone"):
        member_name = "everyone"
    elif "user" in member:
        member_name = member["user"] + (f" with {member['agent']}" if "agent" in member else "")
    else:
        kind = next(kind for kind in ("agent", "team", "project") if kind in member)
        member_name = f"{kind} {member[kind]}"
    if member["write"]:
        return f"{member_name} (writes)"
    return str(member_name)


@shared.command(short_help="Show a shared block.")
@click.argument("ident", metavar="ID")
@json_option
@where_options
def show(where: GatewayOptions, ident: str, as_json: bool) -> None:
    """Show a shared block, who sees it, and its value.

    \b
    Example:
      mnemogate shared show block_0123
    """
    with open_api(where) as api:
        block = api.call("GET", _path(ident))
    if as_json:
        print_json(block)
        return
    click.echo(_line(block))
    by = block["updated_by"]
    click.echo(f"version {block['version']}, by {by['user'] or by['actor']}")
    click.echo(printable(block["value"]))


@dataclass(frozen=True, slots=True)
class Sharers:
    """Who is to see a block. write: and to write in it."""

    users: tuple[str, ...]
    agents: tuple[str, ...]
    teams: tuple[str, ...]
    projects: tuple[str, ...]
    everyone: bool
    write: bool

    def to_members(self) -> list[dict[str, Any]]:
        """Return them as the API takes them."""
        members: list[dict[str, Any]] = [{"user": name} for name in self.users]
        members += [{"agent": name} for name in self.agents]
        members += [{"team": name} for name in self.teams]
        members += [{"project": name} for name in self.projects]
        if self.everyone:
            members += [{"everyone": True}]
        return [{**member, "write": self.write} for member in members]

    def add_to(self, api: ManagementClient, ident: str) -> None:
        """Make them members of a block that is there."""
        paths = [["members", name] for name in self.users]
        paths += [["members", "agents", name] for name in self.agents]
        paths += [["members", "teams", name] for name in self.teams]
        paths += [["members", "projects", name] for name in self.projects]
        for path in paths:
            api.call("PUT", _path(ident, *path), json={"write": self.write})
        if self.everyone:
            api.call("PUT", _path(ident, "everyone"), json={"write": self.write})


def sharer_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name members, as one argument `sharers`."""

    names = [field.name for field in fields(Sharers)]

    def wrapped(**options: Any) -> None:
        sharer_names = {name: options.pop(name) for name in names}
        command(sharers=Sharers(**sharer_names), **options)

    wrapped.__doc__ = command.__doc__
    taking: Callable[..., None] = wrapped
    for option in (
        click.option("--write", is_flag=True, help="These members may write too."),
        click.option("--everyone", is_flag=True, help="All named users see it."),
        click.option("--project", "projects", multiple=True, help="A project that sees it."),
        click.option("--team", "teams", multiple=True, help="A team that sees it."),
        click.option("--agent", "agents", multiple=True, help="An agent that sees it."),
        click.option("--user", "users", multiple=True, help="A user who sees it."),
    ):
        taking = option(taking)
    return taking


@shared.command("put", short_help="Make a shared block, or change its value and members.")
@click.argument("name", metavar="LABEL_OR_ID")
@click.argument("text", default="")
@json_option
@where_options
@sharer_options
def put(where: GatewayOptions, name: str, text: str, sharers: Sharers, as_json: bool) -> None:
    """Make a block with this label, or replace the value of the block with this id.

    TEXT is its value; - reads it from stdin.

    \b
    Examples:
      mnemogate shared put family "Dinner is at seven." --user ann --user bob --write
      mnemogate shared put block_0123 "Dinner is at eight."
    """
    if text == "-":
        value = sys.stdin.read().rstrip("\n")
    else:
        value = text
    with open_api(where) as api:
        if IDENT.fullmatch(name):
            sharers.add_to(api, name)
            if text:
                api.call("PUT", _path(name), json={"value": value})
            block = api.call("GET", _path(name))
        else:
            new_block = {"label": name, "value": value, "members": sharers.to_members()}
            block = api.call("POST", "/shared-blocks", json=new_block)
    if as_json:
        print_json(block)
        return
    click.echo(f"The shared block {block['label']} is {block['id']}, version {block['version']}.")


@shared.command(short_help="Delete a shared block.")
@click.argument("ident", metavar="ID")
@json_option
@where_options
def delete(where: GatewayOptions, ident: str, as_json: bool) -> None:
    """Delete a shared block for all its members; undo in the API restores it.

    \b
    Example:
      mnemogate shared delete block_0123
    """
    with open_api(where) as api:
        receipt = api.call("DELETE", _path(ident))
    if as_json:
        print_json(receipt)
        return
    click.echo(f"The shared block {receipt['id']} is deleted.")
