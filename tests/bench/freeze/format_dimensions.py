"""The dimensions of requests in the formats of the Responses and the Messages API, and of what is
answered in them; with memory, natively and translated for servers that speak chat completions.

As in `dimensions`, each is a function of a size.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from tests.bench.freeze.dimensions import (
    BODY_BYTES,
    DATA,
    EVENT_BYTES,
    KIB,
    MIB,
    TEXT_BYTES,
    WORDS,
    Dimension,
    Exchange,
    filled,
    numbered,
    stream,
    whole,
)

Play = Callable[[int], Exchange]

RESPONSE = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "error": None}
USAGE = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
}
SAID_CLAUDE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}


def response(output: str) -> bytes:
    """A whole response with these output items, as JSON."""
    head = json.dumps({**RESPONSE, "status": "completed", "usage": USAGE})
    return f'{head[:-1]},"output":[{output}]}}'.encode()


def claude(content: str, stop: str = "end_turn") -> bytes:
    """A whole message with these content blocks, as JSON."""
    head = json.dumps({**SAID_CLAUDE, "stop_reason": stop, "usage": USAGE})
    return f'{head[:-1]},"content":[{content}]}}'.encode()


def feed(events: Iterable[str]) -> list[bytes]:
    """A stream of these events: each the JSON of one, which begins with its type."""
    framed = []
    for event in events:
        name = event.split('"', 4)[3]
        framed.append(f"event: {name}\ndata: {event}\n\n".encode())
    return stream(framed)


YES = response(json.dumps(SAID))
YES_CLAUDE = claude('{"type":"text","text":"Yes."}')


def responses(make: Callable[[int], str], model: str = "speaks", **more: str) -> Play:
    """A request of the Responses API. make: its input, as JSON."""
    extra = "".join(f',"{k}":{v}' for k, v in more.items())
    chat = b'{"id":"c1","choices":[{"index":0,"message":{"role":"assistant","content":"Yes."},' + (
        b'"finish_reason":"stop"}]}'
    )
    return lambda n: Exchange(
        f'{{"model":"{model}","user":"ann","input":{make(n)}{extra}}}'.encode(),
        path="/v1/responses",
        answers=[whole(chat if model == "m" else YES)],
    )


def messages(make: Callable[[int], str], model: str = "translated", **more: str) -> Play:
    """A request of the Messages API. make: its messages, as JSON without the brackets."""
    extra = "".join(f',"{k}":{v}' for k, v in more.items())
    chat = b'{"id":"c1","choices":[{"index":0,"message":{"role":"assistant","content":"Yes."},' + (
        b'"finish_reason":"stop"}]}'
    )
    return lambda n: Exchange(
        f'{{"model":"{model}","max_tokens":99,"metadata":{{"user_id":"ann"}},'
        f'"messages":[{make(n)}]{extra}}}'.encode(),
        path="/v1/messages",
        headers=[("x-memory-user", "ann"), ("anthropic-version", "2023-06-01")],
        answers=[whole(chat if model == "m" else YES_CLAUDE)],
    )


def answered_responses(make: Callable[[int], list[bytes]], *, streamed: bool = True) -> Play:
    """A short request of the Responses API with a long answer."""

    def played(n: int) -> Exchange:
        more = {"stream": "true"} if streamed else {}
        exchange = responses(lambda _: '"hi"', **more)(n)
        exchange.answers = [make(n), feed(CLOSED) if streamed else whole(YES)]
        return exchange

    return played


def answered_messages(make: Callable[[int], list[bytes]], *, streamed: bool = True) -> Play:
    """A short request of the Messages API with a long answer."""

    def played(n: int) -> Exchange:
        more = {"stream": "true"} if streamed else {}
        exchange = messages(lambda _: '{"role":"user","content":"hi"}', **more)(n)
        exchange.answers = [make(n), feed(CLAUDE_CLOSED) if streamed else whole(YES_CLAUDE)]
        return exchange

    return played


# -- events of the Responses API ---------------------------------------------------------------

OPEN = '{"type":"response.created","response":%s}' % json.dumps({**RESPONSE, "output": []})
ADDED = '{"type":"response.output_item.added","output_index":0,"item":%s}' % json.dumps(
    {**SAID, "content": [], "status": "in_progress"}
)
PART = (
    '{"type":"response.content_part.added","item_id":"msg_1","output_index":0,"content_index":0,'
    '"part":{"type":"output_text","text":"","annotations":[]}}'
)
DONE_ITEM = '{"type":"response.output_item.done","output_index":0,"item":%s}' % json.dumps(SAID)
DONE = '{"type":"response.completed","response":%s}' % YES.decode()
CLOSED = [OPEN, ADDED, PART, DONE_ITEM, DONE]


def text_delta(text: str) -> str:
    return (
        '{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,'
        f'"content_index":0,"delta":"{text}"}}'
    )


def said_in(pieces: Callable[[int], list[str]]) -> Play:
    """A stream of one item of text with these events in its middle."""
    return answered_responses(lambda n: feed([OPEN, ADDED, PART, *pieces(n), DONE_ITEM, DONE]))


def items(make: Callable[[int], str]) -> Play:
    """A stream in which so many items are opened and closed. make: item number N, as JSON."""

    def pieces(n: int) -> list[bytes]:
        events = [OPEN]
        for i in range(n):
            item = make(i)
            for verb in ("added", "done"):
                events.append(
                    f'{{"type":"response.output_item.{verb}","output_index":{i},"item":{item}}}'
                )
        return feed([*events, DONE])

    return answered_responses(pieces)


def function_call(number: int | str, name: str = "f", arguments: str = "{}") -> str:
    return json.dumps(
        {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": name,
            "arguments": arguments,
            "status": "completed",
        }
    )


# -- events of the Messages API ----------------------------------------------------------------

CLAUDE_OPEN = '{"type":"message_start","message":%s}' % json.dumps(
    {**SAID_CLAUDE, "content": [], "usage": USAGE}
)
CLAUDE_STOP = (
    '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}'
)
CLAUDE_END = '{"type":"message_stop"}'
CLAUDE_CLOSED = [CLAUDE_OPEN, CLAUDE_STOP, CLAUDE_END]


def block(number: int, start: str, deltas: Iterable[str]) -> list[str]:
    """The events of one content block."""
    return [
        f'{{"type":"content_block_start","index":{number},"content_block":{start}}}',
        *(f'{{"type":"content_block_delta","index":{number},"delta":{x}}}' for x in deltas),
        f'{{"type":"content_block_stop","index":{number}}}',
    ]


def blocks(make: Callable[[int], list[str]]) -> Play:
    """A stream with these events between its head and its end."""
    return answered_messages(lambda n: feed([CLAUDE_OPEN, *make(n), CLAUDE_STOP, CLAUDE_END]))


TEXT_BLOCK = '{"type":"text","text":""}'
TOOL_BLOCK = '{"type":"tool_use","id":"toolu_%d","name":"f","input":{}}'
OURS = '{"type":"tool_use","id":"toolu_%d","name":"core_memory_append","input":{}}'
ARGUMENTS = '{"type":"input_json_delta","partial_json":"%s"}'
TOOL = '{"type":"function","name":"f#","parameters":{"type":"object","properties":{}}}'
CLAUDE_TOOL = '{"name":"f#","input_schema":{"type":"object","properties":{}}}'
ASKED = '{"role":"user","content":"question # about tea"}'
OLD = ASKED + ',{"role":"assistant","content":"answer # about tea"}'
USED = (
    '{"type":"function_call","call_id":"c#","name":"f","arguments":"{}"},'
    '{"type":"function_call_output","call_id":"c#","output":"ok"}'
)
CLAUDE_USED = (
    '{"role":"assistant","content":[{"type":"tool_use","id":"t#","name":"f","input":{}}]},'
    '{"role":"user","content":[{"type":"tool_result","tool_use_id":"t#","content":"ok"}]}'
)


def listed(item: str, tail: str = "") -> Callable[[int], str]:
    """So many items as JSON, without brackets; `#` in one is its number."""
    return lambda n: ",".join([*numbered(item, n), *([tail] if tail else [])])


def bracketed(item: str, tail: str = "") -> Callable[[int], str]:
    """So many items as a JSON list."""
    made = listed(item, tail)
    return lambda n: f"[{made(n)}]"


LAST = ASKED.replace("#", "")
REQUESTS = [
    Dimension(
        "responses: words of the input",
        512 * KIB,
        TEXT_BYTES,
        responses(lambda n: f'"{filled(WORDS, n)}"'),
    ),
    Dimension(
        "responses: escapes of the input",
        512 * KIB,
        TEXT_BYTES,
        responses(lambda n: '"%s"' % filled("\\u0041", n)),
    ),
    Dimension(
        "responses: bytes of an image",
        4 * MIB,
        BODY_BYTES,
        responses(
            lambda n: (
                '[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;'
                'base64,%s"}]}]' % filled(DATA, n)
            )
        ),
    ),
    Dimension("responses: items", 1000, 2000, responses(bracketed(OLD, LAST))),
    Dimension("responses: items, far over", 20_000, 400_000, responses(bracketed(OLD, LAST))),
    Dimension("responses: calls and outputs", 1000, 2000, responses(bracketed(USED, LAST))),
    Dimension(
        "responses: calls and outputs, far over",
        5000,
        200_000,
        responses(bracketed(USED, LAST)),
    ),
    Dimension(
        "responses: calls and outputs, translated",
        1000,
        100_000,
        responses(bracketed(USED, LAST), "m"),
    ),
    Dimension(
        "responses: reasoning items",
        1000,
        100_000,
        responses(
            bracketed('{"type":"reasoning","id":"rs_#","summary":[],"encrypted_content":"a"}', LAST)
        ),
    ),
    Dimension(
        "responses: references to items",
        1000,
        100_000,
        responses(bracketed('{"type":"item_reference","id":"msg_#"}', LAST)),
    ),
    Dimension(
        "responses: parts of the input",
        5000,
        200_000,
        responses(
            lambda n: (
                '[{"role":"user","content":[%s]}]' % listed('{"type":"input_text","text":"b#"}')(n)
            )
        ),
    ),
    Dimension(
        "responses: tools",
        500,
        100_000,
        lambda n: responses(lambda _: '"hi"', tools=bracketed(TOOL)(n))(n),
    ),
    Dimension(
        "responses: nesting of an item",
        500,
        1 * MIB,
        responses(lambda n: '[{"role":"user","content":"a","odd":%s}]' % ("[" * n + "]" * n)),
    ),
    Dimension(
        "responses: characters of the last response's id",
        500,
        4 * MIB,
        lambda n: responses(lambda _: '"hi"', previous_response_id='"resp_%s"' % ("a" * n))(n),
    ),
    Dimension(
        "messages: words of a message",
        512 * KIB,
        TEXT_BYTES,
        messages(lambda n: '{"role":"user","content":"%s"}' % filled(WORDS, n)),
    ),
    Dimension(
        "messages: bytes of an image",
        4 * MIB,
        BODY_BYTES,
        messages(
            lambda n: (
                '{"role":"user","content":[{"type":"image","source":{"type":"base64",'
                '"media_type":"image/png","data":"%s"}}]}' % filled(DATA, n)
            )
        ),
    ),
    Dimension("messages: messages", 1000, 2000, messages(listed(OLD, LAST))),
    Dimension("messages: messages, far over", 20_000, 400_000, messages(listed(OLD, LAST))),
    Dimension("messages: calls and results", 1000, 2000, messages(listed(CLAUDE_USED, LAST))),
    Dimension(
        "messages: calls and results, far over",
        5000,
        200_000,
        messages(listed(CLAUDE_USED, LAST)),
    ),
    Dimension(
        "messages: calls and results, translated",
        1000,
        100_000,
        messages(listed(CLAUDE_USED, LAST), "m"),
    ),
    Dimension(
        "messages: results of one message",
        1000,
        100_000,
        messages(
            lambda n: (
                '{"role":"user","content":[%s]}'
                % listed('{"type":"tool_result","tool_use_id":"t#","content":"ok"}')(n)
            )
        ),
    ),
    Dimension(
        "messages: thoughts",
        1000,
        100_000,
        messages(
            lambda n: (
                '{"role":"assistant","content":[%s]},%s'
                % (listed('{"type":"thinking","thinking":"b#","signature":"s"}')(n), LAST)
            )
        ),
    ),
    Dimension(
        "messages: cache marks",
        1000,
        100_000,
        messages(
            lambda n: (
                '{"role":"user","content":[%s]}'
                % listed('{"type":"text","text":"b#","cache_control":{"type":"ephemeral"}}')(n)
            )
        ),
    ),
    Dimension(
        "messages: blocks of the system text",
        5000,
        200_000,
        lambda n: messages(lambda _: LAST, system=bracketed('{"type":"text","text":"b#"}')(n))(n),
    ),
    Dimension(
        "messages: tools",
        500,
        100_000,
        lambda n: messages(lambda _: LAST, tools=bracketed(CLAUDE_TOOL)(n))(n),
    ),
]

ANSWERS = [
    Dimension("responses: events of text", 5000, 50_000, said_in(lambda n: [text_delta("a")] * n)),
    Dimension(
        "responses: bytes of one event",
        512 * KIB,
        EVENT_BYTES,
        said_in(lambda n: [text_delta(filled(WORDS, n))]),
    ),
    Dimension(
        "responses: events of an unknown type",
        5000,
        50_000,
        said_in(lambda n: list(numbered('{"type":"response.odd","odd":#}', n))),
    ),
    Dimension("responses: calls", 1000, 20_000, items(function_call)),
    Dimension(
        "responses: reasoning",
        1000,
        20_000,
        items(lambda i: '{"type":"reasoning","id":"rs_%d","summary":[]}' % i),
    ),
    Dimension(
        "responses: memory calls",
        50,
        2000,
        items(
            lambda i: function_call(
                i, "core_memory_append", '{"label":"scratchpad","content":"line %d"}' % i
            )
        ),
    ),
    Dimension(
        "responses: calls of a whole answer",
        2000,
        100_000,
        answered_responses(
            lambda n: whole(response(",".join(map(function_call, range(n))))), streamed=False
        ),
    ),
    Dimension(
        "responses: words of a whole answer",
        512 * KIB,
        TEXT_BYTES,
        answered_responses(
            lambda n: whole(YES.replace(b"Yes.", filled(WORDS, n).encode())), streamed=False
        ),
    ),
    Dimension(
        "responses: parts of a whole answer",
        5000,
        100_000,
        answered_responses(
            lambda n: whole(
                response(
                    '{"type":"message","id":"msg_1","role":"assistant","status":"completed",'
                    '"content":%s}' % bracketed('{"type":"output_text","text":"b#"}')(n)
                )
            ),
            streamed=False,
        ),
    ),
    Dimension(
        "messages: events of text",
        5000,
        50_000,
        blocks(lambda n: block(0, TEXT_BLOCK, ['{"type":"text_delta","text":"a"}'] * n)),
    ),
    Dimension(
        "messages: bytes of one event",
        512 * KIB,
        EVENT_BYTES,
        blocks(
            lambda n: block(0, TEXT_BLOCK, ['{"type":"text_delta","text":"%s"}' % filled(WORDS, n)])
        ),
    ),
    Dimension(
        "messages: events of a call's arguments",
        5000,
        50_000,
        blocks(lambda n: block(0, TOOL_BLOCK % 0, [ARGUMENTS % "1"] * n)),
    ),
    Dimension(
        "messages: calls",
        1000,
        20_000,
        blocks(
            lambda n: [x for i in range(n) for x in block(i, TOOL_BLOCK % i, [ARGUMENTS % "{}"])]
        ),
    ),
    Dimension(
        "messages: thoughts of an answer",
        1000,
        20_000,
        blocks(
            lambda n: [
                x
                for i in range(n)
                for x in block(
                    i,
                    '{"type":"thinking","thinking":"","signature":""}',
                    ['{"type":"thinking_delta","thinking":"a"}'],
                )
            ]
        ),
    ),
    Dimension(
        "messages: memory calls",
        50,
        2000,
        blocks(
            lambda n: [
                x
                for i in range(n)
                for x in block(
                    i,
                    OURS % i,
                    [ARGUMENTS % '{\\"label\\":\\"scratchpad\\",\\"content\\":\\"a\\"}'],
                )
            ]
        ),
    ),
    Dimension(
        "messages: bytes of a memory call's arguments",
        128 * KIB,
        EVENT_BYTES,
        blocks(
            lambda n: block(
                0,
                OURS % 0,
                [ARGUMENTS % (r"{\"label\":\"human\",\"content\":\"" + filled(WORDS, n) + r"\"}")],
            )
        ),
    ),
    Dimension(
        "messages: calls of a whole answer",
        2000,
        100_000,
        answered_messages(
            lambda n: whole(claude(",".join(TOOL_BLOCK % i for i in range(n)), "tool_use")),
            streamed=False,
        ),
    ),
    Dimension(
        "messages: words of a whole answer",
        512 * KIB,
        TEXT_BYTES,
        answered_messages(
            lambda n: whole(claude('{"type":"text","text":"%s"}' % filled(WORDS, n))),
            streamed=False,
        ),
    ),
]
