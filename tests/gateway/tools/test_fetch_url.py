"""`fetch_url` shows title, final URL and text, bounded; what fails is a result in words."""

from __future__ import annotations

import pytest

from gateway.config.web_tools import FetchUrlSettings
from gateway.tools.fetch_url import FetchUrlTool, cut_text, find_lines
from gateway.tools.kind import ToolCaller
from tests.gateway.tools.web_servers import CountingListener, reply
from tests.memory.office_files import make_docx

CALLER = ToolCaller("default", "ann", "default", "req_1")


async def fetch(server: CountingListener, path: str = "/", **arguments):
    kind = FetchUrlTool("fetch_url", FetchUrlSettings(private_hosts=(f"127.0.0.1:{server.port}",)))
    [tool] = kind.list_tools("default")
    url = f"http://127.0.0.1:{server.port}{path}"
    coerced = kind.check_arguments(tool, {"url": url, **arguments})
    assert isinstance(coerced, dict)
    output = await kind.run(tool, coerced, CALLER)
    await kind.close()
    return output


async def test_a_page_is_title_url_and_text():
    html = "<title>T</title><h1>Head</h1><p>Body"
    async with CountingListener(lambda head: reply(html, kind="text/html")) as server:
        output = await fetch(server, "/page")
    assert output.text == f"T\nhttp://127.0.0.1:{server.port}/page\n\n# Head\n\nBody"
    assert output.origin == f"http://127.0.0.1:{server.port}/page"
    assert output.status == "ok"


async def test_a_long_text_is_shown_in_parts_and_searched():
    text = "\n".join(f"line {at}" for at in range(10_000))
    async with CountingListener(lambda head: reply(text, kind="application/json")) as server:
        first = await fetch(server)
        second = await fetch(server, offset="20000")
        hits = await fetch(server, find="LINE 999")
    assert "more characters; offset = 20000 shows them.]" in first.text
    body = first.text.split("\n\n", 1)[1].split("\n[")[0]
    assert body + second.text.split("\n\n", 1)[1][:100] in text
    assert "1000: line 999" in hits.text
    assert hits.text.count("\n") < 20


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (reply("x", 404), "Error: HTTP 404 from http://127.0.0.1"),
        (reply(b"%PDF-1.7\0", kind="application/pdf"), "/ cannot be read: "),
        (reply(b"\0\1\2", kind="application/octet-stream"), "cannot be read as text"),
        (reply(b"x", kind="image/png"), "image/png"),
    ],
)
async def test_what_is_no_text_is_an_error_in_words(answer, words):
    async with CountingListener(lambda head: answer) as server:
        output = await fetch(server)
    assert output.status == "error"
    assert output.text.startswith("Error: ")
    assert words in output.text


async def test_a_private_address_is_refused_without_a_packet():
    async with CountingListener() as server:
        kind = FetchUrlTool("fetch_url", FetchUrlSettings(ports=(server.port,)))
        [tool] = kind.list_tools("default")
        for host in ("127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "127.1"):
            output = await kind.run(tool, {"url": f"http://{host}:{server.port}/"}, CALLER)
            assert output.text.endswith("is not a public address.")
    assert server.connections == 0


def test_parts_of_a_text():
    assert cut_text("", 0) == "[The page has no text.]"
    assert "behind its end" in cut_text("abc", 5)
    assert find_lines("a\nb", "c") == "No line of the page holds 'c'."
    assert "More lines" in find_lines("x\n" * 1000, "x")


@pytest.mark.parametrize(
    "members",
    [
        {"allow_hosts": ["https://example.com"]},
        {"private_hosts": ["10.0.0.7"]},
        {"ports": [0]},
        {"max_mib": 0},
        {"proxy": "x"},
    ],
)
def test_settings_that_mean_nothing_are_refused(members):
    with pytest.raises(ValueError):
        FetchUrlSettings.model_validate(members)


async def test_a_document_is_read_in_its_child():
    pytest.importorskip("kreuzberg", reason="the extra `files` is not installed")
    letter = make_docx("Dear reader,", "the kumquat is ripe.")
    async with CountingListener(lambda head: reply(letter, kind="application/msword")) as server:
        output = await fetch(server, "/letter.docx")
        hits = await fetch(server, "/letter.docx", find="KUMQUAT")
    assert output.status == "ok", output.text
    assert [line for line in output.text.splitlines()[2:] if line] == [
        "Dear reader,",
        "the kumquat is ripe.",
    ]
    assert hits.text.endswith(": the kumquat is ripe.")
