"""Messages of agents in the prompt: which of them, how, and which a note shows."""

from memory.core.agent_messages import (
    WaitingMessage,
    choose_messages,
    list_shown,
    message_element,
    render_messages,
)
from memory.core.blocks import strip_spans

# 2025-11-25T14:00Z.
AT = 1764079200.0


def message(ident, text="Hi", sender="manager"):
    return WaitingMessage(ident, sender, text, AT)


def test_a_span_holds_escaped_messages_and_is_taken_out_again():
    shown = render_messages([message("1", "<b> & </message>")], "tag")
    assert shown == (
        '<agent_messages tag="tag">\n<message from="manager" at="2025-11-25T14:00Z">'
        "&lt;b&gt; &amp; &lt;/message&gt;</message>\n</agent_messages>"
    )
    assert strip_spans(f"Go\n\n{shown}", "tag") == "Go"
    assert render_messages([], "tag") == ""


def test_a_sender_cannot_close_its_attribute():
    assert 'from="a&quot; at=&quot;b"' in message_element(message("1", sender='a" at="b'))


def test_the_oldest_that_fit_are_chosen():
    waiting = [message(str(i), "x" * 40) for i in range(5)]
    assert [m.id for m in choose_messages(waiting, 9, 100)] == ["0", "1"]
    assert [m.id for m in choose_messages(waiting, 1, 100)] == ["0"]
    (cut,) = choose_messages(waiting, 9, 10)
    assert cut.text == "x" * 10 + " [30 characters left out]"
    assert choose_messages([], 9, 10) == []


def test_of_equal_messages_as_many_are_shown_as_the_note_has():
    equal = [message("1"), message("2"), message("3"), message("4", "More")]
    note = render_messages(equal[:2], "tag")
    assert list_shown(equal, note) == ["1", "2"]
