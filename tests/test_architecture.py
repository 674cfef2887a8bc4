"""The house rules: who may import whom, no cycle, sizes one can know, and what start-up must not
load.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from statistics import mean, median

import pytest

import memory

ROOT = Path(__file__).parent.parent
FILES = {
    ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
    for package in ("gateway", "memory")
    for p in sorted((ROOT / package).rglob("*.py"))
    if "migrations" not in p.parts
}


class SourceTrees(Mapping[str, ast.Module]):
    """The syntax trees of our modules, each parsed when a test first reads it."""

    def __init__(self) -> None:
        self.parsed: dict[str, ast.Module] = {}

    def __getitem__(self, name: str) -> ast.Module:
        if name not in self.parsed:
            self.parsed[name] = ast.parse(FILES[name].read_text(encoding="utf-8"))
        return self.parsed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(FILES)

    def __len__(self) -> int:
        return len(FILES)


TREES = SourceTrees()

# From the bottom to the top. A package imports those of lower lines, never its neighbours or what
# is above.
LAYERS = {
    "memory": (
        "errors ids scope cache",
        "search",
        "conversation",
        "core",
        "context",
        "export_format embed",
        "formats",
        "stores",
        "retrieval tools",
        "jobs",
        "session",
        "service",
        "management",
    ),
    "gateway": (
        "errors",
        "storage wire",
        "config http models",
        "apis",
        "auth redis_client upstream",
        "limits telemetry usage",
        "routing",
        "tools",
        "accounting state",
        "memory_adapters pipeline",
        "management relay",
        "chat ui",
        "letta mcp",
        "server",
        "app",
        "demo_model",
        "cli",
        "__main__",
    ),
}
FLOORS = {
    f"{package}.{room}": i
    for package, layers in LAYERS.items()
    for i, rooms in enumerate(layers)
    for room in rooms.split()
}
HTTP_ROOMS = (
    "gateway.app",
    "gateway.management",
    "gateway.server",
    "gateway.ui",
    "gateway.demo_model",
    "gateway.cli",
)
PURE_ROOMS = (
    "gateway.wire",
    "gateway.apis.translation",
    "memory.core",
    "memory.conversation",
    "memory.context",
    "memory.search",
)
# compaction asks a model for a summary, and a counter may have a tokenizer
PURE = {n for n in FILES if n.startswith(tuple(f"{room}." for room in PURE_ROOMS))} - {
    "memory.context.compaction",
    "memory.context.fitted",
    "memory.context.summary",
} | {
    "gateway.errors",
    "gateway.upstream.http1_parser",
    "gateway.apis.round_result",
    "gateway.apis.chat.choice_state",
    "gateway.apis.chat.interceptor",
    "memory.errors",
    "memory.scope",
    "memory.ids",
    "memory.cache",
}
PURE_MAY = {"msgspec", "pydantic", "httptools", "numpy", "Stemmer"}


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


def named(name: str) -> set[str]:
    """Modules of ours that `name` imports, or names in a string to import them on use."""
    strings = {
        node.value.partition(":")[0]
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return ours(name) | (strings & FILES.keys() if "importlib" in imported(name) else set())


MEMORY = [n for n in FILES if n.startswith("memory")]
GATEWAY = [n for n in FILES if n.startswith("gateway")]


def test_memory_never_imports_the_gateway():
    assert [(n, m) for n in MEMORY for m in imported(n) if m.startswith("gateway")] == []


def room(name: str) -> str:
    """The room at the second level that a module is in."""
    return ".".join(name.split(".")[:2])


def test_every_room_has_a_floor_and_imports_only_lower_ones():
    assert {room(n) for n in FILES} - FLOORS.keys() == {"gateway", "memory"}
    upward = [
        (name, module)
        for name in FILES
        for module in ours(name)
        if room(name) != room(module)
        and room(name).split(".")[0] == room(module).split(".")[0]
        and FLOORS.get(room(module), -1) >= FLOORS.get(room(name), 99)
    ]
    assert upward == []


def test_the_house_can_be_known():
    assert len([r for r in FLOORS if r.startswith("gateway.")]) <= 30
    assert len([r for r in FLOORS if r.startswith("memory.")]) <= 18


def test_every_package_says_what_lives_there():
    for name, path in FILES.items():
        if path.name == "__init__.py":
            assert ast.get_docstring(TREES[name]), (
                f"{name} has no docstring that says what lives there and what it may import"
            )


def may_be_pure(module: str) -> bool:
    head = module.split(".", maxsplit=1)[0]
    return (
        module in PURE
        or head in PURE_MAY
        or head in sys.stdlib_module_names
        or head == "__future__"
    )


def test_pure_modules_import_pure_ones():
    assert [(n, m) for n in sorted(PURE) for m in imported(n) if not may_be_pure(m)] == []
    impure = {n: {"asyncio", "socket", "time"} & imported(n) for n in PURE - {"memory.ids"}}
    assert {n: modules for n, modules in impure.items() if modules} == {}


def test_litestar_and_http_clients_stay_in_their_rooms():
    for name in FILES:
        heads = {m.split(".")[0] for m in imported(name)}
        if "litestar" in heads:
            assert name.startswith(HTTP_ROOMS), name
        if heads & {"httpx", "aiohttp"}:
            assert name.startswith(("gateway.upstream", "gateway.app", "gateway.cli")), name


# Imported for a Postgres URL alone (see the test of what `create_app` loads).
BY_URL = {
    f"memory.stores.sql.engine.postgres.postgres{part}"
    for part in ("", "_checks", "_hosts", "_lease", "_probe", "_statements")
} | {"memory.stores.sql.transfer.copy_to_postgres"}


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
        if name in BY_URL:
            continue
        drivers = {"chromadb", "redis", "asyncpg", "alembic", "onnxruntime", "numpy", "tiktoken"}
        assert not drivers & {m.split(".")[0] for m in imported(name, top_only=True)}, name


# What of the memory is public: its face, and whole modules of one subject each.
PUBLIC = (
    "memory",
    "memory.errors",
    "memory.export_format",
    "memory.management",
    # The port of the operator's tools.
    "memory.session.toolbox",
)
# Who may open the memory's stores, beside `gateway.storage`, whose tables are in them: commands
# that work on the database itself, most of them while no gateway runs.
OPENS_STORES = {
    "gateway.cli.demo": "migrates the database that an earlier version's demo left",
    "gateway.cli.db": "upgrades, backs up and shrinks the database file",
    "gateway.cli.db_copy": "copies the database file to a server",
    "gateway.cli.doctor": "compares the file's revision with this version's",
    "gateway.cli.erase_again": "erases in a database that was restored",
    "gateway.cli.index": "makes search indexes and vectors anew",
    "gateway.cli.tenants": "looks into a database file that it does not open",
}
# Who names inner modules of the memory still, each to import from its face in time: but for `app`,
# which wires the memory's jobs, and the pure rooms, since what is pure imports what is pure.
INNER_NAMES = {
    # Wires the jobs.
    "gateway.app",
    # Offers the memory tools.
    "gateway.chat.turn.round_sender",
    # Takes them out of what a provider repeats.
    "gateway.chat.stored.stored_endpoint",
    # Runs them.
    "gateway.chat.turn.turn",
    # Fetches the embedder's files.
    "gateway.cli.fetch",
    # Rebuilds the index.
    "gateway.cli.index",
    # Reads blocks as a model does.
    "gateway.demo_model.request_view",
}


def test_the_gateway_opens_the_memorys_stores_in_its_own_storage_alone():
    outside = [n for n in GATEWAY if not n.startswith("gateway.storage")]
    assert [n for n in outside if "sqlalchemy" in {m.split(".")[0] for m in imported(n)}] == []
    opening = {n for n in outside for m in imported(n) if m.startswith("memory.stores")}
    assert opening - OPENS_STORES.keys() == set()


def inner_names(name: str) -> list[str]:
    """Modules inside the memory that a module of the gateway imports, past what is public."""
    return [
        m
        for m in imported(name)
        if m.split(".")[0] == "memory"
        and m not in PUBLIC
        and not m.startswith(("memory.management.", "memory.formats."))
        and not (name in OPENS_STORES and m.startswith("memory.stores"))
    ]


def test_the_gateway_uses_the_memory_by_its_face():
    exempt = ("gateway.storage", "gateway.wire", "gateway.apis")
    names = [n for n in GATEWAY if n not in INNER_NAMES and not n.startswith(exempt)]
    assert [(n, inner_names(n)) for n in names if inner_names(n)] == []


def test_management_shows_nothing_of_sql():
    """A function that others call takes and gives no connection."""
    for name in FILES:
        if name.startswith("memory.management.") and name != "memory.management.reading":
            for node in TREES[name].body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    types = ast.unparse(node.args) + ast.unparse(node.returns)
                    assert node.name.startswith("_") or "Connection" not in types, node.name


OWN_TABLES = {"keys", "usage"}
IN_SQL = re.compile(r"\b(?:FROM|INTO|UPDATE|JOIN|TABLE|EXISTS)\s+\W?(?:keys|usage)\b")


def names_own_table(node: ast.AST) -> bool:
    """Whether a node names a table of the gateway: as an attribute, an import or in SQL."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id in ("t", "schema") and node.attr in OWN_TABLES
    if isinstance(node, ast.ImportFrom) and node.module == "memory.stores.sql.engine.schema":
        return bool(OWN_TABLES & {a.name for a in node.names})
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and bool(IN_SQL.search(node.value))
    )


