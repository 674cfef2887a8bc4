"""The dashboard over real sockets: who gets in, what each may see, what is refused; every page."""

from __future__ import annotations

import re
import time
from urllib.parse import unquote

import httpx
import pytest
from sqlalchemy import select, update

from memory import iso
from memory.search.drop_reasons import Drop
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import job_records, passage_lifecycle
from memory.stores.sql.rows.job_records import JobRecord
from tests.conftest import SENTINEL_KEY, running
from tests.gateway.management.managing import as_key
from tests.gateway.ui.looking import HOSTILE, Looker, in_tenant, links, shown, walk, words
from tests.models import Model, call, calls

PAGES = [
    "",
    "/users?q=a",
    "/user?user=ada",
    "/user/block?user=ada&label=human",
    "/user/block/edit?user=ada&label=human",
    "/user/block/versions?user=ada&label=human",
    "/user/passages?user=ada",
    "/user/passages?user=ada&q=Grace",
    "/user/passages?user=ada&forgotten=true",
    "/user/conversations?user=ada",
    "/user/conversations?user=ada&q=tea",
    "/user/turns?user=ada",
    "/user/dropped?user=ada",
    "/user/dropped?user=ada&reason=duplicate",
    "/user/erase?user=ada",
    "/feed",
    "/monitors",
    "/jobs",
    "/jobs?which=ready",
    "/usage",
    "/usage?by=request",
    "/why",
    "/why?user=ada",
    "/why?user=Ada",
    "/why?id=req_nothing",
    "/connect",
    "/connect/tick?since=0",
]


async def test_nobody_sees_a_page_without_signing_in(data):
    async with shown(data) as (live, sign_in):
        for path in PAGES:
            response = await live.http.get(f"{live.root}/ui{path}")
            assert response.status_code == 303, path
            assert response.headers["location"].startswith("/ui/sign-in?after=")
        for path in ("/user/block?user=ada", "/user/erase?user=ada", "/sign-out", "/keys"):
            assert (await live.http.post(f"{live.root}/ui{path}")).status_code == 401
        wrong = await sign_in.arrive().sign_in("sk-wrong")
        assert wrong.status_code == 401
        assert "Unknown API key" in wrong.text


@pytest.mark.parametrize("key", [SENTINEL_KEY, "sk-root", "sk-other"])
async def test_every_page_opens(data, key):
    async with shown(data) as (live, sign_in):
        await live.chat("I like tea", user="ada")
        looker = await sign_in(key)
        for path in PAGES:
            tenant = "tenant=acme" if key == "sk-root" and "user=" in path else ""
            response = await looker.get(f"{path}{'&' if '?' in path else '?'}{tenant}")
            assert response.status_code == 200, (path, words(response))
            assert "default-src 'none'" in response.headers["content-security-policy"]
            assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
            assert response.headers["cache-control"] == "no-store"
            assert not re.search(r"<script(?! src=\"/ui/static/)|\sstyle=|\son\w+=", response.text)


async def test_the_cookie_is_of_no_use_to_others(data):
    async with shown(data) as (live, sign_in):
        response = await sign_in.arrive().sign_in(SENTINEL_KEY)
        cookie = response.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict", "Path=/ui"} <= set(cookie.split("; "))
        assert SENTINEL_KEY not in cookie
        name, _, value = cookie.partition(";")[0].partition("=")
        for forged in (value[:-1], f"x{value}", value.split(".")[0] + ".", "é"):
            response = await live.http.get(
                f"{live.root}/ui", headers={"cookie": f"{name}={forged}".encode()}
            )
            assert response.status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
)
async def test_a_post_from_another_site_is_refused(data, headers):
    async with shown(data, **{"server.cors_origins": ["https://evil.example"]}) as (live, sign_in):
        await live.chat("I like tea", user="ada")
        looker = await sign_in(SENTINEL_KEY)
        fields = {"label": "human", "value": "stolen", "version": "1"}
        refused = await looker.send("/user/block?user=ada", headers, **fields)
        assert refused.status_code == 403
        assert (
            await looker.http.post("/ui/sign-in", data={"key": "x"}, headers=headers)
        ).status_code == 403
        assert "stolen" not in (await looker.get("/user?user=ada")).text


