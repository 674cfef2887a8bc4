"""Shared blocks: several memories show them, edit them, leave them (AGENTS.md, rows S1 to S7)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re

import pytest

from memory.core.blocks import apply_note, unescape
from memory.jobs.human_block import HumanBlock
from memory.stores.sql.rows import scopes, shared_members
from memory.stores.sql.rows.blocks import EditSource
from memory.stores.sql.turns import turn_reader
from tests import stores
from tests.conftest import running
from tests.e2e.postgres_chat import storage
from tests.e2e.test_agents import system_of
from tests.models import Model, call, calls

SECRET = "mg-0123456789abcdef0123"
KEY = {"authorization": f"Bearer {SECRET}"}
OWN = {"server.single_user": False}


def managed(*keys):
    found = keys or ({},)
    return [
        {"name": f"app{i}", "key": f"{SECRET}{i or ''}", "tenant": "t", **key}
        for i, key in enumerate(found)
    ]


@contextlib.asynccontextmanager
async def gateway(up, data, *keys, **config):
    """A gateway with managed keys, of which its client sends the first."""
    async with running(up.url, data, {"keys": managed(*keys), **config}, key="") as live:
        live.http.headers.update(KEY)
        yield live


def key_of(number):
    return {"authorization": f"Bearer {SECRET}{number or ''}"}


async def share(live, label="board", value="", *, members=("ann", "bob"), write=True, **more):
    """Make a shared block and return it."""
    listed = [{"user": name, "write": write} for name in members]
    sent = {"label": label, "value": value, "members": listed, **more}
    got = await live.memory("POST", "/shared-blocks", json=sent)
    assert got.status_code == 201, got.text
    return got.json()


async def versions_of(live, ident):
    found, cursor = [], ""
    while True:
        path = f"/shared-blocks/{ident}/versions?limit=200{cursor}"
        page = (await live.memory("GET", path)).json()
        found += page["data"]
        if page["next_cursor"] is None:
            return found[::-1]
        cursor = f"&cursor={page['next_cursor']}"


async def ask(live, user, text="Hi", history=(), **headers):
    """Ask as a user; return the messages with the answer."""
    messages = [*history, {"role": "user", "content": text}]
    got = await live.chat(messages, headers, user=user)
    assert got.status_code == 200, got.text
    assert got.headers["x-memory-status"] == "ok", got.headers.get("x-memory-reason")
    return [*messages, got.json()["choices"][0]["message"]]


def append(label, line, ident="call_0"):
    return call("core_memory_append", {"label": label, "content": line}, ident)


async def test_a_s2_an_edit_by_one_member_is_a_note_in_the_others_next_request(data):
    async with (
        Model("Hi ann.", calls(append("board", "Ship on Friday")), "Noted.", "Yes.") as up,
        gateway(up, data) as live,
    ):
        block = await share(live, "board", "Plan")
        first = await ask(live, "ann")
        before = up.requests[-1].body
        assert '<board description="" chars="4/4000" shared="true">' in system_of(up.bodies[-1])
        await ask(live, "bob", "Ship it on Friday")
        await ask(live, "ann", "And?", first)
        after = up.bodies[-1]
        begun = json.loads(before)["messages"]
        assert after["messages"][: len(begun)] == begun
        assert "Ship on Friday" not in system_of(after)
        assert '<board change="appended">Ship on Friday</board>' in after["messages"][-1]["content"]
        told = await versions_of(live, block["id"])
        assert [(v["actor"], v["user"], v["agent"]) for v in told] == [
            ("api", None, None),
            ("model", "bob", "default"),
        ]
        assert [(v["before"], v["after"]) for v in told] == [
            (None, "Plan"),
            ("Plan", "Plan\nShip on Friday"),
        ]


async def test_a_s3_an_edit_by_api_and_leaving_are_in_the_next_request(data):
    """The next request has the new core text, and no old byte."""
    async with Model("Hi.") as up, gateway(up, data) as live:
        block = await share(live, "board", "Codeword quetzal")
        path = f"/shared-blocks/{block['id']}"
        history = await ask(live, "ann")
        assert "Codeword quetzal" in system_of(up.bodies[-1])
        got = await live.memory("PATCH", path, json={"value": "Codeword ocelot"})
        assert (got.status_code, got.headers["etag"]) == (200, '"2"')
        history = await ask(live, "ann", "And?", history)
        assert "Codeword ocelot" in system_of(up.bodies[-1])
        assert "quetzal" not in up.requests[-1].body.decode()
        got = await live.memory("DELETE", f"{path}/members/ann")
        assert got.status_code == 200, got.text
        await ask(live, "ann", "And now?", history)
        body = up.requests[-1].body.decode()
        assert "Codeword" not in body
        assert "shared=" not in body
        await ask(live, "bob")
        assert "Codeword ocelot" in system_of(up.bodies[-1])


async def test_a_s3_an_edit_by_a_model_and_leaving_leaves_no_note_and_no_result(data):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    both = calls(append("board", "Codeword quetzal"), call("f", {}, "c"))
    async with Model("Hi.", both, "Done.", "Hi.") as up, gateway(up, data) as live:
        block = await share(live, "board")
        first = await ask(live, "ann")
        messages = [*first, {"role": "user", "content": "Save it"}]
        got = await live.chat(messages, user="ann", tools=[tool])
        said = got.json()["choices"][0]["message"]
        assert [c["id"] for c in said["tool_calls"]] == ["c"]
        await live.memory("DELETE", f"/shared-blocks/{block['id']}/members/ann")
        result = {"role": "tool", "tool_call_id": "c", "content": "ok"}
        got = await live.chat([*messages, said, result], user="ann", tools=[tool])
        assert got.status_code == 200, got.text
        assert "quetzal" not in up.requests[-1].body.decode()


async def test_a_s4_a_read_only_members_model_gets_an_error_and_the_value_stands(data):
    replies = [
        calls(append("board", "Mine")),
        "No.",
        calls(call("memory_rethink", {"label": "board", "new_memory": "Mine"}, "call_1")),
        "No.",
        calls(call("core_memory_replace", {"label": "board", "old_content": "Plan",
                                           "new_content": "Mine"}, "call_2")),
        "No.",
        calls(call("memory_forget", {"text": "Plan"}, "call_3")),
        "No.",
        calls(append("board", "Mine")),
        "Yes.",
    ]  # fmt: skip
    async with Model(*replies) as up, gateway(up, data) as live:
        block = await share(live, "board", "Plan", write=False)
        for _ in range(4):
            await ask(live, "ann", "Change it")
            assert 'shared="true" read_only="true">' in system_of(up.bodies[-1])
            (told,) = [m["content"] for m in up.bodies[-1]["messages"] if m["role"] == "tool"]
            assert told.startswith("Error: The block 'board' is read-only.")
        got = (await live.memory("GET", f"/shared-blocks/{block['id']}")).json()
        assert (got["value"], got["version"]) == ("Plan", 1)
        # A grant is in the next request.
        await live.memory("PUT", f"/shared-blocks/{block['id']}/members/ann", json={"write": True})
        await ask(live, "ann", "Now?")
        assert 'shared="true">' in system_of(up.bodies[-1])
        got = (await live.memory("GET", f"/shared-blocks/{block['id']}")).json()
        assert got["value"] == "Plan\nMine"
        assert got["updated_by"] == {"actor": "model", "user": "ann", "agent": "default"}


async def test_a_s5_a_shared_block_hides_an_own_one_of_its_label_until_it_is_left(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        own = "/users/ann/blocks/human"
        await live.memory("PUT", own, json={"value": "Own words"})
        block = await share(live, "human", "Shared words", members=("ann",))
        history = await ask(live, "ann")
        system = system_of(up.bodies[-1])
        assert ("Shared words" in system, "Own words" in system) == (True, False)
        assert (await live.memory("GET", own)).json()["hidden_by"] == block["id"]
        got = (await live.memory("GET", "/users/ann/blocks")).json()["data"]
        assert {b["label"]: b["hidden_by"] for b in got} == {
            "human": block["id"], "persona": None, "scratchpad": None
        }  # fmt: skip
        await live.memory("DELETE", f"/shared-blocks/{block['id']}/members/ann")
        await ask(live, "ann", "And?", history)
        body = up.requests[-1].body.decode()
        assert ("Shared words" in body, "Own words" in body) == (False, True)
        assert (await live.memory("GET", own)).json()["hidden_by"] is None


async def test_a_s5_of_two_blocks_with_one_label_the_nearest_membership_wins(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        ways = [
            ("everyone", {"everyone": True}),
            ("agent", {"agent": "helper"}),
            ("user", {"user": "ann"}),
            ("both", {"user": "ann", "agent": "helper"}),
        ]
        for value, member in ways:
            got = await live.memory(
                "POST",
                "/shared-blocks",
                json={"label": "board", "value": f"Way {value}", "members": [member]},
            )
            assert got.status_code == 201, got.text
            await ask(live, "ann", **{"x-memory-agent": "helper"})
            assert f"Way {value}" in system_of(up.bodies[-1])
            assert system_of(up.bodies[-1]).count("<board ") == 1
        seen = {}
        for user, agent in (("ann", "default"), ("bob", "helper"), ("bob", "default")):
            await ask(live, user, **{"x-memory-agent": agent})
            seen[user, agent] = system_of(up.bodies[-1]).split("Way ")[1].split("\n")[0]
        assert seen == {
            ("ann", "default"): "user", ("bob", "helper"): "agent", ("bob", "default"): "everyone"
        }  # fmt: skip
        # A request that names nobody sees none.
        got = await live.chat("Hi")
        assert got.headers["x-memory-user"] == "none"
        assert "Way " not in system_of(up.bodies[-1])


async def test_a_s7_another_tenant_finds_nothing_by_any_route(data):
    keys = ({}, {"tenant": "other"}, {"tenant": "other", "admin": True})
    async with Model("Hi.") as up, gateway(up, data, *keys) as live:
        block = await share(live, "board", "Codeword quetzal", members=("ann",))
        looks = 0
        for key, ident in ((key_of(1), block["id"]), (key_of(2), block["id"]), ({}, "block_none")):
            for method, path, body in routes(ident):
                got = await live.memory(method, path, json=body, headers=key)
                assert got.status_code == 404, (method, path, got.text)
                assert "quetzal" not in got.text
                looks += 1
        assert looks == 57
        for key in (key_of(1), key_of(2)):
            got = await live.memory("GET", "/shared-blocks", headers=key)
            assert got.json()["data"] == []
            await live.chat("Hi", key, user="ann")
            assert "quetzal" not in up.requests[-1].body.decode()
        assert (await live.memory("GET", f"/shared-blocks/{block['id']}")).json()["version"] == 1


def routes(ident):
    path = f"/shared-blocks/{ident}"
    yield "GET", path, None
    yield "PUT", path, {"value": "x"}
    yield "PATCH", path, {"value": "x"}
    yield "DELETE", path, None
    yield "GET", f"{path}/versions", None
    yield "POST", f"{path}/undo", None
    yield "POST", f"{path}/append", {"content": "x"}
    yield "GET", f"{path}/members", None
    for member in ("members/ann", "members/agents/a", "members/teams/t", "members/projects/p"):
        yield "PUT", f"{path}/{member}", {"write": True}
        yield "DELETE", f"{path}/{member}", None
    yield "PUT", f"{path}/members/ann?agent=a", None
    yield "PUT", f"{path}/everyone", None
    yield "DELETE", f"{path}/everyone", None


async def test_a_s7_a_key_that_is_not_trusted_sees_and_edits_its_users_blocks_alone(data):
    keys = ({}, {"trusted": False, "users": ["ann", "ben"]})
    async with Model("Hi.") as up, gateway(up, data, *keys) as live:
        mine = await share(live, "board", "Plan", members=("ann",))
        read = await share(live, "notes", "Plan", members=("ben", "zoe"), write=False)
        theirs = await share(live, "secret", "Codeword quetzal", members=("zoe",))
        key = key_of(1)

        async def send(method, path, body=None):
            return await live.memory(method, f"/shared-blocks{path}", json=body, headers=key)

        listed = (await send("GET", "")).json()["data"]
        assert [b["label"] for b in listed] == ["board", "notes"]
        assert [m.get("user") for b in listed for m in b["members"]] == ["ann", "ben"]
        assert (await send("GET", "?user=zoe")).status_code == 403
        assert [b["label"] for b in (await send("GET", "?user=ben")).json()["data"]] == ["notes"]
        for method, path, body in routes(theirs["id"]):
            got = await live.memory(method, path, json=body, headers=key)
            assert got.status_code == 404, (method, path, got.text)
        edits = [("PUT", "", {"value": "Plan A"}), ("PATCH", "", {"value": "Plan B"})]
        edits += [("POST", "/append", {"content": "Plan C"}), ("POST", "/undo", None)]
        for method, path, body in edits:
            assert (await send(method, f"/{mine['id']}{path}", body)).status_code == 200
            assert (await send(method, f"/{read['id']}{path}", body)).status_code == 403
        told = await versions_of(live, mine["id"])
        assert [v["user"] for v in told] == [None, "ann", "ann", "ann", "ann"]
        # Edits of others are not undone.
        await live.memory("POST", f"/shared-blocks/{mine['id']}/append", json={"content": "D"})
        assert (await send("POST", f"/{mine['id']}/undo")).status_code == 403
        refused = [("DELETE", "", None), ("PATCH", "", {"limit": 9000}), ("GET", "/versions", None),
                   ("GET", "/members", None), ("PUT", "/members/ben", None),
                   ("DELETE", "/members/ann", None), ("PUT", "/everyone", None)]  # fmt: skip
        for method, path, body in refused:
            got = await send(method, f"/{mine['id']}{path}", body)
            assert got.status_code == 403, (method, path, got.text)
        assert (await send("POST", "", {"label": "x"})).status_code == 403


WORDS = {"ann": "Ann's codeword quetzal", "bob": "Bob's codeword ocelot"}


async def two_writers(live, ident):
    """Ann and Bob write a line each, and Bob one that Ann wrote before him."""
    await ask(live, "ann")
    await ask(live, "bob")
    got = (await live.memory("GET", f"/shared-blocks/{ident}")).json()
    assert got["value"] == "\n".join(["Plan", *WORDS.values()])


@pytest.mark.parametrize("wanted", ["", "?shared=remove", "?shared=keep"])
async def test_a_s6_an_erased_members_lines_are_gone_from_value_and_versions(data, wanted):
    """The lines of others stay; the receipt counts; no version holds the words."""
    replies = [x for line in WORDS.values() for x in (calls(append("board", line)), "Noted.")]
    async with Model(*replies, "Hi.") as up, gateway(up, data) as live:
        block = await share(live, "board", "Plan", members=("ann", "bob"))
        path = f"/shared-blocks/{block['id']}"
        await two_writers(live, block["id"])
        history = await ask(live, "bob")
        receipt = (await live.memory("DELETE", f"/users/ann{wanted}")).json()
        told = await versions_of(live, block["id"])
        now = (await live.memory("GET", path)).json()
        assert [m["user"] for m in now["members"]] == ["bob"]
        assert "ann" not in [v["user"] for v in told]
        assert [v["version"] for v in told] == list(range(1, len(told) + 1))
        await ask(live, "bob", "And?", history)
        body = up.requests[-1].body.decode()
        if wanted.endswith("keep"):
            assert receipt["shared"] == {"memberships": 1, "lines": 0, "versions": 1}
            assert "quetzal" in now["value"]
            assert "quetzal" in body
            return
        assert receipt["shared"] == {"memberships": 1, "lines": 1, "versions": 3}
        assert now["value"] == f"Plan\n{WORDS['bob']}"
        assert now["updated_by"] == {"actor": "erase", "user": None, "agent": None}
        assert "quetzal" not in json.dumps([told, now])
        assert [(v["before"], v["after"]) for v in told[:3]] == [(None, None)] * 3
        assert (told[3]["actor"], told[3]["before"]) == ("erase", None)
        assert ("quetzal" in body, "ocelot" in body) == (False, True)
        # Undo does not go behind it; the other's lines are found when they are erased too.
        assert (await live.memory("POST", f"{path}/undo")).status_code == 404
        receipt = (await live.memory("DELETE", "/users/bob")).json()
        assert receipt["shared"] == {"memberships": 1, "lines": 1, "versions": 1}
        assert (await live.memory("GET", path)).json()["value"] == "Plan"
        receipt = (await live.memory("DELETE", "/users/bob")).json()
        assert receipt["shared"] == {"memberships": 0, "lines": 0, "versions": 0}


TEAM = ("manager", "worker-1", "worker-2")
EDITS, AT_ONCE = 300, 12


def write_what_is_asked(seen, wire):
    """Append the line that the user's message names, or answer what the tool said."""
    newest = seen.json["messages"][-1]
    if newest["role"] == "tool":
        return newest["content"]
    return calls(append("board", newest["content"].split("\n")[0]))


