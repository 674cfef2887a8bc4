"""Automatic recall: what the request says already is left out, and no text is looked at further
than it is shown.
"""

from memory.context.tokens import TokenCounter
from memory.retrieval.auto_recall import MAX_SHOWN_CHARACTERS, beginnings, render_recall


def hit(content):
    return {"content": content, "created_at": 0.0, "key": 1}


def test_what_the_request_holds_is_known_again_by_its_beginning():
    long = "tea  is\n good " * 1_000_000
    present = beginnings(
        [
            {"role": "user", "content": long},
            {"role": "user", "content": [{"type": "text", "text": "green tea"}]},
        ]
    )
    assert max(map(len, present)) == MAX_SHOWN_CHARACTERS
    assert (
        render_recall(
            [hit(" ".join(long.split())), hit("green   tea")], present, "t", TokenCounter()
        )
        == ""
    )
    shown = render_recall(
        [hit("black tea"), hit("black tea"), hit("green tea")], present, "t", TokenCounter()
    )
    assert shown.count("black tea") == 1
    assert "green tea" not in shown
