"""The interceptor as a transcript: chunks in, chunks out, over any number of rounds."""

import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.apis.base import LIGHT_PARTS
from gateway.apis.chat.chat_format import ChatMask
from gateway.apis.chat.interceptor import Interceptor
from gateway.chat.turn.round_stream import close_round
from gateway.wire import chat, fast_path
from gateway.wire.chat import fold, lift
from gateway.wire.sse import SseEvent, frame
from gateway.wire.told_choices import told_calls
from tests.gateway.wire.chunks import chunkings, completions, read

OURS = {"core_memory_append", "memory_rethink"}


def chunk(delta=None, finish=None, lane=0, **top):
    choices = [] if delta is None else [{"index": lane, "delta": delta, "finish_reason": finish}]
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": choices,
        **top,
    }


def call(index, name=None, arguments="", ident=None):
    out = {"index": index, "function": {"arguments": arguments}}
    if name is not None:
        out = {
            "index": index,
            "id": ident or f"call_{index}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
    return {"tool_calls": [out]}


def run(icpt, *bodies):
    return [json.loads(p) for body in bodies for p in icpt.feed(read(body))]


def closed(icpt):
    shown, result = icpt.close()
    return [json.loads(p) for p in shown], result


def text_of(chunks):
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])


@given(st.data())
def test_a_reply_without_our_calls_passes_as_the_bytes_that_came(data):
    chunks = data.draw(chunkings(data.draw(completions())))[:-1]
    icpt = Interceptor(OURS, include_usage=True)
    payloads = [json.dumps(c).encode() for c in chunks]
    shown = [p for payload in payloads for p in icpt.feed(read(json.loads(payload)))]
    assert shown == [json.dumps(c, ensure_ascii=False).encode() for c in chunks]


odd = st.sampled_from(
    [
        {},
        {"usage": None},
        {"usage": {"prompt_tokens": 3}},
        {"choices": []},
        {"service_tier": None, "x": [1]},
    ]
)
odd_choice = st.sampled_from(
    [
        {},
        {"finish_reason": None},
        {"finish_reason": "length"},
        {"index": 3},
        {"index": None},
        {"logprobs": {"content": []}},
        {"x": 1},
        {"message": {"content": None}},
        {"message": {"content": "", "refusal": "no", "tool_calls": []}},
        {
            "message": {
                "content": "a",
                "reasoning_content": "b",
                "function_call": {"name": "f", "arguments": "{}"},
            }
        },
    ]
)


@settings(max_examples=300)
@given(st.data())
def test_a_whole_answer_without_calls_comes_to_what_taking_it_apart_does(data):
    completion = {**data.draw(completions()), **data.draw(odd)}
    completion["choices"] = [{**c, **data.draw(odd_choice)} for c in completion["choices"]]
    try:
        at_once, apart = Interceptor(OURS), Interceptor(OURS)
        found = at_once.whole(chat.chunk(lift(completion), b""))
    except chat.MalformedCompletion:
        return
    lanes = [c.get("index") or 0 for c in completion["choices"]]
    assert (found is None) == (
        any(told_calls(c["message"]) for c in completion["choices"]) or lanes != sorted(set(lanes))
    )
    if found is None:
        return
    apart.feed(chat.chunk(lift(completion), b""))
    _, expected = apart.close()
    assert found == expected
    assert at_once.usage == apart.usage


@given(st.data())
def test_stream_and_plain_show_the_same_answer(data):
    completion = data.draw(completions(n=1))
    for c in completion["choices"][0]["message"].get("tool_calls") or []:
        if data.draw(st.booleans()):
            c["function"]["name"] = data.draw(st.sampled_from(sorted(OURS)))
    answers = []
    for chunks in ([lift(completion)], data.draw(chunkings(completion))):
        icpt = Interceptor(OURS)
        for body in chunks:
            icpt.feed(read(body))
        icpt.close()
        icpt.finish()
        answers.append(icpt.answer()["choices"])
    # An absent and a null or empty member say the same.
    for choice in (c for a in answers for c in a):
        choice["message"] = {k: v for k, v in choice["message"].items() if v not in (None, "")}
    assert answers[0] == answers[1]


