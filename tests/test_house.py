"""What keeps the code readable: sizes that a reader feels, and names that cannot slip back."""

from __future__ import annotations

import ast
import io
import itertools
import re
import textwrap
import tokenize
from collections import defaultdict

from gateway import errors
from tests.test_architecture import FILES, TREES, functions, ours

MAX_FUNCTION_LINES = 40
MAX_ATTRIBUTES = 15
MAX_IMPORTS = 15
# A function does something, so its name is a verb. These participles once stood for dozens.
PARTICIPLES = frozenset(
    """
    told found kept said made begun drawn opened closed placed joined named asked shown read_
    written taken given held settled judged tried counted noted seen known fed left sent listed
    wanted weighed hashed renamed moved guessed checked added passed played framed composed
    forwarded replayed answered dispatched granted refused overflowed quoted squeezed linked
    overlaid appended replaced compiled patched removed offered installed packed unpacked paged
    emptied outdated buried returned postponed marked narrowed paired ranked grouped scoped
    standing summarised prepended explained recalled measured drained dialled shaped shielded
    lowered mended growing combined parsed filled bound hosted connected administered lacking
    unkeyed running versioned guarded followed rewired
    """.split()  # noqa: SIM905
)
# Properties that are states, of which the participle is the noun.
STATES = {("memory.stores.sql.index.vectors", "refused")}
# A constant's name says what it bounds, and in what unit.
VAGUE = frozenset(
    """
    MOST LEAST FEW MANY SMALL LARGE LONG SHORT LONGEST SHORTEST LARGEST NEAR SAME SURE ALIKE
    LATELY SLOW SHARE REST MORE ENOUGH PIECE SHOWN LOOKED_AT POURED TOUCHED WAITED BUSY NOW
    """.split()  # noqa: SIM905
)


def classes():
    for name, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                yield name, node


def fields(node: ast.ClassDef) -> set[str]:
    """The attributes that a class has once it is made."""
    out = {x.target.id for x in node.body if isinstance(x, ast.AnnAssign)}
    for method in node.body:
        if getattr(method, "name", "") in ("__init__", "__post_init__"):
            out |= set(stored(method))
    return out


def stored(method: ast.AST):
    for x in ast.walk(method):
        if isinstance(x, ast.Attribute) and isinstance(x.ctx, ast.Store) and is_self(x.value):
            yield x.attr


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def test_no_class_name_stands_for_two_things():
    where = defaultdict(set)
    for name, node in classes():
        where[node.name].add(name)
    assert {n: m for n, m in where.items() if len(m) > 1} == {}


def test_no_function_is_named_by_a_participle():
    found = [(n, f.name) for n, f in functions() if f.name.strip("_") in PARTICIPLES]
    assert [x for x in found if x not in STATES] == []


def test_no_constant_is_a_bare_superlative():
    found = []
    for name, tree in TREES.items():
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            names = [x.id for t in targets for x in ast.walk(t) if isinstance(x, ast.Name)]
            found += [(name, x) for x in names if x.strip("_") in VAGUE]
    assert found == []


def test_functions_fit_a_screen():
    long = [(n, f.name, f.end_lineno - f.lineno + 1) for n, f in functions()]
    assert [x for x in long if x[2] > MAX_FUNCTION_LINES] == []


def test_no_parameter_is_a_bare_tuple_of_three():
    found = []
    for name, f in functions():
        for a in [*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs]:
            text = ast.unparse(a.annotation) if a.annotation else ""
            if re.match(r"tuple\[[^\[\]]*,[^\[\]]*,(?! \.\.\.)", text):
                found.append((name, f.name, a.arg))
    assert found == []


