"""Files over HTTP: uploads, their state, what is found in them, and who may see them."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from gateway.config.file_tools import FileToolLimits
from gateway.management import files as file_routes
from tests.gateway.management.managing import as_key, managed
from tests.memory.files import make_pdf

TEXT = b"# Notes\n\nThe kumquat is ripe.\n"


@pytest.fixture
def limits(monkeypatch):
    limits = FileToolLimits(max_mib=1, per_user=3, quota_mib=2)
    monkeypatch.setattr(file_routes, "find_file_limits", lambda _: limits)
    monkeypatch.setattr("gateway.app.find_file_limits", lambda _: limits)
    return limits


@pytest.fixture
async def live(limits, tmp_path):
    async with managed(tmp_path) as running:
        yield running


async def call(live, method, path, **more):
    return await live.memory(method, f"/users/ada/files{path}", **more)


async def ready(live, ident):
    for _ in range(400):
        found = (await call(live, "GET", f"/{ident}")).json()
        if found["status"] in ("ready", "failed"):
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(found)


async def test_a_file_is_uploaded_read_searched_and_deleted(live):
    put = await call(live, "PUT", "/notes.md", content=TEXT)
    file = put.json()
    assert (put.status_code, file["status"], file["version"]) == (202, "received", 1)
    assert file["id"].startswith("file_")
    assert (await call(live, "PUT", "/notes.md", content=TEXT)).status_code == 200
    file = await ready(live, file["id"])
    assert (file["status"], file["lines"], file["pages"]) == ("ready", 3, None)
    (hit,) = (await call(live, "GET", "/search?q=ripe+kumquat")).json()["data"]
    assert (hit["name"], hit["line_start"], hit["line_end"]) == ("notes.md", 1, 3)
    text = (await call(live, "GET", f"/{file['id']}/text?line=3&lines=1")).json()
    assert (text["text"], text["line_start"]) == ("The kumquat is ripe.", 3)
    content = await call(live, "GET", f"/{file['id']}/content")
    assert content.content == TEXT
    assert content.headers["content-disposition"].startswith("attachment")
    assert content.headers["x-content-type-options"] == "nosniff"
    assert [f["id"] for f in (await call(live, "GET", "")).json()["data"]] == [file["id"]]
    assert (await call(live, "GET", f"/{file['id']}/versions")).json()["data"][0]["version"] == 1
    assert (await call(live, "DELETE", f"/{file['id']}")).json()["deleted"]
    assert (await call(live, "GET", f"/{file['id']}")).status_code == 404


async def test_a_page_of_a_pdf_is_told_by_its_number(live):
    pdf = make_pdf([[f"This is sheet {i}."] for i in range(1, 5)])
    file = (await call(live, "PUT", "/a.pdf", content=pdf)).json()
    assert (await ready(live, file["id"]))["pages"] == 4
    text = (await call(live, "GET", f"/{file['id']}/text?page=3")).json()
    assert (text["page"], text["text"]) == (3, "This is sheet 3.\nThis is sheet 4.")
    refused = await call(live, "GET", f"/{file['id']}/text?page=9")
    assert refused.status_code == 400


@pytest.mark.parametrize("name", ["a%2Fb", "%2E%2E", "a%0Ab", "x" * 256])
async def test_a_name_that_is_none_is_refused(live, name):
    refused = await call(live, "PUT", f"/{name}", content=b"text")
    assert refused.status_code in (400, 404), refused.text
    if refused.status_code == 400:
        assert refused.json()["error"]["code"] == "invalid_name"


async def test_limits_have_their_statuses(live):
    big = await call(live, "PUT", "/big", content=b"x" * ((1 << 20) + 1))
    assert (big.status_code, big.json()["error"]["code"]) == (413, "request_too_large")
    zipped = await call(
        live,
        "PUT",
        "/zipped",
        content=gzip.compress(b"x" * (40 << 20)),
        headers={**as_key("sk-root")["headers"], "content-encoding": "gzip"},
    )
    assert zipped.status_code == 413
    for name in ("a", "b"):
        stored = await call(live, "PUT", f"/{name}", content=name.encode() * (1 << 20))
        assert stored.status_code == 202
    full = await call(live, "PUT", "/c", content=b"x" * 1000)
    assert (full.status_code, full.json()["error"]["code"]) == (507, "files_quota")
    await call(live, "DELETE", "/a")
    for name in ("c", "d"):
        await call(live, "PUT", f"/{name}", content=b"x")
    many = await call(live, "PUT", "/e", content=b"x")
    assert (many.status_code, many.json()["error"]["code"]) == (409, "too_many_files")


async def test_another_scope_has_no_such_file(live):
    file = (await call(live, "PUT", "/notes.md", content=TEXT)).json()
    for path in (f"/{file['id']}", f"/{file['id']}/content", f"/{file['id']}/text", "/notes.md"):
        other = await live.memory("GET", f"/users/bob/files{path}")
        assert other.status_code == 404
        foreign = await live.memory("GET", f"/users/ada/files{path}", **as_key("sk-other"))
        assert foreign.status_code == 404
        agent = await live.memory("GET", f"/users/ada/files{path}?agent=coder")
        assert agent.status_code == 404


async def test_without_an_entry_no_file_is_taken(tmp_path):
    async with managed(tmp_path) as live:
        refused = await call(live, "PUT", "/a", content=b"x")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "files_off")
        assert (await call(live, "GET", "")).json()["data"] == []
