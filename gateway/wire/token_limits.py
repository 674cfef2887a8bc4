"""How the most tokens of an answer are named to a server of chat completions.

Newer models take `max_completion_tokens` alone (OpenAI's GPT-5 and o series), most servers take
`max_tokens`. What a server was seen to want is remembered for each model.
"""

from __future__ import annotations

import re

import msgspec

from gateway.wire.chat import decode, encode
from memory.cache import Cache

MAX_TOKENS = "max_tokens"
MAX_COMPLETION_TOKENS = "max_completion_tokens"
# Clients choose the names of models.
MODELS_BYTES, MODEL_BYTES = 1 << 17, 150
# Of refusals that are about a member, and of those that are about its value.
UNKNOWN = re.compile(
    r"(?i)unsupported|not (?:supported|permitted|allowed|recogni[sz]ed|accepted|expected)"
    r"|un(?:known|expected|recogni[sz]ed)|extra|deprecated|invalid (?:parameter|argument|field)"
    r"|\buse\b|instead|forbidden"
)
VALUE = re.compile(r"(?i)too (?:large|big|many|high)|at most|less than|greater than|exceed|context")
_newer = re.compile(r"(?:gpt-[5-9]|o[1-9])(?![a-z0-9])")
ERROR_CHARACTERS = 4000


class TokenLimits:
    """Names the limit for one provider. usual: the member for a model that nothing is known of."""

    def __init__(self, usual_limit: str = MAX_TOKENS) -> None:
        self._usual_limit = usual_limit
        self._member_cache: Cache[str, str] = Cache(
            MODELS_BYTES, MODEL_BYTES, lambda model, _: 4 * len(model)
        )

    def member_of(self, model: str) -> str:
        """Return the member that a model's server takes."""
        if (member := self._member_cache.get(model)) is not None:
            return member
        return usual_member(model, self._usual_limit)

    def note(self, model: str, member: str) -> None:
        """Remember that a model's server took a member after it had refused the other one."""
        self._member_cache.put(model, member)


def usual_member(model: str, usual_limit: str = MAX_TOKENS) -> str:
    """Return the member that a model's server most likely takes. usual_limit: of one not known."""
    is_newer = _newer.match(model.rsplit("/", 1)[-1].lower()) is not None
    if is_newer:
        return MAX_COMPLETION_TOKENS
    return usual_limit


def rename_limit(body: bytes, member: str) -> bytes:
    """Return a chat completion's body with its limit under this name."""
    members = decode(body)
    old_member = _other(member)
    if old_member not in members or member in members:
        return body
    return encode(
        {member if name == old_member else name: value for name, value in members.items()}
    )


def refused_member(status: int, request_bytes: bytes, refusal: bytes) -> str:
    """Return the member that a server wants in place of the one it refused, "" for none."""
    if status not in (400, 422):
        return ""
    text = refusal[:ERROR_CHARACTERS].decode("utf-8", "replace")
    for member in (MAX_TOKENS, MAX_COMPLETION_TOKENS):
        if f'"{member}"'.encode() in request_bytes and _is_about(member, text, refusal):
            return _other(member)
    return ""


def _is_about(member: str, text: str, refusal: bytes) -> bool:
    """Tell whether an error refuses a member, whatever its value."""
    if not re.search(rf"\b{member}\b", text) or VALUE.search(text):
        return False
    if UNKNOWN.search(text):
        return True
    try:
        error = decode(refusal).get("error")
        return isinstance(error, dict) and error.get("param") == member
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AttributeError):
        return False


def _other(member: str) -> str:
    if member == MAX_COMPLETION_TOKENS:
        return MAX_TOKENS
    return MAX_COMPLETION_TOKENS
