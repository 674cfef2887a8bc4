"""The dashboard as the agent's workbench, from outside: pages, forms, a trial chat."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.agents import AgentSettings
from gateway.ui import agent_form
from tests.conftest import SENTINEL_KEY
from tests.gateway.management.managing import KEYS, as_key
from tests.gateway.ui.looking import HOSTILE, REMEMBER, shown, words

SUPPORT = {"model": "gpt-4o-mini", "title": "Support", "instruction": "You are Sam."}
CONFIGURED = {"agents": {"house": {"model": "m", "title": "House", "instruction": "Be kind."}}}
ANSWER = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hi."},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


class FormReader(HTMLParser):
    """Reads the fields of the form of a class as a browser sends them."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.inside, self.sent = kind, False, {}
        self.area, self.choice = None, None

    def handle_starttag(self, tag, attrs):
        members = dict(attrs)
        if tag == "form":
            self.inside = members.get("class") == self.kind
        if not self.inside:
            return
        name = members.get("name")
        if tag == "textarea":
            self.area, self.sent[name] = name, ""
        elif tag == "select":
            self.choice, self.sent[name] = name, None
        elif tag == "option" and self.choice:
            if self.sent[self.choice] is None or "selected" in members:
                self.sent[self.choice] = members.get("value", "")
        elif tag == "input" and (
            members.get("type") not in ("checkbox", "radio") or "checked" in members
        ):
            self.sent[name] = members.get("value", "on")

    def handle_endtag(self, tag):
        if tag == "form":
            self.inside = False
        elif tag == "textarea" and self.area:
            self.sent[self.area] = self.sent[self.area].removeprefix("\n")
            self.area = None
        elif tag == "select":
            self.choice = None

    def handle_data(self, data):
        if self.area:
            self.sent[self.area] += data


def form_of(response, kind="profile"):
    reader = FormReader(kind)
    reader.feed(response.text)
    return {name: value for name, value in reader.sent.items() if name != "csrf"}


def faults(response):
    found = re.findall(r'class="fault"[^>]*role="alert">(.*?)</p>', response.text)
    return [html.unescape(text) for text in found]


async def read(live, name="support", key=SENTINEL_KEY):
    return (await live.memory("GET", f"/agents/{name}", **as_key(key))).json()


async def test_the_list_shows_the_agents_that_a_key_may_see(data):
    async with shown(data, "Hi.", **CONFIGURED) as (live, sign_in):
        await live.memory("PUT", "/agents/support", json=SUPPORT)
        await live.memory("PUT", "/agents/own", json={**SUPPORT, "home": "agent"})
        await live.memory("PUT", "/agents/foreign", json=SUPPORT, **as_key("sk-other"))
        looker = await sign_in(SENTINEL_KEY)
        text = words(await looker.get("/agents"))
        for part in ("support Support gpt-4o-mini for each user this tenant 1", "by api"):
            assert part in text
        assert "house House m for each user configuration" in text
        assert "own Support gpt-4o-mini one of its own" in text
        assert "foreign" not in text
        assert 'href="/ui/agents" aria-current="page"' in (await looker.get("/agents")).text
        ada = await sign_in("sk-ada")
        page = await ada.get("/agents")
        assert "support" in words(page)
        assert "Make an agent" not in words(page)
        # Others told it things, and this key is not named.
        assert ">own<" not in page.text
        for path in ("/agent?name=own", "/agent/profile?name=own"):
            assert (await ada.get(path)).status_code == 403
        for path in ("/agent?name=foreign", "/agent/profile?name=foreign"):
            assert (await looker.get(path)).status_code == 404
        root = await sign_in("sk-root")
        assert "foreign" in words(await root.get("/agents?tenant=beta"))


async def test_an_empty_list_says_what_an_agent_is(data):
    async with shown(data, "Hi.") as (_, sign_in):
        page = await (await sign_in(SENTINEL_KEY)).get("/agents")
        assert "An agent is a model with an instruction" in words(page)
        assert 'href="/ui/agents/new"' in page.text


