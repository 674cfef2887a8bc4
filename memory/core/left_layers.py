"""What an explain record shows of shared blocks to a user who no longer reads them. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from memory.conversation.messages import Json

LEFT = "(layer left)"


def without_layers(record: Json, labels: Collection[str]) -> Json:
    """Return an explain record without the texts of shared blocks, each by its label."""
    injected = dict(record["injected"])
    for label in labels:
        injected["core"] = _without_element(injected["core"] or "", label)
        injected["notes"] = [
            {**note, "text": _without_element(note["text"], label)} for note in injected["notes"]
        ]
    injected["spliced"] = [
        {**span, "messages": _without_calls(span["messages"], labels)}
        for span in injected["spliced"]
    ]
    tools = [_without_blocks(call, labels) for call in record["tools"]]
    return {**record, "injected": injected, "tools": tools}


def _without_blocks(call: Json, labels: Collection[str]) -> Json:
    """Return a call without what it says of these blocks; one that shows all blocks has others."""
    if _names(call["arguments"], labels):
        return {**call, "arguments": LEFT, "result": LEFT}
    result = call["result"]
    for label in labels:
        result = _without_element(result, label)
    return {**call, "result": result}


def without_hits(record: Json, labels: Collection[str]) -> Json:
    """Return an explain record without what was found in these layers."""
    if not labels:
        return record
    injected = dict(record["injected"])
    injected["recall"] = "\n".join(
        f"- {LEFT}" if _is_of_layer(line, labels) else line
        for line in (injected["recall"] or "").split("\n")
    )
    injected["spliced"] = [
        {**span, "messages": [_without_found(message, labels) for message in span["messages"]]}
        for span in injected["spliced"]
    ]
    tools = [
        {**call, "arguments": LEFT, "result": LEFT} if _tells(call["result"], labels) else call
        for call in record["tools"]
    ]
    return {**record, "injected": injected, "tools": tools}


def _is_of_layer(line: str, labels: Collection[str]) -> bool:
    """Tell whether a line of recalled items is of one of these layers."""
    return line.startswith("- (") and any(f", {label}) " in line for label in labels)


def _without_found(message: Any, labels: Collection[str]) -> Any:
    if _tells(str(message), labels):
        return {"role": message.get("role"), "content": LEFT}
    return message


def _tells(text: str, labels: Collection[str]) -> bool:
    """Tell whether a text names one of these layers, as hits of a search and receipts do."""
    return any(label in text for label in labels)


def _without_element(text: str, label: str) -> str:
    """Return a text without what stands in the elements of a label; stored text is escaped."""
    return re.sub(rf"(<{label} [^<>]*>).*?(</{label}>)", rf"\1{LEFT}\2", text, flags=re.DOTALL)


def _without_calls(messages: Any, labels: Collection[str]) -> Any:
    """Return hidden messages without the calls about these blocks, and their results."""
    if any(_names(str(message), labels) for message in messages):
        return [{"role": message.get("role"), "content": LEFT} for message in messages]
    return messages


def _names(arguments: str, labels: Collection[str]) -> bool:
    """Tell whether the arguments of a call, or a text, name one of these blocks."""
    return any(re.search(rf"\b{label}\b", arguments) for label in labels)
