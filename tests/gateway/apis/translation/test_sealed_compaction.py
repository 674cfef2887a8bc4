from __future__ import annotations

import secrets

from hypothesis import given
from hypothesis import strategies as st

from gateway.apis.translation.sealed_compaction import (
    SummarySeal,
    earlier_summary,
    kept_items,
    output_message,
    summary_message,
    transcript,
    with_summaries,
)

SECRET = secrets.token_bytes(32)
OURS = SummarySeal(SECRET, "a")
OTHER = SummarySeal(SECRET, "b")
USER = {"role": "user", "content": "Hi"}


def item(seal, summary="It rains."):
    return {"type": "compaction", "id": "c", "encrypted_content": seal.close(summary)}


@given(st.lists(st.sampled_from(["ours", "other", "foreign", "user"]), max_size=6), st.text())
def test_ours_becomes_a_message_and_all_else_stays(kinds, summary):
    made = {
        "ours": item(OURS, summary),
        "other": item(OTHER, summary),
        "foreign": {"type": "compaction", "encrypted_content": summary},
        "user": USER,
    }
    body = {"model": "m", "input": [made[k] for k in kinds]}
    opened = with_summaries(body, OURS)
    expected = [summary_message(summary) if k == "ours" else made[k] for k in kinds]
    assert opened == {"model": "m", "input": expected}
    assert (opened is body) == ("ours" not in kinds)


def test_an_item_is_kept_by_what_it_is():
    foreign = {"type": "compaction", "encrypted_content": "x"}
    said = {"type": "message", "role": "assistant", "content": "Yes"}
    items = [USER, said, foreign, item(OURS), {"type": "reasoning"}, "junk"]
    assert list(kept_items(items, OURS)) == [USER, foreign]
    assert earlier_summary(items, OURS) == "It rains."
    assert output_message(USER, "msg_1") == {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "user",
        "content": [{"type": "input_text", "text": "Hi"}],
    }
    assert output_message(foreign, "msg_1") is foreign


def test_a_transcript_says_what_was_said_and_done():
    call = {"type": "custom_tool_call", "id": "x", "call_id": "c", "name": "sh", "input": "ls"}
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": [{"text": "a.py"}]}
    found = transcript([USER, {"type": "reasoning"}, call, output, item(OURS), 3])
    assert [(m["role"], m["content"]) for m in found] == [
        ("user", "Hi"),
        ("assistant", '[custom_tool_call] {"name":"sh","input":"ls"}'),
        ("tool", "a.py"),
    ]