async def test_a_form_of_another_session_is_refused(data):
    async with shown(data) as (_, sign_in):
        mine, other = await sign_in(SENTINEL_KEY), await sign_in(SENTINEL_KEY)
        fields = {"label": "human", "value": "x", "version": "0"}
        for csrf in ("", other.csrf):
            response = await mine.send("/user/block?user=ada", csrf=csrf, **fields)
            assert response.status_code == 403
        assert (await mine.send("/user/block?user=ada", **fields)).status_code == 303


async def test_signing_out_ends_the_session(data):
    async with shown(data) as (_, sign_in):
        looker = await sign_in(SENTINEL_KEY)
        cookies = dict(looker.http.cookies)
        assert (await looker.send("/sign-out")).status_code == 303
        looker.http.cookies.update(cookies)
        assert (await looker.get("")).status_code == 303


async def test_a_revoked_key_sees_nothing_more(data):
    async with shown(data) as (_, sign_in):
        root = await sign_in("sk-root")
        made = await root.send("/keys", name="temp", tenant="acme", trusted="on")
        key = re.search(r"mnemogate-[\w-]+", made.text)[0]
        temp = await sign_in(key)
        assert (await temp.get("")).status_code == 200
        assert (await root.send("/keys/revoke", id="temp")).status_code == 303
        assert (await temp.get("")).status_code == 303


async def test_a_link_signs_in_once(data):
    async with shown(data) as (live, sign_in):
        made = await live.http.post(f"{live.root}/ui/links")
        path = made.json()["path"]
        assert SENTINEL_KEY not in path
        first, second = sign_in.arrive(), sign_in.arrive()
        code = unquote(path.partition("code=")[2])
        assert f'name="code" value="{code}"' in (await first.http.get(path)).text
        # To open it signs nobody in.
        assert (await first.get("")).status_code == 303
        foreign = {"origin": "https://evil.example"}
        assert (await first.send("/enter", foreign, code=code)).status_code == 403
        assert (await first.send("/enter", code=code)).headers["location"] == "/ui"
        assert (await first.get("")).status_code == 200
        assert (await second.send("/enter", code=code)).status_code == 401
        assert (await second.http.get(path)).status_code == 401
        assert (await second.http.post("/ui/links")).status_code == 401


@pytest.mark.parametrize(
    "after", ["https://evil.example", "//evil.example", "/v1/models", "/ui\\evil"]
)
async def test_the_sign_in_leads_to_pages_of_the_dashboard_alone(data, after):
    async with shown(data) as (live, _):
        response = await live.http.get(f"{live.root}/ui/sign-in", params={"after": after})
        assert response.status_code == 400


async def test_one_tenant_sees_nothing_of_another(data):
    async with shown(data) as (live, sign_in):
        explain = (await live.chat("I like tea", user="ada")).headers["x-memory-explain"]
        conversation = (await live.memory("GET", "/users/ada/conversations")).json()["data"][0][
            "id"
        ]
        other = await sign_in("sk-other")
        seen = [await other.get(path) for path in PAGES]
        seen += [
            await other.get(f"/request?id={explain}"),
            await other.get(f"/conversation?name={conversation}"),
        ]
        assert [r.status_code for r in seen[-2:]] == [404, 404]
        for response in seen:
            assert "Likes tea" not in response.text
            assert "Grace arrives" not in response.text
        refused = await other.send("/conversation/delete", name=conversation, user="ada", agent="")
        assert refused.status_code == 404
        assert (await other.get("/users?tenant=acme")).status_code == 403


async def test_every_link_keeps_the_tenant_that_an_admin_looks_at(data):
    async with shown(data) as (live, sign_in):
        root = await sign_in("sk-root")
        empty = await walk(root, [in_tenant(path) for path in ("", "/feed", "/why", "/connect")])
        request = (await live.chat("I like tea", user="ada")).headers["x-mnemogate-request-id"]
        # A conversation of nobody.
        await live.chat("I like milk")
        for user in ("ada", "zebra"):
            await live.chat("I ride a zebra", user=user, **as_key("sk-other"))
        starts = [*PAGES, f"/why?id={request}", "/user/move?user=ada"]
        walked = await walk(root, [in_tenant(path) for path in starts])
        for path, page in walked.items():
            assert page.status_code == 200, path
            assert "zebra" not in page.text, path
        pages = [*empty.items(), *walked.items()]
        assert {path: found for path, page in pages if (found := forgetful(page))} == {}
        paths = {path.partition("?")[0] for path in walked}
        assert {"/ui/request", "/ui/conversation", "/ui/user/passage", "/ui/connect"} <= paths


