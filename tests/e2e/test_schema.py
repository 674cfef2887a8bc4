"""The OpenAPI schema tells the truth: generated requests, right and wrong ones, against a live
gateway.
"""

from __future__ import annotations

import asyncio
import json
import threading

import hypothesis.errors
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis import GenerationMode

from tests.conftest import running
from tests.sockets import RawServer

# An operation.
EXAMPLES = {GenerationMode.POSITIVE: 4, GenerationMode.NEGATIVE: 2}
KEY = {"name": "k", "key": "key-of-a-test", "tenant": "t", "admin": True}
# `cursor`, times and a block's label are opaque texts or depend on what is stored: a schema cannot
# say which of them are right.
# The credential of `headers` is on every call, so a check that leaves it out sees no difference:
# keys have tests of their own.
EXCLUDED = ["positive_data_acceptance", "ignored_auth"]


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    return value if isinstance(value, bytes) else json.dumps(value).encode()


async def answered(seen, wire):
    """An upstream that answers in every API it is asked in, and lists no models."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "ok"},
        "finish_reason": "stop",
    }
    await wire.json(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
            "data": [],
            "content": [{"type": "text", "text": "ok"}],
            "stop_reason": "end_turn",
            "output": [],
            "status": "completed",
            "input_tokens": 1,
        }
    )


@pytest.fixture
def address(data):
    """A gateway with one user's memory in it, on a thread of its own."""
    ready, done, found = threading.Event(), None, {}

    async def serve():
        nonlocal done
        done = asyncio.Event()
        async with (
            RawServer(answered) as up,
            running(
                up.url,
                data,
                {
                    "keys": [KEY],
                    "providers": {"openai": {"base_url": up.url, "api_key": "provider-key"}},
                },
                KEY["key"],
            ) as live,
        ):
            await live.chat("Hello, I am Ada", {"x-memory-conversation": "c1"}, user="ada")
            found.update(url=live.root, loop=asyncio.get_running_loop())
            ready.set()
            await done.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(20)
    yield found["url"], {"authorization": f"Bearer {KEY['key']}"}
    found["loop"].call_soon_threadsafe(done.set)
    thread.join(20)


# Of the generator, not ours.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"]
)
def test_every_operation_keeps_to_the_schema(address, mode):
    url, headers = address
    schema = schemathesis.openapi.from_url(f"{url}/schema/openapi.json")
    schema.config.generation.with_security_parameters = False
    names = [c for c in schemathesis.checks.CHECKS.get_all() if c.__name__ not in EXCLUDED]
    assert len(names) > 8
    faults = []
    for found in schema.get_all_operations():
        operation = found.ok()
        if mode == GenerationMode.NEGATIVE and not can_be_wrong(operation):
            continue
        try:
            tried(
                operation,
                mode,
                lambda case: case.call_and_validate(
                    base_url=url, headers=headers, checks=names, timeout=10
                ),
            )
        except hypothesis.errors.Unsatisfiable:
            # Any text at all may be a name: such a path alone cannot be wrong.
            if operation.body or operation.query:
                raise
        except BaseExceptionGroup as e:
            faults.append(f"{operation.label}: {e} {e.exceptions}")
    assert not faults, "\n\n".join(faults)


def can_be_wrong(operation):
    """Tell whether a call may break the schema: any text at all may be a name in a path."""
    return bool(
        operation.body
        or operation.query
        or any(p.definition["schema"] != {"type": "string"} for p in operation.path_parameters)
    )


def tried(operation, mode, check):
    """Checks some cases of one operation."""
    # A parameter that nobody knows is left alone, as everywhere on the web; and any text at all is
    # a list of one tag.
    judged = {p.name for p in operation.query} - (
        {"tags"} if mode == GenerationMode.NEGATIVE else set()
    )

    @settings(
        max_examples=EXAMPLES[mode],
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        database=None,
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case):
        assume(not set(case.query or ()) - judged)
        check(case)

    run()
