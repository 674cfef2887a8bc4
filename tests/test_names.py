"""What is held is named for what it is: few names say nothing, in each package.

The words follow rules: participles, determiners, quantifiers, pronouns, adjectives without a noun,
metaphors, and single letters outside comprehensions and short loops.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.test_architecture import TREES

PARTICIPLES = """
    found told kept asked wanted shown said given made known held settled judged tried counted
    noted seen fed left sent listed weighed hashed renamed moved guessed checked added passed
    played framed composed forwarded replayed answered dispatched granted refused quoted
    squeezed linked overlaid appended replaced compiled patched removed offered installed packed
    unpacked emptied outdated buried returned postponed marked narrowed paired ranked grouped
    scoped summarised prepended explained recalled measured drained dialled shaped shielded
    lowered mended growing combined parsed filled bound hosted connected lacking unkeyed running
    versioned guarded followed got taken put done begun drawn opened closed placed joined named
    read written stored loaded cached saved dropped skipped missing pending waiting changed
    updated created erased expired used spent owed paid met called limited allowed accepted
    failed broken lost wrapped split cut trimmed cleaned folded merged matched chosen selected
    assumed expected computed resolved mapped copied encoded decoded escaped rendered received
    fetched queued claimed leased locked freed started stopped finished ended repeated resent
    remembered forgotten learned cited mentioned spoken covered reached touched printed logged
    reported gathered collected nested spelt promised carried raised caught
"""
DETERMINERS = """
    one two other others another each every any some all both either neither none few fewer many
    more most much less least several enough such same this that these those what which who whom
    whose it its them they their theirs mine ours yours his hers something anything everything
    nothing own rest whole half first second last previous former latter
"""
ADJECTIVES = """
    new old big small large long short longest shortest largest smallest newest oldest latest
    earliest good bad best worst better right wrong true false plain pure raw full empty partial
    exact rough loose tight lax wide narrow deep high low higher lower highest lowest fast slow
    faster quick late early busy idle free fresh stale warm cold safe local remote foreign
    native common rare unique single double simple main odd alike doubtful likely visible equal
    similar usual special general actual current recent final initial original able unknown
    nearest closest sole near here there behind beside inner outer ahead apart away
"""
METAPHORS = """
    desk shelf shelves hand hands spill mould gone books envoy mark marks wire wires piece
    pieces stuff thing things pile
"""
VAGUE = frozenset(f"{PARTICIPLES} {DETERMINERS} {ADJECTIVES} {METAPHORS}".split())
# Between the words of a name, these say nothing either.
FILLERS = frozenset(
    "to of in by for at on as is not no so up out off the a an with from and or".split()  # noqa: SIM905
)
# A loop that is seen at one glance may count with a letter.
SHORT_LOOP_LINES = 3
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


def says_nothing(name: str) -> bool:
    """Tell whether a name has no noun; predicates, times and actors say what they are."""
    if name.strip("_").startswith(("is_", "has_")) or name.endswith(("_at", "_by")):
        return False
    words = [word for word in name.strip("_").lower().split("_") if word]
    return bool(words) and any(w in VAGUE for w in words) and set(words) <= VAGUE | FILLERS


def is_flag(annotation: ast.expr | None) -> bool:
    """Tell whether a parameter or field is true or false: its name is a state."""
    return annotation is not None and ast.unparse(annotation) in ("bool", "bool | None")


def bindings(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, bool]:
    """Return the names that a function binds, each with whether a letter will do."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    extra = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    bound = {a.arg: False for a in [*named, *extra] if not is_flag(a.annotation)}
    for statement in function.body:
        for name, is_brief in stored_names(statement):
            bound.setdefault(name, is_brief)
    return bound


def stored_names(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield the names that a statement binds in its own scope."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id, False
    if isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name, True
    if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name, False
    brief = isinstance(node, COMPREHENSIONS) or (
        isinstance(node, ast.For | ast.AsyncFor)
        and node.end_lineno - node.lineno <= SHORT_LOOP_LINES
    )
    if isinstance(node, ast.Lambda):
        yield from ((a.arg, True) for a in node.args.args)
    if brief:
        loops = (
            [node] if isinstance(node, ast.For | ast.AsyncFor) else getattr(node, "generators", [])
        )
        for loop in loops:
            names = (x for x in ast.walk(loop.target) if isinstance(x, ast.Name))
            yield from ((x.id, True) for x in names)
    for child in ast.iter_child_nodes(node):
        yield from stored_names(child)


def attributes(node: ast.ClassDef) -> dict[str, bool]:
    """Return the fields of a class, and what its methods set on `self`."""
    found = {
        x.target.id: False
        for x in node.body
        if isinstance(x, ast.AnnAssign)
        and isinstance(x.target, ast.Name)
        and not is_flag(x.annotation)
    }
    flags = {
        x.target.id for x in node.body if isinstance(x, ast.AnnAssign) and is_flag(x.annotation)
    }
    for x in ast.walk(node):
        is_stored = isinstance(x, ast.Attribute) and isinstance(x.ctx, ast.Store)
        if is_stored and ast.unparse(x.value) == "self" and x.attr not in flags:
            found.setdefault(x.attr, False)
    return found


def package_of(module: str) -> str:
    parts = module.split(".")
    depth = 4 if parts[:3] == ["memory", "stores", "sql"] else 2
    return ".".join(parts[:depth])


def held_names() -> Iterator[tuple[str, str, str, bool]]:
    """Yield module, owner and name of all that is held, and whether a letter will do."""
    for module, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                held = bindings(node)
            elif isinstance(node, ast.ClassDef):
                held = attributes(node)
            else:
                continue
            for name, is_brief in held.items():
                if name not in ("self", "cls", "_"):
                    yield module, node.name, name, is_brief


def is_vague(name: str, is_brief: bool) -> bool:
    return says_nothing(name) or (len(name.strip("_")) == 1 and not is_brief)


# What each package holds at most, in percent.
MAX_SHARE = 2.0
# Of a package; below it one name is a percent.
MIN_NAMES = 100


def test_few_names_say_nothing():
    counts: Counter[str] = Counter()
    vague: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for module, owner, name, is_brief in held_names():
        package = package_of(module)
        counts[package] += 1
        if is_vague(name, is_brief):
            vague[package].append((module, owner, name))
    shares = {name: 100 * len(names) / counts[name] for name, names in vague.items()}
    over = {
        name: (share, vague[name][:40])
        for name, share in shares.items()
        if counts[name] >= MIN_NAMES and share > MAX_SHARE
    }
    assert over == {}
