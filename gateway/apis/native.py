"""What formats share whose requests are sent in their own words. Pure.

The memory sees such a request as messages (a transcript); what it wants placed is told by their
indexes. A conversation that is also kept here may have messages before the client's own: those are
not sent, since the client or the provider has them. Where neither keeps the context small itself,
old messages are left out as in a chat completion; the summary of them is in the core text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from gateway.apis.base import FORMAT
from gateway.apis.call_ids import find_taken_ids, ids_in, new_call_id, with_new_ids, with_own_ids
from gateway.apis.result_images import ShownImages
from gateway.apis.round_result import RoundResult
from gateway.wire.chat import Json
from gateway.wire.placement import BY
from memory import Messages
from memory.conversation.history import count_leading_system
from memory.session.composer import Prompt
from memory.session.toolbox import ResultImage, text_of_result


@dataclass(frozen=True, slots=True)
class NativeView:
    """A request's messages, and where the native parts of each stand.

    lead: what stands before these: the body's own instructions, as system messages. before: native
    parts of ours that go first. chained: the client's name for the response it goes on from.
    stored: the response is kept here, and not at the provider. thread: the conversation kept here
    that it is in.
    """

    messages: Sequence[Json]
    spans: Sequence[tuple[int, int]]
    lead: Sequence[Json] = ()
    before: int = 0
    chained: str = ""
    stored: bool = False
    thread: str = ""

    def history(self) -> Messages:
        """Return the messages as the memory takes them, the body's own instructions first."""
        return Messages.of([*self.lead, *self.messages])


@dataclass(frozen=True, slots=True)
class PlacedMessage:
    """One message of the client's as it is sent.

    start, end: where it stands in the client's own. text: what follows it. hidden: the exchange
    that stands for it, which `by` gave; None for none. left_out: it is not sent. stub: what is sent
    in place of a tool's long result, "" for itself.
    """

    message: Json
    start: int
    end: int
    text: str = ""
    hidden: Sequence[Json] | None = None
    by: str = ""
    left_out: bool = False
    stub: str = ""


def place(view: NativeView, prompt: Prompt, name: str) -> Iterator[PlacedMessage]:
    """Yield the client's messages with what is to be placed at them. name: the format's."""
    kept_count = len(prompt.messages) - len(view.messages) - len(view.lead)
    first_placed = 0
    if kept_count:
        first_placed = count_leading_system([*view.lead, *view.messages])
    roles = [m["role"] for m in view.messages]
    newest_user = max((i for i, role in enumerate(roles) if role == "user"), default=-1)
    for index, message in enumerate(view.messages):
        own_index = index + len(view.lead)
        prompt_index = own_index + kept_count if own_index >= first_placed else own_index
        if prompt_index in prompt.drop:
            yield PlacedMessage(message, *view.spans[index], left_out=True)
            continue
        texts = (prompt.notes.get(prompt_index, ""), prompt.recall if index == newest_user else "")
        exchange = prompt.splices.get(prompt_index) or [{}]
        # A conversation may go on in another format: its answers then stand for themselves.
        is_native = exchange[0].get(FORMAT) == name
        yield PlacedMessage(
            message,
            *view.spans[index],
            "\n\n".join(t for t in texts if t),
            exchange[1:] if is_native else None,
            str(exchange[0].get(BY) or ""),
            stub=str(prompt.swap[prompt_index]["content"]) if prompt_index in prompt.swap else "",
        )


@dataclass(slots=True)
class HiddenParts:
    """What formats share of `HiddenRounds`.

    messages: native parts that follow the client's own. last: the answers of the newest round.
    reply: that round. by: who gave it. images: those of results.
    """

    name: str
    messages: list[Json] = field(default_factory=list)
    recorded: list[Json] | None = None
    last: list[Json] = field(default_factory=list)
    reply: Json = field(default_factory=dict)
    by: str = ""
    images: ShownImages = field(default_factory=ShownImages)

    def drop_images(self) -> bool:
        """Put stubs in place of the pictures of results; False where there are none."""
        return self.images.drop(self.messages)

    def show_images(
        self, part: Json, member: str, text: str, write: Callable[[ResultImage], Json]
    ) -> None:
        """Show the pictures of a result that has some.

        member: of the part, with the result. text: the type of a part with text. write: returns
        the part with a picture.
        """
        answer = part[member]
        if not isinstance(answer, str):
            part[member] = [{"type": text, "text": answer.text}, *map(write, answer.images)]
            self.images.add_result(part, member, text_of_result(answer))

    def reassign_ids_of(self, calls: Sequence[Json]) -> None:
        """Give hidden calls new ids where the client's own calls of a reply have theirs."""
        if taken_ids := ids_in(calls) & ids_in(self.messages):
            self.messages = with_new_ids(self.messages, {i: new_call_id() for i in taken_ids})

    def take_own_ids(
        self, parts: Sequence[Json], result: RoundResult, client: Messages
    ) -> tuple[list[Json], list[str]]:
        """Return the parts of a round in which no call of ours has another one's id, and our ids.

        client: the messages whose ids are not used again.
        """
        taken_ids = ids_in(self.messages) | ids_in(result.theirs)
        taken_ids |= find_taken_ids(ids_in(result.ours) - {"None", ""}, client)
        return with_own_ids(parts, result.ours, taken_ids)

    def send_whole(self) -> bool:
        """False: everything is sent in full."""
        return False

    def has_room(self, body: Json) -> bool:
        """True: the limit is each round's."""
        return True

    def record_mixed(self) -> None:
        """Record the rounds so far: the client answers the rest of the calls."""
        self.recorded = [{FORMAT: self.name, BY: self.by}, *self.images.with_stubs(self.messages)]


def flat_tools(offered_tools: Sequence[Json], schema: str) -> list[Json]:
    """Return our tools without their `function`. schema: the member of their parameters."""
    flattened = []
    for tool in offered_tools:
        function = tool["function"]
        flat = {k: function[k] for k in ("name", "description")}
        flattened.append({**flat, schema: function["parameters"]})
    return flattened