async def test_what_follows_a_deletion_keeps_the_tenant(data):
    async with shown(data) as (live, sign_in):
        await live.chat("I like tea", user="ada")
        unnamed = (await live.chat("I like milk")).headers["x-memory-conversation"]
        root = await sign_in("sk-root")
        fields = {"name": unnamed, "user": "", "agent": ""}
        deleted = await root.send(in_tenant("/conversation/delete"), **fields)
        assert deleted.headers["location"] == "/ui?tenant=acme"
        erased = await root.send(in_tenant("/user/erase?user=ada"), name="ada")
        assert erased.status_code == 200
        assert forgetful(erased) == []


def forgetful(page: httpx.Response) -> list[str]:
    """The links of a page that do not name the tenant."""
    return sorted(url for url in links(page) if "tenant=acme" not in url)


async def test_an_untrusted_key_sees_its_own_users_alone(data):
    async with shown(data) as (live, sign_in):
        for user in ("ada", "bob"):
            await live.chat("I like tea", user=user)
        ada = await sign_in("sk-ada")
        users = await ada.get("")
        assert ("user=ada" in users.text, "bob" in users.text) == (True, False)
        assert "Keys" not in users.text
        for path in ("/user?user=bob", "/keys", "/monitors?user=bob"):
            assert (await ada.get(path)).status_code == 403
        assert "bob" not in (await ada.get("/feed")).text
        assert (await ada.get("/monitors")).status_code == 200


async def test_a_block_is_edited_undone_and_its_history_shown(data):
    async with shown(data) as (live, sign_in):
        looker = await sign_in(SENTINEL_KEY)
        form = await looker.get("/user/block/edit?user=ada&label=human")
        assert 'name="version" value="0"' in form.text
        saved = await looker.send(
            "/user/block?user=ada", label="human", value="Ada\r\nTea", version="0"
        )
        assert saved.status_code == 303
        (version,) = (await live.memory("GET", "/users/ada/blocks/human/versions")).json()["data"]
        assert (version["after"], version["actor"]) == ("Ada\nTea", "dashboard")
        stale = await looker.send("/user/block?user=ada", label="human", value="Bob", version="0")
        assert stale.status_code == 200
        assert "version 1" in words(stale)
        assert ">\nBob</textarea>" in stale.text
        fragment = {"hx-request": "true"}
        part = await looker.send(
            "/user/block?user=ada", fragment, label="human", value="Ada", version="1"
        )
        assert part.text.startswith("<article")
        history = words(await looker.get("/user/block/versions?user=ada&label=human"))
        assert "Version 2" in history
        assert "- Tea" in history
        assert (await looker.send("/user/block/undo?user=ada", label="human")).status_code == 303
        assert "Tea" in words(await looker.get("/user?user=ada"))


async def test_passages_are_added_found_set_aside_and_restored(data):
    async with shown(data) as (_, sign_in):
        looker = await sign_in(SENTINEL_KEY)
        await looker.send("/user/passages?user=ada", content="Grace arrives on Friday", tags="a, b")
        found = await looker.get("/user/passages?user=ada&q=Grace")
        assert "Grace arrives on Friday" in words(found)
        ident = re.search(r'name="id" value="(passage_\w+)"', found.text)[1]
        form = {
            "id": ident,
            "verb": "edit",
            "content": "Likes black coffee",
            "tags": "food, mornings",
        }
        await looker.send("/user/passage?user=ada", **form)
        page = words(await looker.get(f"/user/passage?user=ada&id={ident}"))
        assert "Likes black coffee" in page
        assert "Earlier wordings" in page
        assert "Delete it for good" in page
        await looker.send("/user/passage?user=ada", id=ident, verb="undo")
        assert "Likes black coffee" not in words(await looker.get("/user/passages?user=ada"))
        await looker.send("/user/passage?user=ada", id=ident, verb="forget")
        assert "No passages yet" in words(await looker.get("/user/passages?user=ada"))
        aside = words(await looker.get("/user/passages?user=ada&forgotten=true"))
        assert "set aside by dashboard" in aside
        await looker.send("/user/passage?user=ada", id=ident, verb="restore")
        assert "Grace" in words(await looker.get("/user/passages?user=ada"))
        assert (
            await looker.send("/user/passage?user=ada", id=ident, verb="drop")
        ).status_code == 400


