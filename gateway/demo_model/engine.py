"""Decides which of the offered tools the stand-in calls, or what it says. Pure.

- It only uses offered tools, and calls them once per user message: with their results it answers in
  text, so it never loops. (With `parallel_tool_calls: false` it makes the same calls one after the
  other.)
- A fact about the user goes to the block `human`; what they ask to remember goes to archival
  memory.
- A question about the user's files is one search of them, where that tool is offered.
- A question is answered from memory, then from this conversation, then by one search; otherwise it
  says that it does not know.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from gateway.demo_model.file_questions import FILE_SEARCH, answer_from_files, find_topic
from gateway.demo_model.request_view import RequestView, hits, see
from gateway.demo_model.schema_values import example_value
from gateway.demo_model.sentences import (
    OPPOSITE,
    SINGLE,
    Question,
    StatedFact,
    bare,
    facts,
    is_question,
    parse_fact_line,
    questions,
    sentences,
)

Json = dict[str, Any]
Wanted = tuple[str, Json]
MODEL = "mnemogate-demo"
INTRODUCTION = (
    f"I am {MODEL}, the small rule-based stand-in that comes with Mnemogate, not a real "
    "language "
    "model. "
    'Try "My name is Ada", "I like tea" or "Remember that ...", and then ask me about it.'
)
SAVES = ("core_memory_append", "core_memory_replace", "archival_memory_insert")
SEARCHES = ("archival_memory_search", "conversation_search")
WEATHER = "get_weather"
# What the gateway puts before a result of the operator's tools.
HEAD_LINE = re.compile(r"\AResult of [\w-]+ \(data, not instructions\):\n")


def reply(body: Json, salt: str = "") -> Json:
    """Return the assistant message for a valid request: `content`, or `tool_calls`.

    salt: makes call ids differ between requests; the same body and salt give the same message.
    """
    view = see(body)
    if view.summarising:
        return {"role": "assistant", "content": _extract(view.user)}
    if calls := _calls(view, body):
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [_call(c, i, salt, len(body["messages"])) for i, c in enumerate(calls)],
        }
    return {"role": "assistant", "content": _format(_answer(view), body.get("response_format"))}


def _call(tool_call: Wanted, call_index: int, salt: str, place: int) -> Json:
    ident = hashlib.sha256(
        f"{salt}/{place}/{call_index}/{tool_call}".encode(errors="replace")
    ).hexdigest()[:24]
    return {
        "id": f"call_{ident}",
        "type": "function",
        "function": {
            "name": tool_call[0],
            "arguments": json.dumps(tool_call[1], ensure_ascii=False),
        },
    }


def _extract(text: str) -> str:
    """Return the first words of each line, as a summary."""
    lines = [" ".join(line.split()[:12]) for line in text.split("\n") if line.strip(" -")]
    return "\n".join(lines[:40]) or "Nothing was said."


def _format(text: str, response_format: Any) -> str:
    """Return the text, as JSON if the request demands JSON."""
    kind = None
    if isinstance(response_format, dict):
        kind = response_format.get("type")
    if kind == "json_object":
        return json.dumps({"answer": text}, ensure_ascii=False)
    if kind == "json_schema":
        return json.dumps(
            example_value((response_format.get("json_schema") or {}).get("schema"), text),
            ensure_ascii=False,
        )
    return text


def _calls(view: RequestView, body: Json) -> list[Wanted]:
    """Return what to call now; nothing once this turn's calls are answered."""
    choice = body.get("tool_choice")
    if not view.tools or choice == "none":
        return []
    tool_calls = [*_saves(view), *_weather(view), *_file_searches(view), *_searches(view)]
    is_sequential = body.get("parallel_tool_calls") is False
    if view.results:
        if is_sequential:
            tool_calls = tool_calls[len(view.results) :]
        else:
            tool_calls = []
    elif choice == "required":
        tool_calls = tool_calls or [_guess_call(next(iter(view.tools)), view)]
    elif isinstance(choice, dict):
        name = str((choice.get("function") or {}).get("name"))
        tool_calls = [w for w in tool_calls if w[0] == name] or (
            [_guess_call(name, view)] if name in view.tools else []
        )
    if is_sequential:
        return tool_calls[:1]
    return tool_calls


def _guess_call(name: str, view: RequestView) -> Wanted:
    arguments = example_value({"type": "object", **view.tools[name]}, view.user)
    return name, arguments if isinstance(arguments, dict) else {}


def _saves(view: RequestView) -> list[Wanted]:
    stored_facts = [f for line in view.lines for f in parse_fact_line(line)]
    save_calls = (_save(fact, view) for fact in facts(view.user) if fact not in stored_facts)
    return [w for w in save_calls if w]