async def test_an_agent_is_made_in_the_page(data):
    async with shown(data, "Hi.") as (live, sign_in):
        looker = await sign_in(SENTINEL_KEY)
        form = form_of(await looker.get("/agents/new"))
        form |= {"name": "support", "model": "gpt-4o-mini", "blocks.0.value": "I am\r\nSam."}
        more = await looker.send("/agents", **form, do="add")
        form = form_of(more)
        assert form["blocks.0.value"] == "I am\nSam."
        assert await read(live) == await read(live)
        form |= {
            "blocks.1.label": "rules",
            "blocks.1.limit": "100",
            "blocks.1.read_only": "on",
            "parameters.temperature": "0.5",
            "tags": "a\nb, c",
            "parameters.stop": '["\\n"]',
        }
        del form["memory_tools"]
        made = await looker.send("/agents", **form)
        assert (made.status_code, made.headers["location"]) == (303, "/ui/agent?name=support")
        agent = await read(live)
        assert (agent["model"], agent["updated_by"]) == ("gpt-4o-mini", "dashboard")
        assert [(b["label"], b["value"], b["limit"], b["read_only"]) for b in agent["blocks"]] == [
            ("persona", "I am\nSam.", 4000, False),
            ("rules", "", 100, True),
        ]
        assert agent["parameters"]["temperature"] == 0.5
        assert agent["parameters"]["stop"] == ["\n"]
        assert (agent["tags"], agent["memory_tools"]) == (["a", "b, c"], False)
        assert (await live.chat("Hi", model="agent:support", user="ada")).status_code == 200
        again = await looker.send("/agents", **form)
        assert faults(again) == ["There is an agent 'support' already: choose another name."]


@pytest.mark.parametrize(
    ("member", "value", "text"),
    [
        ("name", "Upper", "1 to 64 characters"),
        ("name", "agent_12", "form of an agent's id"),
        ("parameters.temperature", "3", "less than or equal to 2"),
        ("parameters.temperature", "nan", "this must be a number"),
        ("context_window", "many", "this must be a whole number"),
        ("timezone", "Mars/Base", "Mars/Base"),
        ("metadata", "{", "this is not JSON"),
        ("response_format", '{"type": "xml"}', "must be one of"),
        ("locked", "model", "not 'model'"),
        ("blocks.0.label", "Not a label", "a label must match"),
        ("blocks.0.limit", "-1", "greater than 0"),
        ("title", "x" * 257, "256"),
        ("tools", "run_code", "may not grant the tool"),
    ],
)
async def test_an_error_stands_at_its_field(data, member, value, text):
    async with shown(data, "Hi.") as (live, sign_in):
        looker = await sign_in(SENTINEL_KEY)
        form = form_of(await looker.get("/agents/new"))
        page = await looker.send("/agents", **{**form, "name": "new", member: value})
        assert page.status_code == 200
        assert text in faults(page)[0]
        field = re.search(rf'name="{re.escape(member)}"[^>]*', page.text)[0]
        assert 'aria-invalid="true" aria-describedby="fault"' in field
        # What was typed is still there.
        assert form_of(page)[member] == value
        is_advanced = member in agent_form.ADVANCED
        assert ('<details class="card" open>' in page.text) is is_advanced
        assert (await live.memory("GET", "/agents/new")).status_code == 404


