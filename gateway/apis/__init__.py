"""The formats that clients speak: chat completions, Responses, Messages. Pure.

One engine (`gateway.chat.turn.turn`) serves all of them. It knows a format only by the protocols of
`base`: a `ApiFormat` reads and writes requests, a `ReplyMask` shows one answer out of any number
of upstream rounds, `HiddenRounds` keeps what the client did not see. Payloads stay in their own
format from end to end: nothing is translated, so nothing is lost.

May import `errors`, `wire`, `http`, `upstream.base` and the memory.
"""
