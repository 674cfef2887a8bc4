"""One laptop, one memory: a program that names the machine speaks for the person who uses it."""

from __future__ import annotations

import asyncio
import json
import logging
import stat

import pytest

from memory.management.device_users import DEVICE
from tests.conftest import running
from tests.models import Model, call, calls
from tests.wire_models import MessagesModel

HEX = "d" * 64
NAMES = [
    json.dumps({"device_id": HEX, "account_uuid": "", "session_id": "s"}),
    json.dumps({"device_id": HEX, "account_uuid": "9c2f6e4a-0b1d", "session_id": "s"}),
    f"user_{HEX}_account__session_1",
    f"user_{HEX}_account_9c2f6e4a-0b1d_session_1",
    HEX,
    "ada",
]


@pytest.mark.parametrize("told", NAMES)
async def test_user_id_never_outranks_me_where_one_person_uses_the_machine(data, told):
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hello"}],
        "metadata": {"user_id": told},
    }
    async with MessagesModel("Hi.") as up, running(up.url, data) as live:
        sent = await live.http.post(f"{live.url}/messages", json=body)
        assert sent.headers["x-memory-user"] == "me"
        assert up.bodies[0]["metadata"] == {"user_id": told}
        # Who says it on purpose is believed.
        by_path = await live.http.post(f"{live.root}/u/ada/v1/messages", json=body)
        assert by_path.headers["x-memory-user"] == "ada"
        header = {"x-memory-user": "eve"}
        by_header = await live.http.post(f"{live.url}/messages", json=body, headers=header)
        assert by_header.headers["x-memory-user"] == "eve"


def test_only_names_of_devices_are_taken_for_such():
    people = ["me", "ada", "a" * 63, "A" * 64, "0b1f5d9e-8f1b-4c39-9d6b-0d8f8b2b6a11", "user_1"]
    assert not any(DEVICE.fullmatch(name) for name in people)
    devices = [HEX, f"user_{HEX}", f"user_{HEX}_account_9c2f6e4a-0b1d", f"user_{HEX}_account_"]
    assert all(DEVICE.fullmatch(name) for name in devices)


async def started(live):
    """Wait until the start has looked for memories of devices."""

    async def is_booking():
        return any(task.get_name() == "booking" for task in live.gateway.process.jobs)

    await until(is_booking)


async def say(live, user, fact):
    answer = await live.chat(f"I {fact}", {"x-memory-user": user})
    assert answer.status_code == 200, answer.text


def model(*facts):
    script = []
    for fact in facts:
        append = call("core_memory_append", {"label": "human", "content": fact})
        script += [calls(append), "Noted."]
    return Model(*script)


async def users_of(live):
    token = {"authorization": f"Bearer {live.gateway.keys._token}"}
    found = await live.memory("GET", "/users", headers=token)
    return {user["id"] for user in found.json()["data"]}, token


async def until(check):
    async with asyncio.timeout(20):
        while not await check():
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("has_own", [True, False], ids=["merged", "moved"])
async def test_a_devices_memory_becomes_mine_at_the_start_told_once(data, caplog, has_own):
    caplog.set_level(logging.WARNING, "mnemogate")

    async with model("keep bees", "like tea") as up, running(up.url, data) as live:
        await started(live)
        await say(live, HEX, "keep bees")
        if has_own:
            await say(live, "me", "like tea")
    async with Model("Hi.") as up:
        for start in range(2):
            caplog.clear()
            async with running(up.url, data) as live:

                async def is_one(live=live):
                    return (await users_of(live))[0] == {"me"}

                await until(is_one)
                await started(live)
                _, token = await users_of(live)
                block = await live.memory("GET", "/users/me/blocks/human", headers=token)
                assert "keep bees" in block.json()["value"]
                assert ("like tea" in block.json()["value"]) == has_own
            assert caplog.text.count(HEX) == (start == 0)
    copies = sorted(data.glob("merged/*/*.ndjson"))
    assert [path.name for path in copies] == ["device.ndjson", "person.ndjson"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in copies} == {0o600}


async def test_what_was_merged_can_be_told_apart_again_and_is_erased_with_its_user(data):
    async with model("keep bees", "like tea") as up, running(up.url, data) as live:
        await started(live)
        await say(live, HEX, "keep bees")
        await say(live, "me", "like tea")
    async with Model("Hi.") as up, running(up.url, data) as live:

        async def is_one():
            return (await users_of(live))[0] == {"me"}

        await until(is_one)
        _, token = await users_of(live)
        device, person = (path.read_bytes() for path in sorted(data.glob("merged/*/*.ndjson")))
        assert (await live.memory("DELETE", "/users/me", headers=token)).status_code == 200
        assert not list(data.glob("merged/*"))
        for user, copy in (("work", device), ("me", person)):
            path = f"/users/{user}/import"
            assert (await live.memory("POST", path, headers=token, content=copy)).is_success
        for user, fact in (("work", "keep bees"), ("me", "like tea")):
            block = await live.memory("GET", f"/users/{user}/blocks/human", headers=token)
            assert block.json()["value"] == fact
