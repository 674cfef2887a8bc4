"""Finds what a request's body names of the provider's: stored objects, and models. Pure.

The rule: a member names a stored object if it is one of PLACES, or if its name ends in `_id` or
`_ids`, in any capitals, and its value is a text or a list of texts; an object in one of HOLDERS
does by its `id`. No others do:

- what the client's own tools are given or described with, and what else has members of the
  client's making (OWN_WORDS): schemas, arguments, metadata, headers;
- names of prompt variables; what such a variable holds is looked into;
- ids of the conversation itself and of the client's program (CLIENT_WORDS): calls, messages, users,
  sessions, requests. Who owns a stored response or conversation is checked elsewhere;
- the file of a citation inside a container: its `container_id` is checked;
- the provider's own skills and connectors.

Each value is looked at once, without recursion, so the cost is linear however a body is nested.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from gateway.errors import BadRequest
from gateway.wire.chat import Json

# Members whose text, or list of texts, names what is stored below a path of the provider's.
PLACES = {
    "container": "containers",
    "cached_content": "cached_contents",
    # Gemini reads both spellings.
    "cachedcontent": "cached_contents",
    "training_file": "files",
    "validation_file": "files",
    "voice_id": "audio/voices",
}
# Members whose object says by its `id` what it is of what is stored.
HOLDERS = {
    "audio": "audio",
    "container": "containers",
    "file": "files",
    "prompt": "prompts",
    "voice": "audio/voices",
}
# Members that are checked elsewhere, in this spelling. Some servers ignore case.
CHAINING = {"previous_response_id": "responses", "conversation": "conversations"}
LEADING = frozenset({*HOLDERS, *CHAINING, "content", "id", "input", "items", "type"})
ENDINGS = ("_id", "_ids")
# `input_file_id`, `training_file_ids`: files too.
FILES = "file"
CLIENT_WORDS = frozenset(
    {
        "account",
        "adapter",
        "agent",
        "app",
        "application",
        "call",
        "chat",
        "client",
        "completion",
        "conversation",
        "correlation",
        "customer",
        "device",
        "event",
        "generation",
        "input",
        "item",
        "lora",
        "message",
        "model",
        "msg",
        "org",
        "organization",
        "parent",
        "project",
        "request",
        "response",
        "root",
        "session",
        "span",
        "tenant",
        "token",
        "trace",
        "turn",
        "use",
        "user",
        "workspace",
    }
)
OWN_WORDS = frozenset(
    {
        "arguments",
        "args",
        "attributes",
        "chat_template_kwargs",
        "env",
        "format",
        "guided_json",
        "headers",
        "input_examples",
        "input_schema",
        "json_schema",
        "logit_bias",
        "metadata",
        "parameters",
        "schema",
        "structured_outputs",
    }
)
VARIABLES = "variables"
CITATION = "container_file_citation"
# The type of a skill that is the provider's own.
PUBLIC = "anthropic"
# What the ids of the provider's own begin with.
CONNECTOR = "connector_"
# What is said: no member of it names a model that is asked.
SPOKEN = frozenset({"messages", "input", "items", "instructions", "system", "output"})
MODELS = ("model", "models")
# Members of a chat completion, and of its messages, that name nothing stored.
PLAIN_MEMBERS = frozenset(
    {
        "model",
        "messages",
        "frequency_penalty",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "n",
        "parallel_tool_calls",
        "presence_penalty",
        "reasoning_effort",
        "seed",
        "service_tier",
        "stop",
        "store",
        "stream",
        "temperature",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
    }
)
ONLY_OBJECTS = frozenset({dict})
PLAIN_MESSAGES = frozenset({("role", "content"), ("content", "role")})
# Nothing that the APIs define lies deeper.
MAX_DEPTH = 24

_endings = re.compile(rb'_ids?"')
_places = tuple(f'"{name}"'.encode() for name in PLACES)
_holders = tuple(f'"{name}"'.encode() for name in HOLDERS)
_holder = re.compile(rb'"(?:' + "|".join(HOLDERS).encode() + rb')"\s*:\s*\{')
_chaining = tuple(f'"{name}"'.encode() for name in CHAINING)
# A member may be spelt with it.
_escaped = re.compile(rb"\\u00[4-7]")
MEMBER_BYTES = 64
# Of a text that is taken apart at its quotes.
SPLIT_BYTES = 1 << 16
_named = frozenset(name.encode() for name in (*PLACES, *HOLDERS, *CHAINING, "models"))


def is_plain_chat(body: Json, raw_body: bytes) -> bool:
    """Tell whether a chat completion has plain members and messages alone, which name nothing.

    There are as many objects as messages and the body itself, so that none is hidden under a
    member that is given twice; and each member of those is in `body` by its name.
    """
    messages = body.get("messages")
    if type(messages) is not list or raw_body.count(b"{") != 1 + len(messages):
        return False
    if not body.keys() <= PLAIN_MEMBERS or not set(map(type, messages)) <= ONLY_OBJECTS:
        return False
    return set(map(tuple, messages)) <= PLAIN_MESSAGES


def names_nothing(raw_body: bytes) -> bool:
    """Tell whether a body certainly names neither a stored object nor another model.

    Most bodies name none, and one pass over their strings tells it. False decides nothing.
    """
    if len(raw_body) > SPLIT_BYTES or b"\\u00" in raw_body:
        return False
    text = raw_body.lower()
    strings = text.split(b'"')[1:-1]
    return (
        b'_id"' not in text
        and b'_ids"' not in text
        and strings.count(b"model") < 2
        and _named.isdisjoint(strings)
    )


def may_name_objects(raw_body: bytes) -> bool:
    """Tell whether a body may name stored objects, before it is read."""
    text = raw_body.lower()
    for name in _places:
        if name in text:
            return True
    for name in _holders:
        if name in text and _holder.search(text):
            return True
    for name in _chaining:
        if name in text and text.count(name) != raw_body.count(name):
            return True
    if _escaped.search(text):
        return True
    members = set()
    for end in _endings.finditer(text):
        begin = text.rfind(b'"', max(0, end.start() - MEMBER_BYTES), end.start())
        members.add(text[begin + 1 : end.end() - 1])
    return any(place_of(name.decode("latin-1")) is not None for name in members)


def may_name_models(raw_body: bytes) -> bool:
    """Tell whether a body may name another model beside its own, before it is read."""
    text = raw_body.lower()
    return text.count(b'"model"') > 1 or b'"models"' in text or bool(_escaped.search(text))


def objects_in(body: Any) -> Iterator[tuple[str, str]]:
    """Yield the stored objects that a body names: their place below `/v1`, and their name.

    Raises BadRequest for a body that is nested deeper than the APIs define anything.
    """
    queue: list[tuple[str, Any, int]] = [("", body, 0)]
    while queue:
        member, value, depth = queue.pop()
        if depth > MAX_DEPTH and not isinstance(value, str):
            raise BadRequest(f"The body is nested deeper than {MAX_DEPTH} levels.")
        if isinstance(value, dict):
            yield from _named_by(member, value)
            queue += [(name, x, depth + 1) for name, x in _inner(member, value)]
        elif isinstance(value, list):
            queue += [(member, x, depth + 1) for x in value if isinstance(x, str | list | dict)]
        elif (place := place_of(member)) is not None and not _is_public(place, value):
            yield place, value


def models_in(body: Json) -> Iterator[str]:
    """Yield the models that a body names beside its own: inside of built-in tools, and the like."""
    queue = [v for k, v in body.items() if k.lower() not in SPOKEN and k.lower() != "metadata"]
    while queue:
        value = queue.pop()
        if isinstance(value, list):
            queue += [x for x in value if isinstance(x, list | dict)]
        elif isinstance(value, dict):
            for name, member in value.items():
                if (lower_name := name.lower()) in MODELS:
                    yield from _texts(member)
                if lower_name not in OWN_WORDS and isinstance(member, list | dict):
                    queue.append(member)


def may_lead(member: str) -> bool:
    """Tell whether a member may name what is stored, or hold what does."""
    name = member.lower()
    return name in LEADING or place_of(name) is not None


@lru_cache(4096)
def place_of(member: str) -> str | None:
    """Return the place below `/v1` of what a member names; None for one that names nothing."""
    name = member.lower()
    if name in PLACES or not name.endswith(ENDINGS):
        return PLACES.get(name)
    stem = name.removesuffix("s").removesuffix("_id")
    word = stem.rpartition("_")[2]
    if not word or word in CLIENT_WORDS:
        return None
    if word == FILES:
        return "files"
    if stem.endswith("y"):
        return f"{stem[:-1]}ies"
    if stem.endswith(("s", "x", "ch", "sh")):
        return f"{stem}es"
    return f"{stem}s"


def _named_by(member: str, value: Json) -> Iterator[tuple[str, str]]:
    """Yield what an object says that it is."""
    place = HOLDERS.get(member.lower())
    for name, ident in value.items():
        if name not in CHAINING and name.lower() in CHAINING:
            yield CHAINING[name.lower()], str(ident)
    if place is None:
        return
    for name, ident in value.items():
        if name.lower() == "id" and isinstance(ident, str):
            yield place, ident


def _inner(member: str, value: Json) -> Iterator[tuple[str, Any]]:
    """Yield the members of an object that may name something, or hold what does."""
    kind = str(value.get("type"))
    names_variables = member.lower() == VARIABLES
    for name, member_value in value.items():
        if isinstance(member_value, str):
            if not names_variables and not _is_told_elsewhere(name.lower(), kind):
                yield name, member_value
        elif isinstance(member_value, list | dict) and not _is_own(
            name.lower(), member_value, kind
        ):
            yield ("" if names_variables else name), member_value


def _is_told_elsewhere(name: str, kind: str) -> bool:
    return (name == "skill_id" and kind == PUBLIC) or (name == "file_id" and kind == CITATION)


def _is_own(name: str, value: Any, kind: str) -> bool:
    """Tell whether a member holds the client's own words."""
    if name in OWN_WORDS or (name == "input" and kind.endswith("tool_use")):
        return True
    return name == "output" and kind.endswith("_output") and isinstance(value, dict)


def _is_public(place: str, value: str) -> bool:
    return place == "connectors" and value.startswith(CONNECTOR)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (x for x in value if isinstance(x, str))
