"""`mnemogate jobs ...`: list background jobs, retry those that failed, and run them.

`list` and `retry` call the management API.
"""

from __future__ import annotations

from urllib.parse import quote

import click

from gateway.cli.client import open_api
from gateway.cli.job_worker import run
from gateway.cli.options import GatewayOptions, json_option, print_json, print_result, where_options

# As in memory.management.jobs, importing which would load the store.
STATES = (
    "ready",
    "running",
    "waiting",
    "dead",
)


@click.group(short_help="List, retry and run background jobs.")
def jobs() -> None:
    """List background jobs, retry failed ones, or run them apart from the gateways.

    The content of a job is never shown.

    \b
    Examples:
      mnemogate jobs list
      mnemogate jobs retry 42
    """


@jobs.command("list", short_help="Failed jobs, newest first.")
@click.option(
    "--state",
    type=click.Choice(STATES),
    default="dead",
    show_default=True,
    help="Show jobs in this state; `waiting` means waiting for a credential.",
)
@json_option
@where_options
def list_(where: GatewayOptions, state: str, as_json: bool) -> None:
    """List the jobs that failed in all their attempts, with the kind of the last failure.

    \b
    Example:
      mnemogate jobs list --state ready
    """
    with open_api(where) as api:
        jobs_list = list(api.pages("/jobs", {"state": state}))
    if as_json:
        print_json(jobs_list)
        return
    for job in jobs_list:
        of = "the gateway itself"
        if job["tenant"]:
            of = f"{job['tenant']}/{job['user'] or '(unnamed)'}"
        click.secho(f"{job['id']}  {job['kind']} of {of}", bold=True)
        click.echo(
            f"  {job['state']} after {job['attempts']} attempts, created "
            f"{job['created_at'][:16]}{': ' + job['error'] if job['error'] else ''}"
        )
    if not jobs_list:
        click.echo(f"No job is {state}.", err=True)


@jobs.command(short_help="Retry a failed job.")
@click.argument("ident", metavar="ID")
@json_option
@where_options
def retry(where: GatewayOptions, ident: str, as_json: bool) -> None:
    """Retry the failed job ID, with all its attempts. It runs as soon as a gateway does.

    \b
    Example:
      mnemogate jobs retry 42
    """
    with open_api(where) as api:
        api.call("POST", f"/jobs/{quote(ident, safe='')}/retry")
    print_result(f"{ident} will be retried", {"id": ident, "retried": True}, as_json=as_json)


jobs.add_command(run)