class Board:
    """A shared block that a manager and two workers edit, by model and by API."""

    def __init__(self, lives, ident, seed):
        self.lives, self.ident, self.random = lives, ident, random.Random(seed)
        # By line: who wrote what was acknowledged, and what may be there, as a busy store was late.
        self.writers, self.doubtful, self.refused = {}, {}, 0

    @property
    def live(self):
        return self.random.choice(self.lives)

    async def by_model(self, line):
        member = self.random.choice(TEAM)
        got = await self.live.chat(line, {"x-memory": "full"}, model=f"agent:{member}")
        assert got.status_code == 200, got.text
        said = got.json()["choices"][0]["message"]["content"]
        if said.startswith("Error: the memory is unavailable right now"):
            self.doubtful[line] = ("model", member)
            return
        assert said.startswith("Saved: board now holds"), said
        self.writers[line] = ("model", member)

    async def by_append(self, line):
        path = f"/shared-blocks/{self.ident}/append"
        got = await self.live.memory("POST", path, json={"content": line})
        assert got.status_code == 200, got.text
        self.writers[line] = ("api", None)

    async def by_patch(self, line):
        """Change the value that was read; what is refused is not acknowledged."""
        live, path = self.live, f"/shared-blocks/{self.ident}"
        got = await live.memory("GET", path)
        value = f"{got.json()['value']}\n{line}"
        header = {"if-match": got.headers["etag"]}
        got = await live.memory("PATCH", path, json={"value": value}, headers=header)
        assert got.status_code in (200, 409), got.text
        if got.status_code == 200:
            self.writers[line] = ("api", None)
        else:
            self.refused += 1

    async def edit(self, number, free):
        how = self.random.choice([self.by_model, self.by_append, self.by_patch])
        async with free:
            await how(f"line {number} of {how.__name__}")

    async def play(self):
        free = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(self.edit(i, free) for i in range(EDITS)))

    async def check(self):
        """Each acknowledged line is there once; versions have no gap and name their writer."""
        live = self.live
        value = (await live.memory("GET", f"/shared-blocks/{self.ident}")).json()["value"]
        lines = value.split("\n")
        assert len(self.writers) + len(self.doubtful) + self.refused == EDITS
        assert len(self.writers) > EDITS / 4
        late = [line for line in lines if line in self.doubtful]
        assert sorted(lines) == sorted(["Plan", *self.writers, *set(late)])
        told = await versions_of(live, self.ident)
        assert [v["version"] for v in told] == list(range(1, len(lines) + 1))
        assert [v["before"] for v in told] == [None, *(v["after"] for v in told[:-1])]
        for version in told[1:]:
            (line,) = set(version["after"].split("\n")) - set(version["before"].split("\n"))
            actor, agent = {**self.doubtful, **self.writers}[line]
            assert (version["actor"], version["agent"]) == (actor, agent)
            assert version["after"] == f"{version['before']}\n{line}"
        assert told[-1]["after"] == value


