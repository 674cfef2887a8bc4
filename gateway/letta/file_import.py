"""Agents made of `.af` files, with what they remember."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gateway.errors import BadRequest, GatewayError
from gateway.http.json_thread import run_by_weight, run_heavy
from gateway.letta.agents import remove_agent, write_with_blocks
from gateway.letta.blocks import BLOCKS, LettaBlock, check_room, read_blocks
from gateway.letta.call import YES, LettaCall
from gateway.letta.errors import Unprocessable
from gateway.letta.history import CONVERSATION, scope_of
from gateway.letta.ids import new_agent_name
from gateway.letta.models import served_model
from gateway.letta.passages import add_passage
from gateway.letta.profile import DOOR, DoorMembers
from gateway.letta.route import LettaRoute
from gateway.letta.state import agent_id
from gateway.letta.tool_catalog import KNOWN, grant_tools, operator_tools
from gateway.letta.tool_rules import profile_rules
from gateway.management.profile_edits import check_maker, check_profile
from gateway.routing.agents import Agent
from gateway.wire import multipart
from gateway.wire.chat import Json
from gateway.wire.chat_request import parse
from memory import CoreBlock, ImportedMessage, ManagementActor, management
from memory.export_format import LIMIT as MOST_CHARACTERS
from memory.export_format import MessageLine, PassageLine, moment
from memory.formats import agent_file
from memory.formats.agent_file import ReadAgent
from memory.formats.records import BrokenItem

FILE_BYTES = 32 << 20
REFUSED = ("secrets", "env_vars_json")
USED = ("file", "append_copy_suffix", "model", "name", "override_name", "strip_messages")
COPY = "_copy"


class FileForm(NamedTuple):
    """What an import was sent. words: the other fields, by name."""

    file: bytes
    words: dict[str, str]

    def flag(self, name: str, *, default: bool = False) -> bool:
        if name in self.words:
            return self.words[name].lower() in YES
        return default


async def import_file(call: LettaCall) -> Json:
    """Make the agents of an `.af` file."""
    check_maker(call)
    form = _read_form(await call.raw_body(), call.headers.get(b"content-type", b""))
    for name in REFUSED:
        if form.words.get(name):
            raise Unprocessable(
                f"`{name}` is not supported here.", param=name, code="not_supported"
            )
    call.drop(name for name in form.words if name not in USED)
    data = await run_by_weight(form.file, parse, form.file)
    try:
        read_agents = await run_heavy(agent_file.read, data)
    except (BrokenItem, ValueError, RecursionError) as e:
        raise Unprocessable(f"`file` is no agent file: {e}", param="file") from e
    entries = data["agents"] if isinstance(data.get("agents"), list) else [data]
    new_agents = [
        _prepare(call, form, agent_in_file, entry if isinstance(entry, dict) else {})
        for agent_in_file, entry in zip(read_agents, entries, strict=True)
    ]
    agents = await _make_all(call, new_agents, _labels_of_shared(data))
    for agent, new_agent in zip(agents, new_agents, strict=True):
        messages = not form.flag("strip_messages")
        await _remember(call, agent, new_agent.file_agent, messages=messages)
    return {"agent_ids": [agent_id(agent) for agent in agents]}


class NewAgent(NamedTuple):
    """An agent that can be made. block_ids: of its blocks, in the file."""

    file_agent: ReadAgent
    members: Json
    blocks: Sequence[CoreBlock]
    block_ids: Sequence[Any]


def _read_form(body: bytes, kind: bytes) -> FileForm:
    """Return the fields of a form. Raises Unprocessable."""
    if not multipart.is_form(kind):
        raise Unprocessable(
            "Send the file as `file` of a form (multipart/form-data).", param="file"
        )
    file: bytes | None = None
    words: dict[str, str] = {}
    try:
        for part in multipart.fields(body, kind):
            value = body[part.start : part.end]
            if part.name == b"file":
                file = value
            elif len(value) <= multipart.VALUE_BYTES:
                words[part.name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    except multipart.MalformedForm as e:
        raise Unprocessable(f"The form cannot be read: {e}.", param="file") from e
    if file is None or len(file) > FILE_BYTES:
        raise Unprocessable(
            f"`file` is missing, or larger than {FILE_BYTES >> 20} MiB.", param="file"
        )
    return FileForm(file, words)


def _door_members(call: LettaCall, file_agent: ReadAgent, entry: Json, handle: str) -> DoorMembers:
    """Return what the door keeps of an agent. entry: the agent in its file."""
    available_tools = {*KNOWN, *operator_tools(call)}
    known_tools = [name for name in file_agent.tools if name in available_tools]
    if len(known_tools) < len(file_agent.tools):
        call.drop(["tools"])
    embedding = entry.get("embedding")
    return DoorMembers(
        handle,
        embedding if isinstance(embedding, str) else "",
        known_tools,
        list(file_agent.rules),
        entry.get("message_buffer_autoclear") is True,
    )


def _prepare(call: LettaCall, form: FileForm, file_agent: ReadAgent, entry: Json) -> NewAgent:
    """Return an agent of a file as it can be made. entry: the agent in its file.

    Raises Unprocessable, BadRequest, Forbidden.
    """
    handle = form.words.get("model") or file_agent.handle
    model = served_model(call, handle)
    title = form.words.get("name") or form.words.get("override_name") or file_agent.profile["title"]
    members_of_door = _door_members(call, file_agent, entry, handle or model)
    members = {
        **file_agent.profile,
        "tool_rules": profile_rules(list(file_agent.rules)),
        "title": f"{title}{COPY}" if form.flag("append_copy_suffix") else title,
        "model": model,
        "tools": grant_tools(call, members_of_door.tools),
        "metadata": {**file_agent.profile["metadata"], DOOR: msgspec.to_builtins(members_of_door)},
    }
    block_members = [_within_bounds(call, block) for block in members.pop("blocks")]
    blocks = read_blocks(call, block_members, "blocks")
    check_room(call, (), [LettaBlock("", block) for block in blocks])
    check_profile(call, members)
    ids = entry.get("block_ids")
    return NewAgent(file_agent, members, blocks, ids if isinstance(ids, list) else [])


def _labels_of_shared(data: Json) -> dict[str, str]:
    """Return the labels of the blocks that a file lists for all its agents, by their ids in it."""
    listed = data.get("blocks")
    return {
        block["id"]: block["label"]
        for block in (listed if isinstance(listed, list) else ())
        if isinstance(block, dict)
        and isinstance(block.get("id"), str)
        and isinstance(block.get("label"), str)
    }


async def _make_all(
    call: LettaCall, new_agents: Sequence[NewAgent], labels: Mapping[str, str]
) -> list[Agent]:
    """Make agents, all of them or none. labels: of the blocks that they may share, by id.

    A block that several of them show is made once.
    """
    agents: list[Agent] = []
    made_blocks: dict[str, LettaBlock] = {}
    try:
        for new in new_agents:
            own_labels = {i: labels[i] for i in new.block_ids if i in labels}
            shown = {label: made_blocks[i] for i, label in own_labels.items() if i in made_blocks}
            blocks = [block for block in new.blocks if block.label not in shown]
            named = new_agent_name(), new.members
            agents.append(await write_with_blocks(call, named, blocks, list(shown.values())))
            by_label = {b.block.label: b for b in await BLOCKS.list_of(call, agents[-1])}
            made_blocks |= {i: by_label[n] for i, n in own_labels.items() if n in by_label}
    except GatewayError:
        for agent in agents:
            await remove_agent(call, agent)
        raise
    return agents


def _within_bounds(call: LettaCall, block: Json) -> Json:
    """Return a block of a file without secrets, and with a limit that a block can have."""
    value = call.memory.policy.screen.mask(block["value"])[0]
    return {**block, "value": value, "limit": min(block["limit"], MOST_CHARACTERS)}


async def _remember(
    call: LettaCall, agent: Agent, file_agent: ReadAgent, *, messages: bool
) -> None:
    """Store what an agent of a file remembers; what cannot be stored is named as dropped."""
    imported_messages = list[ImportedMessage]()
    now = time.time()
    for line in (line for bundle in file_agent.bundles for line in bundle.lines):
        if isinstance(line, PassageLine):
            try:
                await add_passage(call, agent, line.content, line.tags, _time(line.created_at))
            except BadRequest:
                call.drop(["passages"])
        elif isinstance(line, MessageLine) and messages:
            masked_message = call.memory.policy.screen.mask_message(line.message)
            imported_messages.append(ImportedMessage(masked_message, _time(line.created_at) or now))
    if imported_messages:
        actor = ManagementActor(scope_of(call, agent), {}, call.source())
        await call.write(
            management.conversations.import_conversation(
                call.memory, actor, imported_messages, CONVERSATION
            )
        )


def _time(text: str | None) -> float | None:
    if text:
        return moment(text)
    return None


ROUTES = (LettaRoute("POST", "agents/import", import_file, "Make agents of an .af file"),)
