"""Chunks that tell a call again, or in the form of old, as chunks that tell it once. Pure.

- llama-cpp-python tells a call in `tool_calls` and again in `function_call`; other servers tell it
  in `function_call` alone, though they were offered `tools`.
- MiniMax repeats in the `message` of its last event what its deltas told, calls included; others
  send one event with the whole `message`.

What repeats a call of ours is left out, and one that is told in the form of old alone is told as
`tool_calls`. What the client's own calls are told in stays as it came.
"""

from __future__ import annotations

from gateway.apis.chat.interceptor import Interceptor
from gateway.wire.chat import Chunk, Json, lane_of, lift
from gateway.wire.chat import chunk as chunk_of
from gateway.wire.merge import CALLS
from gateway.wire.told_choices import LEGACY_CALL, as_call, told_calls

MESSAGE = "message"
NOTHING: tuple[object, ...] = (None, "", [], {})


class SettlingInterceptor(Interceptor):
    """An interceptor of chunks that may tell a call twice, or in the form of old."""

    # Lanes of this round whose call of the older form is ours.
    _own_lanes: frozenset[int] = frozenset()

    def feed(self, chunk: Chunk) -> list[bytes]:
        return super().feed(self._settle(chunk) if _is_odd(chunk) else chunk)

    def start_next_round(self) -> None:
        super().start_next_round()
        self._own_lanes = frozenset()

    def _settle(self, received: Chunk) -> Chunk:
        """Return a chunk that tells each call once."""
        self._flush_template()
        choices = received.body["choices"]
        settled = [self._settle_choice(choice) for choice in choices]
        if all(now is before for now, before in zip(settled, choices, strict=True)):
            return received
        return chunk_of({**received.body, "choices": settled}, b"")

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
            self._own_lanes -= {lane}
            if self._is_own(legacy_call):
                self._own_lanes |= {lane}
        if lane not in self._own_lanes:
            return choice
        without_legacy = {k: v for k, v in delta.items() if k != LEGACY_CALL}
        if without_legacy.get(CALLS) in NOTHING:
            without_legacy[CALLS] = [as_call(legacy_call)]
        return {**choice, "delta": without_legacy}

    def _settle_message(self, choice: Json, message: Json) -> Json:
        """Return a choice of a stream without a message that repeats what is not shown."""
        told_deltas = [choice.get("delta"), self._round_reply.delta_of(lane_of(choice))]
        is_repeated = any(isinstance(d, dict) and _tells(d) for d in told_deltas)
        if not is_repeated and _tells(message):
            without_delta = {k: v for k, v in choice.items() if k != "delta"}
            lifted: Json = lift({"choices": [without_delta]})["choices"][0]
            return lifted
        functions = [c.get("function") for c in told_calls(message) if isinstance(c, dict)]
        if self._rounds or any(map(self._is_own, functions)):
            return {k: v for k, v in choice.items() if k != MESSAGE}
        return choice

    def _is_own(self, function: object) -> bool:
        name = function.get("name") if isinstance(function, dict) else None
        return isinstance(name, str) and name in self._own_names


def _is_odd(chunk: Chunk) -> bool:
    """Tell whether a chunk may tell something twice, or in the form of old."""
    if chunk.error is not None:
        return False
    for choice in chunk.body.get("choices") or ():
        delta = choice.get("delta")
        if MESSAGE in choice or (delta and delta.get(LEGACY_CALL)):
            return True
    return False


def _tells(message: Json) -> bool:
    """Tell whether a delta or a message says anything beside its role."""
    return any(value not in NOTHING for name, value in message.items() if name != "role")