CREW = {"agents": {name: {"model": "m", "home": "agent"} for name in TEAM}}


async def play_board(lives, seed):
    members = [{"agent": name, "write": True} for name in TEAM]
    sent = {"label": "board", "value": "Plan", "limit": 15_000, "members": members}
    got = await lives[0].memory("POST", "/shared-blocks", json=sent)
    board = Board(lives, got.json()["id"], seed)
    await board.play()
    await board.check()
    for live in lives:
        await live.chat("What is on the board?", model="agent:manager")


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_s1_of_300_concurrent_edits_each_acknowledged_line_is_there_once(data, seed):
    async with Model(write_what_is_asked) as up, gateway(up, data, **CREW) as live:
        await play_board([live], seed)
        system = system_of(up.bodies[-1])
        assert "line 0 of " in system


async def test_a_s1_of_300_concurrent_edits_at_three_workers(postgres_url, tmp_path):
    """The first look at the block after an edit at another worker has it."""
    async with contextlib.AsyncExitStack() as stack:
        up = await stack.enter_async_context(Model(write_what_is_asked))
        lives = []
        for name in ("one", "two", "three"):
            config = {**storage(postgres_url), **CREW}
            live = await stack.enter_async_context(gateway(up, tmp_path / name, **config))
            await live.gateway.memory.wait_until_ready()
            lives.append(live)
        await play_board(lives, 3)
        for number, live in enumerate(lives):
            other = lives[number - 1]
            await other.chat(f"Written at {number - 1}", model="agent:worker-1")
            await live.chat("Look", model="agent:manager")
            first = [b for b in up.bodies if b["messages"][-1]["content"].startswith("Look")][-1]
            assert f"Written at {number - 1}" in system_of(first)


