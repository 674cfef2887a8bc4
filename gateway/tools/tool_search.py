"""Finds tools by what they do, among many. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.tools.registry import RegisteredTool
from memory import stems_of

MOST_HITS = 10
USUAL_HITS = 5
# A word of the name counts as much as so many of the description.
NAME_WEIGHT = 3.0
_encode = msgspec.json.encode


def search_tools(tools: Mapping[str, RegisteredTool], arguments: Mapping[str, Any]) -> str:
    """Return the tools that fit a query best: name, description and whole schema of each."""
    limit = min(MOST_HITS, max(1, arguments.get("limit") or USUAL_HITS))
    hits = rank_tools(tools, str(arguments["query"]))[:limit]
    if not hits:
        return "Nothing found. Try other words for what the tool should do."
    definitions = (_encode(tools[name].definition["function"]).decode() for name in hits)
    return "\n".join(definitions)


def rank_tools(tools: Mapping[str, RegisteredTool], query: str) -> list[str]:
    """Return the names of the tools that share words with a query, the best first."""
    query_words = set(stems_of(query[:1000]))
    words_by_tool = {name: _weigh(tool) for name, tool in tools.items()}
    count = len(words_by_tool) or 1
    scores: dict[str, float] = {}
    for word in query_words:
        holders = {name: words[word] for name, words in words_by_tool.items() if word in words}
        rarity = math.log(1 + count / (len(holders) or 1))
        for name, weight in holders.items():
            scores[name] = scores.get(name, 0.0) + rarity * weight
    return sorted(scores, key=lambda name: (-scores[name], name))


def _weigh(tool: RegisteredTool) -> dict[str, float]:
    """Return the words of a tool with their weights; those said often count little more."""
    function = tool.definition["function"]
    weights: dict[str, float] = {}
    description_words = stems_of(function["description"]) + stems_of(
        " ".join(_parameter_words(function))
    )
    for word in description_words:
        weights[word] = min(2.0, weights.get(word, 0.0) + 1.0)
    for word in stems_of(tool.name):
        weights[word] = weights.get(word, 0.0) + NAME_WEIGHT
    return weights


def _parameter_words(function: Mapping[str, Any]) -> list[str]:
    properties = function["parameters"].get("properties") or {}
    described = (p.get("description", "") for p in properties.values() if isinstance(p, dict))
    return [*properties, *(str(text) for text in described)]
