"""Approvals in the dashboard: who decides, once, and in which tenant."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from memory import management
from memory.management.approvals import ApprovalRequest
from tests.conftest import SENTINEL_KEY
from tests.gateway.management.managing import KEYS
from tests.gateway.ui.looking import HOSTILE, shown, words

pytestmark = pytest.mark.asyncio(loop_scope="module")
DECIDING = [{**key, "approve": True} if key["name"] in ("app", "other") else key for key in KEYS]
FIELDS = {"decision": "deny", "reason": "No."}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory):
    async with shown(tmp_path_factory.mktemp("approvals"), "Hi.", keys=DECIDING) as found:
        yield found


async def ask(live, tool=HOSTILE):
    await live.gateway.memory.wait_until_ready()
    wanted = ApprovalRequest("acme", HOSTILE, "default", "c1", "req_1", tool, '{"x": 1}', 60)
    return (await management.approvals.ask_person(live.gateway.memory, wanted)).id


async def test_only_those_who_decide_see_the_page(site):
    live, sign_in = site
    ident = await ask(live)
    ada = await sign_in("sk-ada")
    assert "Approvals" not in (await ada.get("/tools")).text
    for path in ("/approvals", "/approvals/events", f"/approval?id={ident}"):
        assert (await ada.get(path)).status_code == 403, path
    assert (await ada.send("/approval", id=ident, **FIELDS)).status_code == 403
    strangers = await sign_in("sk-other")
    assert "No call waits." in words(await strangers.get("/approvals"))
    fragment = {"hx-request": "true"}
    assert (await strangers.get(f"/approval?id={ident}", headers=fragment)).status_code == 404
    assert (await strangers.send("/approval", id=ident, **FIELDS)).status_code == 404
    # An admin sees the calls of every tenant.
    for key in (SENTINEL_KEY, "sk-root"):
        page = await (await sign_in(key)).get("/approvals")
        assert "1 call waits" in words(page)
        assert "<script>top" not in page.text
        assert "<title>(1) Approvals" in page.text
    looker = await sign_in(SENTINEL_KEY)
    assert (await looker.send("/approval", csrf="", id=ident, **FIELDS)).status_code == 403
    assert (await looker.send("/approval", id=ident, **FIELDS)).status_code == 303
    assert "denied" in words(await looker.get("/approvals"))


async def test_a_call_is_decided_once_and_the_second_is_told(site):
    live, sign_in = site
    ident, looker = await ask(live), await sign_in(SENTINEL_KEY)
    fragment = {"hx-request": "true"}
    first = await looker.send("/approval", fragment, id=ident, decision="allow", reason="")
    assert "allowed" in first.text
    second = await looker.send("/approval", fragment, id=ident, **FIELDS)
    assert second.status_code == 200
    assert "a call is decided once" in second.text
    assert (await looker.send("/approval", id=ident, **FIELDS)).status_code == 409
    wrong = await looker.send("/approval", id=await ask(live), decision="maybe", reason="")
    assert wrong.status_code == 400


async def test_a_page_that_reconnects_gets_what_it_has_not(site):
    """A call that came and ended while the line was down is neither missed nor shown twice."""
    live, sign_in = site
    looker = await sign_in(SENTINEL_KEY)
    old, new = await ask(live, "old"), await ask(live, "new")
    await management.approvals.end_wait(live.gateway.memory, old, "expired")
    headers = {"last-event-id": old}
    text = ""
    async with looker.http.stream("GET", "/ui/approvals/events", headers=headers) as response:
        async with asyncio.timeout(20):
            async for line in response.aiter_lines():
                text += f"{line}\n"
                if "event: waiting" in text and not line:
                    break
    assert f"event: ended-{old}\n" in text
    assert text.count("event: approval\n") >= 1
    assert f'id="approval-{new}"' in text
    assert f'id="approval-{old}"' not in text