async def test_a_form_that_is_saved_as_it_came_changes_nothing(data):
    whole = {
        **SUPPORT,
        "title": "Two\nlines",
        "instruction": "\nBe\r\nkind.\r",
        "blocks": [{"label": "a", "value": "\n x ", "description": "d\ne"}],
        "tags": ["a,b"],
        "parameters": {"stop": ["\n", " x"], "temperature": 1.0, "seed": 7, "top_p": 1},
        "metadata": {"x": [1, None, HOSTILE]},
        "reflect": {"every_turns": 3, "idle_seconds": 0.5},
        "recall": "auto",
        "may_ask": ["w-*"],
        "context_window": 1000,
    }
    async with shown(data, "Hi.") as (live, sign_in):
        assert (await live.memory("PUT", "/agents/support", json=whole)).status_code == 200
        before = await read(live)
        looker = await sign_in(SENTINEL_KEY)
        form = form_of(await looker.get("/agent/profile?name=support"))
        sent = {name: value.replace("\n", "\r\n") for name, value in form.items()}
        saved = await looker.send("/agent/profile?name=support", **sent)
        assert saved.status_code == 303
        assert await read(live) == before
        sent |= {"reflect.every_turns": "", "parameters.seed": "", "recall": ""}
        await looker.send("/agent/profile?name=support", **sent)
        after = await read(live)
        assert after["version"] == 2
        assert "recall" not in after
        assert "seed" not in after["parameters"]
        assert after["reflect"]["idle_seconds"] == 0.5
        for member in ("title", "instruction", "blocks", "metadata", "tags"):
            assert after[member] == before[member]
        less = await looker.send(
            "/agent/profile?name=support",
            **{**sent, "version": "2", "do": "remove 0"},
        )
        assert (less.status_code, form_of(less)["version"]) == (200, "2")
        assert "blocks.0.label" not in form_of(less)
        # Only the form has one less.
        assert (await read(live))["blocks"]
        kept = {k: v for k, v in sent.items() if not k.startswith("blocks.")}
        await looker.send("/agent/profile?name=support", **{**kept, "version": "2"})
        assert (await read(live))["blocks"] == []


def test_every_member_of_a_profile_is_in_the_form():
    members = {field.path.partition(".")[0] for field in agent_form.FIELDS}
    assert members | {"blocks"} == set(AgentSettings.model_fields)
    default = AgentSettings().model_dump(mode="json", exclude_none=True)
    assert agent_form.changed_members(agent_form.render_profile(default), default) == {}


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
PROFILES = st.fixed_dictionaries(
    {},
    optional={
        "title": TEXTS,
        "instruction": TEXTS,
        "description": TEXTS,
        "home": st.sampled_from(["user", "agent"]),
        "memory_tools": st.booleans(),
        "tags": st.lists(TEXTS.filter(bool), max_size=3),
        "metadata": JSON,
        "parameters": st.fixed_dictionaries(
            {},
            optional={
                "temperature": st.floats(0, 2),
                "seed": st.integers(-(2**60), 2**60),
                "stop": TEXTS | st.lists(TEXTS, max_size=2),
            },
        ),
        "turn_seconds": st.floats(0.001, 1e9),
        "blocks": st.lists(
            st.builds(
                lambda n, text, words, reads: {
                    "label": f"b{n}", "value": text, "description": words, "read_only": reads
                },
                st.integers(0, 10**9), TEXTS, TEXTS, st.booleans(),
            ),
            max_size=3,
            unique_by=lambda block: block["label"],
        ),
    },
)  # fmt: skip


def sent_by_a_browser(form):
    """The fields of a form as they come back: line ends of the network, boxes that are on."""
    sent = dict(form.values)
    for i, row in enumerate(form.rows):
        sent |= {f"blocks.{i}.{name}": value for name, value in row.items()}
    boxes = {field.path for field in agent_form.FIELDS if field.kind == "check"}
    return {
        name: re.sub("\r\n|\r|\n", "\r\n", value)
        for name, value in sent.items()
        if value or not (name in boxes or name.endswith(".read_only"))
    }


@given(PROFILES)
def test_no_profile_is_changed_by_a_form_that_nobody_touched(members):
    settings = AgentSettings.model_validate_json(json.dumps(members), strict=True)
    profile = settings.model_dump(mode="json", exclude_none=True)
    sent = sent_by_a_browser(agent_form.render_profile(profile))
    assert agent_form.changed_members(agent_form.read_form(sent), profile) == {}


