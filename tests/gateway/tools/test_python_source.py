"""A source is a tool, or is refused with its line; it is parsed, and never run."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.python_source import SOURCE_BYTES, SourceRefused, read_source

SOURCE = '''
import json
from datetime import date, datetime
from typing import Literal, Optional, Union, List, Dict

_UNITS = {"c": 1}

class _Row:
    def __init__(self, a):
        self.a = a

def _double(x):
    return 2 * x

async def forecast(
    town: str,
    days: int = 3,
    unit: Literal["c", "f"] = "c",
    factor: float = 1,
    tags: list[str] = [],
    rows: "dict[str, list[int]] | None" = None,
    since: Optional[date] = None,
    until: Union[datetime, None] = None,
    either: int | str = 5,
    on: bool = True,
    lists: List[Dict[str, date]] = [],
) -> str:
    """Tell the weather.

    In every town.

    Args:
        town: The name
            of a town.
        days (int): How many days: at most 7.

    Returns:
        The weather.
    """
    return town
'''


def test_a_source_is_read_as_a_tool():
    tool = read_source(SOURCE)
    assert (tool.name, tool.is_async) == ("forecast", True)
    assert tool.description == "Tell the weather.\n\nIn every town."
    null = {"type": "null"}
    day = {"type": "string", "format": "date"}
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "town": {"type": "string", "description": "The name of a town."},
            "days": {"type": "integer", "description": "How many days: at most 7.", "default": 3},
            "unit": {"enum": ["c", "f"], "default": "c"},
            "factor": {"type": "number", "default": 1},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            "rows": {
                "anyOf": [
                    {
                        "type": "object",
                        "additionalProperties": {"type": "array", "items": {"type": "integer"}},
                    },
                    null,
                ],
                "default": None,
            },
            "since": {"anyOf": [day, null], "default": None},
            "until": {"anyOf": [{**day, "format": "date-time"}, null], "default": None},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}], "default": 5},
            "on": {"type": "boolean", "default": True},
            "lists": {
                "type": "array",
                "items": {"type": "object", "additionalProperties": day},
                "default": [],
            },
        },
        "required": ["town"],
    }
    assert tool.write_call({"town": "x"}) == "await forecast(town=_mnemogate_arguments['town'])"
    assert "_mnemogate_date.fromisoformat" in tool.write_call({"since": "2026-01-01"})


REFUSED = [
    ("def f(:\n  pass", 1, "not valid Python"),
    ("x = 1\n\ndef f(): pass", 1, "begin the name x with _"),
    ("def f(): pass\n\ndef g(): pass", 3, "two public functions"),
    ("_x = 1", 0, "no public function"),
    ("", 0, "no public function"),
    ("def f(a): pass", 1, "a has no annotation"),
    ("def f(\n  a: int,\n  b: bytes,\n): pass", 3, "the annotation of b is 'bytes'"),
    ("def f(a: list): pass", 1, "'list'"),
    ("def f(a: dict[int, str]): pass", 1, "keys are text"),
    ("def f(a: list[list[list[list[int]]]]): pass", 1, "4 levels"),
    ("def f(*a: int): pass", 1, "no *"),
    ("def f(**a: int): pass", 1, "no *"),
    ("def f(*, a: int): pass", 1, "no *"),
    ("def f(a: int, /): pass", 1, "before a /"),
    ("def f(a: int = 1 + 1 if 1 else 2): pass", 1, "not a literal"),
    ("def f(a: int = 'soon'): pass", 1, "default of a does not fit"),
    ("def f(a: Literal[1.5]): pass", 1, "Literal"),
    (f"def f({', '.join(f'a{n}: int' for n in range(21))}): pass", 1, "at most 20 parameters"),
    ("class A(int):\n  pass\ndef f(): pass", 1, "begin the name A with _"),
    ("class _A(int):\n  pass\ndef f(): pass", 1, "inheritance"),
    ("class _A:\n  @property\n  def x(self): return 1\ndef f(): pass", 1, "@property"),
    ("def f():\n  yield 1", 2, "`yield`"),
    ("def f():\n  x = 1\n  del x", 3, "`del`"),
    ("def f():\n  try: pass\n  except* ValueError: pass", 2, "`except*`"),
    ("from math import *\ndef f(): pass", 1, "`import *`"),
    ("import math, enum\ndef f(): pass", 1, "`import enum`"),
    ("def f():\n  import numpy", 2, "`import numpy`"),
    ("from os import path\ndef f(): pass", 1, "`from os import`"),
    ("async def f():\n  async with a: pass", 2, "`async with`"),
    ("if 1:\n  def g(): pass\ndef f(): pass", 1, "begin the name g with _"),
    ("for x in []: pass\ndef f(): pass", 1, "begin the name x with _"),
    ("def f(): pass\n\0", 0, "not valid"),
    ("def f(): pass" + " " * SOURCE_BYTES, 0, "at most 32,768"),
]


@pytest.mark.parametrize(("source", "line", "words"), REFUSED)
def test_what_is_no_tool_is_refused_with_its_line(source, line, words):
    with pytest.raises(SourceRefused) as refusal:
        read_source(source)
    assert words in str(refusal.value)
    assert refusal.value.line == line or words == "@property"


def test_the_sandbox_of_cpython_runs_all_of_python():
    read_source("import enum\nclass _A(enum.Enum):\n  x = 1\ndef f():\n  yield 1", "bubblewrap")


@given(st.text(max_size=80) | st.text(alphabet="def f(a:int=1)\n ,[]|'\"_*", max_size=60))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(SourceRefused):
        read_source(text)
    with contextlib.suppress(SourceRefused):
        read_source(f"def f(a: {text}): pass")


NESTED = """
from gateway.tools.python_source import SourceRefused, read_source
for part, end in [("(", ")"), ("[", "]"), ("-", ""), ("not ", ""), ("x.", ""), ("lambda:", ""),
                  ("1+", ""), ("a|", ""), ("f(", ")"), ("{1:", "}"), ("a if b else ", ""),
                  ("await ", ""), ("x[", "]"), ("if 1:\\n", "")]:
    for form in ("def f(): return {}", "def f(a: {}): pass", "def f(a: int = {}): pass", "{}"):
        count = 30_000 // (len(part) + len(end))
        try:
            read_source(form.format(part * count + "1" + end * count))
        except SourceRefused as e:
            pass
print("read")
"""


def test_deeply_nested_source_ends_nothing():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", NESTED], capture_output=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, b"read\n")
