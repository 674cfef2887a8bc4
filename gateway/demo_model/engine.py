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
    seen = see(body)
    if seen.summarising:
        return {"role": "assistant", "content": _extract(seen.user)}
    if calls := _calls(seen, body):
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [_call(c, i, salt, len(body["messages"])) for i, c in enumerate(calls)],
        }
    return {"role": "assistant", "content": _format(_answer(seen), body.get("response_format"))}


def _call(wanted: Wanted, i: int, salt: str, place: int) -> Json:
    ident = hashlib.sha256(f"{salt}/{place}/{i}/{wanted}".encode(errors="replace")).hexdigest()[:24]
    return {
        "id": f"call_{ident}",
        "type": "function",
        "function": {"name": wanted[0], "arguments": json.dumps(wanted[1], ensure_ascii=False)},
    }


def _extract(text: str) -> str:
    """Return the first words of each line, as a summary."""
    lines = [" ".join(line.split()[:12]) for line in text.split("\n") if line.strip(" -")]
    return "\n".join(lines[:40]) or "Nothing was said."


def _format(text: str, wanted: Any) -> str:
    """Return the text, as JSON if the request demands JSON."""
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind == "json_object":
        return json.dumps({"answer": text}, ensure_ascii=False)
    if kind == "json_schema":
        return json.dumps(
            example_value((wanted.get("json_schema") or {}).get("schema"), text), ensure_ascii=False
        )
    return text


def _calls(seen: RequestView, body: Json) -> list[Wanted]:
    """Return what to call now; nothing once this turn's calls are answered."""
    choice = body.get("tool_choice")
    if not seen.tools or choice == "none":
        return []
    wanted = [*_saves(seen), *_weather(seen), *_file_searches(seen), *_searches(seen)]
    one_by_one = body.get("parallel_tool_calls") is False
    if seen.results:
        wanted = wanted[len(seen.results) :] if one_by_one else []
    elif choice == "required":
        wanted = wanted or [_guess_call(next(iter(seen.tools)), seen)]
    elif isinstance(choice, dict):
        name = str((choice.get("function") or {}).get("name"))
        wanted = [w for w in wanted if w[0] == name] or (
            [_guess_call(name, seen)] if name in seen.tools else []
        )
    return wanted[:1] if one_by_one else wanted


def _guess_call(name: str, seen: RequestView) -> Wanted:
    arguments = example_value({"type": "object", **seen.tools[name]}, seen.user)
    return name, arguments if isinstance(arguments, dict) else {}


def _saves(seen: RequestView) -> list[Wanted]:
    known = [f for line in seen.lines for f in parse_fact_line(line)]
    found = (_save(fact, seen.lines, seen.tools) for fact in facts(seen.user) if fact not in known)
    return [w for w in found if w]


def _save(fact: StatedFact, lines: Sequence[str], tools: Json) -> Wanted | None:
    """Return the call that saves this fact: a correction, if it contradicts another one."""
    old = next(
        (line for line in lines if any(_contradicts(fact, k) for k in parse_fact_line(line))), None
    )
    insert = ("archival_memory_insert", {"content": fact.line})
    if fact.kind == "asked" and insert[0] in tools:
        return insert
    if old and "core_memory_replace" in tools:
        return "core_memory_replace", {
            "label": "human",
            "old_content": old,
            "new_content": fact.line,
        }
    if "core_memory_append" in tools:
        return "core_memory_append", {"label": "human", "content": fact.line}
    return insert if insert[0] in tools else None


def _contradicts(new: StatedFact, old: StatedFact) -> bool:
    if new.kind in SINGLE:
        return old.kind == new.kind and old.what != new.what
    return old.kind == OPPOSITE.get(new.kind) and old.what.lower() == new.what.lower()


