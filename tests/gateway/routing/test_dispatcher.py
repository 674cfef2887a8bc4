"""Which target a call goes to, how often, and what the caller is told in the end."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from gateway.config.settings import CooldownSettings, ProviderSettings, RoutingSettings
from gateway.errors import (
    BadRequest,
    StreamIncomplete,
    UpstreamAuthError,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.routing.caller import Caller
from gateway.routing.cooldowns import CooldownPolicy, LocalCooldowns
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.router import Route, Target
from gateway.routing.selector import TargetSelector
from gateway.upstream.base import UpstreamRequest
from gateway.upstream.redaction import RedactedUpstream, secrets_of
from gateway.upstream.scripted import ScriptedUpstream, completion, refusal, stream
from gateway.wire.sse import DONE

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
ANSWER = completion({"content": "Hello."})
AT_ONCE = [(b"retry-after-ms", b"1")]
BUSY = refusal(429, {"error": {"message": "busy", "code": "rate_limit"}}, AT_ONCE)
BROKEN = refusal(500, {"error": {"message": "broken"}}, AT_ONCE)
CHUNK = {"id": "c", "choices": [{"index": 0, "delta": {"content": "Hello"}}]}
KEY = "sk-provider-key"


def server_of(upstream, key):
    """An upstream as the factory builds it: what it answers holds no key of its provider."""
    return RedactedUpstream(upstream, secrets_of(key)) if key else upstream


class Fleet:
    """Targets named a, b, c ... in tiers of their own, each of which plays its answers."""

    def __init__(self, *scripts, retries=1, key=None, alias=False, **caller):
        self.upstreams = [ScriptedUpstream(s if isinstance(s, list) else [s]) for s in scripts]
        settings = ProviderSettings(base_url="http://up/v1", api_key=key)
        targets = [
            Target(name, "theirs" if alias else "m", server_of(upstream, key), settings)
            for name, upstream in zip("abc", self.upstreams, strict=False)
        ]
        selector = TargetSelector(
            LocalCooldowns(CooldownPolicy(3, 30, 30)),
            RoutingSettings(retries=retries, cooldown=CooldownSettings()),
        )
        self.dispatcher = Dispatcher(
            Route(tuple((t,) for t in targets), "m"), selector, Caller(**caller), retries=retries
        )

    async def complete(self, body=BODY, **how):
        return await self.dispatcher.complete(lambda target: (body, (), None, None), **how)

    async def passthrough(self, content=b"{}"):
        async def make(target, headers):
            return UpstreamRequest("/embeddings", content, headers)

        return await self.dispatcher.passthrough(make)

    @property
    def asked(self):
        return [len(u.requests) for u in self.upstreams]


async def test_the_first_target_answers():
    fleet = Fleet(ANSWER, ANSWER)
    reply = await fleet.complete()
    assert reply.chunk is not None
    assert json.loads(reply.plain)["choices"][0]["message"]["content"] == "Hello."
    assert (fleet.asked, fleet.dispatcher.attempts) == ([1, 0], 1)
    assert fleet.dispatcher.served.label == "a/m"
    assert fleet.upstreams[0].bodies == [BODY]


async def test_another_target_is_tried_before_the_same_one_again():
    fleet = Fleet(BROKEN, ANSWER)
    await fleet.complete()
    assert fleet.asked == [1, 1]
    assert fleet.dispatcher.served.label == "b/m"
    assert [c.target.label for c in fleet.dispatcher._candidates] == ["b/m", "a/m"]


async def test_later_rounds_begin_with_the_one_that_served():
    fleet = Fleet(BROKEN, ANSWER)
    await fleet.complete()
    await fleet.complete()
    assert fleet.asked == [1, 2]


async def test_the_same_target_is_tried_again_where_there_is_no_other():
    fleet = Fleet([BUSY, ANSWER])
    await fleet.complete()
    assert fleet.asked == [2]


async def test_tries_come_to_an_end_over_all_targets_and_rounds():
    fleet = Fleet(BROKEN, BROKEN, BROKEN, retries=1)
    with pytest.raises(UpstreamRefused) as met:
        await fleet.complete()
    assert (met.value.status, sum(fleet.asked), fleet.dispatcher.failures) == (500, 2, 2)
    with pytest.raises(UpstreamRefused):
        await fleet.complete()
    assert sum(fleet.asked) == 3


@pytest.mark.parametrize("status", [400, 403, 404, 422])
async def test_a_requests_own_fault_is_told_at_once(status):
    fleet = Fleet(refusal(status, {"error": {"message": "no"}}), ANSWER)
    with pytest.raises(UpstreamRefused) as met:
        await fleet.complete()
    assert (met.value.status, fleet.asked) == (status, [1, 0])


async def test_who_is_told_to_wait_longer_than_anybody_waits_is_told_so():
    fleet = Fleet(refusal(429, {"error": {"message": "busy"}}, [(b"retry-after", b"60")]))
    with pytest.raises(UpstreamRefused):
        await asyncio.wait_for(fleet.complete(), 10)
    assert fleet.asked == [1]


async def test_a_quota_that_is_used_up_sends_the_request_elsewhere():
    spent = refusal(429, {"error": {"code": "insufficient_quota"}}, AT_ONCE)
    fleet = Fleet(spent, ANSWER)
    await fleet.complete()
    assert fleet.asked == [1, 1]


async def test_what_must_not_be_tried_again_is_not():
    never = refusal(503, {"error": {"message": "no"}}, [(b"x-should-retry", b"false")])
    fleet = Fleet(never, ANSWER)
    with pytest.raises(UpstreamRefused):
        await fleet.complete()
    assert fleet.asked == [1, 0]


async def test_an_error_in_a_streams_first_event_is_a_refusal():
    failing = stream([{"error": {"message": "busy", "code": 503}}])
    fleet = Fleet(failing, stream([CHUNK, b"data: [DONE]\n\n"]))
    reply = await fleet.complete(BODY | {"stream": True})
    assert fleet.asked == [1, 1]
    assert [e.data is not None for e in reply.events] == [True]


async def test_a_stream_of_nothing_is_tried_again():
    fleet = Fleet(stream([b": hi\n\n", b"data: " + DONE + b"\n\n"]), retries=0)
    with pytest.raises(StreamIncomplete):
        await fleet.complete(BODY | {"stream": True})


async def test_an_error_under_a_200_is_a_refusal():
    fleet = Fleet(
        completion({}, error={"message": f"broken {KEY}", "code": 500}), retries=0, key=KEY
    )
    with pytest.raises(UpstreamRefused) as met:
        await fleet.complete()
    assert met.value.status == 500
    assert KEY.encode() not in met.value.content


async def test_what_is_no_completion_is_nobodys_answer():
    fleet = Fleet(refusal(200, ["no object"]), retries=0)
    with pytest.raises(UpstreamUnreachable, match="no chat completion"):
        await fleet.complete()


@pytest.mark.parametrize("status", [302, 600])
async def test_an_odd_status_is_told_as_one(status):
    fleet = Fleet(refusal(status, {}), retries=0)
    with pytest.raises(UpstreamUnreachable, match=str(status)):
        await fleet.complete()


@pytest.mark.parametrize("key", [KEY, None])
async def test_our_own_refused_key_is_no_fault_of_the_clients(key):
    fleet = Fleet(refusal(401, {"error": {"message": f"bad key {KEY}"}}), retries=0, key=key)
    with pytest.raises(UpstreamAuthError, match="check" if key else "set") as met:
        await fleet.complete()
    assert KEY not in met.value.message


async def test_a_clients_own_refused_key_is_told_as_it_came(caplog):
    caplog.set_level(logging.INFO, "mnemogate")
    fleet = Fleet(
        refusal(401, {"error": {"message": "bad key"}}),
        managed=False,
        authorization=b"Bearer sk-own-key",
        account="own-1",
    )
    with pytest.raises(UpstreamRefused) as met:
        await fleet.complete()
    assert met.value.status == 401
    assert dict(fleet.upstreams[0].requests[0].headers)[b"authorization"] == b"Bearer sk-own-key"
    assert "sk-own-key" not in caplog.text


async def test_our_key_goes_upstream_and_never_the_clients():
    fleet = Fleet(ANSWER, key=KEY, authorization=b"Bearer sk-own-key", managed=False)
    await fleet.complete()
    assert (
        dict(fleet.upstreams[0].requests[0].headers)[b"authorization"] == b"Bearer " + KEY.encode()
    )
    fleet = Fleet(ANSWER, authorization=b"Bearer sk-own-key")
    await fleet.complete()
    assert b"authorization" not in dict(fleet.upstreams[0].requests[0].headers)


async def test_another_body_goes_under_another_idempotency_key():
    fleet = Fleet(ANSWER, headers=[(b"idempotency-key", b"once")])
    await fleet.complete()
    await fleet.complete(another=True)
    first, second = (dict(r.headers)[b"idempotency-key"] for r in fleet.upstreams[0].requests)
    assert first == b"once"
    assert second.startswith(b"once-")


async def test_a_call_that_left_is_paid_for_and_one_that_did_not_is_not():
    def left(request):
        request.on_written()
        raise UpstreamTimeout("too late")

    fleet = Fleet(left, retries=0)
    with pytest.raises(UpstreamTimeout):
        await fleet.complete()
    assert len(fleet.dispatcher.meter.calls) == 1

    fleet = Fleet(UpstreamUnreachable("refused"), retries=0)
    with pytest.raises(UpstreamUnreachable):
        await fleet.complete()
    assert fleet.dispatcher.meter.calls == []


async def test_a_bad_request_of_our_own_making_is_not_tried_again():
    fleet = Fleet(BadRequest("too long"), ANSWER)
    with pytest.raises(BadRequest):
        await fleet.complete()
    assert fleet.asked == [1, 0]


async def test_the_last_try_passes_an_error_event_on():
    failing = stream([{"error": {"message": "busy", "code": 503}}])
    fleet = Fleet([failing, stream([CHUNK])])
    assert (await fleet.passthrough()).first_events[0].data is not None
    assert fleet.asked == [2]

    fleet = Fleet(failing, retries=0)
    reply = await fleet.passthrough()
    assert b"busy" in reply.first_events[0].data


async def test_bytes_are_passed_on_unread():
    fleet = Fleet(ANSWER)
    reply = await fleet.passthrough()
    assert (reply.first_events, reply.later_events) == ([], None)
    assert b"Hello." in await reply.incoming.read()


async def test_a_stream_that_breaks_speaks_against_its_target(caplog):
    fleet = Fleet(stream([CHUNK]))
    await fleet.complete(BODY | {"stream": True})
    for _ in range(3):
        await fleet.dispatcher.report_broken_stream(StreamIncomplete("broke off"))
    rests = await fleet.dispatcher.choice.cooldowns.find(["a/m"])
    assert "a/m" in rests
    assert "upstream call failed: a/m at up" in caplog.text


async def test_headers_tell_who_answered():
    fleet = Fleet(BROKEN, ANSWER)
    await fleet.complete()
    told = dict(fleet.dispatcher.target_headers(0.0))
    assert (told[b"x-mnemogate-upstream"], told[b"x-mnemogate-attempts"]) == (b"b/m", b"2")


async def test_an_alias_is_the_name_that_was_asked_for():
    assert Fleet(ANSWER).dispatcher.alias is None
    fleet = Fleet(ANSWER, alias=True)
    assert fleet.dispatcher.alias == "m"
    await fleet.complete()
    assert fleet.upstreams[0].bodies[0]["model"] == "theirs"


async def test_a_message_that_no_client_sees():
    fleet = Fleet(ANSWER)
    assert (await fleet.dispatcher.complete_choice(BODY))["message"]["content"] == "Hello."
    assert fleet.dispatcher.meter.bill().tokens.input == 10
