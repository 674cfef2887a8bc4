"""Open WebUI's export of chats, with and without a tree."""

from __future__ import annotations

import pytest

from memory.export_format import MessageLine
from memory.formats.open_webui import read
from memory.formats.records import BrokenItem


def chat(**members):
    return {"id": "c1", "user_id": "u1", "created_at": 1_700_000_000, "chat": members}


def message(ident, parent, role, content):
    return {
        "id": ident,
        "parentId": parent,
        "childrenIds": [],
        "role": role,
        "content": content,
        "timestamp": 1_700_000_005,
    }


def said(bundle):
    return [line.message["content"] for line in bundle.lines if isinstance(line, MessageLine)]


def test_the_branch_that_is_shown_comes_first():
    tree = {
        m["id"]: m
        for m in (
            message("q", None, "user", "Fold?"),
            message("a", "q", "assistant", "In half."),
            message("b", "q", "assistant", "In three."),
        )
    }
    (bundle,) = read(chat(history={"messages": tree, "currentId": "b"}))
    assert said(bundle) == ["Fold?", "In three.", "In half."]
    assert (bundle.owner, bundle.lines[0].id) == ("u1", "openwebui:c1")
    assert bundle.lines[2].created_at == "2023-11-14T22:13:25.000Z"


def test_an_old_export_is_a_list():
    (bundle,) = read(chat(messages=[message("q", None, "user", "Hi"), {"role": "system"}, None]))
    assert said(bundle) == ["Hi"]
    (bundle,) = read({"messages": [{"role": "user", "content": "Hi"}]})
    assert said(bundle) == ["Hi"]


def test_thoughts_and_calls_shown_folded_are_left_out_and_other_folds_stay():
    answer = (
        '<details type="reasoning" done="true">\n<summary>Thought</summary>\nhm</details>\nTea. '
        "<details><summary>More</summary>Green.</details>"
        '<details type="tool_calls" name="x">call</details> <details type="reasoning"'
    )
    (bundle,) = read(chat(messages=[message("a", None, "assistant", answer)]))
    assert said(bundle) == [
        'Tea. <details><summary>More</summary>Green.</details> <details type="reasoning"'
    ]


@pytest.mark.parametrize("value", [None, 3, {}, {"chat": {}}, {"chat": {"history": {}}}])
def test_what_is_no_chat_is_told(value):
    with pytest.raises(BrokenItem, match="neither"):
        list(read(value))