async def test_what_was_not_kept_is_shown_with_its_reason_and_can_be_kept(data):
    async with shown(data) as (live, sign_in):
        await live.chat("I like tea", user="ada")
        drops = [Drop("fact", "no_quote", HOSTILE), Drop("fact", "secret", "sk-hidden")]
        record = JobRecord("extract", 1, 1, 2, 0, drops)

        def keep(conn):
            scope = conn.execute(select(t.scopes.c.id).where(t.scopes.c.user == "ada")).scalar()
            job_records.add(conn, scope, record)

        await live.gateway.memory.db.write(keep)
        looker = await sign_in(SENTINEL_KEY)
        page = await looker.get("/user/dropped?user=ada")
        assert "no_quote" in words(page)
        assert "not shown" in words(page)
        assert "sk-hidden" not in page.text
        assert page.text.count("Keep it") == 1
        ident = re.search(r'name="id" value="(drop_\d+)"', page.text)[1]
        assert (await looker.send("/user/dropped?user=ada", id=ident)).status_code == 303
        assert "no_quote not in" not in words(await looker.get("/user/dropped?user=ada"))
        passages = await live.memory("GET", "/users/ada/passages", **as_key(SENTINEL_KEY))
        assert passages.json()["data"][0]["content"] == HOSTILE


async def test_passages_that_fade_or_were_replaced_are_marked_and_come_back(data):
    async with shown(data, **{"memory.cleanup": "auto"}) as (live, sign_in):
        looker = await sign_in(SENTINEL_KEY)
        made = {}
        for text, hours in (("Likes tea", 80), ("Keeps bees", 1), ("Has a cat", 1)):
            at = iso(time.time() - 3600 * hours)
            body = {"content": text, "type": "fact", "created_at": at}
            response = await live.memory("POST", "/users/ada/passages", json=body)
            made[text] = response.json()["data"][0]
        assert {text for text, p in made.items() if p["is_fading"]} == {"Likes tea"}
        page = words(await looker.get("/user/passages?user=ada"))
        assert "Likes tea fading" in page
        assert "unless it is found before" in page
        ident = made["Has a cat"]["id"]
        await live.gateway.memory.db.write(
            lambda conn: conn.execute(
                update(t.passages)
                .where(t.passages.c.public_id == ident)
                .values(deleted_at=1.0, superseded_by=made["Keeps bees"]["id"], deleted_by="model")
            )
        )
        await live.gateway.memory.db.write(
            lambda conn: passage_lifecycle.fade(conn, time.time() + 1e6, _keys(conn, "Likes tea"))
        )
        aside = words(await looker.get("/user/passages?user=ada&forgotten=true"))
        assert "Likes tea faded" in aside
        assert "Has a cat superseded" in aside
        assert "the newer one" in aside
        await looker.send("/user/passage?user=ada", id=made["Likes tea"]["id"], verb="restore")
        page = words(await looker.get("/user/passages?user=ada"))
        # Found anew, it is not fading.
        assert "Likes tea fact" in page


def _keys(conn, content):
    return conn.execute(select(t.passages.c.id).where(t.passages.c.content == content)).scalars()


