"""The dimensions that have a bound of their own: members, stored objects, floods before the first
event, whole answers without memory, the arguments of memory calls, trailers, imports.

As in `dimensions`, each is a function of a size.
"""

from __future__ import annotations

import json

from tests.bench.freeze.dimensions import (
    END,
    KIB,
    MIB,
    START,
    WORDS,
    Dimension,
    Exchange,
    answered,
    asking,
    call,
    delta,
    filled,
    our_calls,
    raw,
    relayed,
    stream,
    user,
    whole,
)
from tests.bench.freeze.format_dimensions import (
    OPEN,
    answered_messages,
    answered_responses,
    claude,
    feed,
    function_call,
    response,
)

# Of a memory call's arguments.
LONG_BYTES = 12 * MIB
IMPORT = "/memory/v1/users/ann/import"
CONVERSATIONS = "/memory/v1/users/ann/conversations"
SHORT_PART = '{"type":"text","text":"%s"}' % ("x" * 100)
APPEND = "core_memory_append"


def long_calls(whose: str, name: str) -> list[Dimension]:
    """Calls with very long arguments, on each wire, whole and streamed."""
    return [
        Dimension(f"bytes of a {whose} call", 128 * KIB, LONG_BYTES, our_calls(name, arguments)),
        Dimension(
            f"bytes of a streamed {whose} call",
            128 * KIB,
            LONG_BYTES,
            answered(
                lambda n: stream(
                    [
                        START,
                        delta(f'{{"tool_calls":[{call(name, arguments(n))}]}}'),
                        delta("{}", '"tool_calls"') + b"data: [DONE]\n\n",
                    ]
                ),
                streamed=True,
            ),
        ),
        Dimension(
            f"responses: bytes of a {whose} call",
            128 * KIB,
            LONG_BYTES,
            answered_responses(
                lambda n: whole(response(function_call(0, name, arguments(n)))), streamed=False
            ),
        ),
        Dimension(
            f"responses: bytes of a streamed {whose} call",
            128 * KIB,
            LONG_BYTES,
            answered_responses(
                lambda n: feed(
                    [
                        OPEN,
                        *(
                            f'{{"type":"response.output_item.{verb}","output_index":0,"item":'
                            f"{function_call(0, name, arguments(n))}}}"
                            for verb in ("added", "done")
                        ),
                        '{"type":"response.completed","response":%s}'
                        % response(function_call(0, name, arguments(n))).decode(),
                    ]
                )
            ),
        ),
        Dimension(
            f"messages: bytes of a {whose} call",
            128 * KIB,
            LONG_BYTES,
            answered_messages(
                lambda n: whole(
                    claude(
                        '{"type":"tool_use","id":"toolu_1","name":"%s","input":%s}'
                        % (name, arguments(n)),
                        "tool_use",
                    )
                ),
                streamed=False,
            ),
        ),
    ]


def members(many: int) -> bytes:
    """An object of so many members."""
    return b'{"model":"m","input":"x",%b}' % b",".join(b'"a%d":1' % i for i in range(many))


def stored(make):
    """A conversation that its provider stores. make: what it answers."""
    return lambda n: Exchange(b"{}", path="/v1/conversations", answers=[whole(make(n))])


def arguments(n: int) -> str:
    return json.dumps({"label": "human", "content": filled(WORDS, n)})


def shown(make, model: str = "m"):
    """A whole answer that is passed on without memory."""
    body = b'{"model":"%b","input":"x"}' % model.encode()
    return lambda n: Exchange(
        body, path="/v1/embeddings", headers=[("x-memory", "off")], answers=[whole(make(n))]
    )


def tailed(make):
    """A request in chunks, with something beside them. make: what stands behind its body."""
    return lambda n: Exchange(
        b'{"model":"m","messages":[{"role":"user","content":"hi"}]}',
        headers=[("x-memory", "off"), ("transfer-encoding", "chunked")],
        behind=make(n),
    )


def brought(path: str, make):
    """What is brought to a user's memory."""
    return lambda n: Exchange(make(n), path=path)


def chat_of(content: str) -> bytes:
    """A conversation of one long message and its answer."""
    said = [{"role": "user", "content": content}, {"role": "assistant", "content": "ok"}]
    return json.dumps({"messages": said}).encode()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"