async def test_a_rewrite_is_refused_until_the_model_has_seen_the_newest_value(data):
    """Another member's line is not lost by it; a replacement works on the newest value."""
    rethink = call("memory_rethink", {"label": "board", "new_memory": "Rewritten"}, "call_1")
    replace = {"label": "board", "old_content": "Plan", "new_content": "Plan B"}

    async def edit_between(seen, wire):
        path = f"/shared-blocks/{block['id']}/append"
        await live.memory("POST", path, json={"content": "From outside"})
        return calls(rethink)

    script = [edit_between, calls(rethink), "Done.", calls(call("core_memory_replace", replace))]
    async with Model(*script, "Done.") as up, gateway(up, data) as live:
        block = await share(live, "board", "Plan")
        await ask(live, "ann", "Rewrite it")
        told = [m["content"] for m in up.bodies[2]["messages"] if m["role"] == "tool"]
        assert told[0].startswith("Error: The block 'board' changed since you saw it.")
        assert "From outside" in told[0]
        assert told[1] == "Saved: board now holds 9/4000 characters."
        await ask(live, "bob", "Replace it")
        told = [m["content"] for m in up.bodies[-1]["messages"] if m["role"] == "tool"]
        assert told[0].startswith("Error: That text is not in the block 'board'.")
        assert "Rewritten" in told[0]
        got = [v["after"] for v in await versions_of(live, block["id"])]
        assert got == ["Plan", "Plan\nFrom outside", "Rewritten"]


