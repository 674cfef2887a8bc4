"""No pattern may need a possessive group: Python 3.11.0 to 3.11.4 matches those wrongly.

`re.match("(?:ab?c)++", "aca")` is `aca` there (cpython gh-106052, mended in 3.11.5), and a stock
Debian 12 has 3.11.2. A possessive quantifier behind a single character or class is sound.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from tests.test_architecture import FILES, ROOT, TREES

# In what is no whole pattern: a piece of one, which cannot be parsed by itself.
GROUP = re.compile(r"\)(?:[*+?]|\{\d+,?\d*\})\+|\(\?>")

# Tells whether a parsed pattern holds such a group, in this process and in the one below.
JUDGE = """
    from re import _constants as ops, _parser

    def parts(value):
        if isinstance(value, (list, tuple, _parser.SubPattern)):
            for part in value:
                yield from parts(part)
        yield value

    def is_possessive_group(tree):
        for op in (p for p in parts(tree) if isinstance(p, tuple) and len(p) == 2):
            if op[0] is ops.ATOMIC_GROUP:
                return True
            if op[0] is ops.POSSESSIVE_REPEAT:
                inner = op[1][2]
                if len(inner) != 1 or inner[0][0] not in (
                    ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN, ops.CATEGORY
                ):
                    return True
        return False
"""

# Imports every module and prints the patterns it compiles that hold such a group.
LOOK = textwrap.dedent(f"""
    import importlib, re, sys
    {JUDGE}
    compile_pattern = re.compile
    patterns = set()
    def keep(pattern, flags=0):
        patterns.add((pattern, int(flags)))
        return compile_pattern(pattern, flags)
    re.compile = keep
    for name in sys.argv[1:]:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as e:  # of an extra that this environment does not have
            if e.name.split(".")[0] in ("gateway", "memory"):
                raise
    ours = 0
    for pattern, flags in patterns:
        if isinstance(pattern, (str, bytes)):
            ours += 1
            if is_possessive_group(_parser.parse(pattern, flags)):
                print("possessive:", pattern)
    print("looked at", ours)
""")


def spells_possessive_group(pattern: str) -> bool:
    """Tell whether a pattern, or a piece of one, holds a possessive group; not so `[()*+]`."""
    scope: dict[str, Any] = {}
    exec(textwrap.dedent(JUDGE), scope)
    try:
        return bool(scope["is_possessive_group"](scope["_parser"].parse(pattern)))
    except re.error:
        return GROUP.search(pattern) is not None


def test_no_compiled_pattern_holds_a_possessive_group():
    # The drivers of extras are imported on use, so every module of ours can be.
    names = [n for n in FILES if not n.endswith("__main__")]
    command = [sys.executable, "-c", LOOK, *names]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    lines = run.stdout.splitlines()
    assert [line for line in lines if line.startswith("possessive:")] == []
    assert int(lines[-1].removeprefix("looked at ")) > 100


def test_no_pattern_made_while_running_spells_a_possessive_group():
    calls = [(name, n) for name in FILES for n in ast.walk(TREES[name]) if isinstance(n, ast.Call)]
    patterns = [
        (name, value if isinstance(value := constant.value, str) else value.decode("latin-1"))
        for name, call in calls
        if isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "re"
        for constant in ast.walk(call)
        if isinstance(constant, ast.Constant) and isinstance(constant.value, (str, bytes))
    ]
    assert [(name, p) for name, p in patterns if spells_possessive_group(p)] == []


@pytest.mark.parametrize(
    "pattern",
    ["(?:ab?c)++", "(?:a|bc)*+x", "(a){2,3}+", "(?>ab)", "(ab)?+", "(?:ab)*+(", "|(a)++)"],
)
def test_the_form_itself_is_recognised(pattern):
    assert spells_possessive_group(pattern)


@pytest.mark.parametrize(
    "pattern", ["[^'()*+,;=~-]", "(?:a|b)*+x", r"\(a\)*+", "a*+[bc]++", r"(?:a\))+"]
)
def test_what_only_looks_like_it_is_not(pattern):
    assert not spells_possessive_group(pattern)