FACE = chr(0x1F600)
HEAD = {"id": "c", "object": "o", "created": 1, "model": "m"}
HEADS = [
    HEAD,
    {**HEAD, "model": "n"},
    {"id": "c"},
    {**HEAD, "usage": None},
    {**HEAD, "usage": {}},
    {**HEAD, "x_new": "y"},
    {**HEAD, "x_new": None},
    {**HEAD, "usage": {"prompt_tokens": 1}},
    {**HEAD, "id": fast_path.TEXT},
    {**HEAD, "id": fast_path.PAD},
]
CHOICES = [
    {},
    {"delta": None},
    {"index": None, "delta": {"content": "a"}},
    {"index": 0, "delta": {"content": "b"}, "finish_reason": "stop"},
    {"index": 0, "delta": {"content": "c"}, "logprobs": {"content": []}},
    {"index": 0, "delta": {"content": "d", "role": "assistant"}},
    {"index": 0, "delta": {"content": "e"}, "x_more": "grows"},
    {"index": 1, "delta": {"content": "f"}},
    {"index": 0, "delta": {"content": ""}},
    {"index": 0, "delta": {"content": "g", "reasoning_content": "grows"}},
    {"index": 0, "delta": {"content": "h", "reasoning_content": None, "tool_calls": []}},
    {
        "index": 0,
        "delta": {
            "tool_calls": [{"index": 0, "function": {"name": "get_weather", "arguments": "{}"}}]
        },
    },
    {"index": 0, "delta": {"content": ["i"]}},
]
TOLD = [
    "j",
    "k l",
    "\n",
    'a "quoted" one',
    "\\",
    "\u2028",
    "\x7f",
    FACE,
    "caf\u00e9",
    fast_path.TEXT,
    "",
    '"},"x":{"content":"',
]
RAW = [
    b'{"id":"c","object":"o","created":1,"model":"m","choices":[{"index":0,'
    b'"delta":{"content":"%b"},"finish_reason":null}]}',
    b'{"choices":[{"delta":{"content":"x","content":"%b"},"index":0}],"id":"c","object":"o",'
    b'"created":1,"model":"m"}',
    b'{"choices":[{"delta":{"content":"%b","conten\\u0074":"last"},"index":0}],"id":"c",'
    b'"object":"o","created":1,"model":"m"}',
    b'{"choices":[{"delta":{"content":"%b"},"index":0}],"id":"c","object":"o","created":1,'
    b'"model":"m","x":"\\ud83d"}',
]
RAW += [t.replace(b'"content"', b'"content":null,"reasoning_content"') for t in RAW] + [
    RAW[0].replace(b'"content"', b'"reasoning"')
]
RAW += [t[:-1] + b',"obfuscation":"%p"}' for t in RAW] + [
    RAW[0][:-1] + b',"x":{"obfuscation":"%p"}}',
    RAW[0][:-1] + b',"obfuscation":"a","usage":null,"obfuscation":"%p"}',
    b'{"obfuscation":"%p",' + RAW[0][1:],
]
PADS = [
    b"",
    b"a",
    b"Zz09",
    fast_path.PAD.encode(),
    b"-",
    b'"',
    b'b","x":"c',
    b"\\u0061",
    b"\xc3\xa9",
]
INNER = [
    b"plain",
    b"",
    b"\\ud83d",
    b"\\ude00",
    b"\\ud83d\\ude00",
    b"\\/",
    b"\\",
    b'"',
    b"\\x",
    b"\xff",
    b"\xc3\xa9",
    b"\t",
    b'","role":"user',
    b'"},"finish_reason":"stop","x":{"y":"',
    b"\\u0000",
    b"mnemogate\\u002etext",
    b'x"},"finish_reason":null}],"obfuscation":"a',
]


