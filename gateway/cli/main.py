"""`mnemogate`: the commands. A failure is one message and an exit code, without a traceback."""

from __future__ import annotations

from typing import Any

import click

from gateway.cli import agent_files
from gateway.cli.agents import agents
from gateway.cli.chat import chat
from gateway.cli.config import config
from gateway.cli.db import db
from gateway.cli.demo import demo
from gateway.cli.doctor import doctor
from gateway.cli.dropped import dropped, keep
from gateway.cli.fetch import fetch
from gateway.cli.files import files
from gateway.cli.index import index
from gateway.cli.jobs import jobs
from gateway.cli.keys import keys
from gateway.cli.mcp import mcp
from gateway.cli.memory import memory
from gateway.cli.options import CommandFailed
from gateway.cli.projects import projects
from gateway.cli.run import run
from gateway.cli.serve import serve
from gateway.cli.shared import shared
from gateway.cli.skills import skills
from gateway.cli.teams import teams
from gateway.cli.tools import tools
from gateway.cli.top import top
from gateway.cli.transfer import export, import_
from gateway.cli.try_model import try_model
from gateway.cli.ui import ui
from gateway.cli.users import users
from memory import installed_version


class Commands(click.Group):
    """Reports an unusable configuration with its message and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ValueError as e:
            from gateway.config.settings import ConfigError

            if isinstance(e, ConfigError):
                raise CommandFailed(str(e), exit_code=2) from e
            raise


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"mnemogate, version {installed_version() or 'unknown'}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Memory for any app that speaks the OpenAI API, by changing its base_url.

    \b
    Examples:
      mnemogate demo                      see it work, without a key
      mnemogate serve                     the gateway, in front of OpenAI
      mnemogate memory show --user ada    what is remembered about Ada
    """


agents.add_command(agent_files.export)
agents.add_command(agent_files.import_)
for transfer in (export, import_, dropped, keep):
    memory.add_command(transfer)
for command in (
    serve,
    run,
    demo,
    try_model,
    chat,
    ui,
    mcp,
    top,
    memory,
    users,
    agents,
    shared,
    files,
    skills,
    tools,
    teams,
    projects,
    keys,
    jobs,
    db,
    index,
    fetch,
    config,
    doctor,
):
    cli.add_command(command)


def main() -> None:
    cli(prog_name="mnemogate")
