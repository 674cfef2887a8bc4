"""Files in the dashboard: uploaded as they are, read, found, opened at a hit, deleted."""

from __future__ import annotations

import asyncio
import re

import pytest
import pytest_asyncio

from tests.conftest import SENTINEL_KEY
from tests.gateway.ui.looking import HOSTILE, in_tenant, links, shown, words

pytestmark = pytest.mark.asyncio(loop_scope="module")
FILES = {"tools": {"files": {"kind": "files", "max_mib": 1, "per_user": 3}}}
TEXT = "".join(f"Line {i} of the notes.\n" for i in range(1, 501)) + f"The kumquat {HOSTILE}\n"
NAME = "a <script>top.hit=1</script>.md".replace("/", "\u2215")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory):
    async with shown(tmp_path_factory.mktemp("files"), "Hi.", **FILES) as found:
        yield found


async def upload(looker, name, content, path="/user/files?user=ada"):
    files = {"file": (name, content, "application/octet-stream")}
    url = f"/ui{path}"
    return await looker.http.post(url, data={"csrf": looker.csrf}, files=files)


async def read(live):
    """Wait until the files of the user are read; return them."""
    async with asyncio.timeout(60):
        while True:
            files = (await live.memory("GET", "/users/ada/files")).json()["data"]
            if all(one["status"] in ("ready", "failed") for one in files):
                return files
            await asyncio.sleep(0.05)


async def test_a_file_is_uploaded_found_opened_at_its_line_and_deleted(site):
    live, sign_in = site
    looker = await sign_in(SENTINEL_KEY)
    sent = await upload(looker, NAME, TEXT.encode())
    assert sent.status_code == 303, words(sent)
    (file,) = await read(live)
    assert (file["name"], file["status"], file["lines"]) == (NAME, "ready", 501)
    page = await looker.get("/user/files?user=ada&q=kumquat")
    assert "✓ ready" in words(page)
    assert "<script>top" not in page.text
    hit = next(url for url in links(page) if "line=501" in url)
    opened = await looker.http.get(hit.partition("#")[0])
    assert 'id="first-hit"' in opened.text
    assert "<script>top" not in opened.text
    (marked,) = re.findall(
        r'<p class="hit" id="first-hit"><span class="n">(\d+)</span>', opened.text
    )
    assert marked == "501"
    assert hit.endswith("#first-hit")
    assert "501 The kumquat" in words(opened)
    assert "Earlier lines" in words(opened)
    got = await looker.get(f"/user/file/content?user=ada&id={file['id']}")
    assert got.content == TEXT.encode()
    assert got.headers["content-disposition"].startswith("attachment")
    assert got.headers["x-content-type-options"] == "nosniff"
    again = await upload(looker, NAME, b"Other.")
    assert again.status_code == 303
    (file,) = await read(live)
    assert file["version"] == 2
    at = "/user/file/delete?user=ada"
    assert (await looker.send(at, id=file["id"], csrf="")).status_code == 403
    assert (await looker.send(at, id=file["id"])).status_code == 303
    assert "No files yet." in words(await looker.get("/user/files?user=ada"))


async def test_any_bytes_are_kept_as_they_are_and_folders_are_cut_off(site):
    live, sign_in = site
    looker = await sign_in(SENTINEL_KEY)
    content = bytes(range(256)) * 5 + b"\r\n--"
    assert (await upload(looker, r"C:\notes\raw.bin", content)).status_code == 303
    (file,) = await read(live)
    assert file["name"] == "raw.bin"
    got = await looker.get(f"/user/file/content?user=ada&id={file['id']}")
    assert got.content == content
    page = words(await looker.get(f"/user/file?user=ada&id={file['id']}"))
    assert "It could not be read" in page
    await looker.send("/user/file/delete?user=ada", id=file["id"])


async def test_what_is_too_large_or_too_many_is_said_in_the_form(site):
    live, sign_in = site
    looker = await sign_in(SENTINEL_KEY)
    large = await upload(looker, "large.txt", b"x" * (1 << 20 | 1))
    assert "max_mib" in words(large)
    assert "Choose a file first." in words(await upload(looker, "", b""))
    for i in range(3):
        assert (await upload(looker, f"{i}.txt", b"x")).status_code == 303
    assert "per_user" in words(await upload(looker, "4.txt", b"x"))
    body = {"csrf": looker.csrf}
    huge = {"file": ("huge.txt", b"x" * (6 << 20))}
    refused = await looker.http.post("/ui/user/files?user=ada", data=body, files=huge)
    assert refused.status_code == 413
    for file in (await live.memory("GET", "/users/ada/files")).json()["data"]:
        await looker.send("/user/file/delete?user=ada", id=file["id"])


async def test_files_of_others_are_not_there(site):
    live, sign_in = site
    looker = await sign_in(SENTINEL_KEY)
    await upload(looker, "mine.txt", b"Mine.")
    (file,) = await read(live)
    ada, strangers = await sign_in("sk-ada"), await sign_in("sk-other")
    assert "mine.txt" in words(await ada.get("/user/files?user=ada"))
    assert (await ada.get("/user/files?user=bob")).status_code == 403
    for path in ("/user/file", "/user/file/content"):
        assert (await strangers.get(f"{path}?user=ada&id={file['id']}")).status_code == 404
        assert (await looker.get(f"{path}?user=bob&id={file['id']}")).status_code == 404
    assert "mine.txt" not in words(await strangers.get("/user/files?user=ada"))
    gone = await strangers.send("/user/file/delete?user=ada", id=file["id"])
    assert gone.status_code == 404
    root = await sign_in("sk-root")
    for path in ("/user/files?user=ada&q=mine", f"/user/file?user=ada&id={file['id']}"):
        page = await root.get(in_tenant(path))
        assert [url for url in links(page) if "tenant=acme" not in url] == []


@pytest.mark.parametrize("query", ["line=0", "line=x", "page=-1", "kind=dog&q=x"])
async def test_a_wrong_place_is_a_page_that_says_so(site, query):
    live, sign_in = site
    looker = await sign_in(SENTINEL_KEY)
    file = (await live.memory("GET", "/users/ada/files")).json()["data"][0]
    path = "/user/files" if "kind" in query else "/user/file"
    page = await looker.get(f"{path}?user=ada&id={file['id']}&{query}")
    assert page.status_code == 400