@st.composite
def streamed(draw):
    """Payloads of a stream: most of them one shape with another text, any of them odd, in any
    bytes.
    """
    told = st.sampled_from(TOLD) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
    if draw(st.booleans()):
        template = draw(st.sampled_from(RAW))
        inner, pad = (
            st.just(INNER[0]) | st.sampled_from(INNER),
            st.sampled_from(PADS[1:3]) | st.sampled_from(PADS),
        )
        return draw(
            st.lists(
                st.builds(lambda i, p: template.replace(b"%b", i).replace(b"%p", p), inner, pad),
                min_size=2,
                max_size=8,
            )
        )
    head, ascii_ = draw(st.sampled_from(HEADS)), draw(st.booleans())
    shape = draw(
        st.sampled_from(
            [
                {"index": 0, "delta": {}, "finish_reason": None},
                *(c for c in CHOICES if c.get("delta")),
            ]
        )
    )
    member = draw(st.sampled_from(["content", "content", "reasoning_content", "reasoning"]))
    same = st.builds(
        lambda t: {**head, "choices": [{**shape, "delta": {**shape["delta"], member: t}}]}, told
    )
    odd = st.builds(
        lambda h, c: {**h, "choices": [c]}, st.sampled_from(HEADS), st.sampled_from(CHOICES)
    )
    return draw(
        st.lists(
            (same | same | same | odd).map(
                lambda body: json.dumps(body, ensure_ascii=ascii_).encode()
            ),
            min_size=2,
            max_size=10,
        )
    )


@st.composite
def called(draw):
    """Payloads of a stream of calls, the client's and ours, whose arguments come in pieces."""
    index, other = draw(st.sampled_from([(0, 1), (0, 0), (None, None), (1, 0)]))
    told = st.sampled_from(TOLD) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
    begin = st.builds(
        lambda i, n, c: {"tool_calls": [{**call(0, n, ident=c)["tool_calls"][0], "index": i}]},
        st.sampled_from([index, other]),
        st.sampled_from(["get_weather", "get_weather", "core_memory_append", "core_", ""]),
        st.sampled_from(["a", "b"]),
    )
    more = st.builds(
        lambda i, t, e: {"tool_calls": [{"index": i, **e, "function": {"arguments": t}}]},
        st.sampled_from([index, index, index, other]),
        told,
        st.sampled_from([{}, {}, {}, {"type": "function"}, {"id": "a"}, {"x": "grows"}]),
    )
    same = st.builds(
        lambda t: {"tool_calls": [{"index": index, "function": {"arguments": t}}]}, told
    )
    odd = st.sampled_from(
        [
            {"content": "so"},
            {"reasoning_content": "hm"},
            {"tool_calls": []},
            {
                "tool_calls": [
                    {"index": 0, "function": {"arguments": "{"}},
                    {"index": 1, "function": {"arguments": "{"}},
                ]
            },
        ]
    )
    deltas = draw(st.lists(begin | same | same | same | more | odd, min_size=3, max_size=14))
    ended = draw(st.sampled_from([[], [chunk({}, "tool_calls")]]))
    return [json.dumps(body).encode() for body in [*map(chunk, [draw(begin), *deltas]), *ended]]


def read_all(icpt, payloads, quick):
    """What is shown of these events, as events, and where they broke off."""
    out = []
    for payload in payloads:
        if quick and (shown := icpt.fast_forward(frame(payload))):
            out.append([shown])
            continue
        try:
            out.append([frame(p) for p in icpt.feed(chat.parse_chunk(payload))])
        except chat.MalformedCompletion:
            return [*out, None]
    return out


