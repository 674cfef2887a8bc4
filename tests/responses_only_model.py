"""A scripted server that speaks the Responses API alone, and refuses what the API has no place for:
the first illegal body fails the test. A script is as `wire_models` has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.sockets import Seen, Wire
from tests.wire_models import Json, ResponsesModel

MEMBERS = frozenset(
    """
    model input instructions stream store temperature top_p user metadata max_output_tokens tools
    tool_choice parallel_tool_calls reasoning include text safety_identifier service_tier
    prompt_cache_key prompt_cache_retention
    """.split()  # noqa: SIM905
)
PARTS = {
    "user": {"input_text", "input_image", "input_file", "input_audio"},
    "system": {"input_text"},
    "developer": {"input_text"},
    "assistant": set(),
}
ITEMS = {
    "message": {"role", "content", "type"},
    "function_call": {"type", "call_id", "name", "arguments"},
    "function_call_output": {"type", "call_id", "output"},
    "custom_tool_call": {"type", "call_id", "name", "input"},
    "custom_tool_call_output": {"type", "call_id", "output"},
    "reasoning": {"type", "id", "summary", "encrypted_content", "content", "status"},
}
FLAT = {
    "function": {"type", "name", "description", "parameters", "strict"},
    "custom": {"type", "name", "description", "format"},
}


class ResponsesOnlyModel(ResponsesModel):
    """refused: paths that it has not."""

    def __init__(self, *script: Any) -> None:
        super().__init__(*script)
        self.refused: list[str] = []

    async def _behave(self, seen: Seen, wire: Wire) -> None:
        if seen.path.partition("?")[0].endswith("/responses"):
            await super()._behave(seen, wire)
            return
        self.refused.append(seen.path)
        await wire.json({"detail": "Not Found"}, 404)

    def check(self, body: Json) -> Iterable[str]:
        yield from super().check(body)
        # A client of this very API.
        if isinstance(body["input"], str):
            return
        yield from (f"{name}: unknown member" for name in body if name not in MEMBERS)
        if body.get("store") is not False:
            yield "a response that is to be stored"
        for item in body["input"]:
            yield from self._check_item(item)
        for tool in body.get("tools") or ():
            if unknown := set(tool) - FLAT[tool["type"]]:
                yield f"a tool with {unknown}"
            if tool["type"] == "function" and not isinstance(tool.get("strict"), bool):
                yield "a function that does not say whether it is strict"
        if "tool_choice" in body and not body.get("tools"):
            yield "tool_choice without tools"
        wanted = (body.get("text") or {}).get("format") or {}
        if wanted.get("type") == "json_schema" and not {"name", "schema"} <= set(wanted):
            yield f"a schema that is not flat: {wanted}"

    def _check_item(self, item: Json) -> Iterable[str]:
        kind = item.get("type", "message")
        if unknown := set(item) - ITEMS[kind]:
            yield f"an item {kind} with {unknown}"
        if kind == "function_call" and not isinstance(item["arguments"], str):
            yield "arguments that are no text"
        content = item.get("content") if kind == "message" else item.get("output")
        allowed = PARTS[item.get("role", "user")]
        for part in content if isinstance(content, list) else ():
            if part["type"] not in allowed:
                yield f"a part {part['type']} in {kind}"
        if kind == "reasoning" and not item.get("encrypted_content"):
            yield "reasoning that is not encrypted"
