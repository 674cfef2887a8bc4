"""The dimensions in which a request, or the answer to it, can grow, each as a function of a size.

A dimension is what a client, an end user of its app, or an upstream can make long. `limit` is the
largest size that is played: the one that PRODUCT.md promises to serve, or the body limit where
nothing is promised. The unit is the thing counted: a byte, a message, a part, a call, an event.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

KIB, MIB = 1 << 10, 1 << 20
WORDS = "the quick brown fox jumps over a lazy dog while many small clouds drift across the sky "
PLAIN = b'{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[%b]}'
SAID = b'{"index":0,"message":{"role":"assistant","content":"Yes."},"finish_reason":"stop"}'


@dataclass(slots=True)
class Exchange:
    """One request and what the upstream says to it.

    answers: one a round, the last repeated; each in pieces as they are sent.
    """

    body: bytes
    path: str = "/v1/chat/completions"
    headers: list[tuple[str, str]] = field(default_factory=list)
    answers: list[list[bytes]] = field(default_factory=lambda: [whole(PLAIN % SAID)])
    gzip: bool = False
    kind: str = "application/json"
    # The body as it is sent, where that is no single gzip member.
    packed: bytes = b""
    # What stands behind the body's only chunk.
    behind: bytes = b""


@dataclass(frozen=True, slots=True)
class Dimension:
    """quick: the size at which the tests play it. limit: the one at which the bench ends."""

    name: str
    quick: int
    limit: int
    play: Callable[[int], Exchange]


def whole(body: bytes, status: str = "200 OK", kind: str = "application/json") -> list[bytes]:
    """An answer with a length."""
    return [
        f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        + body
    ]


def stream(events: Iterable[bytes], piece: int = 1 << 16) -> list[bytes]:
    """An answer of events, which ends with the connection. piece: bytes sent at once."""
    data = b"".join(events)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return [head, *(data[i : i + piece] for i in range(0, len(data), piece))]


def delta(part: str, finish: str = "null", lane: int = 0) -> bytes:
    """One chunk of a streamed answer."""
    return (
        f'data: {{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        f'[{{"index":{lane},"delta":{part},"finish_reason":{finish}}}]}}\n\n'
    ).encode()


END = delta("{}", '"stop"') + b"data: [DONE]\n\n"
START = delta('{"role":"assistant","content":""}')


def asking(messages: str, **more: str) -> bytes:
    """A chat request with these messages, as JSON, and more members as they are written."""
    extra = "".join(f',"{k}":{v}' for k, v in more.items())
    return f'{{"model":"m","user":"ann","messages":[{messages}]{extra}}}'.encode(
        "utf-8", "surrogatepass"
    )


def user(content: str) -> str:
    return f'{{"role":"user","content":{content}}}'


def filled(unit: str, size: int) -> str:
    """So many bytes of a unit repeated."""
    return unit * max(1, size // len(unit.encode("utf-8", "surrogatepass")))


def texts(unit: str) -> Callable[[int], Exchange]:
    """A user's message of so many bytes. unit: what it repeats, as it is written inside JSON."""
    return lambda n: Exchange(asking(user(f'"{filled(unit, n)}"')))


def many(item: str, head: str = "", tail: str = "") -> Callable[[int], Exchange]:
    """A request of so many messages; `#` in an item is its number."""
    return lambda n: Exchange(
        asking(
            ",".join(
                [
                    *([head] if head else []),
                    *numbered(item, n),
                    *([tail] if tail else [user('"hi"')]),
                ]
            )
        )
    )


def numbered(item: str, n: int) -> Iterator[str]:
    return (item.replace("#", str(i)) for i in range(n))


def parts(item: str, role: str = "user") -> Callable[[int], Exchange]:
    """One message of so many parts."""
    return lambda n: Exchange(
        asking(
            f'{{"role":"{role}","content":[{",".join(numbered(item, n))}]}},'
            f"{user(chr(34) + 'hi' + chr(34))}"
        )
    )


def member(name: str, make: Callable[[int], str]) -> Callable[[int], Exchange]:
    """A request with one more member."""
    return lambda n: Exchange(asking(user('"hi"'), **{name: make(n)}))


def raw(
    make: Callable[[int], bytes], *, packed: bool = False, path: str = "/v1/chat/completions"
) -> Callable[[int], Exchange]:
    """A body that need not be JSON."""
    return lambda n: Exchange(make(n), gzip=packed, path=path)


