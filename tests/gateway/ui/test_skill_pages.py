"""Skills and proposals in the dashboard: written, made active, changed, deleted; decided on."""

from __future__ import annotations

import re

import pytest
import pytest_asyncio

from tests.conftest import SENTINEL_KEY
from tests.e2e.test_background import settled
from tests.e2e.test_heartbeat import tidying
from tests.gateway.ui.looking import HOSTILE, in_tenant, links, shown, words
from tests.models import call, calls

pytestmark = pytest.mark.asyncio(loop_scope="module")
SKILL = {
    "name": "deploy-app",
    "description": "Deploys <script>top.hit=1</script>",
    "text": f"1. Build\n{HOSTILE}",
}
REFLECT = {"dry_run": True, "prompt": "You tidy. Be brief.", "model": "tidy-1"}
CONFIG = {"memory.skills": {"mode": "review"}, "memory.reflect": REFLECT}
RETHINK = {"label": "human", "new_memory": "Name: Ada L."}
MOVES = (calls(call("memory_rethink", RETHINK, "a")), "done") * 2


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory):
    data = tmp_path_factory.mktemp("skills")
    async with shown(data, tidying(*MOVES), **CONFIG) as found:
        yield found


async def test_a_skill_is_written_changed_exported_and_deleted(site):
    live, sign_in = site
    looker = await sign_in(SENTINEL_KEY)
    assert "No skills yet." in words(await looker.get("/user/skills?user=ada"))
    refused = await looker.send("/user/skills?user=ada", **{**SKILL, "name": "No Name"})
    assert refused.status_code == 200
    assert 'role="alert"' in refused.text
    made = await looker.send("/user/skills?user=ada", **SKILL)
    assert made.status_code == 303, words(made)
    (skill,) = (await live.memory("GET", "/users/ada/skills")).json()["data"]
    assert (skill["status"], skill["text"]) == ("active", SKILL["text"].strip())
    listed = await looker.get("/user/skills?user=ada")
    assert "✓ active" in words(listed)
    at = f"/user/skill?user=ada&id={skill['id']}"
    page = await looker.get(at)
    assert "<script>top" not in listed.text + page.text
    form = {**SKILL, "version": 1, "status": "retired", "text": "1. Test"}
    assert (await looker.send(at, **{**form, "csrf": ""})).status_code == 403
    assert (await looker.send(at, **form)).status_code == 303
    stale = await looker.send(at, **form)
    # Another version is there by now.
    assert 'role="alert"' in stale.text
    for wrong in ({"status": "x"}, {"version": "x"}):
        assert (await looker.send(at, **{**form, **wrong})).status_code == 400
    page = await looker.get(at)
    for part in ("Version 2", "- 1. Build", "+ 1. Test"):
        assert part in words(page)
    exported = await looker.get(f"/user/skill/export?user=ada&id={skill['id']}")
    assert exported.text.startswith("---\nname: deploy-app")
    assert exported.headers["content-disposition"].startswith("attachment")
    root = await sign_in("sk-root")
    for path in ("/user/skills?user=ada", at):
        seen = await root.get(in_tenant(path))
        assert [url for url in links(seen) if "tenant=acme" not in url] == []
    strangers = await sign_in("sk-other")
    assert (await strangers.get(at)).status_code == 404
    gone = await strangers.send("/user/skill/delete?user=ada", id=skill["id"])
    assert gone.status_code == 404
    assert (await looker.send("/user/skill/delete?user=ada", id=skill["id"])).status_code == 303
    assert (await looker.get(at)).status_code == 404


async def test_a_proposal_is_shown_as_a_difference_applied_undone_and_discarded(site):
    live, sign_in = site
    looker = await sign_in(SENTINEL_KEY)
    await live.chat("Hello", user="ada")
    value = {"value": f"Name: Ada\nName: Ada L. {HOSTILE}"}
    await live.memory("PUT", "/users/ada/blocks/human", json=value)
    assert "No proposals." in words(await looker.get("/user/reflections?user=ada"))
    run = await looker.send("/user/reflections?user=ada")
    assert run.headers["location"].endswith("/user/reflections?queued=1&user=ada")
    await settled(live)
    page = await looker.get("/user/reflections?user=ada&queued=1")
    assert "<script>top" not in page.text
    assert "- Name: Ada" in words(page)
    assert "+ Name: Ada L." in words(page)
    ident = re.search(r'id="(refl_\w+)"', page.text)[1]

    async def decide(decision):
        form = {"id": ident, "decision": decision}
        return await looker.send("/user/reflection?user=ada", **form)

    async def block():
        return (await live.memory("GET", "/users/ada/blocks/human")).json()["value"]

    assert (await decide("maybe")).status_code == 400
    assert (await decide("apply")).status_code == 303
    assert await block() == RETHINK["new_memory"]
    again = await decide("apply")
    assert 'role="alert"' in again.text
    assert "Undo" in words(again)
    assert (await decide("undo")).status_code == 303
    assert await block() == value["value"]
    strangers = await sign_in("sk-other")
    refused = await strangers.send("/user/reflection?user=ada", id=ident, decision="discard")
    assert refused.status_code == 404