# What has more than the others, and why that reads well all the same.
WIDE = {
    "AgentSettings": "a setting each",
    "ProviderSettings": "a setting each",
    "Dispatcher": "one request on its way: who, where to, by when, what became of it",
    "GatewayState": "what the application is wired of",
    "Key": "members of the API",
    "Interceptor": "one stream's state, each part used by one step",
    "Memory": "the parts of a memory, and how its store fares",
    "MemorySettings": "a setting each",
    "Passage": "members of the API",
    "Prompt": "what one request sends, and what the next may go on from",
    "PendingTurn": "rows",
    "ServerSettings": "a setting each",
    "Settings": "the tables of the configuration",
    "Snapshot": "what one read finds",
    "ToolCallRecord": "members of the API",
    "TurnInput": "everything that a client can say, read once",
    "TurnNode": "a row",
    "TurnRecord": "a row",
    "TurnRequest": "what a request says, and what its model can take",
    "UsageGroup": "members of the API",
    "UsageRecord": "a row",
    "UsageRequest": "members of the API",
}
REACHING = {
    "gateway.app": "the wiring",
    "gateway.cli.main": "lists every command",
    "gateway.config.settings": "the tables of the configuration",
    "memory.jobs.maintenance": "lists everything that expires",
    "gateway.management.router": "lists every route of the API",
    "gateway.state": "everything a request needs",
    "gateway.ui.router": "assembles the dashboard",
    "gateway.chat.turn.endpoint": "takes a request to all that may answer it",
    "gateway.chat.stored.stored_endpoint": "every verb on a stored response, kept here or there",
    "gateway.apis.responses.responses_format": "all that is particular to this format",
    "gateway.server.middleware": "what each request passes, to whatever answers it",
    "gateway.letta.file_import": "a file holds all that an agent has",
    "gateway.letta.door": "lists every route of the door",
    "gateway.letta.messages": "takes a message through a whole turn",
    "gateway.relay.endpoint": "takes a request to what may relay it",
    "gateway.relay.passthrough": "both directions of a request without memory",
    "gateway.chat.intake.request": "everything that a client can say, read once",
    "memory.management": "names every part of the management",
    "memory.management.merging": "a merge moves memory of every kind",
    "memory.service": "opens all parts of a memory",
    "memory.session.context": "what the parts of a turn share",
    "memory.session.session": "every step of a turn",
    "memory.session.request": "how all parts of a memory behave",
    "memory.jobs.reflection": "reads, edits and proposes all that a memory holds",
    "gateway.chat.intake.operator_tools": "everybody who may grant a tool",
    "memory.session.composer": "joins all that a prompt is made of",
    "memory.session.recorder": "writes what every part of a turn leaves",
    "memory.stores.sql.turns.turn_writer": "a turn leaves rows of every kind",
    "memory.stores.sql.transfer.importer": "an import has lines of every kind",
}


def test_a_class_has_few_attributes():
    wide = {node.name for _, node in classes() if len(fields(node)) > MAX_ATTRIBUTES}
    assert wide == WIDE.keys()


def test_a_module_reaches_for_few_others():
    assert {n for n in FILES if len(ours(n)) > MAX_IMPORTS} == REACHING.keys()


def broad_excepts():
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler):
                caught = "BaseException" if node.type is None else ast.unparse(node.type)
                if caught in ("Exception", "BaseException"):
                    yield name, node


def has_comment(name: str, node: ast.ExceptHandler) -> bool:
    lines = FILES[name].read_text(encoding="utf-8").splitlines()
    text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
    tokens = tokenize.generate_tokens(io.StringIO(textwrap.dedent(text) + "\n").readline)
    return any(t.type == tokenize.COMMENT and "noqa" not in t.string for t in tokens)


def test_a_broad_except_raises_again_or_says_why_it_ends_there():
    silent = [
        (name, node.lineno)
        for name, node in broad_excepts()
        if not isinstance(node.body[-1], ast.Raise) and not has_comment(name, node)
    ]
    assert silent == []


SIMPLE = (ast.Assign, ast.AnnAssign)


