"""Requests of every kind, as the users of many apps make them: for the soak.

New conversations and ones that go on with their history resent, streamed and plain, of named users
and of nobody, some with a round of memory tools, under model names that nobody configured, without
memory, and relayed; and searches by the management API.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

CHAT = "/v1/chat/completions"
# Conversations that may go on.
OPEN = 1500
TURNS = 10
NEW = {
    "named": 30,
    "nobody": 8,
    "invented": 6,
    "calls": 4,
    "off": 6,
    "off stream": 3,
    "relay": 3,
    "search": 2,
}
# Of a hundred: goes on with an open conversation.
GOES_ON = 40
# By whether it is streamed.
QUICK = ("mock", "quick")


@dataclass(slots=True)
class Talk:
    """A conversation as its client keeps it."""

    headers: dict[str, str]
    model: str = ""
    messages: list[dict[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class Request:
    """One to be sent.

    body: empty for a GET. talk: the conversation that its answer belongs to, None for none.
    """

    path: str
    headers: dict[str, str]
    body: bytes = b""
    streamed: bool = False
    talk: Talk | None = None

    @property
    def method(self) -> str:
        return "POST" if self.body else "GET"


class Mix:
    """users: as many names. keys: as many clients with a provider's key of their own."""

    def __init__(self, users: int, keys: int) -> None:
        self._users, self._keys = users, keys
        self._rng = random.Random(3)
        self._open: list[Talk] = []

    def request(self, number: int) -> Request:
        """The request of this number."""
        rng = self._rng
        if self._open and rng.randrange(100) < GOES_ON:
            return self._chat(self._taken(), number)
        kind = rng.choices(list(NEW), list(NEW.values()))[0]
        headers = {
            "authorization": f"Bearer k{rng.randrange(self._keys)}",
            "content-type": "application/json",
        }
        user = f"user number {rng.randrange(self._users)}"
        if kind == "search":
            return Request(f"/memory/v1/users/{user}/messages/search?q=question+{number}", headers)
        if kind.startswith("off") or kind == "relay":
            path = "/v1/embeddings" if kind == "relay" else CHAT
            streamed = kind == "off stream"
            body = {
                "model": QUICK[streamed],
                "stream": streamed,
                "input": "words",
                "messages": [_asked(number)],
            }
            return Request(path, {**headers, "x-memory": "off"}, _json(body), streamed)
        if kind != "nobody":
            headers["x-memory-user"] = user
        model = {"invented": f"a-model-of-{number}", "calls": "calls"}.get(kind, "")
        return self._chat(Talk(headers, model), number)

    def answered(self, talk: Talk, text: str) -> None:
        """Its answer came whole: it may go on."""
        talk.messages.append({"role": "assistant", "content": text})
        if len(talk.messages) < 2 * TURNS:
            self._open.append(talk)
            if len(self._open) > OPEN:
                self._taken()

    def _taken(self) -> Talk:
        at = self._rng.randrange(len(self._open))
        self._open[at], self._open[-1] = self._open[-1], self._open[at]
        return self._open.pop()

    def _chat(self, talk: Talk, number: int) -> Request:
        streamed = not talk.model and self._rng.random() < 0.4
        talk.messages.append(_asked(number))
        body = {
            "model": talk.model or QUICK[streamed],
            "stream": streamed,
            "messages": talk.messages,
        }
        return Request(CHAT, talk.headers, _json(body), streamed, talk)


def _asked(number: int) -> dict[str, str]:
    return {
        "role": "user",
        "content": f"question {number} " + f"word{number % 997} of {number} " * 12,
    }


def _json(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def text_of(answer: bytes, *, streamed: bool) -> str | None:
    """What a whole answer says; None where it does not say so."""
    if not streamed:
        content = json.loads(answer)["choices"][0]["message"]["content"]
        return content if isinstance(content, str) else None
    events = [line[6:] for line in answer.split(b"\n") if line.startswith(b"data: {")]
    if b"data: [DONE]" not in answer:
        return None
    return "".join(json.loads(e)["choices"][0]["delta"].get("content") or "" for e in events)