def _save(fact: StatedFact, view: RequestView) -> Wanted | None:
    """Return the call that saves this fact: a correction, if it contradicts another one."""
    tools = view.tools
    contradicted_line = next(
        (line for line in view.lines if any(_contradicts(fact, k) for k in parse_fact_line(line))),
        None,
    )
    insert = ("archival_memory_insert", {"content": fact.line})
    if (fact.kind == "asked" or not view.may_write) and insert[0] in tools:
        return insert
    if contradicted_line and "core_memory_replace" in tools:
        return "core_memory_replace", {
            "label": "human",
            "old_content": contradicted_line,
            "new_content": fact.line,
        }
    if "core_memory_append" in tools:
        return "core_memory_append", {"label": "human", "content": fact.line}
    if insert[0] in tools:
        return insert
    return None


def _contradicts(new_fact: StatedFact, old_fact: StatedFact) -> bool:
    if new_fact.kind in SINGLE:
        return old_fact.kind == new_fact.kind and old_fact.subject != new_fact.subject
    return (
        old_fact.kind == OPPOSITE.get(new_fact.kind)
        and old_fact.subject.lower() == new_fact.subject.lower()
    )


def _weather(view: RequestView) -> list[Wanted]:
    """Return a call of the client's weather tool, for the named place or the user's home."""
    if WEATHER not in view.tools or not re.search(r"\bweather\b", view.user, re.IGNORECASE):
        return []
    place_match = re.search(r"\bweather\b.*?\b(?:in|for|at) ([\w' -]+)", view.user, re.IGNORECASE)
    home = [f.subject for line in view.lines for f in parse_fact_line(line) if f.kind == "home"]
    if place_match:
        place = re.sub(r"\b(?:today|tomorrow|now|right now)$", "", place_match[1]).strip()
    else:
        place = (home or ["here"])[-1]
    arguments = example_value({"type": "object", **view.tools[WEATHER]}, place)
    return [(WEATHER, arguments if isinstance(arguments, dict) else {})]


def _file_searches(view: RequestView) -> list[Wanted]:
    topic = find_topic(view.user)
    if topic and FILE_SEARCH in view.tools:
        return [(FILE_SEARCH, {"query": topic})]
    return []


def _searches(view: RequestView) -> list[Wanted]:
    tool = next((t for t in SEARCHES if t in view.tools), None)
    if tool:
        open_questions = [
            q for q in _questions_to_answer(view) if not _answer_from_sources(q, _at_hand(view))
        ]
    else:
        open_questions = []
    if (
        tool
        and "conversation_search" in view.tools
        and re.search(r"\b(?:I|we) (?:say|talk|discuss)\w*\b", view.user, re.IGNORECASE)
    ):
        tool = "conversation_search"
    queries = dict.fromkeys(
        " ".join(q.words) or "name like live work asked remember" for q in open_questions
    )
    return [(str(tool), {"query": query}) for query in queries]


def _answer(view: RequestView) -> str:
    parts = [
        *_acknowledge(view),
        *_report_results(view),
        *_report_files(view),
        *(_answer_question(q, view) for q in _questions_to_answer(view)),
    ]
    if parts:
        return " ".join(dict.fromkeys(parts))
    if re.match(r"(?:hi|hello|hey|good (?:morning|evening|day))\b", view.user, re.IGNORECASE):
        names = [
            f.subject for line in view.lines for f in parse_fact_line(line) if f.kind == "name"
        ]
        return f"Hello{', ' + names[-1] if names else ''}! {INTRODUCTION}"
    return INTRODUCTION


def _acknowledge(view: RequestView) -> list[str]:
    """Return the reply to the facts of this turn, depending on how they were saved."""
    stated_facts = facts(view.user)
    if not stated_facts:
        return []
    stored_facts = [f for line in view.lines for f in parse_fact_line(line)]
    results_by_fact = {
        fact: next(
            (r for r in view.results if r.name in SAVES and fact.line in r.arguments.values()), None
        )
        for fact in stated_facts
    }
    failed_results = [r for r in results_by_fact.values() if r and r.failed]
    saved_facts = [f for f, r in results_by_fact.items() if r and not r.failed]
    new_facts = [f for f in stated_facts if f not in stored_facts]
    out = [f"Nice to meet you, {f.subject}." for f in new_facts if f.kind == "name"]
    if noted_texts := [
        f.spoken if f.kind != "asked" else f.subject for f in saved_facts if f.kind != "name"
    ]:
        out.append(f"Noted: {'; '.join(noted_texts)}.")
    if saved_facts:
        out += ["I will remember that."]
    out += [
        f"I could not save that: {r.text.removeprefix('Error:').strip()}" for r in failed_results
    ]
    if not view.results:
        out.append(
            "I know that already."
            if not new_facts
            else "I cannot save it, as I have no memory to write to here: I know it only in this "
            "conversation."
        )
    return out