async def test_an_edit_that_comes_too_late_is_shown_with_both_texts(data):
    async with shown(data, "Hi.") as (live, sign_in):
        await live.memory("PUT", "/agents/support", json=SUPPORT)
        looker = await sign_in(SENTINEL_KEY)
        form = form_of(await looker.get("/agent/profile?name=support"))
        await live.memory("PATCH", "/agents/support", json={"instruction": "You are Kim."})
        form |= {"instruction": "You are Ada."}
        page = await looker.send("/agent/profile?name=support", **form)
        text = words(page)
        assert "Somebody changed this agent meanwhile" in text
        assert "- You are Kim. + You are Ada." in text
        assert (await read(live))["instruction"] == "You are Kim."
        form = form_of(page)
        assert (form["instruction"], form["version"]) == ("You are Ada.", "2")
        assert (await looker.send("/agent/profile?name=support", **form)).status_code == 303
        assert (await read(live))["instruction"] == "You are Ada."


async def test_an_agent_of_the_configuration_is_only_shown_and_duplicated(data):
    async with shown(data, "Hi.", **CONFIGURED) as (live, sign_in):
        looker = await sign_in(SENTINEL_KEY)
        page = await looker.get("/agent/profile?name=house")
        assert "[agents.house]" in words(page)
        assert "Be kind." in words(page)
        assert 'class="profile"' not in page.text
        form = form_of(await looker.get("/agents/new?copy=house"))
        assert form["name"] == "house-copy"
        for path in ("/agent/profile", "/agent/delete"):
            sent = {**form, "version": "0", "title": "x", "memory": "keep"}
            refused = await looker.send(f"{path}?name=house", **sent)
            assert "part of the configuration" in words(refused)
        assert (await looker.send("/agents", **{**form, "name": "house"})).status_code == 200
        assert (await read(live, "house"))["source"] == "config"
        assert (await looker.send("/agents", **form)).status_code == 303
        assert (await read(live, "house-copy"))["instruction"] == "Be kind."


async def test_versions_are_compared_and_undone(data):
    async with shown(data, "Hi.") as (live, sign_in):
        await live.memory("PUT", "/agents/support", json=SUPPORT)
        blocks = [{"label": "rules", "value": "a\nb"}]
        await live.memory("PATCH", "/agents/support", json={"title": "S", "blocks": blocks})
        looker = await sign_in(SENTINEL_KEY)
        text = words(await looker.get("/agent/versions?name=support"))
        assert text.index("Version 2") < text.index("title - Support + S")
        assert text.index("block rules +") < text.index("Version 1")
        assert (await looker.send("/agent/undo?name=support")).status_code == 303
        assert (await read(live))["title"] == "Support"
        ada = await sign_in("sk-ada")
        assert (await ada.get("/agent/versions?name=support")).status_code == 403
        assert (await ada.send("/agent/undo?name=support")).status_code == 403


@pytest.mark.parametrize(("memory", "value"), [("keep", "Likes tea"), ("erase", "")])
async def test_an_agent_is_deleted_with_or_without_its_memory(data, memory, value):
    async with shown(data, REMEMBER, "Noted.") as (live, sign_in):
        await live.memory("PUT", "/agents/support", json=SUPPORT)
        await live.chat("I like tea", model="agent:support", user="ada")
        looker = await sign_in(SENTINEL_KEY)
        assert "Keep: an agent" in words(await looker.get("/agent/delete?name=support"))
        done = await looker.send("/agent/delete?name=support", memory=memory)
        assert ("Its memory is kept." in words(done)) is (memory == "keep")
        assert (await live.memory("GET", "/agents/support")).status_code == 404
        assert "deleted" in words(await looker.get("/agent/versions?name=support"))
        assert (await looker.send("/agent/undo?name=support")).status_code == 303
        block = await live.memory("GET", "/users/ada/blocks/human?agent=support")
        assert block.json()["value"] == value


def talk(page):
    return form_of(page, "trial")


