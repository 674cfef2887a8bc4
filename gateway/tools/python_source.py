"""A Python tool, read from its source: it is parsed here, and never run outside a sandbox. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.tools.coercion import coerce_arguments
from gateway.tools.docstrings import read_docstring
from gateway.tools.python_types import ParameterType, UnknownAnnotation, read_annotation

SOURCE_BYTES = 32 << 10
MAX_PARAMETERS = 20
ARGUMENTS = "_mnemogate_arguments"
MODULES = frozenset(
    """
    math json re datetime time random collections itertools functools typing dataclasses decimal
    csv base64 hashlib bisect copy unicodedata tomllib binascii asyncio __future__
    """.split()  # noqa: SIM905
)
# What the interpreter of `monty_sandbox` does not know.
UNKNOWN_NODES: dict[str, str] = {
    "Yield": "`yield`",
    "YieldFrom": "`yield from`",
    "Delete": "`del`",
    "TryStar": "`except*`",
    "AsyncFor": "`async for`",
    "AsyncWith": "`async with`",
    "TypeAlias": "`type`",
}
METHOD_DECORATORS = ("property", "classmethod", "staticmethod", "cached_property")
Function = ast.FunctionDef | ast.AsyncFunctionDef


class SourceRefused(ValueError):
    """A source that is no tool. The text says why; line: where, or 0."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class PythonSource:
    """A tool as its source describes it.

    types: of the parameters, by name. parameters: their JSON Schema.
    """

    name: str
    source: str
    description: str
    parameters: Mapping[str, Any]
    types: Mapping[str, ParameterType]
    is_async: bool

    def write_call(self, arguments: Mapping[str, Any]) -> str:
        """Return the expression that calls the tool with what is bound to `ARGUMENTS`."""
        parts = []
        for name in arguments:
            code = f"{ARGUMENTS}[{name!r}]"
            convert = self.types[name].convert
            parts.append(f"{name}={convert(code) if convert is not None else code}")
        call = f"{self.name}({', '.join(parts)})"
        if self.is_async:
            return f"await {call}"
        return call


def read_source(source: str, sandbox: str = "monty") -> PythonSource:
    """Return the tool that a source defines. Raises SourceRefused."""
    module = _parse(source)
    function = _find_function(module)
    if sandbox == "monty":
        _check_constructs(module)
    types, required, defaults = _read_parameters(function)
    description, texts = read_docstring(ast.get_docstring(function, clean=False) or "")
    properties: dict[str, Any] = {}
    for name, kind in types.items():
        properties[name] = dict(kind.schema)
        if texts.get(name):
            properties[name]["description"] = texts[name]
        if name in defaults:
            properties[name]["default"] = defaults[name]
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    return PythonSource(
        function.name,
        source,
        description,
        parameters,
        types,
        isinstance(function, ast.AsyncFunctionDef),
    )


def _parse(source: str) -> ast.Module:
    size = len(source.encode("utf-8", "replace"))
    if size > SOURCE_BYTES:
        raise SourceRefused(f"the source has {size:,} bytes; at most {SOURCE_BYTES:,} are allowed")
    try:
        return ast.parse(source)
    except SyntaxError as e:
        raise SourceRefused(f"the source is not valid Python: {e.msg}", e.lineno or 0) from None
    except (RecursionError, MemoryError):
        raise SourceRefused("the source is nested too deeply") from None
    except (ValueError, UnicodeEncodeError) as e:
        raise SourceRefused(f"the source is not valid text: {e}") from None


def _find_function(module: ast.Module) -> Function:
    """Return the one public function at the top. Raises SourceRefused."""
    public: Function | None = None
    for node in module.body:
        if isinstance(node, Function) and not node.name.startswith("_"):
            if public is not None:
                raise SourceRefused(
                    f"the source defines two public functions, {public.name} and {node.name}; "
                    "begin the name of one with _",
                    node.lineno,
                )
            public = node
            continue
        for name in _bound_names(node):
            if not name.startswith("_"):
                raise SourceRefused(
                    f"begin the name {name[:60]} with _: only the tool's function is public",
                    node.lineno,
                )
    if public is None:
        raise SourceRefused("the source defines no public function: def name(...)")
    return public


