"""`mnemogate projects ...`: list, show, declare, change and delete projects."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from gateway.cli.client import open_api
from gateway.cli.formatting import printable
from gateway.cli.options import GatewayOptions, json_option, print_json, print_rows, where_options
from gateway.cli.users import Listing


@click.group(cls=Listing, short_help="List, declare and delete projects.")
def projects() -> None:
    """List declared projects (`list`, the default), show one, declare or change one, delete one.

    Only who is listed in a declared project may name it. A project that nobody declared is each
    user's own.

    \b
    Examples:
      mnemogate projects
      mnemogate projects put apollo --user ann --team platform --write
      mnemogate projects show apollo
      mnemogate projects delete apollo
    """


def _path(name: str) -> str:
    return f"/projects/{quote(name, safe='')}"


@projects.command("list", short_help="List declared projects by name.")
@json_option
@where_options
def list_(where: GatewayOptions, as_json: bool) -> None:
    """List the declared projects of the key's tenant.

    \b
    Example:
      mnemogate projects list
    """
    with open_api(where) as api:
        projects = list(api.pages("/projects", {"limit": 200}))
    hint = "There are no declared projects. Declare one: mnemogate projects put NAME --user USER"
    print_rows(projects, _line, hint, as_json=as_json)


def _line(project: dict[str, Any]) -> str:
    """Return a project in one line."""
    members = [*project["users"], *(f"team {team}" for team in project["teams"])]
    if project["everyone"]:
        members += ["everyone"]
    writes = "  (they share)" if project["write"] else ""
    line = f"{project['name']}  {', '.join(members) or 'nobody'}{writes}  {project['description']}"
    return printable(line.rstrip())


@projects.command(short_help="Show a declared project.")
@click.argument("name")
@json_option
@where_options
def show(where: GatewayOptions, name: str, as_json: bool) -> None:
    """Show a declared project, and who may name it.

    \b
    Example:
      mnemogate projects show apollo
    """
    with open_api(where) as api:
        project = api.call("GET", _path(name))
    if as_json:
        print_json(project)
        return
    click.echo(_line(project))


@projects.command(short_help="Declare a project, or replace who may name it.")
@click.argument("name")
@click.option("--user", "users", multiple=True, help="A user who may name it.")
@click.option("--team", "teams", multiple=True, help="A team whose members may name it.")
@click.option("--everyone", is_flag=True, help="All named users may name it.")
@click.option("--write", is_flag=True, help="They may put passages into its memory too.")
@click.option("--description", default="", help="What it is.")
@json_option
@where_options
def put(where: GatewayOptions, name: str, as_json: bool, **rules: Any) -> None:
    """Declare a project, or replace who may name it.

    \b
    Examples:
      mnemogate projects put apollo --user ann --team platform --write
      mnemogate projects put apollo --everyone
    """
    with open_api(where) as api:
        project = api.call("PUT", _path(name), json=rules)
    if as_json:
        print_json(project)
        return
    click.echo(_line(project))


@projects.command(short_help="Delete the declaration of a project and its shared passages.")
@click.argument("name")
@json_option
@where_options
def delete(where: GatewayOptions, name: str, as_json: bool) -> None:
    """Delete the declaration of a project and its shared passages.

    What users wrote in it is their own, and stays.

    \b
    Example:
      mnemogate projects delete apollo
    """
    with open_api(where) as api:
        receipt = api.call("DELETE", _path(name))
    if as_json:
        print_json(receipt)
        return
    click.echo(
        f"The project {receipt['id']} is no longer declared; {receipt['erased']['passages']} "
        "passages went with it."
    )
