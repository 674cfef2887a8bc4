"""What a response repeats of its request: the client's own, not what went upstream. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.wire.chat import Json
from gateway.wire.own_marks import SEALED, has_mark, has_seal


@dataclass(frozen=True, slots=True)
class Echo:
    """What a response repeats of its request, as the client sent it.

    owned: names of tools of ours. instructions: the client's, None for none. chained: the
    client's `previous_response_id`. hides_reasoning: the client did not ask for encrypted
    reasoning, which we did. stored: the response is kept here, which the provider does not know.
    changed: the request that went upstream is not the client's own. thread: the conversation kept
    here that it is in. hides_seals: the client did not ask for encrypted reasoning, in which what
    servers want back is carried.
    """

    owned: frozenset[str]
    instructions: Any = None
    chained: Any = None
    hides_reasoning: bool = False
    include: Any = None
    changed: bool = False
    stored: bool = False
    thread: str = ""
    hides_seals: bool = False

    def restore(self, response: Json) -> Json:
        """Return a response with the client's own values; the same where there is none of ours."""
        if not self.changed:
            return self._without_seals(response)
        out = dict(response)
        if "instructions" in out:
            out["instructions"] = self.instructions
        if "previous_response_id" in out:
            out["previous_response_id"] = self.chained
        if self.stored:
            out["store"] = True
        if self.thread:
            out["conversation"] = {"id": self.thread}
        if "include" in out:
            out["include"] = self.include
        if isinstance(tools := out.get("tools"), list):
            out["tools"] = [t for t in tools if not self._is_ours(t)]
        if isinstance(items := out.get("output"), list):
            out["output"] = self._visible(items)
        return out

    def _without_seals(self, response: Json) -> Json:
        items = response.get("output")
        if not (self.hides_seals and isinstance(items, list) and has_seal(items)):
            return response
        return {**response, "output": self._visible(items)}

    def _visible(self, items: list[Any]) -> list[Any]:
        return [self.item(i) for i in items if not self.is_carrier(i)]

    def is_carrier(self, item: Any) -> bool:
        """Tell whether an item only carries what the client did not ask for."""
        return self.hides_seals and has_mark(item, SEALED) and not item.get("content")

    def item(self, item: Any) -> Any:
        """Return an item without what the client did not ask for."""
        if not (isinstance(item, dict) and "encrypted_content" in item):
            return item
        if self.hides_reasoning or (self.hides_seals and has_mark(item, SEALED)):
            return {k: v for k, v in item.items() if k != "encrypted_content"}
        return item

    def _is_ours(self, tool: Any) -> bool:
        return isinstance(tool, dict) and tool.get("name") in self.owned