def _bound_names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement at the top binds, but for those of imports."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    queue: list[ast.AST] = [node]
    while queue:
        child = queue.pop()
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child.name
        elif not isinstance(child, ast.Lambda | ast.comprehension):
            queue.extend(ast.iter_child_nodes(child))


def _read_parameters(
    function: Function,
) -> tuple[dict[str, ParameterType], list[str], dict[str, Any]]:
    """Return the types by name, the names without a default, and the defaults."""
    arguments = function.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        raise SourceRefused("a tool has no *, *args and **kwargs", function.lineno)
    if arguments.posonlyargs:
        raise SourceRefused("a tool has no parameters before a /", function.lineno)
    if len(arguments.args) > MAX_PARAMETERS:
        raise SourceRefused(
            f"a tool has at most {MAX_PARAMETERS} parameters, and this has {len(arguments.args)}",
            function.lineno,
        )
    types: dict[str, ParameterType] = {}
    for argument in arguments.args:
        if argument.annotation is None:
            raise SourceRefused(f"the parameter {argument.arg} has no annotation", argument.lineno)
        try:
            types[argument.arg] = read_annotation(argument.annotation)
        except UnknownAnnotation as e:
            raise SourceRefused(f"the annotation of {argument.arg} {e}", argument.lineno) from None
        except RecursionError:
            raise SourceRefused("an annotation is nested too deeply", argument.lineno) from None
    names = list(types)
    first_default = len(names) - len(arguments.defaults)
    defaults = {
        name: _read_default(name, node, types[name])
        for name, node in zip(names[first_default:], arguments.defaults, strict=True)
    }
    return types, names[:first_default], defaults


def _read_default(name: str, node: ast.expr, kind: ParameterType) -> Any:
    """Return a default as JSON has it. Raises SourceRefused."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise SourceRefused(f"the default of {name} is not a literal", node.lineno) from None
    if value is None:
        # `days: int = None` is how many write an optional parameter.
        return None
    if isinstance(value, tuple):
        value = list(value)
    coerced = coerce_arguments({"properties": {name: kind.schema}}, {name: value})
    if isinstance(coerced, str):
        raise SourceRefused(f"the default of {name} does not fit: {coerced}", node.lineno)
    return coerced[name]


def _check_constructs(module: ast.Module) -> None:
    """Refuse what the interpreter does not know. Raises SourceRefused for the first line."""
    refusals: list[tuple[int, str]] = []
    for node in ast.walk(module):
        reason = _find_unknown(node)
        if reason:
            refusals.append((getattr(node, "lineno", 0), reason))
    if refusals:
        line, reason = min(refusals)
        raise SourceRefused(f"the sandbox does not run {reason}", line)


def _find_unknown(node: ast.AST) -> str:
    kind = type(node).__name__
    if kind in UNKNOWN_NODES:
        return UNKNOWN_NODES[kind]
    if isinstance(node, ast.ClassDef):
        return _find_unknown_class(node)
    if isinstance(node, ast.comprehension) and node.is_async:
        return "`async for`"
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
        return next((f"`import {name}`" for name in names if name not in MODULES), "")
    if isinstance(node, ast.ImportFrom):
        if any(alias.name == "*" for alias in node.names):
            return "`import *`"
        if node.level or node.module not in MODULES:
            return f"`from {'.' * node.level}{node.module or ''} import`"
    return ""


def _find_unknown_class(node: ast.ClassDef) -> str:
    if node.bases or node.keywords:
        return f"inheritance and metaclasses (class {node.name[:60]})"
    for member in node.body:
        if not isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for decorator in member.decorator_list:
            name = decorator.attr if isinstance(decorator, ast.Attribute) else ""
            if isinstance(decorator, ast.Name):
                name = decorator.id
            if name in METHOD_DECORATORS or name in ("setter", "deleter"):
                return f"@{name} of a method"
    return ""
