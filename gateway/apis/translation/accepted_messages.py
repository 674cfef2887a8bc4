"""Messages of a chat completion in the form that every server accepts. Pure.

Decisions, where local servers and their templates are stricter than the API:

- There is one system text, at the beginning. A later one keeps its place as user text in `<system>`
  tags.
- Adjacent messages of one role are merged. Content that is only text is one string.
- The model's output between two other messages is one message: its text, then its calls.
- Results are text. Images in them follow all results of the step, as the user's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gateway.apis.translation.member_seal import CallMembers, MemberSeal, SealedMembers
from gateway.wire.chat import Json
from gateway.wire.merge import merge, plain_text

IMAGE_BELOW = "(an image, shown below)"
BETWEEN = "\n\n"
SYSTEM = "system"
USER = "user"
ASSISTANT = "assistant"
TOOL = "tool"
# Of a message that is being built.
CARRIED, CARRIED_CALLS = "carried", "carried_calls"


class _Utterance(NamedTuple):
    """One thing that was said, in the order of the request.

    calls: of the model. call: the id that a result answers. sealed: what a server of chat
    completions said beside it.
    """

    role: str
    parts: Sequence[Json] = ()
    calls: Sequence[Json] = ()
    call: Any = None
    sealed: SealedMembers | None = None


class ChatMessages:
    """Builds messages; `whole` returns them. seal: opens what an answer carried."""

    def __init__(self, seal: MemberSeal | None = None) -> None:
        self._seal = seal
        self._steps: list[_Utterance] = []
        self._messages: list[Json] = []
        # Of results, until the step's last is there.
        self._images: list[Json] = []

    def add_system(self, text: str) -> None:
        if text.strip():
            self._steps.append(_Utterance(SYSTEM, [_text(text)]))

    def add_user(self, parts: Sequence[Json]) -> None:
        self._steps.append(_Utterance(USER, parts))

    def add_said(self, parts: Sequence[Json], calls: Sequence[Json]) -> None:
        """Add what the model said."""
        self._steps.append(_Utterance(ASSISTANT, parts, calls))

    def add_sealed(self, token: Any) -> bool:
        """Add what a server said beside the model's words; False for a token that is not ours."""
        sealed = None
        if self._seal is not None:
            sealed = self._seal.open(token)
        if sealed is None:
            return False
        self._steps.append(_Utterance(ASSISTANT, sealed=sealed))
        return True

    def add_result(self, call: Any, parts: Sequence[Json]) -> None:
        """Add the result of a call. call: its id."""
        self._steps.append(_Utterance(TOOL, parts, call=call))

    def whole(self) -> list[Json]:
        """Return the messages."""
        self._messages = []
        self._images = []
        for step in _results_first(self._steps):
            self._take(step)
        self._show_images()
        return [_finished(m) for m in self._messages if not _is_empty(m)]

    def _take(self, step: _Utterance) -> None:
        if step.role == SYSTEM:
            self._place_system(step.parts)
        elif step.role == USER:
            self._show_images()
            self._add_parts(USER, step.parts)
        elif step.role == ASSISTANT:
            self._place_said(step)
        else:
            self._place_result(step)

    def _place_system(self, parts: Sequence[Json]) -> None:
        if not self._messages or self._last_is(SYSTEM):
            self._add_parts(SYSTEM, parts)
        else:
            text = "".join(p["text"] for p in parts)
            self._show_images()
            self._add_parts(USER, [_text(f"<system>\n{text}\n</system>")])

    def _place_said(self, step: _Utterance) -> None:
        self._show_images()
        if not self._last_is(ASSISTANT):
            message: Json = {"role": ASSISTANT, "content": [], "tool_calls": []}
            # Of an answer that only carried something, nothing is sent.
            message |= {CARRIED: {}, CARRIED_CALLS: [], "said": False}
            self._messages.append(message)
        message = self._messages[-1]
        if step.sealed is None:
            message["said"] = True
            message["content"] += step.parts
            message["tool_calls"] += step.calls
            return
        merge(message[CARRIED], step.sealed.members)
        count = len(message["tool_calls"])
        message[CARRIED_CALLS] += [c.at(count) for c in step.sealed.calls]

    def _place_result(self, step: _Utterance) -> None:
        result_parts = [p if p["type"] == "text" else _text(IMAGE_BELOW) for p in step.parts]
        self._images += [p for p in step.parts if p["type"] != "text"]
        self._messages.append({"role": TOOL, "tool_call_id": step.call, "content": result_parts})

    def _last_is(self, role: str) -> bool:
        return bool(self._messages) and self._messages[-1]["role"] == role

    def _add_parts(self, role: str, parts: Sequence[Json]) -> None:
        if not self._last_is(role):
            self._messages.append({"role": role, "content": []})
        self._messages[-1]["content"] += parts

    def _show_images(self) -> None:
        if self._images:
            images = self._images
            self._images = []
            self._add_parts("user", images)