def form(make: Callable[[int], bytes]) -> Callable[[int], Exchange]:
    """A form that is relayed."""
    return lambda n: Exchange(
        make(n), path="/v1/audio/transcriptions", kind="multipart/form-data; boundary=a"
    )


def off(play: Callable[[int], Exchange]) -> Callable[[int], Exchange]:
    """The same without memory."""

    def played(n: int) -> Exchange:
        exchange = play(n)
        exchange.headers.append(("x-memory", "off"))
        return exchange

    return played


def answered(
    make: Callable[[int], list[bytes]], *, streamed: bool, tools: str = ""
) -> Callable[[int], Exchange]:
    """A short request with a long answer."""
    more = {**({"stream": "true"} if streamed else {}), **({"tools": tools} if tools else {})}
    return lambda n: Exchange(
        asking(user('"hi"'), **more),
        answers=[make(n), stream([START, END]) if streamed else whole(PLAIN % SAID)],
    )


def events(item: str) -> Callable[[int], Exchange]:
    """A stream of so many deltas; `#` in one is its number."""
    return answered(
        lambda n: stream([START, *(delta(x) for x in numbered(item, n)), END]), streamed=True
    )


def completion(choice: Callable[[int], str]) -> Callable[[int], Exchange]:
    """A whole answer with these choices."""
    return answered(lambda n: whole(PLAIN % choice(n).encode()), streamed=False)


def message(members: Callable[[int], str], finish: str = "stop") -> Callable[[int], Exchange]:
    """A whole answer of one choice with these members in its message."""
    return completion(
        lambda n: (
            f'{{"index":0,"message":{{"role":"assistant",{members(n)}}},'
            f'"finish_reason":"{finish}"}}'
        )
    )


