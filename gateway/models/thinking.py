"""Which models think before they answer, and so need room for more than their answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memory import Cache

# Clients choose the names of models.
MODELS_BYTES, MODEL_BYTES = 1 << 17, 150
_names = re.compile(
    r"(?:^|[^a-z])(?:o[1-9]|gpt-[5-9]|gpt-oss|qwq|qwen3|magistral|deepseek-(?:r\d|v3\.[1-9]|v[4-9])"
    r"|glm-(?:4\.[5-9]|[5-9])|gemini-(?:2\.5|[3-9])|grok-(?:3-mini|[4-9])|minimax-m|nemotron"
    r"|kimi-k[2-9]\.[5-9]|hunyuan|seed|phi-4-mini-reason|r1|exaone-deep|smollm3|step-?3)"
    r"(?![a-z0-9]*(?:chat|coder|instruct))"
    r"|think|reason|(?:^|[^a-z])r1(?:[^a-z0-9]|$)"
)


class ThinkingModels:
    """Tells whether a model thinks: as its facts or its name say, or as it was seen to."""

    def __init__(self) -> None:
        self._thinking_models: Cache[str, bool] = Cache(
            MODELS_BYTES, MODEL_BYTES, lambda model, _: 4 * len(model)
        )

    def thinks(self, model: str, facts: Mapping[str, Any]) -> bool:
        """Tell whether a model thinks. facts: see `ModelFacts`."""
        if self._thinking_models.get(model):
            return True
        # With a budget it thinks where a request asks for it, as none of ours does.
        if "thinking" in facts:
            return facts["thinking"] in ("default", "always")
        return _names.search(model.rsplit("/", 1)[-1].lower()) is not None

    def note(self, model: str) -> None:
        """Remember that a model needed more room than its answer has."""
        self._thinking_models.put(model, True)