async def test_a_trial_is_a_turn_beside_the_blocks_that_it_changes(data):
    async with shown(data, REMEMBER, "Noted.", "You like tea.") as (live, sign_in):
        await live.memory("PUT", "/agents/support", json=SUPPORT)
        looker = await sign_in(SENTINEL_KEY)
        form = talk(await looker.get("/agent?name=support"))
        assert form["user"] == "trial"
        page = await looker.send("/agent?name=support", **{**form, "message": "I like tea"})
        assert re.search(r'id="block-human".*?class="added">\+ Likes tea<', page.text, re.DOTALL)
        assert "1 block changed" in words(page)
        assert re.search(r"trial I like tea Support .{0,40}Noted\.", words(page))
        explain = re.search(r'/ui/request\?id=[^"]+', page.text)[0]
        assert "Likes tea" in words(await looker.http.get(explain))
        part = {"hx-request": "true"}
        again = await looker.send(
            "/agent?name=support", part, **{**talk(page), "message": "What do I like?"}
        )
        assert "<html" not in again.text
        assert "0 blocks changed" in again.text
        for said in ("I like tea", "Noted.", "What do I like?", "You like tea."):
            assert f">{said}</pre>" in again.text
        block = await live.memory("GET", "/users/trial/blocks/human?agent=support")
        assert block.json()["value"] == "Likes tea"
        usage = (await live.memory("GET", "/usage?user=trial")).json()["data"]
        assert [day["requests"] for day in usage] == [2]
        # A word to the same agent by an app goes on with the same memory.
        got = await live.chat("And?", model="agent:support", user="trial")
        assert got.headers["x-memory-user"] == "trial"


async def test_a_trial_holds_the_rights_of_who_is_signed_in(data):
    keys = [{**key, "models": ["m"]} if key["name"] == "ada" else key for key in KEYS]
    async with shown(data, "Hi.", keys=keys) as (live, sign_in):
        for name, members in (("a", {"model": "m"}), ("b", {"model": "other"})):
            await live.memory("PUT", f"/agents/{name}", json=members)
        await live.memory("PUT", "/agents/own", json={"model": "m", "home": "agent"})
        ada = await sign_in("sk-ada")
        form = talk(await ada.get("/agent?name=a"))
        assert form["user"] == "ada"
        page = await ada.send("/agent?name=a", **{**form, "message": "Hello"})
        assert "Hi." in words(page)
        page = await ada.send("/agent?name=a", **{**form, "message": "Hello", "user": "bob"})
        assert "This key may not act for the user 'bob'" in html.unescape(words(page))
        assert form["message"] == ""
        assert talk(page)["message"] == "Hello"
        page = await ada.send("/agent?name=b", **{**form, "message": "Hello"})
        assert "This key may not call the model 'other'" in html.unescape(words(page))
        assert (await ada.send("/agent?name=own", **form)).status_code == 403
        root = await sign_in("sk-root")
        page = await root.send("/agent?name=a&tenant=acme", **{**form, "message": "Hello"})
        assert "Hi." in words(page)
        for tenant in ("acme", "*"):
            refused = await ada.send(f"/agent?name=a&tenant={tenant}", **form)
            assert refused.status_code == (200 if tenant == "acme" else 403)
        assert (await root.send("/agent?name=a&tenant=*", **form)).status_code == 400
        assert (await root.get("/agent?name=a&tenant=*")).status_code == 400
        rows = (await live.memory("GET", "/users/ada/conversations?agent=a")).json()["data"]
        assert len(rows) == 1


async def test_a_trial_with_an_agent_of_one_memory_shows_that_memory(data):
    async with shown(data, REMEMBER, "Noted.") as (live, sign_in):
        await live.memory("PUT", "/agents/support", json={**SUPPORT, "home": "agent"})
        looker = await sign_in(SENTINEL_KEY)
        form = talk(await looker.get("/agent?name=support"))
        page = await looker.send("/agent?name=support", **{**form, "message": "I like tea"})
        assert "+ Likes tea" in words(page)
        assert "user=agent%3Asupport" in page.text
        block = await live.memory("GET", "/users/agent%3Asupport/blocks/human")
        assert block.json()["value"] == "Likes tea"


