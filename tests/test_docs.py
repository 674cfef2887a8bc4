"""The documentation: links, files and sections that it names are there, and what the code cites
is found.
"""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

from memory.core import tool_definitions
from tests.e2e.wire import rows
from tests.test_architecture import LAYERS

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    p.relative_to(ROOT).as_posix()
    for p in [
        *(ROOT / n for n in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
        *(ROOT / "docs").glob("*.md"),
    ]
)
README_LINES = 150
COLUMNS = 120
FENCE = re.compile(r"^```.*?^```[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
# What stands in backticks and looks like a file or folder of the project.
CITED_PATH = re.compile(
    r"`((?:gateway|memory|tests|config|docs|\.ci|\.github)/[\w./-]*|[\w./-]+\.(?:py|toml|yaml|yml))`"
)
TEST_FILE = re.compile(r"`((?:[\w]+/)*test_\w+\.py)`")
# Which page a name in the code stands for, as docs/README.md says.
MEMORY, WIRE, PLAN = "docs/memory-design.md", "docs/wire-invariants.md", "docs/architecture.md"
CITATION = re.compile(
    r"(?P<spec>MEMORY|WIRE|PRODUCT|ARCHITECTURE|memory-design|wire-invariants)(?:\.md)?"
    r"(?:, (?P<title>[A-Z]\w+|rule \d+)"
    r"|,? (?P<numbers>(?:[A-K]|\d+)(?:\.\d+)?(?:(?:, | and )(?:[A-K]|\d+)(?:\.\d+)?)*)\b)?"
)
TITLES = {"Identity": "docs/identity.md", "Errors": "docs/errors.md"}
ELSEWHERE = re.compile(r"\b(?:HOUSE|STYLE|WIRES|FLEET|FAULTS|DEPENDENCIES)\.md\b|\.\./shared")


@cache
def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def prose(name: str) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", text(name))


@cache
def anchors(name: str) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    out = set()
    for heading in HEADING.findall(prose(name)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        seen = found.get(slug, 0)
        found[slug] = seen + 1
        out.add(f"{slug}-{seen}" if seen else slug)
    return frozenset(out)


def broken_links(name: str) -> list[str]:
    broken = []
    for target in LINK.findall(prose(name)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        whither = (ROOT / name).parent / path if path else ROOT / name
        if not whither.exists():
            broken.append(f"{target}: no such file")
        elif anchor:
            page = whither.resolve().relative_to(ROOT.resolve()).as_posix()
            if anchor not in anchors(page):
                broken.append(f"{target}: no such heading")
    return broken


@pytest.mark.parametrize("name", PAGES)
def test_every_link_and_anchor_points_to_something(name):
    assert broken_links(name) == []


def test_every_page_can_be_reached_from_the_readme():
    met, waiting = set(), ["README.md"]
    while waiting:
        name = waiting.pop()
        if name in met or name not in PAGES:
            continue
        met.add(name)
        for target in LINK.findall(prose(name)):
            path = target.partition("#")[0]
            if path and not re.match(r"[a-z]+:", target):
                whither = ((ROOT / name).parent / path).resolve()
                if whither.is_relative_to(ROOT.resolve()):
                    waiting.append(whither.relative_to(ROOT.resolve()).as_posix())
    assert set(PAGES) - met - {"docs/README.md"} == set()


@pytest.mark.parametrize("name", PAGES)
def test_every_file_that_is_cited_exists(name):
    files = {p.name for p in (ROOT / "tests").rglob("test_*.py")}
    tests = [n for n in TEST_FILE.findall(text(name)) if Path(n).name not in files]
    assert tests == []
    paths = set(CITED_PATH.findall(prose(name))) - set(TEST_FILE.findall(text(name)))
    named = {p for p in paths if "/" in p and not p.startswith(("env.", "sqlite"))}
    assert [p for p in sorted(named) if not (ROOT / p).exists()] == []
    full = [n for n in TEST_FILE.findall(text(name)) if n.startswith("tests/")]
    assert [n for n in full if not (ROOT / n).exists()] == []


def test_the_readme_is_short():
    assert len(text("README.md").splitlines()) <= README_LINES


@pytest.mark.parametrize("name", PAGES)
def test_prose_keeps_to_its_columns(name):
    lines = [line for line in prose(name).splitlines() if not line.startswith("|")]
    assert [line for line in lines if len(line) > COLUMNS] == []


@pytest.mark.parametrize("name", PAGES)
def test_no_page_points_outside_the_repository(name):
    assert ELSEWHERE.findall(text(name)) == []


def sections(name: str, pattern: str) -> set[str]:
    return set(re.findall(pattern, text(name), re.MULTILINE))


@cache
def known() -> dict[str, frozenset[str]]:
    """By specification: the sections, items and rows that can be cited."""
    memory = sections(MEMORY, r"^## (\d+)\. ")
    for part in re.split(r"^## ", text(MEMORY), flags=re.MULTILINE)[1:]:
        number = re.match(r"(\d+)\.", part)
        if number:
            memory |= {
                f"{number[1]}.{item}"
                for item in re.findall(r"^(\d+)\. ", part.partition("\n")[2], re.M)
            }
    wire = sections(WIRE, r"^## ([A-K])\. ") | sections(WIRE, r"^\| (\d+) \| P\d \|")
    rules = {f"rule {n}" for n in sections(PLAN, r"^(\d+)\. ")} | sections(PLAN, r"^## (\w+)$")
    return {"MEMORY": frozenset(memory), "WIRE": frozenset(wire), "ARCHITECTURE": frozenset(rules)}


def unknown_citations(words: str) -> list[str]:
    """What is cited in a text and stands nowhere."""
    wrong = list(ELSEWHERE.findall(words))
    for found in CITATION.finditer(words):
        spec = {"memory-design": "MEMORY", "wire-invariants": "WIRE"}.get(
            found["spec"], found["spec"]
        )
        whole = found[0]
        if found["title"] and spec == "PRODUCT":
            ok = found["title"] in TITLES and (ROOT / TITLES[found["title"]]).exists()
        elif found["title"]:
            ok = found["title"] in known().get(spec, ())
        elif found["numbers"]:
            numbers = re.split(r", | and ", found["numbers"])
            ok = spec in known() and set(numbers) <= known()[spec]
        else:
            # The document as a whole, or a word in capitals.
            continue
        if not ok:
            wrong.append(whole)
    return wrong


def docstrings(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [ast.get_docstring(n) or "" for n in ast.walk(tree) if isinstance(n, kinds)]


def sources() -> list[Path]:
    return [p for package in ("gateway", "memory") for p in sorted((ROOT / package).rglob("*.py"))]


def test_every_citation_in_a_docstring_finds_its_section():
    wrong = {}
    for path in sources():
        if found := [c for d in docstrings(path) for c in unknown_citations(d)]:
            wrong[path.relative_to(ROOT).as_posix()] = found
    assert wrong == {}


def test_the_docs_that_code_names_exist():
    named = {}
    for path in [
        *sources(),
        *sorted((ROOT / "tests").rglob("*.py")),
        ROOT / "Makefile",
        ROOT / "pyproject.toml",
    ]:
        for page in re.findall(r"\bdocs/[\w-]+\.md\b", path.read_text(encoding="utf-8")):
            named.setdefault(page, path.relative_to(ROOT).as_posix())
    assert {page: by for page, by in named.items() if not (ROOT / page).exists()} == {}


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("Rules (MEMORY.md 4):", []),
        ("MEMORY.md 1 and 2, MEMORY.md 2.5, docs/memory-design.md 9", []),
        ("WIRE.md C and D, WIRE.md 30, 39, 40", []),
        ("PRODUCT.md, Identity; ARCHITECTURE, rule 8; ARCHITECTURE, Errors", []),
        ("MEMORY.md 12", ["MEMORY.md 12"]),
        ("MEMORY.md 2.9", ["MEMORY.md 2.9"]),
        ("WIRE.md 4", ["WIRE.md 4"]),
        ("PRODUCT.md, Weather", ["PRODUCT.md, Weather"]),
        ("see FLEET.md", ["FLEET.md"]),
    ],
)
def test_citations_are_understood(words, wrong):
    assert unknown_citations(words) == wrong


def test_the_wire_invariants_are_those_that_tests_show():
    table = {(int(n), p) for n, p in re.findall(r"^\| (\d+) \| (P\d) \|", text(WIRE), re.MULTILINE)}
    ours = (
        {(n, "P0") for n in rows.P0} | {(n, "P1") for n in rows.P1} | {(n, "P2") for n in rows.P2}
    )
    assert table == ours
    later = re.search(
        r"^Rows ([\d, and]+) are about parts that are not built", text(WIRE), re.MULTILINE
    )
    assert {int(n) for n in re.findall(r"\d+", later[1])} == set(rows.LATER)


@pytest.mark.parametrize("package", ["gateway", "memory"])
def test_the_drawing_shows_the_layers_as_they_are(package):
    part = (
        text(PLAN).partition(f"### `{package}`, from the bottom to the top")[2].partition("\n#")[0]
    )
    drawn = [
        set(re.findall(r"`(\w+)`", cell))
        for cell in re.findall(r"^\| \d+ \| ([^|]+) \|", part, re.MULTILINE)
    ]
    assert drawn == [set(layer.split()) for layer in LAYERS[package]]


def test_the_changelog_is_made_for_users():
    lines = text("CHANGELOG.md").splitlines()
    assert "## [Unreleased]" in lines
    kinds = {line for line in lines if line.startswith("### ")}
    assert kinds <= {
        f"### {k}" for k in ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
    }
    entries = [line for line in lines if line.startswith("- ")]
    assert [e for e in entries if len(e.split()) - 1 > 20] == []
    # One line each.
    assert [line for line in lines if line.startswith("  ")] == []


def test_no_page_repeats_what_git_ignores():
    done = subprocess.run(["git", "check-ignore", *PAGES], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == ""


@pytest.mark.parametrize(
    "picture", sorted((ROOT / "docs/images").glob("*.svg")), ids=lambda p: p.name
)
def test_a_drawn_picture_is_small_and_runs_and_loads_nothing(picture):
    drawn = picture.read_bytes()
    assert len(drawn) < 200_000
    elements = list(ElementTree.fromstring(drawn).iter())
    assert {e.tag.rpartition("}")[2] for e in elements} <= {
        *("svg", "title", "desc", "style", "rect", "text")
    }
    assert not [k for e in elements for k in e.attrib if k.startswith("on") or "href" in k]
    assert b"url(" not in drawn
    assert b"@import" not in drawn


def test_the_concepts_name_each_tool_of_the_memory():
    page = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
    listed = page.partition("## The memory tools")[2].partition("\n## ")[0]
    assert {t["function"]["name"] for t in tool_definitions.ALL} == set(
        re.findall(r"^\| `(\w+)`", listed, re.MULTILINE)
    )


def test_what_an_agent_needs_of_its_upstream_is_told_as_it_is():
    clients = (ROOT / "docs/clients.md").read_text(encoding="utf-8")
    for api in ("Messages", "Responses"):
        assert "Any upstream will do" in clients.partition(f"## Programs that speak {api}")[2][:80]
    connect = (ROOT / "gateway/ui/templates/connect.html").read_text(encoding="utf-8")
    assert connect.count("Any upstream will do") == 2
    first_ways = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8").partition("| **off**")[0]
    assert all(
        f"/v1/{path}" in first_ways for path in ("chat/completions", "responses", "messages")
    )


def test_the_page_about_tls_tells_that_a_proxy_needs_keys():
    """Before the example that is copied: what this machine cannot tell, and what the start says."""
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    section = page.partition("## Behind a TLS proxy\n")[2].partition("\n## ")[0]
    words = " ".join(section.partition("```nginx")[0].split())
    for told in (
        "**and make keys**",
        "mnemogate keys create",
        "as the gateway's own user, or on another system, cannot be told apart",
        "speak HTTP/1.1 and name their target in `Host` by themselves",
        "The start says what this machine can tell (`peers`)",
    ):
        assert told in words
