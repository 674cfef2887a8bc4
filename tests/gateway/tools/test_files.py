"""The kind `files`: what a model is shown of files, and of calls that are wrong."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from gateway.tools.file_answers import CUT
from gateway.tools.files import FilesKind
from gateway.tools.kind import ToolCaller
from memory import home_of, memory_name
from memory.formats.documents.line_matching import match_passages
from memory.retrieval import file_search
from memory.retrieval.file_search import FileSearch
from tests.memory.files import Library, make_pdf, open_memory

ADA = ToolCaller("default", "ada", "default", "req_1")


@pytest.fixture
async def library(tmp_path):
    from tests import stores

    db = stores.database(tmp_path / "a.db")
    memory = open_memory(db)
    await memory.open()
    yield Library(memory)
    await memory.close()


@pytest.fixture
async def run(library):
    kind = FilesKind("files", library.memory)
    tools = {tool.name: tool for tool in kind.list_tools("default")}

    async def run(name, caller=ADA, **arguments):
        return await kind.run(tools[name], arguments, caller)

    run.kind = kind
    return run


async def test_hits_say_file_page_and_lines(library, run):
    pages = [["Nothing here."], ["A parrot speaks.", "It says hello."]]
    await library.add("birds.pdf", make_pdf(pages))
    hits = (await run("file_search", query="parrot")).text
    assert hits.startswith("[birds.pdf, page 2, lines 2-3]\nA parrot speaks.\nIt says hello.")
    assert (await run("file_grep", pattern="says HELLO")).text == (
        "[birds.pdf, page 2, line 3] It says hello."
    )
    opened = await run("file_open", file="birds.pdf", page=1)
    assert opened.text == (
        "--- page 1 of 2 ---\n1: Nothing here.\n--- page 2 of 2 ---\n2: A parrot speaks.\n"
        "3: It says hello."
    )
    assert opened.origin == "birds.pdf"


async def test_a_part_says_how_it_goes_on(library, run):
    await library.add("a.txt", b"one\ntwo\nthree\nfour\n")
    opened = await run("file_open", file="a.txt", line=2, lines=2)
    assert opened.text == ("2: two\n3: three\n(a.txt has 4 lines; file_open with line=4 goes on)")


async def test_an_unknown_file_lists_the_nearest_names(library, run):
    await library.add("contract-2031.txt", b"text")
    await library.add("zebra.txt", b"text")
    for name, arguments in (
        ("file_open", {"file": "contract.txt"}),
        ("file_search", {"query": "text", "file": "contract.txt"}),
        ("file_grep", {"pattern": "text", "file": "contract.txt"}),
    ):
        output = await run(name, **arguments)
        assert (output.status, "contract-2031.txt" in output.text) == ("error", True)
        assert output.text.startswith("Error: ")


async def test_a_wrong_expression_is_an_error_for_the_model(library, run):
    await library.add("a.txt", b"text")
    output = await run("file_grep", pattern="(a", regex=True)
    assert output.status == "error"
    assert "no regular expression" in output.text


async def test_t_f2_an_expression_without_a_text_is_cut_in_time_with_a_word(
    library, run, monkeypatch
):
    threads = []

    def match(matcher, passages):
        threads.append(threading.current_thread())
        return match_passages(matcher, passages)

    monkeypatch.setattr(file_search, "match_passages", match)
    await library.add("a.txt", b"banana\n")
    arguments = {"pattern": "(a+)+$", "regex": True}
    assert (await run("file_grep", **arguments)).text == "[a.txt, line 1] banana"
    assert threads
    assert threading.main_thread() not in threads
    run.kind._search = FileSearch(library.memory.db, grep_seconds=-1)
    output = await run("file_grep", **arguments)
    assert (output.status, output.text) == ("ok", CUT)
    assert "cut after 2 s" in CUT
    assert file_search.GREP_SECONDS == 2


async def test_regex_without_its_package_names_it(library, run, monkeypatch):
    await library.add("a.txt", b"text")
    monkeypatch.setitem(__import__("sys").modules, "re2", None)
    output = await run("file_grep", pattern="a+", regex=True)
    assert output.text == (
        "Error: regular expressions need google-re2: pip install 'mnemogate[tools]'"
    )


async def test_the_files_of_a_stranger_are_not_found(library, run):
    await library.add("a.txt", b"text")
    for stranger in (
        ToolCaller("beta", "ada", "default", "req_2"),
        ToolCaller("default", "bob", "default", "req_3"),
        ToolCaller("default", None, "default", "req_4"),
    ):
        assert (await run("file_grep", stranger, pattern="text")).text == "Nothing was found."


def test_a_page_and_a_line_at_once_are_refused(library):
    kind = FilesKind("files", library.memory)
    opens = kind.list_tools("default")[2]
    assert "not both" in kind.check_arguments(opens, {"file": "a", "page": 1, "line": 2})


async def test_files_are_those_of_the_memory_that_the_turn_has(library, run):
    """Of an agent's own memory, and in a project of its part, or else of the general memory."""
    memory, caller = library.memory, dataclasses.replace
    await library.add("general.txt", b"The parrot is green")
    apollo = caller(ADA, project="apollo")
    assert (await run("file_open", apollo, file="general.txt")).origin == "general.txt"
    part = memory.scope("default", "ada", memory_name("default", "apollo"))
    await library.add("part.txt", b"The parrot is blue", scope=part)
    assert "blue" in (await run("file_search", apollo, query="parrot")).text
    assert "blue" not in (await run("file_search", query="parrot")).text
    home = home_of("support")
    await library.add(
        "own.txt", b"The parrot is red", scope=memory.scope("default", home, "support")
    )
    agent = caller(ADA, agent="support", owner=home)
    assert "red" in (await run("file_search", agent, query="parrot")).text
    assert "red" not in (await run("file_search", query="parrot")).text
