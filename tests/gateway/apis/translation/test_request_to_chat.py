"""A request of another format goes as a chat completion, with what writes its answer."""

from __future__ import annotations

from gateway.apis.translation.messages_reply_from_chat import MessagesReply
from gateway.apis.translation.request_to_chat import MESSAGES, RESPONSES, carry
from gateway.apis.translation.responses_reply_from_chat import ResponsesReply
from gateway.wire.losses import Losses

USER = {"role": "user", "content": "Hi"}


def test_a_response_is_carried_and_answered_in_its_format():
    body = {"model": "m", "input": "Hi", "max_output_tokens": 9}
    sent, writer = carry(RESPONSES, body, Losses("p", ()), "max_tokens")
    assert (sent["messages"], sent["max_tokens"]) == ([USER], 9)
    assert isinstance(writer("id", 7), ResponsesReply)


def test_a_message_is_carried_and_answered_in_its_format():
    body = {"model": "m", "max_tokens": 9, "messages": [USER]}
    sent, writer = carry(MESSAGES, body, Losses("p", ()), "max_completion_tokens")
    assert (sent["messages"], sent["max_completion_tokens"]) == ([USER], 9)
    assert isinstance(writer("id", 7), MessagesReply)
