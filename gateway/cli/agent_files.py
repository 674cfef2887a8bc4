"""`mnemogate agents import` and `export`: agents as `.af` files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

import click

from gateway.cli.agents import agent_path
from gateway.cli.client import GatewayRefused, ManagementClient, open_api
from gateway.cli.formatting import printable
from gateway.cli.import_sender import ImportSender
from gateway.cli.memory import UserMemory
from gateway.cli.options import (
    CommandFailed,
    GatewayOptions,
    json_option,
    print_json,
    where_options,
)

if TYPE_CHECKING:
    from memory.formats.agent_file import ReadAgent, Remembered


@click.command("export", short_help="Write an agent to an .af file.")
@click.argument("name")
@where_options
def export(where: GatewayOptions, name: str) -> None:
    """Write an agent as an .af file to standard output: its profile and blocks, and what it
    remembers where it has one memory of its own.

    \b
    Example:
      mnemogate agents export support > support.af
    """
    from memory.formats import agent_file

    with open_api(where, makes=False) as api:
        agent = api.call("GET", agent_path(name))
        memory = _memory_of(api, agent)
    print_json(agent_file.write(agent, memory, datetime.now(UTC).isoformat(timespec="seconds")))


def _memory_of(api: ManagementClient, agent: dict[str, Any]) -> Remembered:
    """Return what an agent remembers; its profile's blocks alone where its users do."""
    from memory.formats.agent_file import Remembered

    if agent["home"] != "agent":
        return Remembered(agent["blocks"], [], [])
    agent_memory = UserMemory(api, f"agent:{agent['name']}", None)
    talks = sorted(
        api.pages(agent_memory.path("conversations")), key=lambda c: str(c["created_at"])
    )
    messages = [
        message
        for talk in talks
        for message in api.pages(agent_memory.path("conversations", talk["id"], "messages"))
        if message["role"] in ("user", "assistant")
    ]
    blocks = {block["label"]: block for block in api.pages(agent_memory.path("blocks"))}
    shared = api.pages("/shared-blocks", {"agent": agent["name"], "limit": 200})
    blocks |= {block["label"]: block for block in shared}
    by_label = [blocks[label] for label in sorted(blocks)]
    return Remembered(by_label, list(api.pages(agent_memory.path("passages")))[::-1], messages)


@click.command("import", short_help="Make agents of an .af file.")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--name", help="The agent's name here.  [default: made of its name in the file]")
@click.option("--model", help="The model that answers.  [default: that of the file]")
@json_option
@where_options
def import_(
    where: GatewayOptions, file: IO[str], name: str | None, model: str | None, as_json: bool
) -> None:
    """Make the agents of an .af FILE, each with one memory of its own: what the file says that it
    remembers. An agent of that name must not exist yet.

    \b
    Example:
      mnemogate agents import support.af --model gpt-4o-mini
    """
    from memory.formats import agent_file
    from memory.formats.records import BrokenItem

    try:
        file_agents = agent_file.read(json.load(file))
    except (ValueError, RecursionError, BrokenItem) as e:
        raise CommandFailed(f"{file.name} is no agent file: {e}") from e
    if name is not None and len(file_agents) != 1:
        raise CommandFailed(f"{file.name} holds {len(file_agents)} agents: leave out --name.")
    with open_api(where) as api:
        new_agents = [
            _make(api, file_agent._replace(name=name or file_agent.name), model)
            for file_agent in file_agents
        ]
    if as_json:
        print_json({"object": "list", "data": new_agents})
        return
    for agent in new_agents:
        model_text = agent["model"] or "no model: give it one with `mnemogate agents put`"
        click.echo(printable(f"The agent {agent['name']} is made ({model_text})."))


def _make(api: ManagementClient, file_agent: ReadAgent, model: str | None) -> dict[str, Any]:
    """Make one agent, and import what it remembers. Raises CommandFailed."""
    from memory.formats.records import BundleCount

    if api.send("GET", agent_path(file_agent.name)).status_code != 404:
        raise CommandFailed(
            f"There is an agent {file_agent.name!r} already: choose another --name."
        )
    agent = _put(api, file_agent, model)
    count = BundleCount()
    for bundle in file_agent.bundles:
        count.add(bundle)
    agent_memory = UserMemory(api, f"agent:{file_agent.name}", file_agent.name)
    ImportSender(agent_memory, count).send_all(file_agent.bundles)
    return agent


def _put(api: ManagementClient, file_agent: ReadAgent, model: str | None) -> dict[str, Any]:
    """Make the profile with the first of its possible models that is served here."""
    file_model = file_agent.profile["model"]
    names = (
        [model]
        if model is not None
        else dict.fromkeys([file_model, file_model.partition("/")[2], ""])
    )
    refusal: GatewayRefused | None = None
    for name in names:
        try:
            profile = {**file_agent.profile, "model": name}
            return dict(api.call("PUT", agent_path(file_agent.name), json=profile))
        except GatewayRefused as e:
            refusal = e
    assert refusal is not None  # noqa: S101 - there is a name to try
    raise refusal