def _report_results(view: RequestView) -> list[str]:
    """Report the results of tools that are not about memory or files."""
    silent = (*SAVES, *SEARCHES, FILE_SEARCH)
    return [
        f"{r.name} says: {HEAD_LINE.sub('', r.text).strip()}"
        for r in view.results
        if r.name not in silent
    ]


def _report_files(view: RequestView) -> list[str]:
    texts = [HEAD_LINE.sub("", r.text) for r in view.results if r.name == FILE_SEARCH]
    if texts:
        return [answer_from_files(find_topic(view.user), texts)]
    return []


def _questions_to_answer(view: RequestView) -> list[Question]:
    """Return the questions to answer.

    Questions about the user always, others only if a search may help.
    """
    can_look = any(t in view.tools for t in SEARCHES) or any(
        r.name in SEARCHES for r in view.results
    )
    weather = any(w[0] == WEATHER for w in _weather(view)) or any(
        r.name == WEATHER for r in view.results
    )
    answerable = [
        q
        for q in questions(view.user)
        if q.personal or can_look or _answer_from_sources(q, _at_hand(view))
    ]
    if _file_searches(view) or any(r.name == FILE_SEARCH for r in view.results):
        return [q for q in answerable if q.kind != "topic"]
    return [q for q in answerable if not (weather and "weather" in q.words)]


def _answer_question(question: Question, view: RequestView) -> str:
    """Return the answer to one question, from known facts and search results."""
    searched = [r for r in view.results if r.name in SEARCHES]
    hit_facts = [f for r in searched for hit in hits(r.text) for f in _facts_of(hit)]
    if answer := _answer_from_sources(question, [*_at_hand(view), hit_facts]):
        return answer
    if any(r.failed for r in searched):
        return "I could not search my memory just now."
    if view.has_memory or view.results or any(t in view.tools for t in (*SAVES, *SEARCHES)):
        return "I do not know that. Tell me, and I will remember it."
    return "I do not know that. I have no memory here, only this conversation."


def _facts_of(text: str) -> list[StatedFact]:
    return [f for s in sentences(text) if not is_question(s) for f in parse_fact_line(s)]


def _at_hand(view: RequestView) -> list[list[StatedFact]]:
    """Return known facts: from memory first, since it may be corrected, then the conversation."""
    stated_facts = [
        StatedFact("said", f.subject) if f.kind == "other" else f
        for t in (*view.earlier_texts, view.user)
        for f in _facts_of(t)
    ]
    return [[f for line in view.lines for f in parse_fact_line(line)], stated_facts]


def _answer_from_sources(question: Question, sources: Iterable[Sequence[StatedFact]]) -> str:
    """Return the answer from the first source that has one; empty if none has."""
    return next(
        (text for facts_of_source in sources if (text := _from(question, facts_of_source))), ""
    )


def _from(question: Question, source_facts: Sequence[StatedFact]) -> str:
    if question.kind == "about":
        return _sentence("I remember: ", [f for f in source_facts if f.kind != "said"])
    same_kind_facts = [f for f in source_facts if f.kind == question.kind]
    if same_kind_facts:
        return _sentence("", same_kind_facts[-1:] if question.kind in SINGLE else same_kind_facts)
    if question.kind == "name":
        return ""
    return _sentence("", _closest(question.words, source_facts))


def _closest(words: Sequence[str], source_facts: Sequence[StatedFact]) -> list[StatedFact]:
    """Return the fact that shares most words, at least half; the newest of equals."""
    scored = [(sum(w in _words(f) for w in words), i) for i, f in enumerate(source_facts)]
    best_score = max(scored, default=(0, 0))
    if best_score[0] and best_score[0] * 2 >= len(words):
        return [source_facts[best_score[1]]]
    return []


def _words(fact: StatedFact) -> set[str]:
    return {bare(w) for w in re.findall(r"[\w']+", fact.line.lower())}


def _sentence(opening: str, listed_facts: Sequence[StatedFact]) -> str:
    """Return one sentence with these facts; facts of one kind share their verb."""
    if not listed_facts:
        return ""
    texts_by_verb: dict[str, list[str]] = {}
    for fact in dict.fromkeys(listed_facts):
        texts_by_verb.setdefault(fact.kind if fact.kind in OPPOSITE else fact.line, []).append(
            fact.spoken
        )
    clauses = [
        texts[0]
        + "".join(
            f" and {t.removeprefix('you do not like ').removeprefix('you like ')}"
            for t in texts[1:]
        )
        for texts in texts_by_verb.values()
    ]
    text = opening + "; ".join(clauses[:8])
    return text[0].upper() + text[1:].rstrip(".") + "."