async def test_one_request_tells_what_the_memory_did(data):
    async with shown(data) as (live, sign_in):
        response = await live.chat("I like tea", user="ada", model="gpt-4o-mini")
        looker = await sign_in(SENTINEL_KEY)
        by_request = await looker.get(f"/request?id={response.headers['x-mnemogate-request-id']}")
        assert by_request.headers["location"].endswith(response.headers["x-memory-explain"])
        page = words(await looker.get(f"/request?id={response.headers['x-memory-explain']}"))
        for part in ("Core memory", "Memory tools", "Free", "of a window of 128,000", "I like tea"):
            assert part in page
        for part in ("core_memory_append", "Noted.", "Extraction of facts", "200 in", "2 attempts"):
            assert part in page
        assert "memory_blocks tag=" in page
        root = await sign_in("sk-root")
        seen = await root.get("/feed")
        path = re.search(r'/ui(/request\?id=[^"]+)', seen.text)[1].replace("&amp;", "&")
        assert "tenant=acme" in path
        thread = re.search(r'/ui(/conversation\?[^"]+)', (await root.get(path)).text)[1]
        assert "tenant=acme" in thread


async def test_an_erased_user_leaves_a_receipt_and_nothing_else(data):
    async with shown(data) as (live, sign_in):
        await live.chat("I like tea", user="ada")
        looker = await sign_in(SENTINEL_KEY)
        assert (await looker.send("/user/erase?user=ada", name="bob")).status_code == 400
        receipt = words(await looker.send("/user/erase?user=ada", name="ada"))
        assert "messages 2" in receipt
        assert "Likes tea" not in (await looker.get("/feed")).text
        assert "user=ada" not in (await looker.get("")).text


async def test_hostile_text_is_text_on_every_page(data):
    script = (
        calls(
            call("core_memory_append", {"label": "human", "content": HOSTILE}),
            call("archival_memory_insert", {"content": HOSTILE, "tags": [HOSTILE[:40]]}),
        ),
        HOSTILE,
    )
    async with shown(data, *script) as (live, sign_in):
        headers = {"x-memory-conversation": "%3Cscript%3E1%3C%2Fscript%3E"}
        answer = await live.chat(HOSTILE, headers, user=HOSTILE[:60], model="<b>m</b>")
        explain = answer.headers["x-memory-explain"]
        looker = await sign_in(SENTINEL_KEY)
        about = {"user": HOSTILE[:60]}
        pages = [
            await looker.get(
                path.partition("?")[0],
                params={**about, "label": "human", "id": explain, "since": 0, "q": HOSTILE[:9]},
            )
            for path in (*PAGES, "/request")
        ]
        pages.append(await looker.get("/conversation", params={"name": "<script>1</script>"}))
        assert "\u27e8U+202E\u27e9evil" in pages[2].text
        for page in pages:
            assert page.status_code == 200, (page.url, words(page))
            assert "<script>" not in page.text
            assert "<img src=x" not in page.text
            assert "<b>m" not in page.text
            # What is edited stays as it is, in its field.
            read = re.sub(r"(?s)<textarea.*?</textarea>| value=\"[^\"]*\"", "", page.text)
            assert not {"\u202e", "\u2066"} & set(read)
            assert 'href="javascript:' not in page.text


async def test_long_texts_are_bounded_in_lists(data):
    async with shown(data, "x" * 1_000_000) as (live, sign_in):
        await live.chat("y" * 1_000_000, user="ada")
        looker = await sign_in(SENTINEL_KEY)
        conversation = (await live.memory("GET", "/users/ada/conversations")).json()["data"][0][
            "id"
        ]
        for path in (
            "/feed",
            "/user/turns?user=ada",
            f"/conversation?name={conversation}&user=ada",
        ):
            page = await looker.get(path)
            assert page.status_code == 200
            assert len(page.text) < 20_000
        assert "1,000,000 characters in all" in page.text


async def test_changes_are_live(data):
    async with shown(data) as (live, sign_in):
        await live.chat("I like tea", user="ada")
        looker = await sign_in(SENTINEL_KEY)
        async with (
            looker.http.stream("GET", "/ui/user/events?user=ada") as blocks,
            looker.http.stream("GET", "/ui/feed/events") as feed,
        ):
            assert blocks.headers["content-type"].startswith("text/event-stream")
            changes, turns = blocks.aiter_lines(), feed.aiter_lines()
            assert [await anext(changes), await anext(turns)] == ["retry: 2000"] * 2
            await live.memory("PUT", "/users/ada/blocks/human", json={"value": "Coffee"})
            await live.chat("When does Grace come?", user="ada")
            assert await _until(changes, "event: ") == "event: changed"
            assert "event: turn" in await _until(turns, "event: turn")
            assert "core_memory_append" in await _until(turns, "data: <ul")
            assert "event: turn" in await _until(turns, "event: turn")
            assert "archival_memory_search" in await _until(turns, "data: <ul")
            await looker.send("/sign-out")
            assert [line async for line in turns if line.startswith("event")] == []


