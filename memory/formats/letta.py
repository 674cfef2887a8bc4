"""Letta's agent files (`.af`), in their current and first versions. Pure.

They hold blocks, messages and sometimes archival passages. The memory of a single agent becomes the
user's; of several agents, each keeps its own under its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from memory.core.blocks import LABEL, RESERVED
from memory.export_format import LIMIT, BlockLine, ExportLine
from memory.formats.records import (
    BrokenItem,
    Bundle,
    check_text,
    iso_time,
    member,
    name_of,
    passage,
    text_member,
    text_of_parts,
    time_of,
)
from memory.formats.threads import ForeignMessage, Thread, conversation_lines

PROGRAM = "letta"
# Characters, the limit of a block that tells none.
BLOCK = 4000
NOT_IN_LABELS = re.compile(r"[^a-z0-9_]")
# Characters of a label that is numbered.
LABEL_ROOM = 56
# Characters of a label that are looked at.
LABEL_TOLD = 100
# The tool by which older agents answer.
SAYS = "send_message"
# Characters of an agent's name.
NAME = 200


def read(value: Any) -> Iterator[Bundle | BrokenItem]:
    """Yield the bundles of one file: for each agent its blocks, passages and conversation.

    Items of an agent that cannot be imported are yielded as faults, and reading continues. Raises
    BrokenItem if the file is no agent file.
    """
    agents = member(value, "agents")
    if not isinstance(agents, list):
        if member(value, "messages") is None and member(value, "core_memory") is None:
            raise BrokenItem("it has neither `agents` nor `messages`: is it an agent file?")
        agents = [value]
    shared = {text_member(b, "id"): b for b in _list(value, "blocks")}
    for agent in agents:
        blocks = [
            *(shared[i] for i in _list(agent, "block_ids") if isinstance(i, str) and i in shared),
            *_list(agent, "memory_blocks"),
            *_list(agent, "core_memory"),
        ]
        passages = [*_list(agent, "passages"), *_list(agent, "archival_memory")]
        if len(agents) == 1 and agent is not value:
            passages += _list(value, "passages")
        name = ""
        if len(agents) > 1:
            name = text_member(agent, "name")[:NAME]
        for file_items in ((*_block_lines(blocks), *map(_passage, passages)), _chat(agent)):
            yield from (file_item for file_item in file_items if isinstance(file_item, BrokenItem))
            lines = [file_item for file_item in file_items if isinstance(file_item, ExportLine)]
            for line in lines:
                line.agent = name or "default"
            if lines:
                yield Bundle(lines)


def _list(value: Any, name: str) -> list[Any]:
    member_list = member(value, name)
    if isinstance(member_list, list):
        return member_list
    return []


def _block_lines(blocks: list[Any]) -> Iterator[BlockLine | BrokenItem]:
    """Yield one line per block, with unique labels; a block that occurs twice is yielded once."""
    seen_blocks: set[tuple[str, str]] = set()
    taken_labels: set[str] = set()
    numbers: dict[str, int] = {}
    for block in blocks:
        value = text_member(block, "value")
        label = _label(text_member(block, "label"))
        if len(value) > LIMIT:
            yield BrokenItem(
                f"the block {label} has {len(value)} characters; at most {LIMIT} are allowed"
            )
            continue
        if (label, value) not in seen_blocks:
            seen_blocks.add((label, value))
            yield _block(block, _free_label(label, taken_labels, numbers))


def _free_label(label: str, taken_labels: set[str], numbers: dict[str, int]) -> str:
    """Reserve and return the label, with a number if another block has it.

    numbers: the last number given, by label.
    """
    name = label
    root = label[:LABEL_ROOM]
    while name in taken_labels:
        numbers[root] = numbers.get(root, 1) + 1
        name = f"{root}_{numbers[root]}"
    taken_labels.add(name)
    return name


def _label(letta_label: str) -> str:
    """Return a valid label for one of Letta's, which may be any text."""
    label = NOT_IN_LABELS.sub("_", letta_label[:LABEL_TOLD].lower())[:63]
    if not LABEL.fullmatch(label) or label in RESERVED:
        label = f"block_{label.strip('_')}"[:63].rstrip("_")
    return label


def _block(block: Any, label: str) -> BlockLine:
    value = text_member(block, "value")
    limit = member(block, "limit")
    limit = limit if isinstance(limit, int) and 0 < limit <= LIMIT else BLOCK
    return BlockLine(
        label=label,
        value=value,
        description=text_member(block, "description")[:10_000],
        limit=max(limit, len(value)),
        read_only=member(block, "read_only") is True,
    )


def _passage(value: Any) -> ExportLine | BrokenItem | None:
    text = text_member(value, "text") or text_member(value, "content")
    tags = [t[:256] for t in _list(value, "tags")[:64] if isinstance(t, str)]
    created_at = iso_time(time_of(member(value, "created_at")))
    try:
        if text.strip():
            return passage(text, tags=tags, created_at=created_at)
        return None
    except BrokenItem as e:
        return e


def _chat(agent: Any) -> Sequence[ExportLine | BrokenItem]:
    try:
        return conversation_lines(_thread(agent))
    except BrokenItem as e:
        return [e]


def _thread(agent: Any) -> Thread:
    """Return the messages of an agent as a thread without branches."""
    messages: list[ForeignMessage] = []
    previous_id: str | None = None
    for number, message in enumerate(_list(agent, "messages")):
        ident = f"{text_member(message, 'id')} {number}"
        role, text = _words(message)
        sent_at = time_of(member(message, "created_at"))
        messages.append(
            ForeignMessage(ident, previous_id, role if text.strip() else "", text, sent_at)
        )
        previous_id = ident
    first_time = next((m.at for m in messages if m.at), None)
    name = name_of(PROGRAM, None, [text_member(agent, "name"), first_time])
    return Thread(
        name,
        messages,
        previous_id,
        first_time,
        next((m.at for m in reversed(messages) if m.at), None),
    )


def _words(message: Any) -> tuple[str, str]:
    """Return the role and text of a message; role "" if it is not part of the conversation."""
    role = text_member(message, "role")
    text = text_of_parts(member(message, "content")) or text_member(message, "text")
    if role == "assistant":
        answers = [answer for call in _list(message, "tool_calls") if (answer := _answer(call))]
        return role, check_text("\n".join(answers) if answers else text)
    if role == "user" and text.startswith("{"):
        return role, _unpack(text)
    if role == "user":
        return (role, text)
    return ("", "")


def _answer(call: Any) -> str:
    """Return the text of a call of Letta's tool for answers."""
    function = member(call, "function")
    if text_member(function, "name") != SAYS:
        return ""
    return text_member(_json(text_member(function, "arguments")), "message")


def _unpack(text: str) -> str:
    """Return what a person said, without the JSON envelope of older agents.

    Returns "" for the program's own events.
    """
    envelope = _json(text)
    kind = text_member(envelope, "type")
    if kind == "user_message":
        return text_member(envelope, "message")
    if kind in ("heartbeat", "login", "system_alert"):
        return ""
    return text


def _json(text: str) -> Any:
    """Return the decoded value; None if the text is not JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