REQUESTS = [
    Dimension(
        "lines like tags behind a thought's in an older answer",
        512 * KIB,
        8 * MIB,
        lambda n: Exchange(
            asking('{"role":"assistant","content":"<|%s"},%s' % (filled("\\n<", n), user('"hi"')))
        ),
    ),
    Dimension(
        "lines like tags before a program's",
        512 * KIB,
        8 * MIB,
        lambda n: Exchange(asking(user('"%s</system-reminder> and"' % filled("\\n<", n)))),
    ),
    Dimension(
        "messages of short texts, far over",
        2 * MIB,
        60 * MIB,
        lambda n: Exchange(asking(",".join([user('"%s"' % filled(WORDS, 1000))] * (n // 1040)))),
    ),
    Dimension(
        "parts of short texts, far over",
        2 * MIB,
        60 * MIB,
        lambda n: Exchange(
            asking(
                user("[%s]" % ",".join(['{"type":"text","text":"%s"}' % ("x" * 100)] * (n // 130)))
            )
        ),
    ),
    Dimension("members of a relayed body", 100_000, 3_000_000, raw(members, path="/v1/embeddings")),
    Dimension("bytes of trailers", 64 * KIB, 8 * MIB, tailed(lambda n: b"0\r\nX: " + b"a" * n)),
    Dimension(
        "bytes of a chunk's extension", 64 * KIB, 8 * MIB, tailed(lambda n: b"1;x=" + b"a" * n)
    ),
    *(
        Dimension(
            f"imports: {name} of one message",
            512 * KIB,
            limit,
            brought(CONVERSATIONS, lambda n, unit=unit: chat_of(filled(unit, n))),
        )
        for name, unit, limit in (
            ("words", WORDS, 4 * MIB),
            ("lines", "\n", 30 * MIB),
            ("quotes", '"', 30 * MIB),
            ("escapes", "\t", 30 * MIB),
        )
    ),
    Dimension(
        "imports: messages of one body",
        20_000,
        800_000,
        brought(
            CONVERSATIONS,
            lambda n: b'{"messages":[%b]}' % b",".join([b'{"role":"user","content":"a"}'] * n),
        ),
    ),
    Dimension(
        "imports: empty messages of one body",
        100_000,
        4_000_000,
        brought(CONVERSATIONS, lambda n: b'{"messages":[%b]}' % b",".join([b"{}"] * n)),
    ),
    Dimension(
        "imports: calls of one body",
        20_000,
        500_000,
        brought(
            CONVERSATIONS,
            lambda n: (
                b'{"messages":[{"role":"user","content":"hi"},{"role":"assistant",'
                b'"tool_calls":[%b]}]}' % b",".join([call("f", "{}").encode()] * n)
            ),
        ),
    ),
    Dimension(
        "imports: words of a passage",
        128 * KIB,
        16 * MIB,
        brought(
            IMPORT,
            lambda n: json.dumps({"object": "passage", "content": filled(WORDS, n)}).encode(),
        ),
    ),
]

ANSWERS = [
    Dimension(
        "stored objects: bytes",
        512 * KIB,
        24 * MIB,
        stored(lambda n: b'{"id":"conv_1","x":"%b"}' % (b"a" * n)),
    ),
    Dimension(
        "stored objects: empty objects",
        50_000,
        2_000_000,
        stored(lambda n: b'{"id":"conv_1","x":[%b{}]}' % (b"{}," * n)),
    ),
    Dimension("stored objects: members", 50_000, 600_000, stored(members)),
    *(
        Dimension(
            f"comments before the first event{what}",
            64 * KIB,
            24 * MIB,
            play,
        )
        for what, play in (
            ("", answered(lambda n: stream([b":\n\n" * (n // 3), START, END]), streamed=True)),
            (", memory off", relayed(lambda n: stream([b":\n\n" * (n // 3), START, END]))),
            (", of an alias", relayed(lambda n: stream([b":\n\n" * (n // 3), END]), "alias")),
        )
    ),
    *(
        Dimension(
            f"bytes of a whole answer, memory off{what}",
            4 * MIB,
            256 * MIB,
            shown(lambda n: b'{"model":"real","error":null,"x":"%b"}' % (b"a" * n), model),
        )
        for what, model in (("", "m"), (", of an alias", "alias"))
    ),
    Dimension(
        "members of a whole answer of an alias",
        100_000,
        3_000_000,
        shown(members, "alias"),
    ),
    *long_calls("memory", APPEND),
    *long_calls("client's", "brew"),
    Dimension(
        "trailers of an answer",
        64 * KIB,
        8 * MIB,
        lambda n: Exchange(
            b'{"model":"m","input":"x"}',
            path="/v1/embeddings",
            answers=[[HEAD + b"2\r\n{}\r\n0\r\nX: ", b"a" * n, b"\r\n\r\n"]],
        ),
    ),
]
