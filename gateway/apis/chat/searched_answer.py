"""A chat completion with a vendor's search that the gateway answers: its request and its citations.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.apis.base import Composed
from gateway.apis.search.search_results import SearchCitations
from gateway.apis.search.vendor_search import SEARCH_OPTIONS
from gateway.wire.chat import Json

ANNOTATIONS = "annotations"


def replace_search_options(composed_body: Composed, function: Json | None) -> Composed:
    """Return a composed request without the option, for a server that has no search.

    function: offered behind the other tools; None where it is among them, or is not offered.
    Citations of earlier answers stay here as well: such servers may not know them.
    """
    body, sent_pieces, client, lasting = composed_body
    body = {name: value for name, value in body.items() if name != SEARCH_OPTIONS}
    body["messages"] = [_without_annotations(m) for m in body["messages"]]
    if function is not None:
        body["tools"] = [*(body.get("tools") or ()), {"type": "function", "function": function}]
    if lasting is not None:
        lasting = [_without_annotations(m) for m in lasting]
    return body, sent_pieces, client, lasting


def _without_annotations(message: Json) -> Json:
    if ANNOTATIONS not in message:
        return message
    return {name: value for name, value in message.items() if name != ANNOTATIONS}


class CitedTexts:
    """What the texts of one answer cite, choice by choice.

    Each round's text is read as the round ends, so that a mark cites a hit of a search before it.
    shown: texts that were shown before, by choice, which cite nothing.
    """

    def __init__(self, citations: SearchCitations, shown_texts: Mapping[int, str]) -> None:
        self._citations = citations
        self._lengths_read = {lane: len(text) for lane, text in shown_texts.items()}
        self._annotations: dict[int, list[Json]] = {}

    def read_round(self, texts: Mapping[int, str]) -> None:
        """Read what a round added to the texts."""
        for lane, text in texts.items():
            annotations = self._citations.cite_completion(text, self._lengths_read.get(lane, 0))
            self._lengths_read[lane] = len(text)
            if annotations:
                self._annotations.setdefault(lane, []).extend(annotations)

    def take_deltas(self) -> dict[int, dict[str, Any]]:
        """Return a delta for each choice that cites something; a second time none."""
        annotations = self._annotations
        self._annotations = {}
        return {lane: {ANNOTATIONS: citations} for lane, citations in annotations.items()}