def test_the_memory_does_not_know_the_gateways_tables():
    """Its schema alone holds their columns, as the migrations do."""
    names = [n for n in MEMORY if n != "memory.stores.sql.engine.schema"]
    places = [
        (n, node.lineno) for n in names for node in ast.walk(TREES[n]) if names_own_table(node)
    ]
    assert places == []


def test_the_face_of_the_memory_is_whole():
    """What a checker sees, what is listed and what is imported on use are the same."""
    stub = ast.parse(FILES["memory"].with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    seen = {a.asname: node.module for node in imports for a in node.names if a.asname == a.name}
    assert len(seen) == sum(len(node.names) for node in imports)
    assert seen == memory._MODULE_OF
    assert sorted(memory.__all__) == sorted(seen)
    assert not {n.split(".")[1] for n in FILES if n.startswith("memory.")} & set(seen)
    for name, module in seen.items():
        assert getattr(memory, name) is getattr(import_module(module), name)
    assert set(memory.__all__) <= set(dir(memory))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        memory.nothing  # noqa: B018


def test_the_face_of_the_memory_loads_what_is_used_of_it():
    code = "import sys; from memory import Cache, new_id; print('sqlalchemy' in sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert out.stdout.strip() == "False"


def test_there_is_no_import_cycle():
    graph = {n: named(n) - {n} for n in FILES}
    seen: dict[str, int] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path, name))
        if name not in seen:
            for other in graph[name]:
                visit(other, (*path, name))
            seen[name] = 1

    for name in graph:
        visit(name, ())


