"""Definitions in source code: functions, methods, classes, types. Needs the extra `files`.

Each grammar is a wheel of its own; none is downloaded when it is used. Without them a file has no
symbols, and is read like any other text.
"""

from __future__ import annotations

import os
import resource
import signal
from importlib import import_module
from typing import Any, NoReturn

import msgspec

# Of a file that is looked at.
SOURCE_CHARACTERS = 2_000_000
# For one file: of some texts the time grows with the square of their length.
CPU_SECONDS = 5
ANSWER_BYTES = 16 << 20
# Of one file.
MAX_SYMBOLS = 20_000
NAME_CHARACTERS = 200
LEFT_OUT = frozenset(("constant", "variable", "field", "module", "macro"))
# By media type: the grammar's module, and the function that returns it.
GRAMMARS: dict[str, tuple[str, str]] = {
    "text/x-python": ("tree_sitter_python", "language"),
    "text/javascript": ("tree_sitter_javascript", "language"),
    "text/x-typescript": ("tree_sitter_typescript", "language_typescript"),
    "text/x-tsx": ("tree_sitter_typescript", "language_tsx"),
    "text/x-go": ("tree_sitter_go", "language"),
    "text/x-rust": ("tree_sitter_rust", "language"),
    "text/x-java": ("tree_sitter_java", "language"),
    "text/x-c": ("tree_sitter_c", "language"),
}
# That of the wheel names neither classes nor functions.
TYPESCRIPT_QUERY = """
(function_declaration name: (identifier) @name) @definition.function
(generator_function_declaration name: (identifier) @name) @definition.function
(function_signature name: (identifier) @name) @definition.function
(class_declaration name: (type_identifier) @name) @definition.class
(abstract_class_declaration name: (type_identifier) @name) @definition.class
(interface_declaration name: (type_identifier) @name) @definition.interface
(type_alias_declaration name: (type_identifier) @name) @definition.type
(enum_declaration name: (identifier) @name) @definition.enum
(method_definition name: (property_identifier) @name) @definition.method
(method_signature name: (property_identifier) @name) @definition.method
(abstract_method_signature name: (property_identifier) @name) @definition.method
(lexical_declaration (variable_declarator name: (identifier) @name
  value: [(arrow_function) (function_expression)])) @definition.function
"""


class SourceSymbol(msgspec.Struct, array_like=True):
    """A definition. kind: function, method, class, type and so on. Lines count from 1."""

    name: str
    kind: str
    line_start: int
    line_end: int


_decode = msgspec.msgpack.Decoder(list[SourceSymbol]).decode


def find_symbols_apart(media_type: str, text: str) -> list[SourceSymbol]:
    """Return what `find_symbols` does, by a fork; none if that takes too long or breaks."""
    if media_type not in GRAMMARS or len(text) > SOURCE_CHARACTERS:
        return []
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _answer_and_exit(writing, media_type, text)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read(ANSWER_BYTES)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        return _decode(data)
    except msgspec.DecodeError:
        return []


def _answer_and_exit(writing: int, media_type: str, text: str) -> NoReturn:
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(msgspec.msgpack.encode(find_symbols(media_type, text)))
    finally:
        os._exit(0)


def find_symbols(media_type: str, text: str) -> list[SourceSymbol]:
    """Return the definitions of a source file, in order; none without its grammar.

    Of hostile text it takes long; see `find_symbols_apart`.
    """
    try:
        tree_sitter = import_module("tree_sitter")
        module_name, function = GRAMMARS[media_type]
        module = import_module(module_name)
    except ImportError:
        return []
    language = tree_sitter.Language(getattr(module, function)())
    is_typescript = module_name == "tree_sitter_typescript"
    query = tree_sitter.Query(language, TYPESCRIPT_QUERY if is_typescript else module.TAGS_QUERY)
    tree = tree_sitter.Parser(language).parse(text.encode("utf-8", "replace"))
    matches = tree_sitter.QueryCursor(query).matches(tree.root_node)
    symbols: dict[tuple[str, int], SourceSymbol] = {}
    for _, captures in matches:
        symbol = _read_match(captures)
        if symbol is None or symbol.kind in LEFT_OUT:
            continue
        place = symbol.name, symbol.line_start
        # A method is told as a function too.
        if place not in symbols or symbols[place].kind == "function":
            symbols[place] = symbol
    ordered_symbols = sorted(symbols.values(), key=lambda s: (s.line_start, -s.line_end, s.name))
    return ordered_symbols[:MAX_SYMBOLS]


def _read_match(captures: dict[str, list[Any]]) -> SourceSymbol | None:
    names = captures.get("name")
    capture = next((key for key in captures if key.startswith("definition.")), "")
    if not names or not capture:
        return None
    node = captures[capture][0]
    name = names[0].text.decode("utf-8", "replace")[:NAME_CHARACTERS]
    kind = capture.removeprefix("definition.")
    return SourceSymbol(name, kind, node.start_point[0] + 1, node.end_point[0] + 1)