async def test_a_trial_with_a_key_of_the_persons_own_sends_it_on_and_keeps_it_nowhere(data):
    def listing(seen, wire):
        right = ("authorization", "Bearer sk-mine") in seen.headers
        return wire.json(ANSWER) if right else wire.json({"error": {"message": "no key"}}, 401)

    async with shown(data, listing, keys=[]) as (_, sign_in):
        looker = await sign_in((data / "token").read_text().strip())
        form = form_of(await looker.get("/agents/new"))
        await looker.send("/agents", **{**form, "name": "support", "model": "m"})
        form = talk(await looker.get("/agent?name=support"))
        assert "key" in form
        page = await looker.send("/agent?name=support", **{**form, "message": "Hello", "key": ""})
        assert "401" in words(page)
        sent = {**form, "message": "Hello", "key": "sk-mine"}
        page = await looker.send("/agent?name=support", **sent)
        assert "Hi." in words(page)
        assert "sk-mine" not in page.text


async def upload(looker, text, **fields):
    data = {"csrf": looker.csrf, "name": "", "model": "", **fields}
    files = {"file": ("x.af", text, "application/octet-stream")}
    return await looker.http.post("/ui/agents/import", data=data, files=files)


async def test_an_agent_is_exported_and_imported_with_its_memory(data):
    async with shown(data, REMEMBER, "Noted.", "Hi.") as (live, sign_in):
        await live.memory("PUT", "/agents/support", json={**SUPPORT, "home": "agent"})
        await live.chat("I like tea \U0001f375", model="agent:support", user="ann")
        looker = await sign_in(SENTINEL_KEY)
        file = await looker.get("/agent/export?name=support")
        assert file.headers["content-disposition"] == 'attachment; filename="support.af"'
        assert [m["role"] for m in file.json()["agents"][0]["messages"]] == ["user", "assistant"]
        taken = await upload(looker, file.content, name="support")
        assert faults(taken) == ["There is an agent 'support' already: choose another name."]
        made = await upload(looker, file.content, name="copy")
        assert made.headers["location"] == "/ui/agent?name=copy"
        agent = await read(live, "copy")
        assert (agent["title"], agent["home"]) == ("Support", "agent")
        passages = (await live.memory("GET", "/users/agent%3Acopy/passages")).json()["data"]
        assert [p["content"] for p in passages] == ["Grace arrives on Friday"]
        talks = (await live.memory("GET", "/users/agent%3Acopy/conversations")).json()["data"]
        assert [talk["message_count"] for talk in talks] == [2]
        again = await looker.get("/agent/export?name=copy")
        messages = again.json()["agents"][0]["messages"]
        assert messages[0]["content"][0]["text"] == "I like tea \U0001f375"


async def test_a_file_that_is_none_is_refused(data):
    async with shown(data, "Hi.") as (live, sign_in):
        looker = await sign_in(SENTINEL_KEY)
        for text in (b"", b"{", b"[]", b"{}", b"[" * 100_000, b"{" + b" " * 5_000_000 + b"}"):
            assert "This is no agent file" in faults(await upload(looker, text))[0]
        assert "UTF-8" in words(await upload(looker, b"\xff\xfe"))
        two = b'{"agents": [{"name": "a", "system": "x"}, {"name": "b", "system": "x"}]}'
        assert "holds 2 agents" in faults(await upload(looker, two, name="c"))[0]
        assert (await upload(looker, two)).headers["location"] == "/ui/agents"
        assert (await read(live, "b"))["instruction"] == "x"
        ada = await sign_in("sk-ada")
        assert "Only trusted and admin keys" in faults(await upload(ada, two))[0]
        assert (await ada.get("/agent/export?name=a")).status_code == 403
        no_token = await looker.http.post("/ui/agents/import", files={"file": ("x", two)})
        assert no_token.status_code == 403
