"""A request of another format goes as a chat completion, with what writes its answer."""

from __future__ import annotations

from gateway.wire.bridge.carried import MESSAGES, RESPONSES, carry
from gateway.wire.bridge.losses import Losses
from gateway.wire.bridge.messages_reply import MessagesReply
from gateway.wire.bridge.responses_reply import ResponsesReply

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