def torn_constants(name: str) -> list[int]:
    """Return the lines of constants that two blank lines part from the constant before."""
    lines = FILES[name].read_text(encoding="utf-8").splitlines()
    body = TREES[name].body
    return [
        after.lineno
        for before, after in itertools.pairwise(body)
        if isinstance(before, SIMPLE) and isinstance(after, SIMPLE)
        if not any(lines[before.end_lineno : before.end_lineno + 2])
    ]


def test_constants_stand_together():
    assert [name for name in FILES if torn_constants(name)] == []


# Modules at the ceiling of lines, whose comments find no place above: each to be relieved.
FULL = {
    "gateway.apis.chat.interceptor",
    "gateway.config.settings",
    "gateway.management.context",
    "gateway.storage.responses",
    "gateway.wire.chat",
    "memory.service",
    "memory.stores.sql.engine.database",
    "memory.stores.sql.engine.postgres.postgres",
    "memory.stores.sql.engine.schema",
}
DIRECTIVE = re.compile(r"#\s*(?:noqa|type:|pragma|fmt:)")


def comments_behind_code(name: str) -> list[int]:
    """Return the lines that hold code and then a comment, but for what tools are told."""
    text = FILES[name].read_text(encoding="utf-8")
    return [
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
        and token.line[: token.start[1]].strip()
        and not DIRECTIVE.match(token.string)
    ]


def test_comments_stand_above_the_code():
    assert {name for name in FILES if comments_behind_code(name)} <= FULL


def drawn_errors() -> dict[str, tuple[str, str]]:
    """Return the errors of the drawing in `gateway.errors`: its parent's name, and its status."""
    drawn: dict[str, tuple[str, str]] = {}
    parents: dict[int, str] = {}
    for line in ast.get_docstring(TREES["gateway.errors"], clean=False).splitlines():
        found = re.fullmatch(r"    ([│├└─ ]*)(\w+) (.+)", line)
        if found:
            depth = len(found[1]) // 4
            parents[depth] = found[2]
            drawn[found[2]] = (parents.get(depth - 1, ""), found[3])
    return drawn


def test_the_drawn_errors_are_the_classes():
    drawn = drawn_errors()
    classes_of_errors = {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.GatewayError)
    }
    assert drawn.keys() == classes_of_errors.keys()
    for name, (parent, status) in drawn.items():
        assert not parent or classes_of_errors[name].__bases__[0].__name__ == parent
        assert status in (str(classes_of_errors[name].status), "the upstream's own")


def code_lines(name: str) -> int:
    """Count the lines of a module that hold code: none of comments, docstrings, or nothing."""
    text = FILES[name].read_text(encoding="utf-8")
    prose = {
        line
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node, clean=False) is not None
        for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)
    }
    lines = text.splitlines()
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in prose
        for number, line in enumerate(lines, 1)
    )


# What a thousand lines of code hold at most, of forms that are quick to write and slow to read.
MAX_PER_THOUSAND = {"conditional expressions": 15.0, "tuple assignments": 4.0}
MAX_NODES_A_LINE = 6.0


def dense_forms(tree: ast.Module) -> dict[str, int]:
    """Count the conditional expressions of a module, and where several names get a tuple."""
    nodes = list(ast.walk(tree))
    tuples = [
        node
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and isinstance(node.targets[0], ast.Tuple)
    ]
    choices = [node for node in nodes if isinstance(node, ast.IfExp)]
    return {"conditional expressions": len(choices), "tuple assignments": len(tuples)}


def test_length_is_not_traded_for_density():
    thousands = sum(map(code_lines, FILES)) / 1000
    contexts = (ast.Load, ast.Store, ast.Del)
    nodes = sum(not isinstance(x, contexts) for tree in TREES.values() for x in ast.walk(tree))
    assert nodes / thousands / 1000 <= MAX_NODES_A_LINE
    counts = [dense_forms(tree) for tree in TREES.values()]
    for form, limit in MAX_PER_THOUSAND.items():
        assert sum(count[form] for count in counts) / thousands <= limit, form
