"""Pictures in results of tools: shown within their turn, stubs in what is recorded. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gateway.wire.chat import Json
from memory.session.toolbox import ResultImage


class ShownImages(msgspec.Struct):
    """The results with pictures of one turn, and the texts that stand for them later."""

    # The part, its member, the text.
    _results: list[tuple[Json, str, str]] = msgspec.field(default_factory=list)
    # Messages that hold nothing but pictures.
    _carriers: list[Json] = msgspec.field(default_factory=list)

    def add_result(self, part: Json, member: str, text: str) -> None:
        """Note a result whose member has pictures. text: with stubs in their place."""
        self._results.append((part, member, text))

    def add_carrier(self, message: Json) -> None:
        """Note a message that is only there for its pictures."""
        self._carriers.append(message)

    def drop(self, messages: list[Json]) -> bool:
        """Put stubs into the messages themselves, for a target that takes no pictures.

        Returns False where there is none.
        """
        if not self._results:
            return False
        for part, member, text in self._results:
            part[member] = text
        carrier_ids = {id(message) for message in self._carriers}
        messages[:] = [message for message in messages if id(message) not in carrier_ids]
        self._results.clear()
        self._carriers.clear()
        return True

    def with_stubs(self, messages: list[Json]) -> list[Json]:
        """Return the messages as they are recorded."""
        if not self._results:
            return messages
        carrier_ids = {id(message) for message in self._carriers}
        stubs = {id(part): {**part, member: text} for part, member, text in self._results}
        return [_with_stubs(m, stubs) for m in messages if id(m) not in carrier_ids]


def _with_stubs(message: Json, stubs: dict[int, Json]) -> Json:
    if (stub := stubs.get(id(message))) is not None:
        return stub
    content = message.get("content")
    if isinstance(content, list) and any(id(part) in stubs for part in content):
        return {**message, "content": [stubs.get(id(part), part) for part in content]}
    return message


def data_url(image: ResultImage) -> str:
    """Return a picture as a data URL."""
    return f"data:{image.media_type};base64,{image.data}"


def image_message(images: Sequence[ResultImage]) -> Json:
    """Return the message of a chat completion that shows pictures, each behind its tool's name."""
    parts: list[Json] = []
    for image in images:
        parts.append({"type": "text", "text": f"Image returned by {image.tool}:"})
        parts.append({"type": "image_url", "image_url": {"url": data_url(image)}})
    return {"role": "user", "content": parts}
