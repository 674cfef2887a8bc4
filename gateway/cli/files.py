"""`mnemogate files ...`: list, upload, show and delete a user's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from gateway.cli.client import open_api
from gateway.cli.formatting import printable
from gateway.cli.options import GatewayOptions, json_option, print_json, where_options
from gateway.cli.users import Listing

UPLOAD_SECONDS = 600.0


@click.group(cls=Listing, short_help="List, upload, show and delete a user's files.")
def files() -> None:
    """List a user's files (`list`, the default), upload one, show its text, delete one.

    \b
    Examples:
      mnemogate files list --user ann
      mnemogate files put contract.pdf --user ann
      mnemogate files show contract.pdf --page 17 --user ann
      mnemogate files delete contract.pdf --user ann
    """


def _path(user: str, *segments: str) -> str:
    return "/".join(["/users", *(quote(part, safe="") for part in (user, "files", *segments))])


user_option = click.option("--user", required=True, help="Whose files.")


@files.command("list", short_help="List a user's files.")
@user_option
@json_option
@where_options
def list_(where: GatewayOptions, user: str, as_json: bool) -> None:
    """List a user's files with their state.

    \b
    Example:
      mnemogate files list --user ann
    """
    with open_api(where) as api:
        user_files = api.call("GET", _path(user))["data"]
    if as_json:
        print_json(user_files)
        return
    for file in user_files:
        click.echo(_line(file))
    if not user_files:
        click.echo(f"{user} has no files. Upload one: mnemogate files put PATH --user {user}")


def _line(file: dict[str, Any]) -> str:
    """Return a file in one line of a list."""
    if file["pages"] is None:
        size = f"{file['lines']} lines"
    else:
        size = f"{file['pages']} pages"
    if file["status"] == "failed":
        state = f"failed: {file['reason']}"
    else:
        state = file["status"]
    parts = [file["id"], file["name"], f"{file['bytes']} bytes"]
    return "  ".join(map(printable, [*parts, *([size] if file["lines"] else []), state]))


@files.command(short_help="Upload a file.")
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", help="Its name there; that of the path without this.")
@user_option
@json_option
@where_options
def put(where: GatewayOptions, path: Path, name: str | None, user: str, as_json: bool) -> None:
    """Upload a file; it is read in the background.

    \b
    Example:
      mnemogate files put contract.pdf --user ann
    """
    with open_api(where) as api:
        stored_file = api.call(
            "PUT",
            _path(user, name or path.name),
            content=path.read_bytes(),
            headers={"content-type": "application/octet-stream"},
            timeout=UPLOAD_SECONDS,
        )
    if as_json:
        print_json(stored_file)
        return
    click.echo(_line(stored_file))


@files.command(short_help="Show the text of a file.")
@click.argument("file", metavar="FILE")
@click.option("--page", type=click.IntRange(1), help="From this page on.")
@click.option("--line", type=click.IntRange(1), help="From this line on.")
@user_option
@json_option
@where_options
def show(
    where: GatewayOptions, file: str, page: int | None, line: int | None, **options: Any
) -> None:
    """Show 100 lines of a file, named by its id or name.

    \b
    Example:
      mnemogate files show contract.pdf --page 17 --user ann
    """
    places = {"page": page, "line": line}
    params = {name: value for name, value in places.items() if value is not None}
    with open_api(where) as api:
        text = api.call("GET", _path(options["user"], file, "text"), params=params)
    if options["as_json"]:
        print_json(text)
        return
    for number, row in enumerate(text["text"].split("\n"), text["line_start"]):
        click.echo(f"{number}: {printable(row)}")


@files.command(short_help="Delete a file.")
@click.argument("file", metavar="FILE")
@user_option
@json_option
@where_options
def delete(where: GatewayOptions, file: str, user: str, as_json: bool) -> None:
    """Delete a file with all its versions, named by its id or name.

    \b
    Example:
      mnemogate files delete contract.pdf --user ann
    """
    with open_api(where) as api:
        receipt = api.call("DELETE", _path(user, file))
    if as_json:
        print_json(receipt)
        return
    click.echo(f"{printable(file)} is deleted.")
