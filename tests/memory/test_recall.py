"""Automatic recall: what the request says already is left out, and no text is looked at further than it is shown."""

from memory.recall import SHOWN, beginnings, told
from memory.tokens import Counter


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
    assert max(map(len, present)) == SHOWN
    assert told([hit(" ".join(long.split())), hit("green   tea")], present, "t", Counter()) == ""
    shown = told([hit("black tea"), hit("black tea"), hit("green tea")], present, "t", Counter())
    assert shown.count("black tea") == 1
    assert "green tea" not in shown
