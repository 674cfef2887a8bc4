"""The one rule by which the deltas of streamed tool calls are told apart. Pure.

Servers number calls by `index`, but some leave it out or number every call 0, and some give each
delta another `id`, a blank one or none. So:

- A delta without a name goes on with the newest call of its index, whatever its id. Only the id of
  another call that is still open leads there instead.
- A name begins another call where that of its index is complete, or has another name already.
- What follows complete arguments may be a call whose name comes late, or whose arguments do where
  only the name came again. If neither comes, it is the tail of the call before it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.wire.arguments import ArgumentsProgress
from gateway.wire.lone_surrogates import encode_json

Json = dict[str, Any]
# Of an index that came as a text.
INDEX_DIGITS = 9
# Characters up to which a name grows; what is longer is no name.
NAME = 1024


class CallPiece(msgspec.Struct, frozen=True):
    """What one delta tells of a call. text: of its arguments, None where it has no such member."""

    index: int | None
    ident: str
    name: str
    text: str | None
    is_custom: bool


class StreamedCall:
    """One call. place: among all. tail_of: the call that it continues until it is certain."""

    __slots__ = ("arguments", "ident", "index", "is_custom", "name", "place", "tail_of")

    def __init__(self, place: int, index: int | None, tail_of: StreamedCall | None) -> None:
        self.place = place
        self.index = index
        self.tail_of = tail_of
        self.ident = self.name = ""
        self.is_custom = False
        self.arguments = ArgumentsProgress()

    @property
    def root(self) -> StreamedCall:
        """The call that this one belongs to: itself, once it is named."""
        call = self
        while call.tail_of is not None:
            call = call.tail_of
        return call

    def add(self, call_piece: CallPiece) -> None:
        """Take what a delta tells."""
        if call_piece.name and len(self.name) <= NAME:
            self.name = grown_name(self.name, call_piece.name)
        self.ident = self.ident or call_piece.ident
        self.is_custom = self.is_custom or call_piece.is_custom
        if call_piece.text:
            self.arguments.add(call_piece.text)
        if self.tail_of is not None and self.name:
            same_name = self.name == self.tail_of.name and not call_piece.ident
            if self.arguments.has_text or not same_name:
                self.tail_of = None


class StreamedCalls:
    """The calls of one answer, or of one choice of it, in the order in which they begin."""

    __slots__ = ("_idents", "_newest_calls", "calls")

    def __init__(self) -> None:
        self.calls: list[StreamedCall] = []
        # By index.
        self._newest_calls: dict[int, StreamedCall] = {}
        self._idents: dict[str, StreamedCall] = {}

    def route(self, delta: Json) -> StreamedCall:
        """Return the call that a delta belongs to, which may be a new one."""
        if (plain_call := self._route_plain(delta)) is not None:
            return plain_call
        call_piece = read_piece(delta)
        newest_call = self._newest_of(call_piece.index)
        if call_piece.name:
            call = self._find_named(newest_call, call_piece)
        else:
            call = self._find_nameless(newest_call, call_piece)
        if call is None:
            call = self._begin(call_piece, newest_call)
        call.add(call_piece)
        if call_piece.ident:
            self._idents.setdefault(call_piece.ident, call)
        return call

    def _route_plain(self, delta: Json) -> StreamedCall | None:
        """Route one more piece of arguments that tells nothing new, as most deltas are."""
        index = delta.get("index")
        function = delta.get("function")
        if type(index) is not int or type(function) is not dict:
            return None
        call = self._newest_calls.get(index)
        text = function.get("arguments")
        if call is None or type(text) is not str or not text or text[0] in "{ \n\r\t":
            return None
        ident = delta.get("id")
        name = function.get("name")
        if (ident and ident != call.ident) or (name and name != call.name):
            return None
        if call.is_custom or call.tail_of is not None or (name and call.arguments.is_complete):
            return None
        call.arguments.add(text)
        return call

    def copy(self) -> StreamedCalls:
        """Return one that grows by itself from here on."""
        out = StreamedCalls()
        for call in self.calls:
            tail_of = None
            if call.tail_of is not None:
                tail_of = out.calls[call.tail_of.place]
            twin = StreamedCall(call.place, call.index, tail_of)
            twin.ident = call.ident
            twin.name = call.name
            twin.is_custom = call.is_custom
            twin.arguments = call.arguments.copy()
            out.calls.append(twin)
        out._newest_calls = {index: out.calls[c.place] for index, c in self._newest_calls.items()}
        out._idents = {ident: out.calls[c.place] for ident, c in self._idents.items()}
        return out

    def _newest_of(self, index: int | None) -> StreamedCall | None:
        if index is not None:
            return self._newest_calls.get(index)
        if self.calls:
            return self.calls[-1]
        return None

    def _find_named(
        self, newest_call: StreamedCall | None, call_piece: CallPiece
    ) -> StreamedCall | None:
        """Return the call that a delta with a name goes on with; None where it begins another."""
        if newest_call is not None and self._takes_name(newest_call, call_piece):
            return newest_call
        return None

    @staticmethod
    def _takes_name(call: StreamedCall, call_piece: CallPiece) -> bool:
        same_id = not call_piece.ident or not call.ident or call_piece.ident == call.ident
        text = bool(call_piece.text and not call_piece.text.isspace())
        if not call.name:
            is_blank_tail = call.tail_of is not None and not call.arguments.has_text
            return (same_id or not is_blank_tail) and not (text and call.arguments.is_complete)
        if call.tail_of is not None:
            return call_piece.name == call.name
        if call.arguments.is_complete:
            return bool(call_piece.ident) and same_id and call_piece.name == call.name and not text
        if call_piece.name == call.name:
            return same_id or not call.is_custom
        return same_id and not call.arguments.has_text

    def _find_nameless(
        self, newest_call: StreamedCall | None, call_piece: CallPiece
    ) -> StreamedCall | None:
        """Return the call that a delta without a name goes on with; None where it begins one."""
        if call_piece.ident and (addressed := self._idents.get(call_piece.ident)) is not None:
            same_index = call_piece.index is None or call_piece.index == addressed.index
            if same_index and addressed is not newest_call and not addressed.arguments.is_complete:
                return addressed
        if newest_call is None or _may_be_another(newest_call, call_piece):
            return None
        return newest_call

    def _begin(self, call_piece: CallPiece, newest_call: StreamedCall | None) -> StreamedCall:
        index = call_piece.index
        if index is None and newest_call is not None and not call_piece.name:
            index = newest_call.index
        call = StreamedCall(len(self.calls), index, newest_call)
        self.calls.append(call)
        self._newest_calls[call.place if index is None else index] = call
        return call


def _may_be_another(newest_call: StreamedCall, call_piece: CallPiece) -> bool:
    """Tell whether a delta without a name may begin a call whose name comes late."""
    if call_piece.text is None:
        begins = bool(call_piece.ident) and call_piece.ident != newest_call.ident
    else:
        begins = call_piece.text.lstrip().startswith("{")
    return begins and not newest_call.is_custom and newest_call.arguments.is_complete


def read_piece(delta: Json) -> CallPiece:
    """Read what a delta tells of a call."""
    index = delta.get("index")
    ident = delta.get("id")
    function = delta.get("function")
    is_custom = False
    if not isinstance(function, dict) and isinstance(delta.get("custom"), dict):
        function = delta["custom"]
        is_custom = True
    if not isinstance(function, dict):
        function = {}
    name = function.get("name")
    return CallPiece(
        index if type(index) is int else read_index(index),
        read_ident(ident),
        name if isinstance(name, str) else "",
        _read_text(function.get("input" if is_custom else "arguments")),
        is_custom,
    )


def read_index(value: Any) -> int | None:
    """Return an index as a number: some servers send it as a fraction or as a text."""
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is str and len(value) <= INDEX_DIGITS and value.isdecimal():
        return int(value)
    if type(value) is int:
        return value
    return None


def read_ident(value: Any) -> str:
    """Return an id as text: some servers send numbers; a blank one is none."""
    if type(value) is int:
        return str(value)
    if isinstance(value, str) and value.strip():
        return value
    return ""


def _read_text(arguments: Any) -> str | None:
    """Return a piece of arguments as text: some servers send them as an object."""
    if isinstance(arguments, dict):
        return encode_json(arguments).decode()
    if isinstance(arguments, str):
        return arguments
    return None


def grown_name(have: str, fragment: str) -> str:
    """Return a name that came in fragments, or whole on every delta."""
    if fragment.startswith(have):
        return fragment
    return have + fragment
