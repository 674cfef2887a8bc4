"""The messages of a turn that its client does not see: our calls, and what they gave. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gateway.apis.call_ids import calls_in, find_taken_ids, new_call_id
from gateway.apis.result_images import ShownImages, image_message
from gateway.apis.round_result import RoundResult
from gateway.wire.chat import Json, encode
from gateway.wire.placement import BY
from memory import Messages, ToolCall, kept_arguments
from memory.session.toolbox import Result, ResultImage, text_of_result


class HiddenExchange:
    """The hidden messages of one turn.

    messages: they follow the client's own. recorded: what stands for the answer in the next turn.
    """

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self.recorded: list[Json] | None = None
        self._images = ShownImages()

    def send_whole(self) -> bool:
        """False: everything is sent in full."""
        return False

    def reassign_ids_of(self, calls: Iterable[Json]) -> None:
        """Give hidden calls new ids where the client's own calls of a reply have theirs."""
        taken_ids = {c["id"] for c in calls if isinstance(c.get("id"), str)}
        self.messages = _reassign_ids(self.messages, taken_ids)

    def record_with(self, last_messages: Sequence[Json] = ()) -> None:
        """Keep the hidden messages, and `last_messages` after them, for the next turn."""
        self.recorded = [*self._images.with_stubs(self.messages), *last_messages]

    def drop_images(self) -> bool:
        """Put stubs in place of the pictures of results; False where there are none."""
        return self._images.drop(self.messages)

    def add_round(
        self, result: RoundResult, answers: Sequence[Result], client: Messages, target: str
    ) -> None:
        """Add a round and our answers to its calls. target: the target that gave it, "" unknown."""
        self.append(_message(result, target), result, answers, client)

    def add_reminder(self, result: RoundResult, text: str, by: str) -> None:
        """Add a round that ended too early, and what the model is told behind it."""
        message = _message(result, by)
        if message.get("content"):
            self.messages += [message]
        self.messages.append({"role": "user", "content": text})

    def has_room(self, body: Json) -> bool:
        """True: the limit is each round's."""
        return True

    def record_mixed(self) -> None:
        """Record the rounds so far: the client answers the rest of the calls."""
        self.record_with()

    def record_last(self, result: RoundResult, target: str) -> None:
        """Record the last round, in which nothing of ours was run, after those before it.

        Without calls of the client in it the answer stands for itself.
        """
        if self.messages and result.theirs:
            last_message = _message(result, target)
            # Ours were not run: no result, no call.
            self.record_with(
                [{**last_message, "tool_calls": result.theirs} if result.ours else last_message]
            )

    def append(
        self, message: Json, result: RoundResult, answers: Sequence[Result], client: Messages
    ) -> None:
        """Add a round: the assistant's message as received, then our answers to its calls.

        client: the messages whose ids are not used again.
        """
        own_call_ids = {id(c) for c in result.ours}
        taken_ids = {str(c.get("id")) for c in [*calls_in(self.messages), *result.theirs]}
        taken_ids |= find_taken_ids({str(c["id"]) for c in result.ours if c.get("id")}, client)
        calls: list[Json] = []
        result_messages: list[Json] = []
        next_answer = iter(answers)
        for call in message.get("tool_calls") or []:
            if id(call) in own_call_ids:
                if not call.get("id") or str(call["id"]) in taken_ids:
                    call = {**call, "id": new_call_id()}
                taken_ids.add(str(call["id"]))
                content = next(next_answer)
                result_messages.append(
                    {"role": "tool", "tool_call_id": call["id"], "content": content}
                )
            calls.append(call)
        self.messages += [{**message, "tool_calls": calls}, *result_messages]
        self._show_images(result_messages)

    def _show_images(self, result_messages: Sequence[Json]) -> None:
        """Show the pictures of results in one user message behind them."""
        images: list[ResultImage] = []
        for part in result_messages:
            answer = part["content"]
            if not isinstance(answer, str):
                part["content"] = answer.text
                images += answer.images
                self._images.add_result(part, "content", text_of_result(answer))
        if images:
            self.messages.append(image_message(images))
            self._images.add_carrier(self.messages[-1])


def _message(result: RoundResult, target: str) -> Json:
    """Return a round's message as received, with who gave it.

    A replayed one, of whom that is not known, is sent as it is.
    """
    message: Json = result.reply["choices"][0].get("message") or {}
    return {"role": "assistant", **message, **({BY: target} if target else {})}


def tool_calls(result: RoundResult) -> list[ToolCall]:
    """Return the calls of ours in a round, as the memory takes them."""
    return [_tool_call(c) for c in result.ours]


def _tool_call(call: Json) -> ToolCall:
    """Return a call of ours as the memory takes it; arguments that are too long are cut in it."""
    arguments = _arguments(call)
    short_arguments = kept_arguments(arguments)
    if short_arguments is not arguments:
        call["function"]["arguments"] = short_arguments
    return ToolCall(
        str(call.get("id") or ""), str(call["function"]["name"]), short_arguments, len(arguments)
    )


def _reassign_ids(hidden_messages: list[Json], taken_ids: set[str]) -> list[Json]:
    """Return hidden messages with new ids for those calls of ours whose id is taken."""
    new_ids = {i: new_call_id() for i in taken_ids}
    messages: list[Json] = []
    for message in hidden_messages:
        if (answered_id := str(message.get("tool_call_id"))) in new_ids:
            message = {**message, "tool_call_id": new_ids[answered_id]}
        elif calls := message.get("tool_calls"):
            message = {
                **message,
                "tool_calls": [
                    {**c, "id": new_ids[i]} if (i := str(c.get("id"))) in new_ids else c
                    for c in calls
                ],
            }
        messages.append(message)
    return messages


def _arguments(call: Json) -> str:
    arguments = call["function"].get("arguments")
    if isinstance(arguments, str):
        return arguments
    return encode(arguments or {}).decode()