# Who imports modules of ours by a string: the memory's face, and the choice of a database's kind.
IMPORTS_ON_USE = {
    "memory",
    "memory.stores.sql.engine.database_kinds",
}
KIND_ASKED = re.compile(r"dialect\.name\s*[!=]=|is_sqlite\(|isinstance\([^)]*sqlite3\.Connection\)")
# Whoever asks for the kind of a connection's database, each to ask its driver in time.
ASKS_FOR_KIND = {"memory.stores.sql.engine.statements"}


def test_modules_are_imported_by_a_string_where_a_kind_is_chosen_alone():
    assert {n for n in FILES if "importlib.import_module" in imported(n)} == set()
    assert {n for n in FILES if named(n) - ours(n)} <= IMPORTS_ON_USE


def test_what_differs_by_kind_of_database_is_asked_of_the_driver():
    asking = {n for n, path in FILES.items() if KIND_ASKED.search(path.read_text("utf-8"))}
    assert asking <= ASKS_FOR_KIND


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
            "gateway.chat.turn.turn",
            "gateway.apis.round_result",
            "gateway.apis.chat.choice_state",
            "gateway.apis.chat.interceptor",
            "gateway.wire.chat",
            "gateway.wire.merge",
            "gateway.wire.fast_path",
            "gateway.wire.sse",
        )
    )
    with capsys.disabled():
        by = sorted(lines.values())
        fl = sorted(lengths)
        print(
            f"\nmodules: {len(by)}, median {median(by)}, p90 {by[len(by) * 9 // 10]}, max "
            f"{by[-1]}; functions: {len(fl)}, median {median(fl)}, "
            f"p90 {fl[len(fl) * 9 // 10]}, max {fl[-1]}; imports out of a module: mean "
            f"{mean(reach):.1f}; the turn's core: {core} lines"
        )
    assert {n: k for n, k in lines.items() if k > 500} == {}


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
import resource, sys, time
begun = time.process_time()
from gateway.app import create_app
from gateway.config.loader import load
app = create_app(load(None, {}, {"storage.data": sys.argv[1], "upstream": "http://127.0.0.1:9/v1"}))
heavy = {
    "chromadb", "onnxruntime", "numpy", "redis", "alembic", "tiktoken", "tokenizers", "httpx",
    "aiohttp", "sqlalchemy.orm", "sqlalchemy.dialects.postgresql", "asyncpg",
    "memory.stores.sql.engine.postgres.postgres",
    "memory.stores.sql.engine.postgres.postgres_statements",
    "memory.stores.sql.engine.postgres.postgres_index", "memory.stores.sql.index.stems", "litestar",
} & set(sys.modules)
print(sorted(heavy))
"""


def test_create_app_imports_nothing_heavy(tmp_path):
    out = subprocess.run(
        [sys.executable, "-c", START, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
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