def _weather(seen: RequestView) -> list[Wanted]:
    """Return a call of the client's weather tool, for the named place or the user's home."""
    if WEATHER not in seen.tools or not re.search(r"\bweather\b", seen.user, re.IGNORECASE):
        return []
    named = re.search(r"\bweather\b.*?\b(?:in|for|at) ([\w' -]+)", seen.user, re.IGNORECASE)
    home = [f.what for line in seen.lines for f in parse_fact_line(line) if f.kind == "home"]
    place = (
        re.sub(r"\b(?:today|tomorrow|now|right now)$", "", named[1]).strip()
        if named
        else (home or ["here"])[-1]
    )
    arguments = example_value({"type": "object", **seen.tools[WEATHER]}, place)
    return [(WEATHER, arguments if isinstance(arguments, dict) else {})]


def _file_searches(seen: RequestView) -> list[Wanted]:
    topic = find_topic(seen.user)
    return [(FILE_SEARCH, {"query": topic})] if topic and FILE_SEARCH in seen.tools else []


def _searches(seen: RequestView) -> list[Wanted]:
    tool = next((t for t in SEARCHES if t in seen.tools), None)
    unknown = (
        [q for q in _questions_to_answer(seen) if not _answer_from_sources(q, _at_hand(seen))]
        if tool
        else []
    )
    if (
        tool
        and "conversation_search" in seen.tools
        and re.search(r"\b(?:I|we) (?:say|talk|discuss)\w*\b", seen.user, re.IGNORECASE)
    ):
        tool = "conversation_search"
    queries = dict.fromkeys(
        " ".join(q.words) or "name like live work asked remember" for q in unknown
    )
    return [(str(tool), {"query": query}) for query in queries]


def _answer(seen: RequestView) -> str:
    parts = [
        *_acknowledge(seen),
        *_report_results(seen),
        *_report_files(seen),
        *(_answer_question(q, seen) for q in _questions_to_answer(seen)),
    ]
    if parts:
        return " ".join(dict.fromkeys(parts))
    if re.match(r"(?:hi|hello|hey|good (?:morning|evening|day))\b", seen.user, re.IGNORECASE):
        names = [f.what for line in seen.lines for f in parse_fact_line(line) if f.kind == "name"]
        return f"Hello{', ' + names[-1] if names else ''}! {INTRODUCTION}"
    return INTRODUCTION


def _acknowledge(seen: RequestView) -> list[str]:
    """Return the reply to the facts of this turn, depending on how they were saved."""
    told = facts(seen.user)
    if not told:
        return []
    known = [f for line in seen.lines for f in parse_fact_line(line)]
    answered = {
        fact: next(
            (r for r in seen.results if r.name in SAVES and fact.line in r.arguments.values()), None
        )
        for fact in told
    }
    failed = [r for r in answered.values() if r and r.failed]
    saved = [f for f, r in answered.items() if r and not r.failed]
    new = [f for f in told if f not in known]
    out = [f"Nice to meet you, {f.what}." for f in new if f.kind == "name"]
    if noted := [f.spoken if f.kind != "asked" else f.what for f in saved if f.kind != "name"]:
        out.append(f"Noted: {'; '.join(noted)}.")
    out += ["I will remember that."] if saved else []
    out += [f"I could not save that: {r.text.removeprefix('Error:').strip()}" for r in failed]
    if not seen.results:
        out.append(
            "I know that already."
            if not new
            else "I cannot save it, as I have no memory to write to here: I know it only in this "
            "conversation."
        )
    return out


def _report_results(seen: RequestView) -> list[str]:
    """Report the results of tools that are not about memory or files."""
    silent = (*SAVES, *SEARCHES, FILE_SEARCH)
    return [
        f"{r.name} says: {HEAD_LINE.sub('', r.text).strip()}"
        for r in seen.results
        if r.name not in silent
    ]


def _report_files(seen: RequestView) -> list[str]:
    texts = [HEAD_LINE.sub("", r.text) for r in seen.results if r.name == FILE_SEARCH]
    return [answer_from_files(find_topic(seen.user), texts)] if texts else []


