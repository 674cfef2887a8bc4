"""What a request loses in another format: only what the settings allow. Pure."""

from __future__ import annotations

from collections.abc import Collection

from gateway.errors import BadRequest

# What programs send unasked and what an answer can do without; the default of
# `providers.<name>.drop`.
DROPPED = (
    "allowed_callers",
    "cache_control",
    "client_metadata",
    "context_management",
    "defer_loading",
    "eager_input_streaming",
    "include",
    "input.reasoning",
    "input.web_search_call",
    "input_examples",
    "messages.name",
    "messages.thinking",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning.summary",
    "safety_identifier",
    "service_tier",
    "store",
    "text.verbosity",
    "thinking",
    "tools.image_generation",
    "tools.tool_search",
    "tools.web_search",
)

# Members of a tool that tell how it is best used, without which it works as well.
TOOL_HINTS = ("allowed_callers", "defer_loading", "eager_input_streaming", "input_examples")


class Losses:
    """The losses of one request. names: in the order in which they were lost.

    provider: its name in the settings. drop: what may be lost, see `providers.<name>.drop`. speaks:
    the format that its server takes.
    """

    def __init__(
        self, provider: str, drop: Collection[str], speaks: str = "chat completions"
    ) -> None:
        self.names: dict[str, None] = {}
        self._provider = provider
        self._drop = frozenset(drop)
        self._speaks = speaks

    def drops(self, name: str) -> bool:
        """Tell whether something is to be dropped, and note it."""
        if name not in self._drop and not self._is_dropped_kind(name):
            return False
        self.names[name] = None
        return True

    def lose(self, name: str, param: str) -> None:
        """Drop a member that may be lost. Raises BadRequest, which names it, for any other."""
        if not self.drops(name):
            raise BadRequest(
                f"`{param}` cannot be carried to this model's server, which speaks "
                f"{self._speaks} alone. Leave it out, or list {name[:80]!r} in "
                f"providers.{self._provider}.drop to have it dropped.",
                code="unsupported_parameter",
                param=param,
            )

    def _is_dropped_kind(self, name: str) -> bool:
        """Tell whether a tool is a dated version of one that is dropped."""
        if not name.startswith("tools."):
            return False
        return any(name.startswith(f"{d}_") for d in self._drop if d.startswith("tools."))
