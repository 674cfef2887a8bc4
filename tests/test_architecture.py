"""The house rules: who may import whom, no cycle, sizes one can know, and what start-up must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from statistics import mean, median

import pytest

ROOT = Path(__file__).parent.parent
FILES = {
    ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
    for package in ("gateway", "memory")
    for p in sorted((ROOT / package).rglob("*.py"))
    if "migrations" not in p.parts
}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}

HTTP_ROOMS = (
    "gateway.app",
    "gateway.memories",
    "gateway.manage",
    "gateway.bundled",
    "gateway.ui",
    "gateway.cli",
)
PURE = {
    "gateway.sse",
    "gateway.wire.chat",
    "gateway.wire.delta",
    "gateway.wire.mould",
    "gateway.wire.place",
    "gateway.wire.messages_request",
    "gateway.wire.messages_turns",
    "gateway.wire.messages_answer",
    "gateway.intercept",
    "gateway.headers",
    "gateway.packing",
    "gateway.naming",
    "gateway.forms",
    "gateway.endings",
    "gateway.excerpt",
    "gateway.background",
    "gateway.catalog",
    "gateway.errors",
    "gateway.openapi",
    "gateway.upstream.response",
    "memory.blocks",
    "memory.cache",
    "memory.messages",
    "memory.prefix",
    "memory.history",
    "memory.epoch",
    "memory.window",
    "memory.facts",
    "memory.strength",
    "memory.tokens",
    "memory.search",
    "memory.words",
    "memory.dates",
    "memory.ranking",
    "memory.errors",
    "memory.scope",
    "memory.ids",
}
PURE_MAY = {"msgspec", "pydantic", "httptools"}


def imported(name: str, *, top_only: bool = False) -> set[str]:
    """Modules that `name` imports, anywhere in it or at its top alone."""
    tree = TREES[name]
    nodes = tree.body if top_only else list(ast.walk(tree))
    out: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            out |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for a in node.names:
                whole = f"{node.module}.{a.name}"
                out.add(whole if whole in FILES else node.module)
    return out


def ours(name: str) -> set[str]:
    return {m for m in imported(name) if m in FILES}


@pytest.mark.parametrize("name", [n for n in FILES if n.startswith("memory")])
def test_memory_never_imports_the_gateway(name):
    assert not [m for m in imported(name) if m.startswith("gateway")]


@pytest.mark.parametrize("name", sorted(PURE))
def test_pure_modules_import_pure_ones(name):
    for module in imported(name):
        head = module.split(".")[0]
        assert (
            module in PURE
            or head in PURE_MAY
            or head in sys.stdlib_module_names
            or head == "__future__"
        ), f"{name} imports {module}"
    assert not {"asyncio", "socket", "time"} & imported(name) or name == "memory.ids"


def test_litestar_and_http_clients_stay_in_their_rooms():
    for name in FILES:
        heads = {m.split(".")[0] for m in imported(name)}
        if "litestar" in heads:
            assert name.startswith(HTTP_ROOMS), name
        if heads & {"httpx", "aiohttp"}:
            assert name.startswith(("gateway.upstream", "gateway.app", "gateway.cli")), name


def test_stores_import_drivers_on_use_and_never_each_other():
    kinds = {
        "memory.stores.sql": "memory.stores.sql",
        "memory.stores.chroma": "memory.stores.chroma",
    }
    for name in FILES:
        for kind in kinds:
            if name.startswith(kind):
                assert not [
                    m
                    for m in imported(name)
                    if m.startswith("memory.stores.") and not m.startswith(kind)
                ], name
        drivers = {"chromadb", "redis", "asyncpg", "alembic", "onnxruntime", "numpy", "tiktoken"}
        assert not drivers & {m.split(".")[0] for m in imported(name, top_only=True)}, name


def test_there_is_no_import_cycle():
    graph = {n: ours(n) - {n} for n in FILES}
    seen: dict[str, int] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path, name))
        if name not in seen:
            for other in graph[name]:
                visit(other, (*path, name))
            seen[name] = 1

    for name in graph:
        visit(name, ())


def test_names_say_what_things_are():
    for name, tree in TREES.items():
        assert not {"utils", "helpers", "common", "misc"} & set(name.split("."))
        assert not [
            c.name
            for c in ast.walk(tree)
            if isinstance(c, ast.ClassDef) and c.name.endswith(("Manager", "Helper", "Util"))
        ], name


def functions():
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield name, node


def test_sizes(capsys):
    lines = {
        n: len(p.read_text(encoding="utf-8").splitlines())
        for n, p in FILES.items()
        if not n.endswith(("gateway", "memory")) and p.stat().st_size
    }
    lengths = [f.end_lineno - f.lineno + 1 for _, f in functions()]
    reach = [len(ours(n)) for n in FILES if n != "gateway.app"]
    core = sum(
        lines[n]
        for n in (
            "gateway.turn",
            "gateway.intercept",
            "gateway.wire.chat",
            "gateway.wire.delta",
            "gateway.wire.mould",
            "gateway.sse",
        )
    )
    with capsys.disabled():
        by = sorted(lines.values())
        fl = sorted(lengths)
        print(
            f"\nmodules: {len(by)}, median {median(by)}, p90 {by[len(by) * 9 // 10]}, max {by[-1]}; functions: {len(fl)}, median {median(fl)}, "
            f"p90 {fl[len(fl) * 9 // 10]}, max {fl[-1]}; imports out of a module: mean {mean(reach):.1f}; the turn's core: {core} lines"
        )
    assert {n: k for n, k in lines.items() if k > 500} == {}
    assert [(n, f.name) for n, f in functions() if f.end_lineno - f.lineno + 1 > 60] == []


def test_functions_take_at_most_five_parameters():
    over = []
    for name, f in functions():
        args = [
            a.arg
            for a in [*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs]
            if a.arg not in ("self", "cls")
        ]
        if (
            len(args) > 5
            and "PLR0913" not in FILES[name].read_text(encoding="utf-8").splitlines()[f.lineno - 1]
        ):
            over.append((name, f.name, len(args)))
    assert over == []


START = """
import resource, sys, tempfile, time
begun = time.process_time()
from gateway.app import create_app
from gateway.loading import load
app = create_app(load(None, {}, {"storage.data": tempfile.mkdtemp(), "upstream": "http://127.0.0.1:9/v1"}))
heavy = {"chromadb", "onnxruntime", "numpy", "redis", "alembic", "tiktoken", "tokenizers", "httpx", "aiohttp", "sqlalchemy.orm", "sqlalchemy.dialects.postgresql"} & set(sys.modules)
print(sorted(heavy))
"""


def test_create_app_imports_nothing_heavy():
    out = subprocess.run(
        [sys.executable, "-c", START], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert out.stdout.strip() == "[]"


def test_the_server_becomes_ready_and_stays_small(tmp_path):
    """Resident size under 120 MiB with SQLite. How soon it listens is the bench's to say."""
    import os
    import signal
    import socket
    import time
    import urllib.request

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {**os.environ, "MNEMOGATE_STORAGE__DATA": str(tmp_path)}
    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "gateway",
            "serve",
            "--port",
            str(port),
            "--upstream",
            "http://127.0.0.1:9/v1",
        ],
        cwd=ROOT,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1) as answer:
                    if b'"ok"' in answer.read():
                        break
            except OSError:
                time.sleep(0.02)
        else:
            pytest.fail("the server did not become ready")
        if Path("/proc").is_dir():
            fields = Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()
            resident = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20
            assert resident < 120, f"{resident:.0f} MiB"
    finally:
        child.send_signal(signal.SIGTERM)
        assert child.wait(15) == 0