@settings(max_examples=500)
@given(
    streamed() | called(),
    streamed() | called(),
    st.booleans(),
    st.sampled_from([None, "alias", fast_path.TEXT]),
)
def test_what_is_known_by_its_bytes_is_shown_and_adds_up_as_if_it_were_read(
    first, second, told, alias
):
    quick, whole = Interceptor(OURS, told, alias), Interceptor(OURS, told, alias)
    for payloads in (first, second):
        assert read_all(quick, payloads, True) == read_all(whole, payloads, False)
        (shown, one), (also, other) = quick.close(), whole.close()
        assert (shown, one.reply, one.complete, one.text_shown) == (
            also,
            other.reply,
            other.complete,
            other.text_shown,
        )
        quick.start_next_round()
        whole.start_next_round()
    assert (quick.finish(), quick.answer()) == (whole.finish(), whole.answer())


@pytest.mark.parametrize(
    "top", [{}, {"usage": None}, {"system_fingerprint": "fp", "service_tier": None}]
)
@pytest.mark.parametrize("alias", [None, "alias"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("member", ["content", "reasoning_content", "reasoning"])
def test_of_a_stream_of_text_only_the_first_piece_is_read(top, alias, padded, member):
    icpt = Interceptor(OURS, model=alias)
    for number in range(3):
        padding = [{"obfuscation": "a" * (1 + i % 9)} if padded else {} for i in range(600)]
        events = [
            frame(
                json.dumps(chunk({member: f"{i} "}, id=f"c{number}", **top, **padding[i])).encode()
            )
            for i in range(600)
        ]
        icpt.feed(chat.parse_chunk(events[0][6:-2]))
        if number:
            # A join is its own piece.
            icpt.feed(chat.parse_chunk(events[1][6:-2]))
        assert all(icpt.fast_forward(e) for e in events[1 + bool(number) :])
        _, result = icpt.close()
        assert result.reply["choices"][0]["message"][member] == "".join(f"{i} " for i in range(600))
        icpt.start_next_round()


@pytest.mark.parametrize("alias", [None, "alias"])
def test_of_a_calls_arguments_only_the_first_piece_is_read(alias):
    icpt = Interceptor(OURS, model=alias)
    icpt.feed(read(chunk({"role": "assistant", **call(0, "write_file")})))
    events = [frame(json.dumps(chunk(call(0, arguments=f'"{i} '))).encode()) for i in range(600)]
    icpt.feed(chat.parse_chunk(events[0][6:-2]))
    assert all(icpt.fast_forward(e) for e in events[1:])
    _, result = icpt.close()
    assert result.reply["choices"][0]["message"]["tool_calls"][0]["function"][
        "arguments"
    ] == "".join(f'"{i} ' for i in range(600))
    assert icpt.answer()["choices"][0]["message"]["tool_calls"] == result.theirs


def test_a_place_that_another_member_of_the_same_name_overrules_is_not_taken_for_the_text():
    payload = (
        b'{"id":"c","object":"o","created":1,"model":"m","choices":[{"index":0,'
        b'"delta":{"content":"a","conten\\u0074":"mnemogate\\u002etext"}}]}'
    )
    icpt = Interceptor(OURS)
    for _ in range(2):
        icpt.feed(chat.parse_chunk(payload))
    assert not icpt.fast_forward(frame(payload.replace(b'"a"', b'"b"')))


def test_a_stream_in_which_no_event_is_like_the_one_before_is_not_proved_for_ever():
    icpt = Interceptor(OURS)
    for i in range(50):
        icpt.feed(read(chunk({"content": "a"}, x=i)))
    assert not icpt.fast_forward(frame(json.dumps(chunk({"content": "a"}, x=49)).encode()))


def test_text_is_never_held_back():
    icpt = Interceptor(OURS)
    assert text_of(run(icpt, chunk({"role": "assistant", "content": "He"}))) == "He"
    assert text_of(run(icpt, chunk(call(0, "core_memory_append")))) == ""
    assert text_of(run(icpt, chunk({"content": "llo"}))) == "llo"


def test_our_call_is_never_shown_and_its_finish_waits():
    icpt = Interceptor(OURS)
    shown = run(
        icpt,
        chunk({"role": "assistant", **call(0, "core_memory_append")}),
        chunk(call(0, arguments='{"a":1}')),
        chunk({}, "stop"),
    )
    assert shown == []
    shown, result = closed(icpt)
    assert shown == []
    assert [c["function"]["arguments"] for c in result.ours] == ['{"a":1}']
    assert result.complete
    assert not result.theirs


def test_a_name_in_fragments_is_held_only_while_it_could_be_ours():
    icpt = Interceptor(OURS)
    assert run(icpt, chunk({"role": "assistant"}), chunk(call(0, "memory")))[1:] == []
    released = run(icpt, chunk(call(0, "_lane")))
    assert [c["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] for c in released] == [
        "memory",
        "_lane",
    ]


def test_a_clients_name_that_starts_with_ours_is_shown():
    icpt = Interceptor(OURS)
    first = chunk(
        {
            "tool_calls": [
                {"index": 0, "id": "a", "type": "function", "function": {"name": "memory_rethink"}}
            ]
        }
    )
    shown = run(
        icpt,
        first,
        chunk({"tool_calls": [{"index": 0, "function": {"name": "_all"}}]}),
        chunk(call(0, arguments="{}")),
    )
    assert len(shown) == 3


def test_two_rounds_are_one_answer():
    icpt = Interceptor(OURS, include_usage=True)
    one = run(
        icpt,
        chunk({"role": "assistant", "content": "Let me note that."}),
        chunk(call(0, "memory_rethink", "{}")),
        chunk({}, "tool_calls"),
        chunk(None, usage={"prompt_tokens": 5}),
    )
    _, result = closed(icpt)
    assert result.ours
    icpt.start_next_round()
    other = {"id": "c2", "created": 9}
    two = run(
        icpt,
        chunk({"role": "assistant", "content": ""}, **other),
        chunk({"content": "Done"}, **other),
        chunk({}, "stop", **other),
        chunk(None, usage={"prompt_tokens": 7}, **other),
    )
    _, result = closed(icpt)
    shown = [*one, *two, *(json.loads(p) for p in icpt.finish() + icpt.usage_chunk(icpt.usage))]
    assert {(c["id"], c["created"]) for c in shown} == {("c1", 1)}
    assert sum("role" in ch["delta"] for c in shown for ch in c["choices"]) == 1
    assert [ch["finish_reason"] for c in shown for ch in c["choices"] if ch["finish_reason"]] == [
        "stop"
    ]
    assert text_of(shown) == "Let me note that.\n\nDone"
    assert shown[-1]["choices"] == []
    assert shown[-1]["usage"] == {"prompt_tokens": 12}
    assert fold(shown)["choices"][0]["message"]["content"] == "Let me note that.\n\nDone"


def test_white_space_between_rounds_is_not_doubled():
    icpt = Interceptor(OURS)
    run(
        icpt,
        chunk({"content": "One.\n"}),
        chunk(call(0, "memory_rethink", "{}")),
        chunk({}, "tool_calls"),
    )
    icpt.close()
    icpt.start_next_round()
    assert text_of(run(icpt, chunk({"content": "Two"}))) == "Two"


def test_a_mixed_reply_shows_the_clients_calls_densely_in_order():
    icpt = Interceptor(OURS)
    shown = run(
        icpt,
        chunk(call(0, "memory_rethink", "{}")),
        chunk(call(1, "get_weather", "{}")),
        chunk(call(2, "core_memory_append", "{}")),
        chunk(call(3, "lookup", "{}")),
        chunk({}, "stop"),
    )
    _, result = closed(icpt)
    shown += [json.loads(p) for p in icpt.finish()]
    message = fold(shown)["choices"][0]["message"]
    indexes = [
        c["index"] for s in shown for ch in s["choices"] for c in ch["delta"].get("tool_calls", [])
    ]
    assert indexes == [0, 1]
    assert [c["function"]["name"] for c in message["tool_calls"]] == ["get_weather", "lookup"]
    assert shown[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert [c["function"]["name"] for c in result.ours] == ["memory_rethink", "core_memory_append"]


def test_parallel_calls_all_at_index_0_are_told_apart_by_id():
    icpt = Interceptor(OURS)
    shown = run(
        icpt,
        chunk(call(0, "memory_rethink", "{}", "a")),
        chunk(call(0, "get_weather", "{}", "b")),
        chunk(call(0, "lookup", "{}", "c")),
        chunk({}, "tool_calls"),
    )
    _, result = closed(icpt)
    assert [c["id"] for c in result.ours] == ["a"]
    assert [
        c["index"] for s in shown for ch in s["choices"] for c in ch["delta"].get("tool_calls", [])
    ] == [0, 1]


def test_a_call_cut_by_length_is_told_so():
    icpt = Interceptor(OURS)
    run(icpt, chunk(call(0, "memory_rethink", '{"la')), chunk({}, "length"))
    _, result = closed(icpt)
    assert result.cut
    assert [json.loads(p)["choices"][0]["finish_reason"] for p in icpt.finish()] == ["length"]


def test_a_stream_without_finish_is_not_complete():
    icpt = Interceptor(OURS)
    run(icpt, chunk({"content": "Hel"}))
    assert not closed(icpt)[1].complete


def test_usage_is_kept_back_and_counted_once_wherever_it_comes():
    use = {"prompt_tokens": 3, "completion_tokens": 2}
    for tail in (
        [chunk({}, "stop"), chunk(None, usage=use)],
        [chunk({}, "stop", usage=use)],
        [chunk({}, "stop"), chunk({}, usage=use)],
        [
            chunk({"content": "x"}, usage={"prompt_tokens": 3, "completion_tokens": 1}),
            chunk({}, "stop", usage=use),
            chunk(None, usage=use),
        ],
    ):
        icpt = Interceptor(OURS, include_usage=True)
        shown = run(icpt, chunk({"role": "assistant", "content": "a"}), *tail)
        icpt.close()
        assert all(not c.get("usage") for c in shown)
        assert icpt.usage == use


def test_a_null_usage_the_client_did_not_ask_for_is_taken_out():
    icpt = Interceptor(OURS)
    assert all("usage" not in c for c in run(icpt, chunk({"content": "a"}, usage=None)))


def test_an_alias_is_the_model_in_every_chunk():
    icpt = Interceptor(OURS, model="mine")
    assert {c["model"] for c in run(icpt, chunk({"content": "a"}), chunk({}, "stop"))} == {"mine"}


def test_nothing_of_a_lane_follows_its_finish():
    icpt = Interceptor(OURS)
    assert (
        text_of(run(icpt, chunk({"content": "a"}), chunk({}, "stop"), chunk({"content": "b"})))
        == "a"
    )


def undecided(index):
    """A call whose name may still become one of ours."""
    return chunk(
        {"tool_calls": [{"index": index, "id": f"c{index}", "function": {"name": "core"}}]}
    )


@pytest.mark.parametrize(("many", "is_long"), [(3, False), (LIGHT_PARTS + 1, True)])
async def test_what_is_held_of_many_calls_comes_out_in_a_thread(monkeypatch, many, is_long):
    """4,096 of them held others for .1 s."""
    loop, threads = threading.get_ident(), {}
    for name in ("feed", "close"):
        work = getattr(Interceptor, name)

        def noting(self, *args, name=name, work=work):
            threads[name] = threading.get_ident()
            return work(self, *args)

        monkeypatch.setattr(Interceptor, name, noting)
    mask = ChatMask(Interceptor(OURS))
    events = [undecided(i) for i in range(many)] + [chunk({}, "tool_calls")]
    shown = b""
    for body in events:
        shown += await mask.show(SseEvent(b"", json.dumps(body).encode()))
    assert (threads["feed"] != loop) == is_long
    rest, result = await close_round(mask)
    assert (threads["close"] != loop) == is_long
    assert (shown + rest).count(b'"name":') == many
    assert len(result.theirs) == many