def _results_first(steps: Sequence[_Utterance]) -> Iterator[_Utterance]:
    """Yield the steps with the results of calls directly behind these.

    Servers take nothing between a call and its result: what was said there follows the results.
    """
    answers = _answers(steps)
    moved_steps: set[int] = set()
    # Results of the calls before.
    waiting_steps: list[int] = []
    for step_index, step in enumerate(steps):
        if step.role != ASSISTANT and waiting_steps:
            yield from (steps[i] for i in sorted(waiting_steps))
            moved_steps.update(waiting_steps)
            waiting_steps = []
        if step_index not in moved_steps:
            yield step
        waiting_steps += answers.get(step_index, ())
    yield from (steps[i] for i in sorted(waiting_steps))


def _answers(steps: Sequence[_Utterance]) -> dict[int, list[int]]:
    """Return where the results of a step's calls stand, by the step.

    Some servers use an id again: a result belongs to the newest call before it.
    """
    newest_step: dict[Any, int] = {}
    results_by_step: dict[int, list[int]] = {}
    for step_index, step in enumerate(steps):
        for call in step.calls:
            newest_step[_key(call["id"])] = step_index
        if (
            step.role == TOOL
            and (asking_step := newest_step.pop(_key(step.call), None)) is not None
        ):
            results_by_step.setdefault(asking_step, []).append(step_index)
    return results_by_step


def _key(ident: Any) -> Any:
    """Return an id as a key; a client may send anything."""
    if isinstance(ident, str):
        return ident
    return repr(ident)


def _is_empty(message: Json) -> bool:
    return message["role"] == ASSISTANT and not message["said"]


def _finished(message: Json) -> Json:
    parts = message["content"]
    texts = [p["text"] for p in parts if p["type"] == "text"]
    content: Any = BETWEEN.join(texts) if len(texts) == len(parts) else parts
    if message["role"] != ASSISTANT:
        return {**message, "content": content}
    calls = _with_members(message["tool_calls"], message[CARRIED_CALLS])
    carried_text = plain_text(message[CARRIED])
    if calls:
        return {**carried_text, "role": ASSISTANT, "content": content or None, "tool_calls": calls}
    return {**carried_text, "role": ASSISTANT, "content": content}


def with_carried(message: Json, sealed: SealedMembers) -> Json:
    """Return a finished message with what its server said beside it."""
    calls = _with_members(message.get("tool_calls") or (), sealed.calls)
    return {**sealed.members, **message, **({"tool_calls": calls} if calls else {})}


def _with_members(
    message_calls: Sequence[Json], carried_calls: Sequence[CallMembers]
) -> list[Json]:
    """Return calls with what the server said beside each."""
    calls = list(message_calls)
    places = {c["id"]: n for n, c in enumerate(calls) if isinstance(c["id"], str)}
    for call_members in carried_calls:
        place = places.get(call_members.ident, call_members.place)
        if 0 <= place < len(calls):
            call = calls[place]
            function = {**call["function"], **call_members.members.get("function", {})}
            calls[place] = {**call, **call_members.members, "function": function}
    return calls


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def call_of(ident: Any, name: str, arguments: str) -> Json:
    """Return a call as chat completions have it."""
    function = {"name": name, "arguments": arguments}
    return {"id": ident, "type": "function", "function": function}
