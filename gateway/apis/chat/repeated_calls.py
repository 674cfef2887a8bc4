"""Chunks that tell a call again, or in the form of old, as chunks that tell it once. Pure.

- llama-cpp-python tells a call in `tool_calls` and again in `function_call`; other servers tell it
  in `function_call` alone, though they were offered `tools`.
- MiniMax repeats in the `message` of its last event what its deltas told, calls included; others
  send one event with the whole `message`.

What repeats a call of ours is left out, and one that is told in the form of old alone is told as
`tool_calls`. What the client's own calls are told in stays as it came.
"""

from __future__ import annotations

from collections.abc import Collection

from gateway.apis.chat.interceptor import Interceptor
from gateway.apis.round_result import RoundResult
from gateway.wire.chat import Chunk, Json, lane_of, lift
from gateway.wire.chat import chunk as chunk_of
from gateway.wire.merge import CALLS
from gateway.wire.told_choices import LEGACY_CALL, as_call, told_calls

MESSAGE = "message"
NOTHING: tuple[object, ...] = (None, "", [], {})


class RepeatedCalls:
    """Reads the chunks of one answer. own_tools: names of calls that are never shown."""

    def __init__(self, own_tools: Collection[str]) -> None:
        self._own_names = frozenset(own_tools)
        self._told_lanes: set[int] = set()  # that told something in deltas, in this round
        self._own_lanes: set[int] = set()  # whose call of the older form is ours
        self._is_later_round = False

    def start_next_round(self) -> None:
        """Another round follows."""
        self._told_lanes.clear()
        self._own_lanes.clear()
        self._is_later_round = True

    def settle(self, received: Chunk) -> Chunk:
        """Return a chunk that tells each call once; nearly always the same."""
        choices = received.body.get("choices") or []
        if received.error is not None or not any(map(self._is_odd, choices)):
            return received
        settled = [self._settle_choice(choice) for choice in choices]
        if all(now is before for now, before in zip(settled, choices, strict=True)):
            return received
        return chunk_of({**received.body, "choices": settled}, b"")

    def _is_odd(self, choice: Json) -> bool:
        delta = choice.get("delta")
        if MESSAGE in choice:
            return True
        if not delta:
            return False
        lane = lane_of(choice)
        if lane not in self._told_lanes and _tells(delta):
            self._told_lanes.add(lane)
        return bool(delta.get(LEGACY_CALL)) and bool(self._own_names)

    def _settle_choice(self, choice: Json) -> Json:
        message = choice.get(MESSAGE)
        if isinstance(message, dict):
            choice = self._settle_message(choice, message)
        delta = choice.get("delta")
        if not (isinstance(delta, dict) and self._own_names):
            return choice
        legacy_call = delta.get(LEGACY_CALL)
        if not isinstance(legacy_call, dict):
            return choice
        lane = lane_of(choice)
        if legacy_call.get("name"):
            self._own_lanes.discard(lane)
            if self._is_own(legacy_call):
                self._own_lanes.add(lane)
        if lane not in self._own_lanes:
            return choice
        without_legacy = {k: v for k, v in delta.items() if k != LEGACY_CALL}
        if without_legacy.get(CALLS) in NOTHING:
            without_legacy[CALLS] = [as_call(legacy_call)]
        return {**choice, "delta": without_legacy}

    def _settle_message(self, choice: Json, message: Json) -> Json:
        """Return a choice of a stream without a message that repeats what is not shown."""
        lane, delta = lane_of(choice), choice.get("delta")
        if isinstance(delta, dict) and _tells(delta):
            self._told_lanes.add(lane)
        if lane not in self._told_lanes and _tells(message):
            self._told_lanes.add(lane)
            without_delta = {k: v for k, v in choice.items() if k != "delta"}
            lifted: Json = lift({"choices": [without_delta]})["choices"][0]
            return lifted
        functions = [c.get("function") for c in told_calls(message) if isinstance(c, dict)]
        if self._is_later_round or any(map(self._is_own, functions)):
            return {k: v for k, v in choice.items() if k != MESSAGE}
        return choice

    def _is_own(self, function: object) -> bool:
        name = function.get("name") if isinstance(function, dict) else None
        return isinstance(name, str) and name in self._own_names


class SettlingInterceptor(Interceptor):
    """An interceptor of chunks that may tell a call twice, or in the form of old."""

    def __init__(
        self,
        own_tools: Collection[str],
        include_usage: bool = False,
        model: str | None = None,
        *,
        lean: bool = False,
    ) -> None:
        super().__init__(own_tools, include_usage, model, lean=lean)
        self._repeated_calls = RepeatedCalls(own_tools)

    def feed(self, chunk: Chunk) -> list[bytes]:
        return super().feed(self._repeated_calls.settle(chunk))

    def whole(self, chunk: Chunk | None) -> RoundResult | None:
        if chunk is None:
            return None
        return super().whole(self._repeated_calls.settle(chunk))

    def start_next_round(self) -> None:
        super().start_next_round()
        self._repeated_calls.start_next_round()


def _tells(message: Json) -> bool:
    """Tell whether a delta or a message says anything beside its role."""
    return any(value not in NOTHING for name, value in message.items() if name != "role")
