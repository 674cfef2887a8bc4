"""Requests and replies between formats, for servers that only speak chat completions. Pure.

`responses_request` and `messages_request` turn a request into a chat completion's, `chat_reply`
reads the answer, `responses_reply` and `messages_reply` write it in the client's format. Members
without a counterpart are refused or dropped, as the provider's settings say (`losses`).
"""
