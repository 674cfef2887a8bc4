"""`mnemogate jobs ...`: background jobs, those that gave up first of all. Every command is a call of the management API."""

from __future__ import annotations

from urllib.parse import quote

import click

from gateway.cli.client import opened
from gateway.cli.options import Where, json_option, shown_json, where_options

STATES = (
    "ready",
    "running",
    "waiting",
    "dead",
)  # those of memory.jobs.shown, which would load the store for a --help


@click.group(short_help="Background jobs that gave up, and another try.")
def jobs() -> None:
    """Look at background jobs, and try one again that gave up. What a job is about is never shown.

    \b
    Examples:
      mnemogate jobs list
      mnemogate jobs retry 42
    """


@jobs.command("list", short_help="The jobs that gave up, newest first.")
@click.option(
    "--state",
    type=click.Choice(STATES),
    default="dead",
    show_default=True,
    help="Jobs of this state; waiting is for a credential.",
)
@json_option
@where_options
def list_(where: Where, state: str, as_json: bool) -> None:
    """List the jobs that gave up after all their attempts, with the kind of failure the last one ended in.

    \b
    Example:
      mnemogate jobs list --state ready
    """
    with opened(where) as api:
        found = list(api.pages("/jobs", {"state": state}))
    if as_json:
        shown_json(found)
        return
    for job in found:
        of = (
            f"{job['tenant']}/{job['user'] or '(nobody named)'}"
            if job["tenant"]
            else "the gateway itself"
        )
        click.secho(f"{job['id']}  {job['kind']} of {of}", bold=True)
        click.echo(
            f"  {job['state']} after {job['attempts']} attempts, made {job['created_at'][:16]}{': ' + job['error'] if job['error'] else ''}"
        )
    if not found:
        click.echo(f"No job is {state}.", err=True)


@jobs.command(short_help="Try a job again that gave up.")
@click.argument("which", metavar="ID")
@where_options
def retry(where: Where, which: str) -> None:
    """Give the dead job ID all its attempts again. It runs as soon as a gateway does.

    \b
    Example:
      mnemogate jobs retry 42
    """
    with opened(where) as api:
        api.call("POST", f"/jobs/{quote(which, safe='')}/retry")
    click.echo(f"{which} is tried again")
