"""The reasons for which something that a user said, or a model proposed, is not kept. Pure.

No filter is silent: each drop is recorded with one of these reasons. A reason that is not listed
here fails the type check.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

Reason = Literal[
    "small_talk",
    "question",
    "quoted",
    "code",
    "too_long",
    "duplicate",
    "no_quote",
    "no_shared_word",
    "category",
    "secret",
    "malformed",
    "wrong_id",
    "block_full",
    "budget",
    "replaced",
    "private",
    "held",
    "inbox_full",
    "policy",
    "expired",
]
REASONS: tuple[Reason, ...] = get_args(Reason)
# What is filtered: what a user said before a model reads it, and what the model proposes.
Stage = Literal["message", "fact"]
STAGES: tuple[Stage, ...] = get_args(Stage)
MAX_TEXT_CHARACTERS = 400


class Drop(NamedTuple):
    """Something that was not kept.

    text: of a proposed fact; "" where it is a message or a secret. message: the public id of the
    message that it is, or was taken from.
    """

    stage: Stage
    reason: Reason
    text: str = ""
    message: str = ""
