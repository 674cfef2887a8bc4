"""What an upstream's error means: whether and when to retry, whether the target failed.

Also what the client reads. Pure, except the random retry delay and the clock that a date is
compared with.
"""

from __future__ import annotations

import contextlib
import math
import random
import re
import time
from datetime import UTC
from email.utils import parsedate_to_datetime

import msgspec

from gateway.errors import (
    GatewayError,
    StreamIncomplete,
    UnreadableAnswer,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
    error_body,
)
from gateway.wire.chat import decode, encode
from gateway.wire.error_excerpt import excerpt
from gateway.wire.headers import Pairs

OVERFLOW = re.compile(
    r"context_length_exceeded|maximum context length|context window|prompt is too "
    r"long|input "
    r"is "
    r"too long|too many (?:input )?tokens|exceeds? the (?:maximum|limit|context)"
    r"|reduce the length|input token count|exceed_context_size|request too large",
    re.IGNORECASE,
)
# "maximum context length is 8192 tokens. However, you requested 9000 tokens (8000 in the messages",
# "210000 tokens > 200000 maximum"
CONTEXT_WINDOW_MESSAGE = (
    re.compile(
        r"(?:maximum|context (?:window|size|length)|limit|n_ctx)[^\d.]{0,40}(\d{3,9})",
        re.IGNORECASE,
    ),
    re.compile(r"[>(] ?(\d{3,9}) (?:token )?maximum", re.IGNORECASE),
)
PROMPT = (
    re.compile(r"(\d{3,9})(?: tokens)? (?:in|from) the (?:messages|prompt|input)", re.IGNORECASE),
    re.compile(
        r"(?:resulted in|too long:|n_prompt_tokens|prompt \(|input \(|token "
        r"count|requested)[^\d.]{0,24}(\d{3,9})",
        re.IGNORECASE,
    ),
)

# Characters of an error that are looked into.
ERROR_TEXT = 4000
# What an error about the prompt names as the parameter at fault, if it names any.
PROMPT_PARAMS = (None, "", "messages", "input", "prompt", "input_tokens", "input_text")

# Most characters of an upstream's text in the log.
LOGGED = 1000


def error_json(status: int, data: bytes, headers: Pairs) -> tuple[bytes, Pairs]:
    """Return an upstream's error body as it came if it is JSON, else as a JSON error.

    The latter quotes an excerpt of the text, if that is safe.
    """
    try:
        decode(data)
        return data, headers
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = excerpt(data) or (
            "with a text that only the gateway's log shows" if data.strip() else "no text"
        )
        other_headers = [
            (k, v) for k, v in headers if k not in (b"content-type", b"content-encoding")
        ]
        return error_body(
            f"The upstream answered {status}: {text}", "upstream_error", "upstream_error"
        ), [*other_headers, (b"content-type", b"application/json")]


def is_overflow(error: UpstreamRefused) -> bool:
    """Tell whether an error says that the prompt exceeds the context window."""
    return bool(_overflow_text(error))


def sizes_told(error: UpstreamRefused) -> tuple[int, int] | None:
    """Return the tokens of the prompt and of the window that an overflow error names.

    None unless it names both.
    """
    text = _overflow_text(error).replace(",", "")
    window, prompt = (
        next((int(match[1]) for pattern in ways if (match := pattern.search(text))), 0)
        for ways in (CONTEXT_WINDOW_MESSAGE, PROMPT)
    )
    if window and prompt:
        return (prompt, window)
    return None


def _overflow_text(error: UpstreamRefused) -> str:
    """Return what an error says of a prompt that is too long, "" if it is about something else."""
    if error.status not in (400, 413, 422):
        return ""
    text = _error_text(error.content)
    if OVERFLOW.search(text):
        return text
    return ""


def _error_text(content: bytes, *, nested: bool = False) -> str:
    """Return the upstream's own words of an error, "" for one about another part of the request.

    An error about a value quotes the value, so a client could put an overflow's words there.
    nested: the error is one that a router of several providers passes on.
    """
    try:
        body = decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Else JSON that was cut short.
        is_text = content.lstrip()[:1] not in (b"{", b"[")
        if is_text:
            return content[:ERROR_TEXT].decode("utf-8", "replace")
        return ""
    # Google's.
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, dict):
        error = body.get("error", body)
    else:
        error = body
    if not isinstance(error, dict):
        if isinstance(error, str):
            return error[:ERROR_TEXT]
        return ""
    code = error.get("code")
    about_prompt = code == "context_length_exceeded" or error.get("param") in PROMPT_PARAMS
    if code == "invalid_value" or not about_prompt:
        return ""
    sizes = [f"{n} {error[n]}" for n in ("n_prompt_tokens", "n_ctx") if type(error.get(n)) is int]
    words = [w for n in ("message", "detail", "code", "type") if isinstance(w := error.get(n), str)]
    metadata = error.get("metadata")
    raw_error = None
    if isinstance(metadata, dict) and not nested:
        raw_error = metadata.get("raw")
    if isinstance(raw_error, str):
        words.append(_error_text(raw_error.encode(), nested=True))
    return ". ".join([*sizes, *(word[:ERROR_TEXT] for word in words)])