async def test_an_append_of_a_line_that_is_there_writes_nothing_and_the_limit_holds(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        block = await share(live, "board", "Plan", limit=10)
        path = f"/shared-blocks/{block['id']}"
        for content, status in (("Plan", 200), ("Plan B", 400), ("", 400), ("B", 200)):
            got = await live.memory("POST", f"{path}/append", json={"content": content})
            assert got.status_code == status, got.text
        got = (await live.memory("GET", path)).json()
        assert (got["value"], got["version"]) == ("Plan\nB", 2)
        for status, header in ((409, '"1"'), (200, '"2"'), (409, "2")):
            got = await live.memory(
                "PUT", path, json={"value": header}, headers={"if-match": header}
            )
            assert got.status_code == status, got.text
        refused = [
            ("POST", "", {"label": "No label"}),
            ("POST", "", {"label": "board", "limit": 3, "value": "long"}),
            ("POST", "", {"label": "board", "members": [{"user": "a", "everyone": True}]}),
            ("POST", "", {"label": "board", "members": [{}]}),
            ("POST", "", {"label": "board", "colour": "red"}),
            ("PATCH", f"/{block['id']}", {"limit": 1}),
            ("GET", "?colour=red", None),
        ]
        for method, rest, body in refused:
            got = await live.memory(method, f"/shared-blocks{rest}", json=body)
            assert got.status_code == 400, (method, rest, body, got.text)
        for named in ({"team": "t"}, {"project": "p"}):
            sent = {"label": "board", "members": [named]}
            got = await live.memory("POST", "/shared-blocks", json=sent)
            assert got.status_code == 404
            (kind,) = named
            assert got.json()["error"]["code"] == f"{kind}_not_found"


async def test_members_are_put_listed_and_removed(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        block = await share(live, "board", "Plan", members=(), default_write=True)
        path = f"/shared-blocks/{block['id']}"
        for member, body in (
            ("members/ann", None), ("members/bob?agent=helper", {"write": False}),
            ("members/agents/worker", None), ("everyone", {"write": False}),
        ):  # fmt: skip
            got = await live.memory("PUT", f"{path}/{member}", json=body)
            assert got.status_code == 200, got.text
            assert got.json()["write"] is (body is None)
        listed = []
        cursor = ""
        while cursor is not None:
            more = f"&cursor={cursor}" if cursor else ""
            page = (await live.memory("GET", f"{path}/members?limit=1{more}")).json()
            listed += page["data"]
            cursor = page["next_cursor"]
        for one in listed:
            del one["joined_at"]
        assert listed == [
            {"agent": "worker", "write": True},
            {"everyone": True, "write": False},
            {"user": "ann", "write": True},
            {"user": "bob", "agent": "helper", "write": False},
        ]
        assert len((await live.memory("GET", path)).json()["members"]) == 4
        for filters, count in (
            ("user=ann", 1), ("user=zoe", 1), ("agent=worker", 1), ("agent=nobody", 0),
            ("label=board", 1), ("label=x", 0),
        ):  # fmt: skip
            found = (await live.memory("GET", f"/shared-blocks?{filters}")).json()["data"]
            assert len(found) == count, filters
        assert (await live.memory("GET", "/shared-blocks?team=t")).status_code == 404
        for member in ("members/ann", "members/bob?agent=helper", "members/agents/worker"):
            assert (await live.memory("DELETE", f"{path}/{member}")).status_code == 200
            assert (await live.memory("DELETE", f"{path}/{member}")).status_code == 404
        assert (await live.memory("DELETE", f"{path}/everyone")).status_code == 200
        await ask(live, "ann")
        assert "<board " not in system_of(up.bodies[-1])


async def test_a_deleted_block_is_gone_for_all_until_that_is_undone(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        block = await share(live, "board", "Codeword quetzal")
        path = f"/shared-blocks/{block['id']}"
        history = await ask(live, "ann")
        got = await live.memory("DELETE", path)
        assert got.json() == {"id": block["id"], "object": "shared_block", "deleted": True}
        assert (await live.memory("GET", path)).status_code == 404
        history = await ask(live, "ann", "And?", history)
        assert "quetzal" not in up.requests[-1].body.decode()
        assert (await live.memory("POST", f"{path}/undo")).json()["value"] == "Codeword quetzal"
        await ask(live, "ann", "And now?", history)
        assert "quetzal" in system_of(up.bodies[-1])


async def test_too_many_shared_blocks_are_left_out_the_farthest_first_and_named(data):
    async with Model("Hi.") as up, gateway(up, data, **{"memory.shared_characters": 100}) as live:
        sent = {"label": "far", "value": "F" * 60, "members": [{"everyone": True}]}
        await live.memory("POST", "/shared-blocks", json=sent)
        await share(live, "near", "N" * 60, members=("ann",))
        got = await live.chat("Hi", user="ann")
        system = system_of(up.bodies[-1])
        assert ("<near " in system, "<far " in system) == (True, False)
        told = (await live.memory("GET", f"/explain/{got.headers['x-memory-explain']}")).json()
        assert told["left_out"] == ["far"]
        assert told["injected"]["blocks_left_out"] == ["far"]
        got = await live.chat("Hi", user="bob")
        assert "<far " in system_of(up.bodies[-1])
        told = (await live.memory("GET", f"/explain/{got.headers['x-memory-explain']}")).json()
        assert "left_out" not in told


async def test_undo_in_a_chat_undoes_the_newest_edit_only_if_it_is_this_users(data):
    config = {"memory.commands": True}
    replies = [calls(append("board", "From ann")), "Noted.", "Hi."]
    async with Model(*replies) as up, gateway(up, data, **config) as live:
        block = await share(live, "board", "Plan")
        await ask(live, "ann", "Save it")

        async def undo(user, text="/undo"):
            got = await live.chat(text, user=user)
            return got.json()["choices"][0]["message"]["content"]

        assert await undo("bob") == "There is no edit of a block or a detail to undo."
        assert "somebody else's" in await undo("bob", "/undo board")
        assert await undo("ann") == "Undone: the edit of the block board. board now reads:\nPlan"
        told = await versions_of(live, block["id"])
        assert [(v["actor"], v["user"]) for v in told][1:] == [("model", "ann"), ("user", "ann")]


async def test_an_export_tells_the_shared_blocks_and_an_import_makes_own_ones(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        board = await share(live, "board", "Plan", members=("ann",))
        await share(live, "human", "Shared words", members=("ann",), write=False)
        lines = (await live.memory("GET", "/users/ann/export")).text
        told = [json.loads(x) for x in lines.splitlines() if '"shared_block"' in x]
        assert [(x["kind"], x["label"], x["value"], x["write"]) for x in told] == [
            ("shared_block", "board", "Plan", True),
            ("shared_block", "human", "Shared words", False),
        ]
        assert board["id"] in [x["id"] for x in told]
        got = await live.memory("POST", "/users/zoe/import", content=lines)
        assert got.status_code == 200, got.text
        assert got.json()["imported"]["blocks"] == 1
        (skipped,) = got.json()["skipped"]
        assert (skipped["object"], skipped["id"], skipped["reason"]) == (
            "shared_block", "human", "label_taken"
        )  # fmt: skip
        assert (await live.memory("GET", "/users/zoe/blocks/board")).json()["value"] == "Plan"
        assert (await live.memory("GET", "/shared-blocks?user=zoe")).json()["data"] == []


async def test_a_renamed_user_keeps_memberships_and_lines(data):
    replies = [calls(append("board", WORDS["ann"])), "Noted.", "Hi."]
    async with Model(*replies) as up, gateway(up, data, {"admin": True}) as live:
        block = await share(live, "board", "Plan", members=("ann", "bob"))
        await ask(live, "ann")
        await ask(live, "zoe")
        got = await live.memory("POST", "/users/ann/merge", json={"into": "zoe"})
        assert got.status_code == 200, got.text
        await ask(live, "zoe", "And?")
        assert "quetzal" in system_of(up.bodies[-1])
        told = await versions_of(live, block["id"])
        assert [v["user"] for v in told] == [None, "zoe"]
        receipt = (await live.memory("DELETE", "/users/zoe")).json()
        assert receipt["shared"] == {"memberships": 1, "lines": 1, "versions": 2}


async def test_an_explain_record_shows_a_left_block_to_a_trusted_key_alone(data):
    keys = ({}, {"trusted": False, "users": ["ann"]})
    async with Model("Hi.") as up, gateway(up, data, *keys) as live:
        block = await share(live, "board", "Codeword quetzal", members=("ann",))
        got = await live.chat("Hi", key_of(1), user="ann")
        path = f"/explain/{got.headers['x-memory-explain']}"
        for left in (False, True):
            if left:
                await live.memory("DELETE", f"/shared-blocks/{block['id']}/members/ann")
            for number in (0, 1):
                told = await live.memory("GET", path, headers=key_of(number))
                assert told.json()["shared"] == {"board": block["id"]}
                hidden = left and number == 1
                assert ("quetzal" in told.text, "(layer left)" in told.text) == (not hidden, hidden)


async def test_who_uses_no_shared_block_has_the_bytes_and_the_reads_of_before(data, monkeypatch):
    """Also where another tenant has one."""
    seen = {}
    for case in ("none", "another's"):
        folder = data / case
        folder.mkdir(parents=True)
        (folder / "secret").write_text("51" * 32)
        keys = ({}, {"tenant": "other"})
        async with Model("Hi.") as up, gateway(up, folder, *keys) as live:
            # All has been opened.
            await live.memory("GET", "/users", headers=key_of(1))
            if case != "none":
                sent = {"label": "board", "value": "Plan", "members": [{"everyone": True}]}
                await live.memory("POST", "/shared-blocks", json=sent, headers=key_of(1))
            # What it writes, the cache has to follow.
            await live.stop_worker()
            with monkeypatch.context() as patch:
                # No block is looked for.
                patch.setattr(shared_members, "list_seen", None)
                statements = watch_statements(patch)
                history = []
                for text in ("Hi", "And?", "Then?"):
                    history = await ask(live, "ann", text, history)
                # What nobody said here is looked for in the store.
                unknown = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "?"}]
                await ask(live, "ann", "And?", unknown)
            seen[case] = [r.body for r in up.requests], statements
    assert len(seen["none"][0]) == 4
    # There one statement asks for all (see its tests).
    assert seen["none"][1] or stores.POSTGRES
    assert seen["another's"] == seen["none"]


def watch_statements(patch):
    """Return the statements of turns from now on."""
    found, real = [], turn_reader.execute

    def execute(conn, statement, values):
        found.append(str(statement))
        return real(conn, statement, values)

    patch.setattr(turn_reader, "execute", execute)
    return found


ELEMENT = re.compile(
    r'<([a-z]\w*) description=[^>]*?( read_only="true")?>(?:\n(.*?)\n)?</\1>', re.DOTALL
)


class Household:
    """Three users who talk, edit, join and leave; what each has to be told at any time."""

    def __init__(self, live, up, seed):
        self.live, self.up, self.random = live, up, random.Random(seed)
        self.users = {name: [] for name in ("ann", "bob", "cleo")}
        self.blocks, self.outside, self.seen_outside = {}, 0, dict.fromkeys(self.users, 0)
        self.sent, self.number = {}, 0

    def new_word(self):
        self.number += 1
        return f"word{self.number}"

    def visible(self, user):
        """By label: the block that is shown to a user, and whether they may write in it."""
        found = {}
        # The older first.
        for ident, block in self.blocks.items():
            members = block["members"]
            may = [members[who] for who in (user, "*") if who in members]
            rank = (user not in members, ident)
            if may and (block["label"] not in found or rank[0] < found[block["label"]][0]):
                found[block["label"]] = (rank[0], ident, any(may))
        return {label: (ident, write) for label, (_, ident, write) in found.items()}

    async def manage(self, method, path, body=None):
        got = await self.live.memory(method, f"/shared-blocks{path}", json=body)
        assert got.status_code in (200, 201), got.text
        self.outside += 1
        return got.json()

    async def make(self):
        if len(self.blocks) < 4:
            label, value = self.random.choice(["board", "human", "notes"]), self.new_word()
            got = await self.manage("POST", "", {"label": label, "value": value})
            self.blocks[got["id"]] = {"label": label, "value": value, "members": {}}

    async def change_member(self):
        if self.blocks:
            ident = self.random.choice(list(self.blocks))
            who = self.random.choice([*self.users, "*"])
            members = self.blocks[ident]["members"]
            path = f"/{ident}/everyone" if who == "*" else f"/{ident}/members/{who}"
            if who in members and self.random.random() < 0.5:
                await self.manage("DELETE", path)
                del members[who]
            else:
                members[who] = self.random.random() < 0.7
                await self.manage("PUT", path, {"write": members[who]})

    async def edit_outside(self):
        if self.blocks:
            ident = self.random.choice(list(self.blocks))
            self.blocks[ident]["value"] = word = self.new_word()
            await self.manage("PATCH", f"/{ident}", {"value": word})

    async def write(self):
        """A user's model writes into a block that it is shown, shared or not."""
        user = self.random.choice(list(self.users))
        visible = self.visible(user)
        label, word = self.random.choice(["board", "human", "notes"]), self.new_word()
        self.up.script[:] = [calls(append(label, word)), "Noted."]
        await self.talk(user, f"Write {word}")
        if label in visible:
            ident, may_write = visible[label]
            if may_write:
                block = self.blocks[ident]
                block["value"] = f"{block['value']}\n{word}" if block["value"] else word
        elif label == "human":
            own = self.own[user]
            self.own[user] = f"{own}\n{word}" if own else word

    async def look(self):
        self.up.script[:] = ["Hi."]
        await self.talk(self.random.choice(list(self.users)), f"Look {self.new_word()}")

    async def talk(self, user, text):
        """Say something: the request holds the visible blocks as they are, and keeps its prefix."""
        before = len(self.up.bodies)
        self.users[user] = await ask(self.live, user, text, self.users[user])
        body = self.up.bodies[before]
        told = {m[1]: unescape(m[3] or "") for m in ELEMENT.finditer(system_of(body))}
        for message in body["messages"]:
            if message["role"] == "user" and "<memory_updates" in message["content"]:
                told = apply_note(told, message["content"])
        expected = {"persona": "", "scratchpad": "", "human": self.own[user]}
        visible = self.visible(user)
        expected |= {label: self.blocks[ident]["value"] for label, (ident, _) in visible.items()}
        assert told == expected
        assert system_of(body).count(' shared="true"') == len(visible)
        sent, self.sent[user] = self.sent.get(user), body["messages"]
        if sent is not None and self.seen_outside[user] == self.outside:
            assert body["messages"][: len(sent)] == sent
        self.seen_outside[user] = self.outside

    async def play(self, steps):
        self.own = dict.fromkeys(self.users, "")
        ways = [self.make, self.change_member, self.edit_outside]
        ways += [self.write] * 4 + [self.look] * 2
        for _ in range(steps):
            await self.random.choice(ways)()


@pytest.mark.parametrize("seed", range(4))
async def test_each_request_holds_what_its_user_sees_and_keeps_the_prefix(data, seed):
    """Over random lives of a household: core text and notes are the blocks as they are."""
    config = {"memory.tasks": "off", "memory.recall": "tools", "memory.extract": "off"}
    async with Model("Hi.") as up, gateway(up, data, **config) as live:
        await Household(live, up, seed).play(60)


async def test_a_block_may_have_10_000_members_and_a_member_64_blocks(data):
    many = [{"user": f"user {i}", "write": i % 2 == 0} for i in range(10_000)]
    async with Model("Hi.") as up, gateway(up, data) as live:
        got = await live.memory("POST", "/shared-blocks", json={"label": "board", "members": many})
        assert got.status_code == 201, got.text
        path = f"/shared-blocks/{got.json()['id']}"
        got = await live.memory("PUT", f"{path}/members/one%20more")
        assert (got.status_code, got.json()["error"]["code"]) == (409, "too_many_members")
        assert (await live.memory("PUT", f"{path}/members/user%201")).status_code == 200
        for number in range(64):
            await share(live, f"b{number}", "x", members=("ann",))
        sent = {"label": "last", "members": [{"user": "ann"}]}
        got = await live.memory("POST", "/shared-blocks", json=sent)
        assert (got.status_code, got.json()["error"]["code"]) == (409, "conflict")
        listed = (await live.memory("GET", "/shared-blocks?label=last")).json()["data"]
        # It was not made.
        assert listed == []


async def test_extraction_writes_no_line_where_nobody_would_see_it(data):
    """The own block stands behind a shared one of its label: what is new becomes a passage."""
    async with Model("Hi.") as up, gateway(up, data) as live:
        memory = live.gateway.memory
        await live.memory("PUT", "/users/ann/blocks/human", json={"value": "Likes tea"})
        find = memory.scope("t", "ann", "default")
        scope_id = await memory.db.read(lambda conn: scopes.find(conn, find))
        human, source = HumanBlock(scope_id, memory.policy.blocks), EditSource("extraction")

        async def write(line):
            return await memory.db.write(
                lambda conn: human.replace_lines(conn, set(), line, source)
            )

        assert await write("Likes jam")
        await share(live, "human", "Shared words", members=("ann",))
        assert not await write("Likes bread")
        assert (await live.memory("GET", "/users/ann/blocks/human")).json()["value"] == (
            "Likes tea\nLikes jam"
        )


async def test_a_deleted_profile_leaves_its_shared_blocks_which_stay(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        got = await live.memory("PUT", "/agents/worker", json={"model": "m", "home": "agent"})
        assert got.status_code == 200, got.text
        block = await share(live, "board", "Plan", members=("ann",))
        path = f"/shared-blocks/{block['id']}"
        await live.memory("PUT", f"{path}/members/agents/worker", json={"write": True})
        assert (await live.memory("DELETE", "/agents/worker")).status_code == 200
        left = (await live.memory("GET", path)).json()
        assert [m.get("user") for m in left["members"]] == ["ann"]
        got = await live.memory("PUT", "/agents/worker", json={"model": "m", "home": "agent"})
        await live.chat("Hi", model="agent:worker")
        assert "Plan" not in up.requests[-1].body.decode()