async def _until(lines, beginning):
    found = []
    async for line in lines:
        found.append(line)
        if line.startswith(beginning):
            return line if beginning == "event: " else line + await anext(lines)
    raise AssertionError(found)


async def test_why_names_the_cause_and_the_remedy(data):
    async with shown(data) as (live, sign_in):
        looker = await sign_in(SENTINEL_KEY)
        assert "No request with memory" in words(await looker.get("/why"))
        off = await live.chat("Hi", {"x-memory": "off"}, user="ada")
        nobody = await live.chat("Hi")
        await live.chat("Hi", user="ada")

        async def why(**what):
            return words(await looker.get("/why", params=what))

        assert "Memory was off for this request" in await why(
            id=off.headers["x-mnemogate-request-id"]
        )
        unnamed = await why(id=nobody.headers["x-mnemogate-request-id"])
        assert "Nobody was named" in unnamed
        assert "X-Memory-User" in unnamed
        assert "No such request" in await why(id="req_0")
        assert "Another spelling? There are: &#39;ada&#39;" in await why(user="ADA")
        assert "The model uses the memory" in await why(user="ada")
        await live.memory("PUT", "/users/ada/policy", json={"memory": "read"})
        assert "policy is &#39;read&#39;" in await why(user="ada")


async def test_single_user_mode_takes_the_local_token(data):
    async with Model("Hello.") as up, running(up.url, data) as live:
        looker = Looker(live)
        assert (await looker.sign_in("sk-a-providers-key")).status_code == 401
        token = (data / "token").read_text().strip()
        assert (await looker.sign_in(token)).status_code == 303
        assert (await looker.get("/keys")).status_code == 200
        foreign = {"sec-fetch-site": "cross-site"}
        assert (await looker.get("", headers=foreign)).status_code == 403
        assert (await looker.get("", headers={"x-forwarded-for": "1.2.3.4"})).status_code == 403
        await looker.http.aclose()


async def test_a_fault_of_ours_is_a_page_without_its_details(data, monkeypatch):
    async with shown(data) as (_, sign_in):
        looker = await sign_in(SENTINEL_KEY)

        async def fail(*_):
            raise RuntimeError("a detail")

        monkeypatch.setattr("gateway.ui.operations.read_stats", fail)
        page = await looker.get("/monitors")
        assert page.status_code == 500
        assert "Something went wrong inside the gateway" in page.text
        assert "a detail" not in page.text


async def test_a_page_that_cannot_be_made_says_why(data):
    async with shown(data) as (_, sign_in):
        looker = await sign_in(SENTINEL_KEY)
        for path, status in (
            ("/user?user=", 400),
            ("/request?id=x", 404),
            ("/jobs?which=odd", 400),
            ("/feed?tenant=x", 403),
        ):
            page = await looker.get(path)
            assert page.status_code == status
            assert "That did not work" in page.text
            assert page.headers["content-type"].startswith("text/html")


async def test_a_feed_goes_on_behind_its_page_and_behind_its_last_event(data):
    async with shown(data) as (live, sign_in):
        await live.chat("I like tea", user="ada")
        looker = await sign_in(SENTINEL_KEY)
        page = await looker.get("/feed")
        (path,) = re.findall(r'sse-connect="/ui(/feed/events\?seen=[\w-]+)"', page.text)
        # Before the feed is opened.
        await live.chat("When does Grace come?", user="ada")
        async with looker.http.stream("GET", f"/ui{path}") as feed:
            lines = feed.aiter_lines()
            mark = (await _until(lines, "id: "))[4:].partition("data")[0]
            assert "archival_memory_search" in await _until(lines, "data: <ul")
        await live.chat("Thanks", user="bob")
        again = {"last-event-id": mark}
        async with looker.http.stream("GET", f"/ui{path}", headers=again) as feed:
            first = await _until(feed.aiter_lines(), "data: <p")
            assert "bob" in first
