"""What is known of client programs, as data: how each is recognised, what names its user and its
conversation, which calls it makes for itself, and how its summaries begin, what it
puts around its user's words.

The shipped ones are listed here; an operator adds others, or changes members of these.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from gateway.config.section import Section
from memory import HARNESS_ELEMENTS

TOKEN = re.compile(r"[A-Za-z0-9_-]+\Z")
ELEMENT = re.compile(r"[A-Za-z_][\w.:-]{0,99}\Z")
CREDENTIALS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"})

SHIPPED: dict[str, dict[str, Any]] = {
    "codex": {
        "user_agents": ["codex"],
        "conversation_headers": ["thread-id"],
        "utility": [
            {"header": "x-codex-turn-metadata", "contains": '"request_kind":"compaction"'},
        ],
        "summaries": ["Another language model started to solve this problem"],
    },
    "claude-code": {
        "user_agents": ["claude-cli"],
        "conversation_headers": ["x-claude-code-session-id"],
        "utility": [{"tools": False, "json_answer": True}, {"tools": False, "max_tokens": 1}],
        "summaries": ["This session is being continued from a previous conversation"],
    },
    "open-webui": {
        "conversation_headers": ["x-openwebui-chat-id"],
        "user_headers": ["x-openwebui-user-id", "x-openwebui-user-email"],
    },
    "librechat": {
        "conversation_headers": ["x-librechat-conversation-id"],
        "user_headers": ["x-librechat-user-id"],
    },
}


def _header(name: str) -> str:
    """Return a header's name in lower case. Raises ValueError for one that names nothing."""
    header_name = name.lower()
    if not TOKEN.match(name):
        raise ValueError("use the name of a header, such as x-chat-id")
    if header_name in CREDENTIALS:
        raise ValueError("this header holds a credential, which is never a name")
    return header_name


def _words(text: str) -> str:
    if not text.strip():
        raise ValueError("this must not be empty: it would fit everything")
    return text


def _element(name: str) -> str:
    """Return the name of an element. Raises ValueError for one that names none."""
    if not ELEMENT.match(name):
        raise ValueError("use the name of an element without brackets, such as system-reminder")
    return name


ElementName = Annotated[str, AfterValidator(_element)]
HeaderName = Annotated[str, AfterValidator(_header)]
Words = Annotated[str, AfterValidator(_words)]


class UtilityRule(Section):
    """A call that a program makes for itself: all the members that are given hold.

    header, contains: a header with this text in it, white space aside; without `contains` it has
    any value. tools: whether there are tools. json_answer: whether the answer is to be JSON.
    max_tokens: the most tokens of the answer.
    """

    header: HeaderName | None = None
    contains: Words | None = None
    tools: bool | None = None
    json_answer: bool | None = None
    max_tokens: int | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _says_something(self) -> UtilityRule:
        if self.contains is not None and self.header is None:
            raise ValueError("`contains` needs a `header` to look in")
        if all(getattr(self, name) is None for name in type(self).model_fields):
            raise ValueError("an empty rule would fit every call: give it a member")
        return self


class ClientSettings(Section):
    """One client program.

    user_agents: beginnings of its User-Agent. A request that has one of its other headers is its
    own too. project_headers: those that name a project. summaries: beginnings of the messages in
    which it sends its own summary. harness: elements that it puts around its user's words.
    """

    user_agents: tuple[Words, ...] = ()
    conversation_headers: tuple[HeaderName, ...] = ()
    project_headers: tuple[HeaderName, ...] = ()
    user_headers: tuple[HeaderName, ...] = ()
    utility: tuple[UtilityRule, ...] = ()
    summaries: tuple[Words, ...] = ()
    harness: tuple[ElementName, ...] = HARNESS_ELEMENTS


def _with_shipped(clients: Any) -> Any:
    """Return the operator's clients, and the shipped ones with what they change of those."""
    if not isinstance(clients, dict):
        return clients
    out = dict(clients)
    for name, members in SHIPPED.items():
        client_members = clients.get(name, {})
        if isinstance(client_members, dict):
            out[name] = {**members, **client_members}
        else:
            out[name] = client_members
    return out


Clients = Annotated[dict[str, ClientSettings], BeforeValidator(_with_shipped)]