def as_context_overflow(e: UpstreamRefused) -> UpstreamRefused:
    """Return the upstream's error with the code by which frameworks recognise an overflow."""
    try:
        body = decode(e.content)
        error = None
        if isinstance(body, dict):
            error = body.get("error")
        if isinstance(error, dict) and error.get("code") != "context_length_exceeded":
            return UpstreamRefused(
                e.status,
                encode({**body, "error": {**error, "code": "context_length_exceeded"}}),
                e.headers,
            )
        if not isinstance(error, dict):
            return UpstreamRefused(
                e.status,
                error_body(str(error or body), "invalid_request_error", "context_length_exceeded"),
                e.headers,
            )
    except msgspec.DecodeError:
        return UpstreamRefused(
            e.status,
            error_body(e.message, "invalid_request_error", "context_length_exceeded"),
            e.headers,
        )
    return e


def status_of(error: object) -> int:
    """Return the status of an error that was told inside an accepted answer."""
    if isinstance(error, dict):
        codes = [error.get("code"), error.get("status")]
    else:
        codes = []
    code = next((c for c in codes if isinstance(c, int)), None)
    # Anthropic's.
    if isinstance(error, dict) and error.get("type") == "overloaded_error":
        return 529
    if code is not None and 400 <= code < 600:
        return code
    return 502


def code_of(error: GatewayError) -> str | None:
    """Return the code in an error's body: `error.code`, or else `error.type`."""
    try:
        error_member = decode(error.body())["error"]
        code = error_member.get("code") or error_member.get("type")
        if isinstance(code, str):
            return code
        return None
    except (
        msgspec.DecodeError,
        UnicodeDecodeError,
        RecursionError,
        LookupError,
        TypeError,
        AttributeError,
    ):
        return None


def worth_retrying(error: GatewayError) -> bool:
    """Tell whether another attempt or target may succeed.

    That is for 408, 429, 5xx and broken connections, but not for errors with our own credentials,
    nor for a full connection pool.
    """
    if (hint := _hint(error)) is not None:
        return hint == b"true"
    if isinstance(error, UpstreamRefused):
        return error.status in (408, 429) or error.status >= 500
    return isinstance(error, UpstreamUnreachable | UpstreamTimeout | StreamIncomplete)


def forbids_retry(error: GatewayError) -> bool:
    """Tell whether the upstream said that a retry is pointless."""
    return _hint(error) == b"false"


def _hint(error: GatewayError) -> bytes | None:
    return next((v for k, v in error.headers if k == b"x-should-retry"), None)


def is_target_failure(error: GatewayError) -> bool:
    """Tell whether a failure counts against its target.

    Errors of the request itself, our own total timeout and what only memory cannot read do not.
    """
    if isinstance(error, UnreadableAnswer):
        return False
    if isinstance(error, UpstreamRefused):
        return error.status in (408, 429) or error.status >= 500
    return isinstance(error, UpstreamUnreachable | StreamIncomplete) or (
        isinstance(error, UpstreamTimeout) and error.code != "total_timeout"
    )


def retry_after_seconds(error: GatewayError) -> float | None:
    """Return the seconds that an upstream asks to wait; None if it does not.

    Three forms: `retry-after-ms`, `retry-after` in seconds or as a date. A date is compared with
    the upstream's own clock, if known, and rounded to whole seconds.
    """
    for name, scale in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        value = next((v for k, v in error.headers if k == name), b"")
        if re.fullmatch(rb"\d+(\.\d+)?", value):
            return float(value) * scale
        if name == b"retry-after" and (until := _date(value)) is not None:
            now = None
            if isinstance(error, UpstreamRefused):
                now = _date(error.date)
            return max(0.0, math.ceil(until - (time.time() if now is None else now)))
    return None


def _date(value: bytes) -> float | None:
    """Return an HTTP-date as Unix time. One without a zone is UTC (RFC 9110, 5.6.7)."""
    with contextlib.suppress(ValueError, OverflowError, TypeError):
        moment = parsedate_to_datetime(value.decode("latin-1"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


def reason(error: GatewayError) -> str:
    """Describe why a call failed, for the operator's log.

    Contains no prompt, no key, and not the message of an upstream's error, which may quote either.
    """
    if isinstance(error, UpstreamRefused):
        detail = f": {error.said}" if error.said else ""
        return f"it answered {error.status} ({code_of(error) or 'no code'}){detail}"
    causes = (c for c in (error.__cause__, error.__context__) if c is not None and str(c))
    cause = next((f" [{type(c).__name__}: {str(c)[:LOGGED]}]" for c in causes), "")
    return f"{error.code}: {error.message}{cause}"


def retry_delay(error: GatewayError, tries: int) -> float:
    """Return the seconds to wait before retrying the same target.

    What it asks for, otherwise exponential backoff from half a second with full jitter.
    """
    asked_seconds = retry_after_seconds(error)
    if asked_seconds is None:
        return random.random() * 0.5 * 2.0 ** (tries - 1)
    return asked_seconds
