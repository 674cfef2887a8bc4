"""What is brought along goes in parts; one that is refused keeps no other out."""

from __future__ import annotations

import json

import httpx
import pytest

from gateway.cli import import_sender
from gateway.cli.client import GatewayRefused
from gateway.cli.import_sender import ImportSender
from memory.export_format import ConversationLine, MessageLine, PassageLine
from memory.formats.records import Bundle, BundleCount


class Person:
    """A gateway that gives these answers in order: a receipt, or (status, code) of a refusal."""

    def __init__(self, *answers):
        self.answers, self.bodies = list(answers), []

    def call(self, method, path, *, content, **_):
        self.bodies.append([json.loads(line) for line in content.splitlines()])
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, tuple):
            error = {"error": {"message": "no", "code": answer[1]}}
            raise GatewayRefused(httpx.Response(answer[0], json=error))
        return {"imported": {"messages": len(self.bodies[-1])}, "skipped": [], **answer}


def chat(name, messages=1):
    said = {"role": "user", "content": "x"}
    lines = [MessageLine(conversation=name, message=said) for _ in range(messages)]
    return Bundle([ConversationLine(id=name), *lines])


def sent(person, *bundles):
    return ImportSender(person, BundleCount()).send_all(bundles)


def test_a_part_has_so_many_lines_and_a_conversation_is_never_split(monkeypatch):
    monkeypatch.setattr(import_sender, "LINES", 5)
    person = Person()
    sent(person, chat("a"), chat("b"), chat("c"), chat("d", 20), chat("e"))
    assert [len(body) for body in person.bodies] == [4, 2, 21, 2]


def test_a_part_has_so_many_bytes(monkeypatch):
    monkeypatch.setattr(import_sender, "BYTES", 300)
    person = Person()
    sent(person, *(Bundle([PassageLine(content="x" * 100)]) for _ in range(4)))
    assert [len(body) for body in person.bodies] == [2, 2]


def test_nothing_is_sent_of_nothing():
    person = Person()
    assert sent(person).summary() == "Nothing was new."
    assert person.bodies == []


@pytest.mark.parametrize("status", [400, 413])
def test_a_refused_part_is_sent_again_bundle_by_bundle(status):
    person = Person((status, "bad_line"), {}, (status, "bad_line"))
    outcome = sent(person, chat("a"), chat("b"), chat("c"))
    assert [len(body) for body in person.bodies] == [6, 2, 2, 2]
    assert [(b.place, b.reason) for b in outcome.broken_records] == [("conversation b", "no")]
    alone = sent(Person((status, "bad_line")), chat("a"))
    assert [b.place for b in alone.broken_records] == ["conversation a"]


def test_another_refusal_ends_the_import():
    for answers in ([(403, "policy")], [(400, "bad_line"), (403, "policy")]):
        with pytest.raises(GatewayRefused, match="no"):
            sent(Person(*answers), chat("a"), chat("b"))


def test_an_import_of_somebody_else_is_waited_for(monkeypatch):
    waits = []
    monkeypatch.setattr(import_sender.time, "sleep", waits.append)
    outcome = sent(Person((409, "import_running"), (409, "import_running")), chat("a"))
    assert (outcome.imported, len(waits)) == ({"messages": 2}, 2)
    with pytest.raises(GatewayRefused):
        sent(Person(*[(409, "import_running")] * 100), chat("a"))


def test_what_was_there_and_what_was_skipped_is_told():
    there = {"line": 1, "object": "conversation", "id": "a", "reason": "already there"}
    locked = {"line": 2, "object": "block", "id": "rules", "reason": "read_only"}
    outcome = sent(Person({"skipped": [there, locked]}), chat("a"))
    assert outcome.summary() == (
        "New: 2 messages. Conversations that were there already: 1.\n"
        "Not changed: block rules (read_only)."
    )
    assert outcome.report()["skipped"] == [{k: v for k, v in locked.items() if k != "line"}]


def test_progress_goes_to_standard_error_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(import_sender, "LINES", 5)
    monkeypatch.setattr(import_sender, "TICK", 6)
    sent(Person(), *(chat(str(i), 3) for i in range(4)))
    assert capsys.readouterr().err.splitlines() == ["6 of 0", "12 of 0"]
