"""Take a room away and see that the others go on: run by hand, `python -m tests.take_away`.

In a copy of the source the room's folder is deleted, and what registers it; then every module is
imported, and those that fail are named. Tests can be run in the copy: `python -m tests.take_away
postgres -- tests/memory`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
# The room, and the modules that may name it. Whoever imports one of these fails with it.
ROOMS = {
    "postgres": (
        "memory/stores/sql/engine/postgres",
        ("memory.stores.sql.transfer.copy_to_postgres",),
    ),
    "messages": (
        "gateway/apis/messages",
        ("gateway.server.middleware", "gateway.server.routes", "gateway.demo_model.server"),
    ),
    "stored": (
        "gateway/chat/stored",
        ("gateway.server.stored_routes", "gateway.server.conversation_routes"),
    ),
}
# What is left of the modules that register a room.
UNREGISTERED = {
    "stored": {
        "gateway/chat/stored_registration.py": "STORED = None\n",
        "gateway/server/stored_registration.py": "HANDLERS = ()\n",
    },
}
IMPORT_ALL = """
import importlib, pathlib, sys
failed = []
for package in ("memory", "gateway"):
    for path in sorted(pathlib.Path(package).rglob("*.py")):
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        if "migrations" in name or name.endswith("__main__"):
            continue
        try:
            importlib.import_module(name)
        except ImportError:
            failed.append(name)
print("\\n".join(failed))
"""


def take_away(room: str, target: Path) -> list[str]:
    """Copy the source without a room; return the modules that cannot be imported."""
    for name in ("memory", "gateway", "config", "tests", "pyproject.toml"):
        source = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__", "node_modules")
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=ignored)
        else:
            shutil.copy(source, target / name)
    shutil.rmtree(target / ROOMS[room][0])
    for path, text in UNREGISTERED.get(room, {}).items():
        (target / path).write_text(text)
    run = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], cwd=target, capture_output=True, text=True, check=True
    )
    return run.stdout.split()


def main() -> None:
    arguments = sys.argv[1:]
    tests = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    names = arguments[: arguments.index("--")] if "--" in arguments else arguments
    for name in names or ROOMS:
        allowed = ROOMS[name][1]
        with tempfile.TemporaryDirectory() as target:
            failed = take_away(name, Path(target))
            unexpected = [module for module in failed if module not in allowed]
            print(f"{name}: {len(failed)} modules cannot be imported: {', '.join(failed)}")
            print(f"  beyond what may name it: {', '.join(unexpected) or 'none'}")
            if tests:
                command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
                subprocess.run(command, cwd=target, check=False)


if __name__ == "__main__":
    main()
