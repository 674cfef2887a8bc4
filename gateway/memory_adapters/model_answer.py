"""Calls of the gateway's own for a whole answer: with room for thoughts, grown once."""

from __future__ import annotations

import msgspec

from gateway.errors import UpstreamRefused
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.router import Router
from gateway.usage.meter import guess_tokens
from gateway.wire.chat import Json
from memory import Unusable

# Tokens beside those of the answer: for a model that thinks, and after an answer that was cut off.
THOUGHT_TOKENS = 4096
GROWN_TOKENS = 16_384
CUT = "length"


async def ask_model(forward: Dispatcher, router: Router, body: Json, tokens: int) -> Json:
    """Return the assistant's message of a chat completion that was not cut off.

    body: the request, without a limit. tokens: of the answer, without thoughts. Raises Unusable for
    an answer that is cut off even with more room, and what `Dispatcher.complete_choice` does.
    """
    targets = forward.route.targets
    thinks = any(router.thinking.thinks(t.model, router.facts(t.model)) for t in targets)
    windows = [t.window for t in targets if t.window is not None]
    prompt = guess_tokens(len(msgspec.json.encode(body)))
    token_limit = None
    if windows:
        token_limit = max(tokens, min(windows) - prompt)
    limit = _bounded(tokens + thinks * THOUGHT_TOKENS, token_limit)
    choice = await forward.complete_choice({**body, "max_tokens": limit})
    grown = _bounded(tokens + GROWN_TOKENS, token_limit)
    if choice.get("finish_reason") == CUT and grown > limit:
        limit = grown
        try:
            choice = await forward.complete_choice({**body, "max_tokens": limit})
        except UpstreamRefused as e:
            raise Unusable("the answer was cut off, and no longer one is allowed") from e
        if choice.get("finish_reason") != CUT and forward.served is not None:
            router.thinking.note(forward.served.model)
    if choice.get("finish_reason") == CUT:
        raise Unusable(f"the answer was cut off at {limit} tokens")
    message: Json = choice["message"]
    return message


def _bounded(tokens: int, token_limit: int | None) -> int:
    if token_limit is None:
        return tokens
    return min(tokens, token_limit)
