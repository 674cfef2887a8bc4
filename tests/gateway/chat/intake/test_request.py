"""A chat request is read once, into a value that does not change; its faults come in one order."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.apis.client_profiles import ClientProfiles
from gateway.auth.authenticator import Principal
from gateway.auth.user_resolver import UserResolver
from gateway.chat.intake.request import MemoryPath, keep_known, read_turn_input
from gateway.chat.intake.request_headers import retry_signals
from gateway.chat.intake.request_link import link_request
from gateway.config.settings import Settings
from gateway.errors import (
    BadRequest,
    Forbidden,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnknownModel,
)
from gateway.http.known_requests import KnownRequests
from gateway.http.parse_cache import RequestParseCache
from gateway.http.request_weight import TooHeavy
from gateway.routing.agents import AgentDirectory
from gateway.routing.router import Route
from gateway.state import REQUEST_ID
from memory.errors import StoreUnavailable

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
ROUTE = Route((), "m")


class Keys:
    """One key, or the principal that is set."""

    principal = Principal("acme", "app")
    own = False

    def caller(self, headers):
        if headers.get(b"authorization") != b"Bearer k":
            raise Unauthenticated("no key")
        return self.principal


class Models:
    def route(self, name, principal):
        if name != "m":
            raise UnknownModel("no such model")
        return ROUTE


class HeavyBodies:
    async def parse_async(self, source, raw):
        raise TooHeavy("it has too many messages")


class Policies:
    """The policies of users: one for everybody, or a store that is down."""

    found = "full"
    policies = SimpleNamespace(is_unused=True)

    async def user_policy(self, tenant, user):
        if self.found is None:
            raise StoreUnavailable("down")
        return self.found


class Agents:
    """No agent has a profile."""

    check_named = staticmethod(AgentDirectory.check_named)

    async def find(self, tenant, name, certain=True):
        return None


@pytest.fixture
def gateway():
    return SimpleNamespace(
        keys=Keys(),
        agents=Agents(),
        settings=SimpleNamespace(
            server=SimpleNamespace(max_body_mib=0.001),
            memory=SimpleNamespace(on_error="bypass", conversations="all"),
        ),
        memory=Policies(),
        prefixes=RequestParseCache(),
        known_requests=KnownRequests(),
        router=Models(),
        names=UserResolver(Settings()),
        clients=ClientProfiles(Settings()),
        background=SimpleNamespace(matches=lambda messages: False),
    )


async def read(gateway, body=BODY, path_user=None, **headers):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"authorization": "Bearer k", **{k.replace("_", "-"): v for k, v in headers.items()}}
    scope = {
        REQUEST_ID: "req_1",
        "headers": [(k.encode(), v.encode()) for k, v in sent.items() if v is not None],
    }

    async def receive():
        return {"type": "http.request", "body": raw, "more_body": False}

    request = await read_turn_input(gateway, scope, receive, MemoryPath(user=path_user))
    if request.known is None:
        request = await link_request(gateway, request)
        keep_known(gateway, scope, request)
    return request


async def test_what_a_client_says_is_one_value(gateway):
    found = await read(
        gateway,
        BODY | {"stream": True},
        "from-the-path",
        x_memory="Read ",
        x_memory_user="ad%C3%A1",
        x_memory_agent="coder",
        x_memory_conversation="trip%20plan",
        idempotency_key="once",
    )
    assert (found.id, found.principal, found.route) == ("req_1", Keys.principal, ROUTE)
    assert (found.mode, found.user, found.agent) == ("read", "adá", "coder")
    assert found.conversation == "trip plan"
    assert found.conversation_as_sent == b"trip%20plan"
    assert (found.idempotency_key, found.is_retry) == ("once", True)
    assert found.path_user == "from-the-path"
    assert found.raw_body == json.dumps(BODY | {"stream": True}).encode()
    assert list(found.body["messages"]) == BODY["messages"]
    assert found.wants_stream
    assert found.uses_memory


async def test_who_says_nothing_gets_what_is_usual(gateway):
    found = await read(gateway)
    assert (found.mode, found.user, found.agent) == ("full", None, "default")
    assert (found.conversation, found.conversation_as_sent) == (None, b"")
    assert (found.idempotency_key, found.is_retry, found.too_heavy) == ("", False, "")
    assert not found.wants_stream
    assert found.uses_memory


async def test_a_request_does_not_change(gateway):
    found = await read(gateway)
    with pytest.raises(AttributeError):
        found.mode = "off"


async def test_faults_are_told_in_one_order(gateway):
    gateway.keys.principal = Principal("acme", "app", trusted=False, users=frozenset({"ada"}))
    long = "x" * 300
    faults = [
        ("authorization", None, "Bearer k", Unauthenticated),
        ("x_memory", "maybe", "full", BadRequest),
        ("body", BODY | {"messages": 1}, BODY | {"model": "unheard-of"}, BadRequest),
        ("body", BODY | {"model": "unheard-of"}, BODY, UnknownModel),
        ("x_memory_user", "bob", None, Forbidden),
        ("x_memory_conversation", long, None, BadRequest),
        ("x_memory_agent", long, "coder", BadRequest),
    ]
    given = {}
    for name, bad, _, _ in reversed(faults):
        given[name] = bad
    for name, bad, good, kind in faults:
        given[name] = bad
        with pytest.raises(kind) as met:
            await read(gateway, **given)
        assert type(met.value) is kind
        if name.startswith("x_") and kind is BadRequest:
            assert met.value.param == name.replace("_", "-")
        given[name] = good
    assert (await read(gateway, **given)).agent == "coder"


async def test_a_body_is_limited_before_it_is_looked_at(gateway):
    with pytest.raises(TooLarge):
        await read(gateway, b"{" * 2000, x_memory="maybe")


async def test_a_conversation_needs_somebody_whose_it_is(gateway):
    gateway.keys.principal = Principal("acme", "app", trusted=False)
    with pytest.raises(Forbidden):
        await read(gateway, x_memory_conversation="trip")


async def test_without_memory_nobody_reads_whose_it_would_be(gateway):
    odd = {"x_memory_agent": "%zz", "x_memory_conversation": "%zz"}
    found = await read(gateway, x_memory="off", **odd)
    assert (found.agent, found.conversation, found.uses_memory) == ("", None, False)
    with pytest.raises(BadRequest):
        await read(gateway, **odd)


async def test_a_prompt_of_a_chat_ui_itself_goes_without_memory(gateway):
    gateway.background.matches = lambda messages: messages[0]["content"] == "Hi"
    assert (await read(gateway)).mode == "off"


async def test_memory_stands_aside_for_what_is_too_long_for_it(gateway, caplog):
    gateway.prefixes = HeavyBodies()
    found = await read(gateway, x_memory_agent="%zz")
    assert (found.mode, found.too_heavy) == ("full", "it has too many messages")
    assert not found.uses_memory
    assert "goes without it (req_1): it has too many messages" in caplog.text


@pytest.mark.parametrize("need", ["named", "set"])
async def test_unless_it_is_needed(gateway, need):
    gateway.prefixes = HeavyBodies()
    gateway.settings.memory.on_error = "fail" if need == "set" else "bypass"
    named = {"x_memory_conversation": "trip"} if need == "named" else {}
    with pytest.raises(BadRequest, match=r"needs its memory.*it has too many messages"):
        await read(gateway, **named)


async def test_a_key_of_some_models_wants_a_body_that_names_one(gateway):
    gateway.keys.principal = Principal("acme", "app", models=("m",))
    with pytest.raises(BadRequest):
        await read(gateway, b'{"model": "m", "messages": [], "model": "m"}')


@pytest.mark.parametrize(
    ("headers", "signals"),
    [
        ({}, ("", False)),
        ({b"x-stainless-retry-count": b"0"}, ("", False)),
        ({b"x-stainless-retry-count": b"000"}, ("", False)),
        ({b"x-stainless-retry-count": b"2"}, ("", True)),
        ({b"x-stainless-retry-count": b"-1"}, ("", False)),
        ({b"x-stainless-retry-count": b""}, ("", False)),
        ({b"idempotency-key": b""}, ("", False)),
        ({b"idempotency-key": b"k\xe9y"}, ("k\xe9y", True)),
    ],
)
def test_a_retry_is_known_by_its_key_or_its_count(headers, signals):
    assert retry_signals(headers) == signals


@pytest.mark.parametrize(
    ("members", "most", "total"),
    [
        ({}, None, None),
        ({"max_tokens": 10}, 10, 10),
        ({"max_tokens": 10, "max_completion_tokens": 7}, 7, 7),
        ({"max_tokens": 10, "n": 3}, 10, 30),
        ({"max_tokens": True, "n": 3}, None, None),
        ({"max_tokens": 0}, None, None),
    ],
)
async def test_what_an_answer_may_have(gateway, members, most, total):
    found = await read(gateway, BODY | members)
    assert (found.max_output, found.total_output) == (most, total)


@pytest.mark.parametrize(
    ("policy", "asked", "mode", "reason"),
    [
        ("read", "full", "read", ""),
        ("read", "write", "off", "policy"),
        ("off", "full", "off", "policy"),
        ("full", "off", "off", "request"),
        ("off", "off", "off", "request"),
    ],
)
async def test_the_strictest_of_policy_and_header_holds(gateway, policy, asked, mode, reason):
    gateway.memory.found = policy
    found = await read(gateway, x_memory=asked, x_memory_user="ada")
    assert (found.mode, found.off_reason, found.whole_facts is None) == (
        mode,
        reason,
        mode == "off",
    )


async def test_memory_stands_aside_while_the_users_policy_cannot_be_read(gateway):
    gateway.memory.found = None
    found = await read(gateway, x_memory_user="ada")
    assert not found.uses_memory
    assert found.too_heavy == "the user's policy cannot be read"
    with pytest.raises(Unavailable, match="policy cannot be read"):
        await read(gateway, x_memory_user="ada", x_memory_conversation="c")


HEADERS = [
    {},
    {"x_memory_user": "ada"},
    {"x_memory_user": "bob"},
    {"x_memory": "read"},
    {"x_memory": "off"},
    {"x_memory_conversation": "trip"},
    {"x_memory_agent": "coder"},
    {"idempotency_key": "once"},
    {"x_stainless_retry_count": "1"},
    {"traceparent": "00-1"},
    {"traceparent": "00-2"},
]
MEMBERS = [{}, {"user": "eve"}, {"max_tokens": 9}, {"stream": True}, {"n": 2}, {"stop": ["x"]}]


def user(number):
    # Long enough for its bytes to be known again.
    return {"role": "user", "content": f"{number}: " + "tell me more of it, " * 20}


def as_text(request):
    """What a request says, whether it was known or not."""
    members = {name: getattr(request, name) for name in type(request).__struct_fields__}
    facts = members.pop("whole_facts")
    members["body"] = {**request.body, "messages": list(request.body["messages"])}
    told = facts and (list(facts.history), facts.tool_names, facts.takes_tools, facts.wants_json)
    return {**members, "known": None, "started_at": 0.0, "facts": told}


@given(
    st.lists(
        st.tuples(st.sampled_from(HEADERS), st.sampled_from(MEMBERS), st.booleans()), max_size=8
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_known_request_is_read_as_one_that_is_new(gateway, turns):
    gateway.keys.principal = Principal("acme", "app", paths=())
    gateway.settings.server.max_body_mib = 1
    messages = []
    for headers, members, goes_on in turns:
        messages = [*messages, user(len(messages))]
        body = {**members, "model": "m", "messages": messages}
        read_again = await read(gateway, body, **headers)
        gateway.known_requests.decisions.clear()
        gateway.prefixes = RequestParseCache() if not goes_on else gateway.prefixes
        assert as_text(read_again) == as_text(await read(gateway, body, **headers))
        messages = [*messages, {"role": "assistant", "content": "so be it"}]


async def grow(gateway, turns, **headers):
    """Read the turns of a chat; return whether each was known."""
    known = []
    messages = []
    gateway.settings.server.max_body_mib = 1
    for turn in range(turns):
        messages = [*messages, user(turn)]
        request = await read(gateway, BODY | {"messages": messages}, **headers)
        known.append(request.known is not None)
        messages = [*messages, {"role": "assistant", "content": "so be it"}]
    return known


async def test_a_chat_is_known_from_its_second_turn_on(gateway):
    gateway.keys.principal = Principal("acme", "app", paths=())
    assert await grow(gateway, 3, x_memory_user="ada") == [False, True, True]
    # Another chat of the same program and user.
    assert await grow(gateway, 2, x_memory_user="ada") == [True, True]
    assert await grow(gateway, 2, x_memory_user="bob") == [False, True]
    # A header that says which request it is decides nothing.
    assert await grow(gateway, 1, x_memory_user="ada", traceparent="00-1") == [True]


async def test_what_may_change_meanwhile_is_asked_each_time(gateway):
    gateway.keys.principal = Principal("acme", "app", paths=())
    await grow(gateway, 2)
    gateway.keys.principal = Principal("acme", "app", paths=(), memory="read")
    assert await grow(gateway, 1) == [False]
    gateway.memory.policies = SimpleNamespace(is_unused=False)
    assert await grow(gateway, 2) == [False, False]
    gateway.memory.policies = SimpleNamespace(is_unused=True)
    gateway.background = SimpleNamespace(matches=lambda messages: True)
    assert await grow(gateway, 2) == [False, False]


async def test_no_key_of_a_clients_own_is_kept(gateway):
    gateway.keys.own = True
    gateway.keys.principal = Principal("own-1", "own", authorization=b"Bearer sk-own")
    assert await grow(gateway, 3) == [False, True, True]
    kept = [*gateway.known_requests.decisions._now.values()]
    assert [request.principal.authorization for request in kept] == [None]
    # The next request has its own.
    gateway.keys.principal = Principal("own-1", "own", authorization=b"Bearer another")
    messages = [user(0)]
    request = await read(gateway, BODY | {"messages": messages})
    assert request.known is not None
    assert request.principal.authorization == b"Bearer another"
    gateway.keys.principal = Principal("own-2", "own", authorization=b"Bearer another")
    assert (await read(gateway, BODY | {"messages": messages})).known is None
