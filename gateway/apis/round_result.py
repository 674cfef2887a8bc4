"""What one upstream call came to, in any format. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.wire.chat import Json


class RoundResult(msgspec.Struct):
    """What one upstream call came to.

    reply: the answer as received. ours, theirs: calls of memory tools, and the client's own.
    complete: False for a cut stream. cut: the model stopped in the middle, so calls may be halves.
    error: the upstream's own, inside the answer.
    """

    reply: Json
    ours: list[Json]
    theirs: list[Json]
    complete: bool
    cut: bool
    text_shown: bool
    usage: Json | None
    error: Any = None
