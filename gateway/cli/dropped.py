"""`mnemogate memory dropped` and `keep`: what filters did not keep, and keeping it after all."""

from __future__ import annotations

from urllib.parse import quote

import click

from gateway.cli.memory import UserMemory, person_options
from gateway.cli.options import json_option, print_json, print_result


@click.command(short_help="What was not kept of what a user said, and why.")
@click.option("--since", help="Only what was dropped since this date or time (ISO 8601).")
@click.option("--reason", help="Only what was dropped for this reason.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Most entries."
)
@json_option
@person_options
def dropped(
    person: UserMemory, since: str | None, reason: str | None, limit: int, as_json: bool
) -> None:
    """List what filters did not keep in the last 30 days, newest first, with the reasons.

    \b
    Examples:
      mnemogate memory dropped --user ada
      mnemogate memory dropped --user ada --reason duplicate
    """
    filters = {"since": since, "reason": reason, "limit": str(min(limit, 200))}
    params = {**person.params, **{name: value for name, value in filters.items() if value}}
    entries = []
    for entry in person.api.pages(person.path("dropped"), params):
        entries.append(entry)
        if len(entries) == limit:
            break
    if as_json:
        print_json(entries)
        return
    for entry in entries:
        click.secho(f"{entry['id']}  {entry['at'][:16]}  {entry['reason']}", bold=True)
        text = entry["text"] or "(not shown)"
        click.echo(f"  {entry['stage']}: {' '.join(text.split())[:200]}")
    if not entries:
        click.echo("Nothing was dropped.", err=True)


@click.command(short_help="Keep what was dropped after all.")
@click.argument("ident", metavar="ID")
@json_option
@person_options
def keep(person: UserMemory, ident: str, as_json: bool) -> None:
    """Store the dropped entry ID as a passage. `memory dropped` lists the ids.

    \b
    Example:
      mnemogate memory keep drop_123 --user ada
    """
    passages = person.call("POST", "dropped", quote(ident, safe=""), "keep")["data"]
    idents = [passage["id"] for passage in passages]
    print_result(f"kept as {', '.join(idents)}", {"kept": idents}, as_json=as_json)
