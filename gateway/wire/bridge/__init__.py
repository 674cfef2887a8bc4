"""Requests and replies between formats, for servers that speak chat completions alone. Pure.

`responses_request` and `messages_request` write a request as a chat completion's, `chat_reply`
reads the answer, `responses_reply` and `messages_reply` write it in the client's format. What
cannot be carried is refused or dropped as the provider's settings say (`losses`).
"""