def _questions_to_answer(seen: RequestView) -> list[Question]:
    """Return the questions to answer.

    Questions about the user always, others only if a search may help.
    """
    can_look = any(t in seen.tools for t in SEARCHES) or any(
        r.name in SEARCHES for r in seen.results
    )
    weather = any(w[0] == WEATHER for w in _weather(seen)) or any(
        r.name == WEATHER for r in seen.results
    )
    found = [
        q
        for q in questions(seen.user)
        if q.personal or can_look or _answer_from_sources(q, _at_hand(seen))
    ]
    if _file_searches(seen) or any(r.name == FILE_SEARCH for r in seen.results):
        return [q for q in found if q.kind != "topic"]
    return [q for q in found if not (weather and "weather" in q.words)]


def _answer_question(question: Question, seen: RequestView) -> str:
    """Return the answer to one question, from known facts and search results."""
    searched = [r for r in seen.results if r.name in SEARCHES]
    found = [f for r in searched for hit in hits(r.text) for f in _facts_of(hit)]
    if known := _answer_from_sources(question, [*_at_hand(seen), found]):
        return known
    if any(r.failed for r in searched):
        return "I could not search my memory just now."
    if seen.has_memory or seen.results or any(t in seen.tools for t in (*SAVES, *SEARCHES)):
        return "I do not know that. Tell me, and I will remember it."
    return "I do not know that. I have no memory here, only this conversation."


def _facts_of(text: str) -> list[StatedFact]:
    return [f for s in sentences(text) if not is_question(s) for f in parse_fact_line(s)]


def _at_hand(seen: RequestView) -> list[list[StatedFact]]:
    """Return known facts: from memory first, since it may be corrected, then the conversation."""
    said = [
        StatedFact("said", f.what) if f.kind == "other" else f
        for t in (*seen.said, seen.user)
        for f in _facts_of(t)
    ]
    return [[f for line in seen.lines for f in parse_fact_line(line)], said]


def _answer_from_sources(question: Question, sources: Iterable[Sequence[StatedFact]]) -> str:
    """Return the answer from the first source that has one; empty if none has."""
    return next((text for known in sources if (text := _from(question, known))), "")


def _from(question: Question, known: Sequence[StatedFact]) -> str:
    if question.kind == "about":
        return _sentence("I remember: ", [f for f in known if f.kind != "said"])
    same = [f for f in known if f.kind == question.kind]
    if same:
        return _sentence("", same[-1:] if question.kind in SINGLE else same)
    return "" if question.kind == "name" else _sentence("", _closest(question.words, known))


def _closest(words: Sequence[str], known: Sequence[StatedFact]) -> list[StatedFact]:
    """Return the fact that shares most words, at least half; the newest of equals."""
    scored = [(sum(w in _words(f) for w in words), i) for i, f in enumerate(known)]
    best = max(scored, default=(0, 0))
    return [known[best[1]]] if best[0] and best[0] * 2 >= len(words) else []


def _words(fact: StatedFact) -> set[str]:
    return {bare(w) for w in re.findall(r"[\w']+", fact.line.lower())}


def _sentence(opening: str, found: Sequence[StatedFact]) -> str:
    """Return one sentence with these facts; facts of one kind share their verb."""
    if not found:
        return ""
    alike: dict[str, list[str]] = {}
    for fact in dict.fromkeys(found):
        alike.setdefault(fact.kind if fact.kind in OPPOSITE else fact.line, []).append(fact.spoken)
    clauses = [
        texts[0]
        + "".join(
            f" and {t.removeprefix('you do not like ').removeprefix('you like ')}"
            for t in texts[1:]
        )
        for texts in alike.values()
    ]
    text = opening + "; ".join(clauses[:8])
    return text[0].upper() + text[1:].rstrip(".") + "."
