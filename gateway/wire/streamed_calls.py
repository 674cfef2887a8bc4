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
INDEX_DIGITS = 9  # of an index that came as a text
NAME = 1024  # characters up to which a name grows; what is longer is no name


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

    def add(self, piece: CallPiece) -> None:
        """Take what a delta tells."""
        if piece.name and len(self.name) <= NAME:
            self.name = grown_name(self.name, piece.name)
        self.ident = self.ident or piece.ident
        self.is_custom = self.is_custom or piece.is_custom
        if piece.text:
            self.arguments.add(piece.text)
        if self.tail_of is not None and self.name:
            repeated = self.name == self.tail_of.name and not piece.ident
            if self.arguments.has_text or not repeated:
                self.tail_of = None


class StreamedCalls:
    """The calls of one answer, or of one choice of it, in the order in which they begin."""

    __slots__ = ("_idents", "_newest", "calls")

    def __init__(self) -> None:
        self.calls: list[StreamedCall] = []
        self._newest: dict[int, StreamedCall] = {}  # by index
        self._idents: dict[str, StreamedCall] = {}

    def route(self, delta: Json) -> StreamedCall:
        """Return the call that a delta belongs to, which may be a new one."""
        if (plain := self._route_plain(delta)) is not None:
            return plain
        piece = read_piece(delta)
        newest = self._newest_of(piece.index)
        call = self._find_named(newest, piece) if piece.name else self._find_nameless(newest, piece)
        if call is None:
            call = self._begin(piece, newest)
        call.add(piece)
        if piece.ident:
            self._idents.setdefault(piece.ident, call)
        return call

    def _route_plain(self, delta: Json) -> StreamedCall | None:
        """Route one more piece of arguments that tells nothing new, as most deltas are."""
        index, function = delta.get("index"), delta.get("function")
        if type(index) is not int or type(function) is not dict:
            return None
        call, text = self._newest.get(index), function.get("arguments")
        if call is None or type(text) is not str or not text or text[0] in "{ \n\r\t":
            return None
        ident, name = delta.get("id"), function.get("name")
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
            tail_of = None if call.tail_of is None else out.calls[call.tail_of.place]
            twin = StreamedCall(call.place, call.index, tail_of)
            twin.ident, twin.name, twin.is_custom = call.ident, call.name, call.is_custom
            twin.arguments = call.arguments.copy()
            out.calls.append(twin)
        out._newest = {index: out.calls[c.place] for index, c in self._newest.items()}
        out._idents = {ident: out.calls[c.place] for ident, c in self._idents.items()}
        return out

    def _newest_of(self, index: int | None) -> StreamedCall | None:
        if index is not None:
            return self._newest.get(index)
        return self.calls[-1] if self.calls else None

    def _find_named(self, newest: StreamedCall | None, piece: CallPiece) -> StreamedCall | None:
        """Return the call that a delta with a name goes on with; None where it begins another."""
        return newest if newest is not None and self._takes_name(newest, piece) else None

    @staticmethod
    def _takes_name(call: StreamedCall, piece: CallPiece) -> bool:
        same_id = not piece.ident or not call.ident or piece.ident == call.ident
        text = bool(piece.text and not piece.text.isspace())
        if not call.name:
            is_blank_tail = call.tail_of is not None and not call.arguments.has_text
            return (same_id or not is_blank_tail) and not (text and call.arguments.is_complete)
        if call.tail_of is not None:
            return piece.name == call.name
        if call.arguments.is_complete:
            return bool(piece.ident) and same_id and piece.name == call.name and not text
        if piece.name == call.name:
            return same_id or not call.is_custom
        return same_id and not call.arguments.has_text

    def _find_nameless(self, newest: StreamedCall | None, piece: CallPiece) -> StreamedCall | None:
        """Return the call that a delta without a name goes on with; None where it begins one."""
        if piece.ident and (addressed := self._idents.get(piece.ident)) is not None:
            same_index = piece.index is None or piece.index == addressed.index
            if same_index and addressed is not newest and not addressed.arguments.is_complete:
                return addressed
        return None if newest is None or _may_be_another(newest, piece) else newest

    def _begin(self, piece: CallPiece, newest: StreamedCall | None) -> StreamedCall:
        index = piece.index
        if index is None and newest is not None and not piece.name:
            index = newest.index
        call = StreamedCall(len(self.calls), index, newest)
        self.calls.append(call)
        self._newest[call.place if index is None else index] = call
        return call


def _may_be_another(newest: StreamedCall, piece: CallPiece) -> bool:
    """Tell whether a delta without a name may begin a call whose name comes late."""
    if piece.text is None:
        begins = bool(piece.ident) and piece.ident != newest.ident
    else:
        begins = piece.text.lstrip().startswith("{")
    return begins and not newest.is_custom and newest.arguments.is_complete


def read_piece(delta: Json) -> CallPiece:
    """Read what a delta tells of a call."""
    index, ident = delta.get("index"), delta.get("id")
    function, is_custom = delta.get("function"), False
    if not isinstance(function, dict) and isinstance(delta.get("custom"), dict):
        function, is_custom = delta["custom"], True
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
    return value if type(value) is int else None


def read_ident(value: Any) -> str:
    """Return an id as text: some servers send numbers; a blank one is none."""
    if type(value) is int:
        return str(value)
    return value if isinstance(value, str) and value.strip() else ""


def _read_text(arguments: Any) -> str | None:
    """Return a piece of arguments as text: some servers send them as an object."""
    if isinstance(arguments, dict):
        return encode_json(arguments).decode()
    return arguments if isinstance(arguments, str) else None


def grown_name(have: str, more: str) -> str:
    """Return a name that came in fragments, or whole on every delta."""
    return more if more.startswith(have) else have + more
