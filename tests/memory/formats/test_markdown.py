"""A memory on pages: whatever its texts hold, it is read back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.export_format import (
    BlockLine,
    ConversationLine,
    Export,
    ExportEnd,
    MessageLine,
    NodeLine,
    PassageLine,
    PolicyLine,
    VersionLine,
)
from memory.formats.markdown import BadPage, page_texts, read_page, record_text

AT = "2026-11-23T10:00:00.000Z"
tricky = st.lists(
    st.sampled_from(
        ["<!-- {", "\\<!-- {", "} -->", "\n", "\r\n", "#### x", "-->", "a", " ", "", '"', "é\u2028"]
    )
).map("".join)
texts = tricky | st.text(st.characters(codec="utf-8"), max_size=40)
plain = st.builds(lambda text: {"role": "user", "content": text}, texts)
odd = st.sampled_from(
    [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a -->"}]},
        {"content": "x", "role": "user"},
        {"role": "user", "content": [{"type": "text", "text": "<!-- {"}]},
        {"role": "user"},
        {"role": "user", "content": "x", "name": "ada"},
    ]
)
records = st.one_of(
    st.builds(BlockLine, label=st.just("human"), value=texts, description=texts),
    st.builds(VersionLine, label=st.just("human"), version=st.just(1), before=texts, after=texts),
    st.builds(PassageLine, content=texts, tags=st.lists(texts, max_size=2)),
    st.builds(ConversationLine, id=texts.filter(bool)),
    st.builds(NodeLine, conversation=st.just("c"), id=st.just("1")),
    st.builds(MessageLine, conversation=st.just("c"), message=plain | odd, node=st.just("1")),
)


@given(st.lists(records, max_size=5))
def test_records_are_read_back_as_they_were(found):
    assert read_page("".join(map(record_text, found))) == found


def test_a_page_reads_well():
    line = PassageLine(content="Grace arrives", tags=["family"], created_at=AT)
    assert record_text(line) == (
        f'<!-- {{"object":"passage","tags":["family"],"created_at":"{AT}"}} -->\n'
        "#### 2026-11-23 10:00\n\nGrace arrives\n\n"
    )


@pytest.mark.parametrize(
    "page",
    [
        '<!-- {"object":"passage"} -->\nGrace arrives',
        '# Notes\n\nmine\n<!-- {"object":"passage"} -->\n#### anything\n\nGrace arrives\n',
        '<!-- {"object":"passage"} -->\r\n#### x\r\n\r\nGrace arrives\r\n\r\n',
    ],
)
def test_a_page_may_be_written_by_hand(page):
    (line,) = read_page(page)
    assert line.content.strip() == "Grace arrives"


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ('<!-- {"object":"passage"', "must end with"),
        ("<!-- {x} -->", "line 3"),
        ('<!-- {"object":"nothing"} -->', "line 3"),
        ('<!-- {"object":"passage","created_at":"soon"} -->\n\nx', "line 3"),
        ('<!-- {"object":"message","message":7} -->', "line 3"),
        ("<!-- {" + '"a":{' * 5000 + "}" * 5001 + " -->", "line 3"),
    ],
)
def test_a_bad_record_is_told_by_its_line(record, why):
    with pytest.raises(BadPage, match=why):
        read_page(f"a\nb\n{record}\n")


def test_pages_are_by_kind_and_agent():
    lines = [
        Export(user="ada"),
        PolicyLine(memory="read"),
        BlockLine(label="human"),
        VersionLine(label="human", version=1),
        *(PassageLine(content=str(i)) for i in range(201)),
        ConversationLine(id="../../etc/passwd", created_at=AT),
        MessageLine(conversation="../../etc/passwd", message={"role": "user", "content": "x"}),
        PassageLine(agent="../Köch", content="x"),
        NodeLine(agent="../Köch", conversation="c", id="1"),
        ExportEnd(),
    ]
    assert list(dict.fromkeys(path for path, _ in page_texts(lines))) == [
        "about.md",
        "blocks/human.md",
        "blocks/history.versions.md",
        "passages/00001.md",
        "passages/00002.md",
        "conversations/000001-2026-11-23-etc-passwd.md",
        "agents/001-Köch/passages/00001.md",
        "agents/001-Köch/conversations/000002-c.md",
    ]