def call(name: str, arguments: str, number: int | str = 0) -> str:
    return json.dumps(
        {
            "index": number,
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
    ).replace('"#"', "#")


def our_calls(
    name: str, arguments: Callable[[int], str], count: bool = False
) -> Callable[[int], Exchange]:
    """A memory call of the model's.

    count: the size is the number of calls, else that of the arguments.
    """

    def made(n: int) -> str:
        found = (
            [call(name, arguments(i), i) for i in range(n)] if count else [call(name, arguments(n))]
        )
        return f'"content":null,"tool_calls":[{",".join(found)}]'

    return message(made, "tool_calls")


def routed(model: str, play: Callable[[int], Exchange]) -> Callable[[int], Exchange]:
    """The same asked of another model."""

    def played(n: int) -> Exchange:
        exchange = play(n)
        exchange.body = exchange.body.replace(b'"model":"m"', b'"model":"%s"' % model.encode(), 1)
        return exchange

    return played


def relayed(make: Callable[[int], list[bytes]], model: str = "m") -> Callable[[int], Exchange]:
    """A relayed request with a long answer."""
    return lambda n: Exchange(
        f'{{"model":"{model}","input":"x","stream":true}}'.encode(),
        path="/v1/responses",
        headers=[("x-memory", "off")],
        answers=[make(n)],
    )


def told(**event: object) -> bytes:
    """One event of the Messages API."""
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def thought(delta: dict[str, str]) -> Callable[[int], Exchange]:
    """A thought in so many pieces, of a model whose answer is translated."""
    start, end = (
        told(type="message_start", message={"id": "m", "model": "c"}),
        told(type="message_stop"),
    )
    block = told(
        type="content_block_start", index=0, content_block={"type": "thinking", "thinking": ""}
    )
    piece = told(type="content_block_delta", index=0, delta=delta)
    stop = told(type="content_block_stop", index=0)
    return routed(
        "translated",
        answered(lambda n: stream([start, block, piece * n, stop, end]), streamed=True),
    )


def completed(members: bytes) -> bytes:
    """The last event of a response."""
    return (
        b"data: "
        b'{"type":"response.completed","response":{"usage":{"input_tokens":1},"model":"real",%b}}\n'
        b"\n" % members
    )


def gzipped(data: bytes) -> list[bytes]:
    """An answer that is packed."""
    packed = gzip.compress(data)
    return [
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n"
        b"content-length: %d\r\n\r\n" % len(packed) + packed
    ]


DATA = "iVBORw0KGgoAAAANSUhEUgAAAAUA"
IMAGE = '{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}'
OLD = (
    '{"role":"user","content":"question # about tea"},{"role":"assistant","content":"answer # '
    'about tea"}'
)
USED = (
    '{"role":"assistant","content":null,"tool_calls":[{"id":"c#","type":"function",'
    '"function":{"name":"f","arguments":"{}"}}]},'
    '{"role":"tool","tool_call_id":"c#","content":"ok #"}'
)
TOOL = (
    '{"type":"function","function":{"name":"f#","description":"does '
    '#","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}'
)
TEXT_BYTES, BODY_BYTES, EVENT_BYTES = 8 * MIB, 60 * MIB, 4 * MIB

REQUESTS = [
    Dimension("words of a message", 512 * KIB, TEXT_BYTES, texts(WORDS)),
    Dimension("one-letter words of a message", 512 * KIB, TEXT_BYTES, texts("a ")),
    Dimension("one long word", 512 * KIB, TEXT_BYTES, texts("a")),
    Dimension("blanks", 512 * KIB, TEXT_BYTES, texts(" ")),
    Dimension("line ends", 512 * KIB, TEXT_BYTES, texts("\\n")),
    Dimension("escapes", 512 * KIB, TEXT_BYTES, texts("\\u0041")),
    Dimension("quotes", 512 * KIB, TEXT_BYTES, texts('\\"')),
    Dimension("backslashes", 512 * KIB, TEXT_BYTES, texts("\\\\")),
    Dimension("angle brackets", 512 * KIB, TEXT_BYTES, texts("<")),
    Dimension("emoji", 512 * KIB, TEXT_BYTES, texts("😀")),
    Dimension("Chinese", 512 * KIB, TEXT_BYTES, texts("天地玄黃")),
    Dimension("base64 in a text", 512 * KIB, TEXT_BYTES, texts(DATA)),
    Dimension("punctuation", 512 * KIB, TEXT_BYTES, texts(".,;!")),
    Dimension("halves of surrogate pairs", 256 * KIB, TEXT_BYTES, texts("\\ud83d")),
    Dimension(
        "tags that look like ours", 256 * KIB, TEXT_BYTES, texts('<memory_blocks tag=\\"x\\">')
    ),
    Dimension(
        "thoughts that never end",
        256 * KIB,
        TEXT_BYTES,
        lambda n: Exchange(
            asking('{"role":"assistant","content":"%s"},%s' % (filled("<think>", n), user('"hi"')))
        ),
    ),
    Dimension(
        "words of an older answer",
        512 * KIB,
        TEXT_BYTES,
        lambda n: Exchange(
            asking('{"role":"assistant","content":"%s"},%s' % (filled(WORDS, n), user('"hi"')))
        ),
    ),
    Dimension(
        "words of the system text",
        512 * KIB,
        TEXT_BYTES,
        lambda n: Exchange(
            asking('{"role":"system","content":"%s"},%s' % (filled(WORDS, n), user('"hi"')))
        ),
    ),
    Dimension("a body far over what memory looks at", 16 * MIB, BODY_BYTES, texts(WORDS)),
    Dimension(
        "bytes of an image",
        4 * MIB,
        BODY_BYTES,
        lambda n: Exchange(asking('{"role":"user","content":[%s]}' % IMAGE % filled(DATA, n))),
    ),
    Dimension("messages", 2000, 4000, many('{"role":"user","content":"question # about tea"}')),
    Dimension("questions and answers", 1000, 2000, many(OLD)),
    Dimension("messages, far over", 20_000, 800_000, many('{"role":"user","content":"q#"}')),
    Dimension(
        "messages of one letter, packed",
        100_000,
        1_600_000,
        lambda n: Exchange(asking(",".join([user('"b"')] * n)), gzip=True),
    ),
    Dimension("system messages", 2000, 4000, many('{"role":"system","content":"rule #"}')),
    Dimension(
        "system messages, far over", 20_000, 400_000, many('{"role":"system","content":"rule #"}')
    ),
    Dimension("calls with their results", 1000, 2000, many(USED)),
    Dimension("calls with their results, far over", 5000, 200_000, many(USED)),
    Dimension(
        "calls of one message",
        1000,
        100_000,
        lambda n: Exchange(
            asking(
                '{"role":"assistant","content":null,"tool_calls":[%s]},%s'
                % (",".join(numbered(call("f", "{}", "#"), n)), user('"hi"'))
            )
        ),
    ),
    Dimension(
        "bytes of a call's arguments",
        512 * KIB,
        TEXT_BYTES,
        lambda n: Exchange(
            asking(
                '{"role":"assistant","content":null,"tool_calls":[%s]},%s'
                % (call("f", json.dumps({"a": filled(WORDS, n)})), user('"hi"'))
            )
        ),
    ),
    Dimension(
        "nesting of a call's arguments",
        500,
        100_000,
        lambda n: Exchange(
            asking(
                '{"role":"assistant","content":null,"tool_calls":[%s]},%s'
                % (call("f", '{"a":' * n + "1" + "}" * n), user('"hi"'))
            )
        ),
    ),
    Dimension("parts", 5000, 200_000, parts('{"type":"text","text":"b#"}')),
    Dimension(
        "parts of an assistant's message",
        5000,
        200_000,
        parts('{"type":"text","text":"b#"}', "assistant"),
    ),
    Dimension(
        "images", 5000, 200_000, parts('{"type":"image_url","image_url":{"url":"https://h/#?q"}}')
    ),
    Dimension("parts of an unknown type", 5000, 200_000, parts('{"type":"odd","a":#}')),
    Dimension(
        "thoughts as parts",
        5000,
        200_000,
        parts('{"type":"thinking","thinking":"b#"}', "assistant"),
    ),
    Dimension(
        "parts of the system text", 5000, 200_000, parts('{"type":"text","text":"b#"}', "system")
    ),
    Dimension(
        "parts of a tool's result", 5000, 200_000, parts('{"type":"text","text":"b#"}', "tool")
    ),
    Dimension(
        "members that are replaced around",
        20_000,
        2_000_000,
        lambda n: Exchange(
            b'{"model":"alias",%b}' % b",".join(b'"k%d":1' % i for i in range(n)),
            path="/v1/embeddings",
        ),
    ),
    Dimension(
        "calls of one id, translated",
        3000,
        100_000,
        routed(
            "translated",
            lambda n: Exchange(
                asking(
                    '{"role":"assistant","content":null,"tool_calls":[%s]},%s'
                    % (",".join([call("f", "{}")] * n), user('"hi"'))
                )
            ),
        ),
    ),
    Dimension(
        "calls with their results behind, translated",
        3000,
        50_000,
        routed(
            "translated",
            lambda n: Exchange(
                asking(
                    '{"role":"assistant","content":null,"tool_calls":[%s]},%s,%s'
                    % (
                        ",".join(numbered(call("f", "{}", "#"), n)),
                        ",".join(
                            f'{{"role":"tool","tool_call_id":"call_{n - 1 - i}","content":"ok"}}'
                            for i in range(n)
                        ),
                        user('"hi"'),
                    )
                )
            ),
        ),
    ),
    Dimension(
        "parameters of an image's address, translated",
        100_000,
        TEXT_BYTES,
        routed(
            "translated",
            lambda n: Exchange(
                asking(
                    '{"role":"user","content":[{"type":"image_url",'
                    '"image_url":{"url":"data:a%s"}}]}' % (";b" * (n // 2))
                )
            ),
        ),
    ),
    Dimension(
        "empty objects, translated",
        100_000,
        8 * MIB,
        routed("translated", off(member("metadata", lambda n: "[%s]" % ",".join(["{}"] * n)))),
    ),
    Dimension(
        "tools", 500, 100_000, member("tools", lambda n: "[%s]" % ",".join(numbered(TOOL, n)))
    ),
    Dimension(
        "bytes of a tool's description",
        512 * KIB,
        TEXT_BYTES,
        member(
            "tools",
            lambda n: (
                '[{"type":"function","function":{"name":"f","description":"%s"}}]'
                % filled(WORDS, n)
            ),
        ),
    ),
    Dimension("nesting", 500, 1 * MIB, member("metadata", lambda n: "[" * n + "]" * n)),
    Dimension(
        "empty objects",
        100_000,
        4 * MIB,
        member("metadata", lambda n: "[%s]" % ",".join(["{}"] * n)),
    ),
    Dimension(
        "members",
        20_000,
        1 * MIB,
        member("metadata", lambda n: "{%s}" % ",".join(f'"k{i}":1' for i in range(n))),
    ),
    Dimension("numbers", 100_000, 4 * MIB, member("stop", lambda n: "[%s]" % ",".join(["1"] * n))),
    Dimension("digits of a number", 20_000, 4 * MIB, member("seed", lambda n: "1" * n)),
    Dimension(
        "digits of a fraction", 20_000, 4 * MIB, member("temperature", lambda n: "0." + "1" * n)
    ),
    Dimension(
        "characters of a user's name",
        512,
        4 * MIB,
        lambda n: Exchange(
            f'{{"model":"m","user":"{"u" * n}",'
            f'"messages":[{user(chr(34) + "hi" + chr(34))}]}}'.encode()
        ),
    ),
    Dimension(
        "characters of a model's name",
        512,
        4 * MIB,
        lambda n: Exchange(
            f'{{"model":"{"m" * n}","messages":[{user(chr(34) + "hi" + chr(34))}]}}'.encode()
        ),
    ),
    Dimension(
        "white space of a body", 1 * MIB, BODY_BYTES, raw(lambda n: asking(user('"hi"')) + b" " * n)
    ),
    Dimension("bytes that are no JSON", 1 * MIB, BODY_BYTES, raw(lambda n: b"\\" * n)),
    Dimension(
        "bytes that are no JSON, packed",
        4 * MIB,
        BODY_BYTES,
        raw(lambda n: b'{"a":"' + b"\\ud83d" * (n // 6), packed=True),
    ),
    Dimension(
        "half escapes, packed",
        4 * MIB,
        BODY_BYTES,
        raw(lambda n: b"\\\\" * (n // 2) + b"\\ud83d", packed=True),
    ),
    Dimension("messages, memory off", 20_000, 800_000, off(many('{"role":"user","content":"q#"}'))),
    Dimension("words of a message, memory off", 1 * MIB, BODY_BYTES, off(texts(WORDS))),
    Dimension(
        "empty objects, memory off",
        100_000,
        8 * MIB,
        off(member("metadata", lambda n: "[%s]" % ",".join(["{}"] * n))),
    ),
    Dimension(
        "halves of surrogate pairs, memory off", 256 * KIB, TEXT_BYTES, off(texts("\\ud83d"))
    ),
    Dimension(
        "texts to embed",
        10_000,
        1 * MIB,
        raw(
            lambda n: b'{"model":"m","input":[%s]}' % b",".join([b'"a b"'] * n),
            path="/v1/embeddings",
        ),
    ),
    Dimension(
        "header lines",
        50,
        5000,
        lambda n: Exchange(asking(user('"hi"')), headers=[(f"x-h-{i}", "v") for i in range(n)]),
    ),
    Dimension(
        "header lines of one name",
        50,
        5000,
        lambda n: Exchange(asking(user('"hi"')), headers=[("x-h", "v")] * n),
    ),
    Dimension("parts of a form", 5000, 4 * MIB, form(lambda n: b"--a\r\n" * n)),
    Dimension(
        "fields of a form",
        5000,
        1 * MIB,
        form(lambda n: b'--a\r\ncontent-disposition: form-data; name="x"\r\n\r\n1\r\n' * n),
    ),
    Dimension(
        "header lines of a form's part", 5000, 4 * MIB, form(lambda n: b"--a\r\n" + b"x: y\r\n" * n)
    ),
    Dimension(
        "bytes of a form's header",
        50_000,
        8 * MIB,
        form(lambda n: b'--a\r\ncontent-disposition: form-data; name="' + b'\\"' * (n // 2)),
    ),
    Dimension(
        "bytes of a file",
        1 * MIB,
        BODY_BYTES,
        form(
            lambda n: (
                b'--a\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\n'
                + b"x" * n
                + b"\r\n--a--"
            )
        ),
    ),
    Dimension(
        "members of a packed body",
        1000,
        1 * MIB,
        lambda n: Exchange(b"", packed=gzip.compress(b"") * n),
    ),
    Dimension("bytes of a path", 4096, 4 * MIB, lambda n: Exchange(b"{}", path="/v1/" + "a" * n)),
    Dimension("segments of a path", 2048, 2 * MIB, lambda n: Exchange(b"{}", path="/u" * n)),
    Dimension(
        "escapes of a path", 1024, 1 * MIB, lambda n: Exchange(b"{}", path="/v1/" + "%2F" * n)
    ),
    Dimension(
        "cookies",
        50,
        5000,
        lambda n: Exchange(asking(user('"hi"')), headers=[("cookie", f"a{i}=b") for i in range(n)]),
    ),
]


def one_event(name: str, unit: str) -> Dimension:
    """One event of a stream whose text is nothing but this, over and over."""
    made = answered(
        lambda n: stream([START, delta('{"content":"%s"}' % filled(unit, n)), END]),
        streamed=True,
    )
    return Dimension(f"{name} of one event", 512 * KIB, EVENT_BYTES, made)


ANSWERS = [
    Dimension(
        "pieces of a thought, translated",
        20_000,
        100_000,
        thought({"type": "thinking_delta", "thinking": "a thought about tea, and more of it"}),
    ),
    Dimension(
        "pieces of a signature, translated",
        20_000,
        100_000,
        thought({"type": "signature_delta", "signature": "a signature that is long and longer"}),
    ),
    Dimension(
        "empty objects of a relayed event",
        200_000,
        8_000_000,
        relayed(lambda n: stream([completed(b'"o":[' + b"{}," * n + b"1]")])),
    ),
    Dimension(
        "empty objects of a relayed event under an alias",
        200_000,
        8_000_000,
        relayed(lambda n: stream([completed(b'"o":[' + b"{}," * n + b"1]")]), "alias"),
    ),
    Dimension(
        "bytes of a relayed event",
        4 * MIB,
        24 * MIB,
        relayed(lambda n: stream([completed(b'"o":"' + b"a" * n + b'"')]), "alias"),
    ),
    Dimension(
        "bytes of a packed answer", 64 * MIB, 256 * MIB, relayed(lambda n: gzipped(b" " * n))
    ),
    Dimension(
        "counts of the usage",
        50_000,
        400_000,
        answered(
            lambda n: whole(
                b'{"id":"c","choices":[%b],"usage":{%b}}'
                % (SAID, b",".join(b'"a%d":1' % i for i in range(n)))
            ),
            streamed=False,
        ),
    ),
    Dimension(
        "bytes of one event",
        512 * KIB,
        EVENT_BYTES,
        answered(
            lambda n: stream([START, delta(f'{{"content":"{filled(WORDS, n)}"}}'), END]),
            streamed=True,
        ),
    ),
    Dimension(
        "bytes of one event, far over",
        6 * MIB,
        24 * MIB,
        answered(
            lambda n: stream([START, delta(f'{{"content":"{filled(DATA, n)}"}}'), END]),
            streamed=True,
        ),
    ),
    one_event("escapes", "\\u0041"),
    one_event("quotes", '\\"'),
    one_event("line ends", "\\n"),
    Dimension(
        "bytes of one event of thoughts",
        512 * KIB,
        EVENT_BYTES,
        answered(
            lambda n: stream(
                [
                    START,
                    delta(f'{{"reasoning_content":"{filled(WORDS, n)}"}}'),
                    delta('{"content":"a"}'),
                    END,
                ]
            ),
            streamed=True,
        ),
    ),
    Dimension(
        "large events",
        20,
        100,
        answered(
            lambda n: stream(
                [
                    START,
                    *(delta(f'{{"content":"{filled(WORDS, 256 * KIB)}"}}') for _ in range(n)),
                    END,
                ]
            ),
            streamed=True,
        ),
    ),
    Dimension("events of text", 5000, 100_000, events('{"content":"a"}')),
    Dimension("events of thoughts", 5000, 100_000, events('{"reasoning_content":"a"}')),
    Dimension("events with something else", 5000, 50_000, events('{"odd":"a#"}')),
    Dimension(
        "events with the role again", 5000, 50_000, events('{"role":"assistant","content":"a"}')
    ),
    Dimension(
        "events of a call's arguments",
        5000,
        50_000,
        events(
            '{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f",'
            '"arguments":"a"}}]}'
        ),
    ),
    Dimension(
        "calls, one an event",
        3000,
        20_000,
        events(
            '{"tool_calls":[{"index":#,"id":"c#","type":"function","function":{"name":"f",'
            '"arguments":"{}"}}]}'
        ),
    ),
    Dimension(
        "calls whose names may become ours",
        3000,
        20_000,
        events(
            '{"tool_calls":[{"index":#,"id":"c#","type":"function",'
            '"function":{"name":"core_memory"}}]}'
        ),
    ),
    Dimension(
        "pieces of a name",
        1000,
        20_000,
        events('{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"x"}}]}'),
    ),
    Dimension(
        "calls of one event",
        3000,
        20_000,
        answered(
            lambda n: stream(
                [
                    START,
                    delta('{"tool_calls":[%s]}' % ",".join(numbered(call("f", "{}", "#"), n))),
                    END,
                ]
            ),
            streamed=True,
        ),
    ),
    Dimension(
        "choices, one an event",
        250,
        20_000,
        answered(
            lambda n: stream([*(delta('{"content":"a"}', lane=i) for i in range(n)), END]),
            streamed=True,
        ),
    ),
    Dimension(
        "choices of one event",
        250,
        20_000,
        answered(
            lambda n: stream(
                [
                    b'data: {"id":"c","object":"chat.completion.chunk","choices":[%s]}\n\n'
                    % b",".join(
                        b'{"index":%d,"delta":{"content":"a"},"finish_reason":null}' % i
                        for i in range(n)
                    ),
                    END,
                ]
            ),
            streamed=True,
        ),
    ),
    Dimension(
        "choices, each said twice",
        250,
        10_000,
        answered(
            lambda n: stream(
                [
                    *(
                        b'data: {"id":"c","object":"chat.completion.chunk","choices":[%s]}\n\n'
                        % b",".join(
                            b'{"index":%d,"delta":{"content":"a"},"finish_reason":null}' % i
                            for i in range(n)
                        )
                        for _ in range(2)
                    ),
                    END,
                ]
            ),
            streamed=True,
        ),
    ),
    Dimension(
        "comments",
        20_000,
        1 * MIB,
        answered(lambda n: stream([START, *([b":\n\n"] * n), END]), streamed=True),
    ),
    Dimension(
        "blank lines",
        20_000,
        4 * MIB,
        answered(lambda n: stream([START, b"\n" * n, END]), streamed=True),
    ),
    Dimension(
        "returns",
        20_000,
        4 * MIB,
        answered(lambda n: stream([START, b"\r" * n, END]), streamed=True),
    ),
    Dimension(
        "data lines of one event",
        20_000,
        1 * MIB,
        answered(lambda n: stream([START, b"data: \n" * n + b"\n", END]), streamed=True),
    ),
    Dimension(
        "fields of one event",
        20_000,
        1 * MIB,
        answered(lambda n: stream([START, b"id: 1\n" * n + b"\n", END]), streamed=True),
    ),
    Dimension(
        "events in tiny pieces",
        20_000,
        200_000,
        answered(
            lambda n: stream([START, delta(f'{{"content":"{filled(WORDS, n)}"}}'), END], piece=7),
            streamed=True,
        ),
    ),
    Dimension(
        "events after the end",
        5000,
        100_000,
        answered(lambda n: stream([START, END, *([delta('{"content":"a"}')] * n)]), streamed=True),
    ),
    Dimension(
        "log probabilities",
        5000,
        50_000,
        answered(
            lambda n: stream(
                [
                    START,
                    *(
                        [
                            b"data: "
                            b'{"id":"c","object":"chat.completion.chunk",'
                            b'"choices":[{"index":0,"delta":{"content":"a"},'
                            b'"logprobs":{"content":[{"token":"a","logprob":-0.1,"bytes":[97],'
                            b'"top_logprobs":[]}]},"finish_reason":null}]}\n'
                            b"\n"
                        ]
                        * n
                    ),
                    END,
                ]
            ),
            streamed=True,
        ),
    ),
    Dimension(
        "usage on every event",
        5000,
        50_000,
        answered(
            lambda n: stream(
                [
                    START,
                    *(
                        [
                            b"data: "
                            b'{"id":"c","object":"chat.completion.chunk",'
                            b'"choices":[{"index":0,"delta":{"content":"a"},'
                            b'"finish_reason":null}],"usage":{"prompt_tokens":1,'
                            b'"completion_tokens":1}}\n'
                            b"\n"
                        ]
                        * n
                    ),
                    END,
                ]
            ),
            streamed=True,
        ),
    ),
    Dimension(
        "words of a whole answer",
        512 * KIB,
        TEXT_BYTES,
        message(lambda n: f'"content":"{filled(WORDS, n)}"'),
    ),
    Dimension(
        "base64 of a whole answer",
        4 * MIB,
        BODY_BYTES,
        message(lambda n: f'"content":"{filled(DATA, n)}"'),
    ),
    Dimension(
        "escapes of a whole answer",
        512 * KIB,
        TEXT_BYTES,
        message(lambda n: '"content":"%s"' % filled("\\u0041", n)),
    ),
    Dimension(
        "choices of a whole answer",
        250,
        100_000,
        completion(
            lambda n: ",".join(
                numbered(
                    '{"index":#,"message":{"role":"assistant","content":"a#"},'
                    '"finish_reason":"stop"}',
                    n,
                )
            )
        ),
    ),
    Dimension(
        "calls of a whole answer",
        2000,
        100_000,
        message(
            lambda n: (
                '"content":null,"tool_calls":[%s]' % ",".join(numbered(call("f", "{}", "#"), n))
            ),
            "tool_calls",
        ),
    ),
    Dimension(
        "nesting of a whole answer",
        500,
        1 * MIB,
        message(lambda n: '"content":"a","odd":%s' % ("[" * n + "]" * n)),
    ),
    Dimension(
        "empty objects of a whole answer",
        100_000,
        4 * MIB,
        message(lambda n: '"content":"a","odd":[%s]' % ",".join(["{}"] * n)),
    ),
    Dimension(
        "memory calls of one answer",
        100,
        5000,
        our_calls(
            "core_memory_append",
            lambda i: '{"label":"scratchpad","content":"line %d"}' % i,
            count=True,
        ),
    ),
    Dimension(
        "searches of one answer",
        50,
        2000,
        our_calls("archival_memory_search", lambda i: '{"query":"tea %d"}' % i, count=True),
    ),
    Dimension(
        "passages of one answer",
        50,
        2000,
        our_calls(
            "archival_memory_insert", lambda i: '{"content":"fact %d about tea"}' % i, count=True
        ),
    ),
    Dimension(
        "bytes of a passage",
        128 * KIB,
        EVENT_BYTES,
        our_calls("archival_memory_insert", lambda n: json.dumps({"content": filled(WORDS, n)})),
    ),
    Dimension(
        "sentences of a passage",
        128 * KIB,
        EVENT_BYTES,
        our_calls("archival_memory_insert", lambda n: json.dumps({"content": filled("Hi. ", n)})),
    ),
    Dimension(
        "one word as a passage",
        128 * KIB,
        EVENT_BYTES,
        our_calls("archival_memory_insert", lambda n: json.dumps({"content": "a" * n})),
    ),
    Dimension(
        "tags of a passage",
        1000,
        100_000,
        our_calls(
            "archival_memory_insert",
            lambda n: json.dumps({"content": "a", "tags": [f"t{i}" for i in range(n)]}),
        ),
    ),
    Dimension(
        "words of a search",
        5000,
        400_000,
        our_calls(
            "archival_memory_search",
            lambda n: json.dumps({"query": "".join(f"w{i} " for i in range(n))}),
        ),
    ),
    Dimension(
        "words of a conversation search",
        5000,
        400_000,
        our_calls(
            "conversation_search",
            lambda n: json.dumps({"query": "".join(f"w{i} " for i in range(n))}),
        ),
    ),
    Dimension(
        "characters of a search",
        50_000,
        EVENT_BYTES,
        our_calls(
            "archival_memory_search",
            lambda n: json.dumps({"query": "天" * (n // 3)}, ensure_ascii=False),
        ),
    ),
    Dimension(
        "tags of a search",
        1000,
        100_000,
        our_calls(
            "archival_memory_search",
            lambda n: json.dumps({"query": "a", "tags": [f"t{i}" for i in range(n)]}),
        ),
    ),
    Dimension(
        "bytes appended to a block",
        128 * KIB,
        EVENT_BYTES,
        our_calls(
            "core_memory_append",
            lambda n: json.dumps({"label": "human", "content": filled(WORDS, n)}),
        ),
    ),
    Dimension(
        "lines appended to a block",
        20_000,
        1 * MIB,
        our_calls(
            "core_memory_append", lambda n: json.dumps({"label": "human", "content": "a\n" * n})
        ),
    ),
    Dimension(
        "bytes replaced in a block",
        128 * KIB,
        EVENT_BYTES,
        our_calls(
            "core_memory_replace",
            lambda n: json.dumps(
                {"label": "human", "old_content": filled("&amp;", n), "new_content": "a"}
            ),
        ),
    ),
    Dimension(
        "bytes of a label",
        128 * KIB,
        EVENT_BYTES,
        our_calls("core_memory_append", lambda n: json.dumps({"label": "a" * n, "content": "a"})),
    ),
    Dimension(
        "bytes of arguments that are no JSON",
        128 * KIB,
        EVENT_BYTES,
        our_calls("core_memory_append", lambda n: "{" * n),
    ),
    Dimension(
        "bytes of a date",
        128 * KIB,
        EVENT_BYTES,
        our_calls("archival_memory_search", lambda n: json.dumps({"query": "a", "since": "1" * n})),
    ),
    Dimension(
        "bytes of a refusal",
        512 * KIB,
        BODY_BYTES,
        answered(
            lambda n: whole(b'{"error":{"message":"%s"}}' % (b"no " * (n // 3)), "400 Bad Request"),
            streamed=False,
        ),
    ),
    Dimension(
        "bytes of a refusal that is no JSON",
        512 * KIB,
        BODY_BYTES,
        answered(lambda n: whole(b"<p>" * (n // 3), "500 Oops", "text/html"), streamed=False),
    ),
]
