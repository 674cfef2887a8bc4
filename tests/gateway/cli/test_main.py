"""The command line: what it says, how it fails, and the gateway it starts, as processes on real
sockets.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import click
import httpx
import pytest
from click.testing import CliRunner
from openai import OpenAI

from gateway.auth import peer_user
from gateway.cli.demo import _first_model
from gateway.cli.embedded import bind_socket, url_of
from gateway.cli.formatting import arguments, tool_lines
from gateway.cli.lockfile import hold_lock, running_url
from gateway.cli.main import cli
from gateway.cli.serve import startup_lines
from gateway.config.loader import load
from gateway.demo_model.server import start as start_bundled
from tests.gateway.cli.command import ROOT, mnemogate, spawned, started

HEAVY = (
    "litestar",
    "sqlalchemy",
    "pydantic",
    "httpx",
    "openai",
    "uvicorn",
    "chromadb",
    "tiktoken",
    "numpy",
)


@pytest.fixture
def bundled():
    with start_bundled() as server:
        yield server


def commands(group=cli, path=("mnemogate",)):
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


def test_help_imports_nothing_heavy():
    code = f"import sys, gateway.cli.main; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@pytest.mark.parametrize(
    ("path", "command"),
    [pytest.param(p, c, id=" ".join(p)) for p, c in [(("mnemogate",), cli), *commands()]],
)
def test_every_command_has_help_with_an_example(path, command):
    done = CliRunner().invoke(cli, [*path[1:], "--help"])
    assert done.exit_code == 0
    assert "Example" in done.output
    assert f"  {' '.join(path)}" in done.output.split("Example", 1)[1]
    described = [p for p in command.params if isinstance(p, click.Option) and not p.help]
    assert described == []


WITHOUT_JSON = {
    "serve": "runs until it is stopped",
    "run": "becomes another program",
    "jobs run": "runs until it is stopped",
    "demo": "is read by people, and then serves",
    "chat": "is read by people",
    "ui": "opens a browser",
    "mcp": "speaks a protocol",
    "config": "prints TOML",
    "memory export": "writes JSON lines, or pages",
    "agents export": "writes an .af file",
    "memory erase": "always prints JSON",
    "tools show": "always prints JSON",
    "index rebuild": "tells its progress; the exit code says whether it is done",
    "fetch tokenizers": "tells its progress; the exit code says whether it is done",
    "fetch embedder": "tells its progress; the exit code says whether it is done",
}


def test_every_command_with_a_result_prints_it_as_json():
    without = {
        " ".join(path[1:])
        for path, command in commands()
        if not isinstance(command, click.Group)
        and not any("--json" in p.opts for p in command.params)
    }
    assert without == set(WITHOUT_JSON)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands(shell):
    done = CliRunner().invoke(
        cli, prog_name="mnemogate", env={"_MNEMOGATE_COMPLETE": f"{shell}_source"}
    )
    assert done.exit_code == 0
    assert "_MNEMOGATE_COMPLETE" in done.output


def test_the_commands_of_this_version_are_there():
    assert {" ".join(p[1:]) for p, _ in commands()} >= {
        "serve",
        "demo",
        "try",
        "chat",
        "doctor",
        "db upgrade",
        "db backup",
        "db copy",
        "db erase-again",
        "db vacuum",
        "users list",
        "users move",
        "config",
        "fetch tokenizers",
        "keys create",
        "keys list",
        "keys revoke",
        "jobs list",
        "jobs retry",
        *(
            f"memory {c}"
            for c in (
                "show",
                "remember",
                "forget",
                "edit",
                "undo",
                "history",
                "search",
                "export",
                "import",
                "dropped",
                "keep",
                "erase",
            )
        ),
    }


def test_the_docs_name_only_what_there_is():
    text = "\n".join(
        p.read_text() for p in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    )
    there = {" ".join(p[1:]) for p, _ in commands()}
    named = set(re.findall(r"mnemogate (?:memory |db |fetch |keys |jobs )?[a-z]+(?=[`\s])", text))
    assert {n.removeprefix("mnemogate ") for n in named} <= there
    settings = set(re.findall(r"`((?:server|storage|memory|identity|routing)\.\w+)", text))
    assert settings
    assert [
        s
        for s in settings
        if s.split(".")[1] not in type(getattr(load(None, {}), s.split(".")[0])).model_fields
    ] == []


def test_a_configuration_that_cannot_be_used_exits_2_without_a_traceback(tmp_path):
    path = tmp_path / "g.toml"
    path.write_text("[server]\nprot = 1\n")
    done = mnemogate(tmp_path, "serve", "--config", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "Error: server.prot: there is no such setting, did you mean port? config/gateway.toml "
        "lists them all\n"
    )


def test_a_provider_kind_that_nobody_knows_exits_2(tmp_path):
    path = tmp_path / "g.toml"
    path.write_text('[providers.a]\nkind = "cohere"\nbase_url = "https://x/v1"\n')
    done = mnemogate(tmp_path, "serve", "--port", "0", "--config", str(path))
    assert done.returncode == 2
    assert (
        "providers.a.kind: Input should be 'openai', 'anthropic' or 'azure', not 'cohere'"
        in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_told(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = mnemogate(tmp_path, "serve", "--port", str(port))
    assert done.returncode == 1
    assert f"127.0.0.1:{port} is in use" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_data_folder_that_cannot_be_used_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    done = mnemogate(tmp_path / "file" / "data", "serve", "--port", "0")
    assert done.returncode == 1
    assert "MNEMOGATE_DATA" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_start_tells_the_mode_and_whom_a_key_names():
    managed = load(
        None,
        {},
        {
            "keys": [
                {"name": "app", "key": "k", "tenant": "t"},
                {"name": "me", "key": "l", "tenant": "t", "default_user": "ada"},
            ]
        },
    )
    lines = "\n".join(startup_lines(managed, "http://x"))
    assert "managed keys" in lines
    assert "the key 'app' names nobody" in lines
    assert "the key 'me' names nobody" not in lines
    assert "single-user" not in lines
    alone = "\n".join(startup_lines(load(None, {}), "http://x"))
    assert "own-key" in alone
    assert "single-user: this machine only" in alone
    assert "warning" not in alone
    assert "keys name nobody" in "\n".join(
        startup_lines(load(None, {}, {"server.host": "0.0.0.0"}), "http://x")
    )
    named = {"providers": {"a": {"base_url": "https://bob:hunter2@models.example/v1"}}}
    assert "upstream   a: https://models.example/v1" in "\n".join(
        startup_lines(load(None, {}, named), "http://x")
    )
    claude = {"providers": {"a": {"kind": "anthropic", "base_url": "https://api.anthropic.com"}}}
    assert "every call is a 404" in "\n".join(startup_lines(load(None, {}, claude), "http://x"))
    background = {
        "memory.extract": "always",
        "memory.reflect": {"every_turns": 3},
        "memory.cleanup": "auto",
    }
    assert "for models that take no tools, or called none in their last 8 turns" in alone
    assert "extract    always: for every model, the same model reads a user's messages of 6" in (
        "\n".join(startup_lines(load(None, {}, background), "http://x"))
    )
    # All of it is acted on.
    assert "warning" not in "\n".join(startup_lines(load(None, {}, background), "http://x"))


OF_THIS_USER = f"programs of this user only ({os.geteuid()}); a proxy of the same user cannot be"
OF_EVERY_USER = "programs of every user of this machine, since "


@pytest.mark.parametrize(
    ("server", "can_tell", "told"),
    [
        ({}, True, OF_THIS_USER),
        ({}, False, "programs of every user, since this system does not tell whose they are; "),
        ({"peers": "any"}, True, f'{OF_EVERY_USER}server.peers = "any"; '),
        ({"hosts": ["host.docker.internal"]}, True, f"{OF_EVERY_USER}server.hosts is set; "),
    ],
    ids=["this user", "cannot tell", "peers", "hosts"],
)
def test_the_start_tells_whose_programs_are_answered_without_a_key(
    monkeypatch, server, can_tell, told
):
    monkeypatch.setattr(peer_user, "can_find_peer_user", lambda: can_tell)
    lines = startup_lines(load(None, {}, {"server": server}), "http://x")
    (line,) = [line for line in lines if line.startswith("  peers      ")]
    assert line.removeprefix("  peers      ").startswith(told)
    assert "proxy" in line
    assert "managed keys" in line
    keyed = startup_lines(load(None, {}, {"server": server, **KEYED}), "http://x")
    assert not [line for line in keyed if "peers" in line]


def test_the_demo_ends_on_an_interrupt_that_its_parent_ignores(tmp_path):
    """As a shell ignores it for what it runs in the background."""
    demo = (
        "sh",
        "-c",
        'trap "" INT; exec "$@"',
        "sh",
        sys.executable,
        "-m",
        "gateway",
        "demo",
        "--port",
        "0",
    )
    with spawned(tmp_path, *demo, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        assert any("until Ctrl-C" in line for line in child.stdout)
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 0


KEYED = {"keys": [{"name": "app", "key": "k", "tenant": "t", "default_user": "ada"}]}


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("https://api.openai.com/v1", True),
        ("https://openrouter.ai:8443/api/v1", True),
        ("http://8.8.8.8/v1", True),
        ("http://[2606:4700::1111]/v1", True),
        ("http://localhost:11434/v1", False),
        ("http://127.0.0.1:11434/v1", False),
        ("http://[::1]:11434/v1", False),
        ("http://192.168.1.5:8000/v1", False),
        ("http://ollama:11434/v1", False),
        ("http://host.docker.internal:11434/v1", False),
        ("http://vllm.ml.svc.cluster.local/v1", False),
        ("http://BOX.local/v1", False),
        ("https://bob:hunter2@models.example/v1", False),
    ],
)
def test_a_provider_that_would_be_called_without_a_key_is_warned_of(url, warned):
    def lines(**more):
        start = startup_lines(
            load(None, {}, {"providers": {"a": {"base_url": url, **more.pop("a", {})}}, **more}),
            "http://x",
        )
        return [line for line in start if "api_key" in line]

    text = (
        f"  warning    providers.a has no api_key, and clients' keys are not forwarded: {url} is "
        "called without one. Set providers.a.api_key, unless that server needs none"
    )
    assert (
        lines(**KEYED)
        == lines(**{"server.open": True})
        == lines(**KEYED, a={"api_key": ""})
        == ([text] if warned else [])
    )
    # In own-key mode each client brings its own.
    assert lines(**KEYED, a={"api_key": "sk"}) == lines() == []


def test_a_tool_call_is_shown_on_one_line():
    record = {
        "tools": [
            {
                "name": "core_memory_append",
                "arguments": '{"label": "human", "content": "Name:\\nAda"}',
            }
        ]
    }
    assert tool_lines(record) == ['core_memory_append(label="human", content="Name:\\nAda")']
    assert tool_lines({"tools": []}) == []
    assert "is unknown" in tool_lines(None)[0]
    assert len(arguments({"content": "x" * 1000})) == 110
    assert arguments("not json") == "not json"


def test_the_url_is_one_a_client_can_use():
    with bind_socket("0.0.0.0", 0) as sock:
        assert url_of(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}"


def test_a_note_counts_only_while_its_gateway_lives(tmp_path):
    assert running_url(tmp_path) is None
    with hold_lock(tmp_path, "http://127.0.0.1:1") as other:
        assert other is None
        assert running_url(tmp_path) == "http://127.0.0.1:1"
        with hold_lock(tmp_path, "http://127.0.0.1:2") as other:
            assert other == "http://127.0.0.1:1"
        assert running_url(tmp_path) == "http://127.0.0.1:1"
    assert running_url(tmp_path) is None
    # What a killed one leaves.
    (tmp_path / "running").write_text(json.dumps({"url": "http://127.0.0.1:3"}))
    assert running_url(tmp_path) is None


def test_serve_starts_answers_and_ends_with_0_once_its_stream_is_done(tmp_path):
    with (
        start_bundled(pace=0.15) as slow,
        started(tmp_path, "serve", "--port", "0", "--upstream", slow.url) as process,
    ):
        assert httpx.get(f"{process.url}/health").json() == {"status": "ok"}
        process.waited(rf"upstream +openai: {slow.url}")
        process.waited(rf"memory +{tmp_path} \(sqlite\)")
        with OpenAI(base_url=f"{process.url}/v1", api_key="k", max_retries=0) as client:
            stream = client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Who are you?"}], stream=True
            )
            pieces = [next(stream)]
            process.popen.send_signal(signal.SIGTERM)
            pieces += list(stream)
        assert pieces[-1].choices[0].finish_reason == "stop"
        assert len(pieces) > 5
        assert process.popen.wait(10) == 0
        assert "Traceback" not in "\n".join(process.lines)


def test_a_second_signal_ends_it_at_once_and_without_a_traceback(tmp_path, bundled):
    with started(tmp_path, "serve", "--port", "0", "--upstream", bundled.url) as process:
        httpx.get(f"{process.url}/health")
        process.popen.send_signal(signal.SIGINT)
        # Two that come together are one.
        time.sleep(0.02)
        assert process.stopped(signal.SIGINT) == 0
        process._reader.join(5)
        assert "Traceback" not in "\n".join(process.lines)


def test_memory_outlives_the_process(tmp_path, bundled):
    def said(text, **options):
        with started(tmp_path, "serve", "--port", "0", "--upstream", bundled.url) as process:
            with OpenAI(base_url=f"{process.url}/v1", api_key="k", max_retries=0) as client:
                answer = client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": text}], user="ada", **options
                )
                got = (
                    "".join(c.choices[0].delta.content or "" for c in answer if c.choices)
                    if options
                    else answer.choices[0].message.content
                )
            assert process.stopped() == 0
        return got

    said("My name is Ada. Remember that the spare key is with Bob.", stream=True)
    assert said("What is my name?") == "Your name is Ada."
    assert "Bob" in said("Where is the spare key?", stream=True)


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_start_ends_it_with_0(tmp_path, bundled, sig):
    with started(tmp_path, "serve", "--port", "0", "--upstream", bundled.url) as process:
        process.waited("Mnemogate serves")
        assert process.stopped(sig) == 0


@pytest.fixture(scope="module")
def demo_once(tmp_path_factory):
    """One demo that ended: its data folder, and the command as it ended."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, mnemogate(folder, "demo", "--once", "--port", "0")


def sessions(output):
    """The lines of each session."""
    lines = output.splitlines()
    starts = [lines.index(f"Session {number}") for number in (1, 2, 3)]
    return [lines[a + 1 : b] for a, b in zip(starts, [*starts[1:], len(lines)], strict=True)]


def test_the_demos_second_session_answers_from_what_the_first_learned(demo_once):
    tmp_path, done = demo_once
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    first, second, third = sessions(done.stdout)
    for lines in (first, second, third):
        assert [
            line.split(":")[0] for line in lines if line.startswith(("You:", "Assistant:"))
        ] == ["You", "Assistant"] * 2
    answers = [line for line in second if line.startswith("Assistant:")]
    assert "Ada" in answers[0]
    assert "green tea" in answers[0]
    assert "Friday" in answers[1]
    assert "Ada" not in " ".join(line for line in second if line.startswith("You:"))
    assert "STAND-IN" in done.stdout
    assert "not a real language model" in done.stdout
    assert (tmp_path / "demo" / "mnemogate.db").exists()
    assert not (tmp_path / "mnemogate.db").exists()


def test_a_data_folder_that_the_demo_makes_is_its_users_alone(tmp_path):
    data = tmp_path / "share" / "mnemogate"
    assert mnemogate(data, "demo", "--once", "--port", "0").returncode == 0
    assert [oct(p.stat().st_mode & 0o777) for p in (data, data / "demo")] == ["0o700", "0o700"]


def test_the_demo_shows_a_tool_and_a_file_offline(demo_once):
    third = sessions(demo_once[1].stdout)[2]
    answers = [line for line in third if line.startswith("Assistant:")]
    assert "light rain in Oslo (invented for the demo)" in answers[0]
    assert answers[1] == "Assistant: house.md says: The spare key hangs behind the blue door."
    assert '    tool: get_weather(city="Oslo")' in third
    assert '    tool: file_search(query="the spare key")' in third


def test_the_demo_shows_the_memory_calls_beside(demo_once):
    first, second, _ = sessions(demo_once[1].stdout)
    assert any(line.startswith("    memory: core_memory_append(") for line in first)
    assert any(line.startswith("    memory: archival_memory_insert(") for line in first)
    assert any(line.startswith("    memory: archival_memory_search(") for line in second)


def test_the_demo_keeps_serving_and_ends_with_0(tmp_path):
    for sig in (signal.SIGINT, signal.SIGTERM):
        with started(tmp_path, "demo", "--port", "0") as process:
            process.waited("until Ctrl-C")
            user = process.waited(r"User:  (\S+)")[1]
            url = process.waited(r'base_url = "(\S+)"')[1]
            with OpenAI(base_url=url, api_key="any", max_retries=0) as client:
                answer = client.chat.completions.create(
                    model="mnemogate-demo",
                    user=user,
                    messages=[{"role": "user", "content": "What is my name?"}],
                )
            assert answer.choices[0].message.content == "Your name is Ada."
            assert process.stopped(sig) == 0
            assert "Traceback" not in "\n".join(process.lines)


def test_a_demo_that_finds_its_port_taken_takes_another(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = mnemogate(tmp_path, "demo", "--once", "--port", str(port))
    assert done.returncode == 0, done.stderr
    assert f"127.0.0.1:{port} is in use; this demo takes port " in done.stdout


def test_the_demo_uses_the_upstream_and_key_of_the_environment(tmp_path, bundled):
    done = mnemogate(
        tmp_path,
        "demo",
        "--once",
        "--port",
        "0",
        OPENAI_API_KEY="sk-mine",
        MNEMOGATE_UPSTREAM=bundled.url,
        MNEMOGATE_DEMO_MODEL="mine-7b",
    )
    assert done.returncode == 0, done.stderr
    assert f"Model: mine-7b at {bundled.url}" in done.stdout
    assert "STAND-IN" not in done.stdout
    done = mnemogate(tmp_path, "demo", "--once", "--port", "0", MNEMOGATE_UPSTREAM=bundled.url)
    assert f"Model: mnemogate-demo at {bundled.url}" in done.stdout


def test_a_demo_whose_upstream_is_away_says_so(tmp_path):
    done = mnemogate(
        tmp_path,
        "demo",
        "--once",
        "--port",
        "0",
        OPENAI_API_KEY="sk-mine",
        MNEMOGATE_UPSTREAM="http://127.0.0.1:9/v1",
    )
    assert done.returncode == 1
    assert "did not answer" in done.stderr
    assert "offline" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_demo_in_whose_folder_keys_were_made_says_what_to_remove(tmp_path):
    assert (
        mnemogate(tmp_path / "demo", "keys", "create", "--name", "a", "--tenant", "t").returncode
        == 0
    )
    done = mnemogate(tmp_path, "demo", "--once", "--port", "0")
    assert done.returncode == 1
    assert f"Remove {tmp_path / 'demo'}" in done.stderr


@pytest.mark.parametrize("command", [("demo", "--once", "--port", "0"), ("chat", "--bundled")])
def test_what_runs_on_this_machine_is_reached_past_the_environments_proxies(tmp_path, command):
    gone = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    done = mnemogate(tmp_path, *command, stdin="My name is Ada.\nWhat is my name?\n", **gone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Assistant: Your name is Ada." in done.stdout


def test_a_demo_asks_a_server_of_this_machine_for_its_models_past_the_proxies(bundled, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert _first_model(bundled.url) == "mnemogate-demo"


def test_a_demo_whose_upstream_has_no_scheme_gives_the_corrected_address(tmp_path):
    for key in ({}, {"OPENAI_API_KEY": "sk-mine"}):
        done = mnemogate(tmp_path, "demo", "--once", MNEMOGATE_UPSTREAM="127.0.0.1:9/v1", **key)
        assert done.returncode == 1
        assert "MNEMOGATE_UPSTREAM: the URL needs a scheme" in done.stderr
        assert "write http://127.0.0.1:9/v1" in done.stderr


def test_a_chat_starts_its_own_gateway_where_none_runs(tmp_path):
    done = mnemogate(tmp_path, "chat", "--bundled", stdin="My name is Ada.\n\nWhat is my name?\n")
    assert done.returncode == 0, done.stderr
    assert "Assistant: Your name is Ada." in done.stdout
    assert (
        "Assistant: Your name is Ada."
        in mnemogate(tmp_path, "chat", "--bundled", stdin="What is my name?\n").stdout
    )
    assert mnemogate(tmp_path, "chat").returncode == 1


def test_a_chat_goes_through_the_running_gateway(tmp_path, bundled):
    with started(tmp_path, "serve", "--port", "0", "--upstream", bundled.url) as process:
        url = process.url
        done = mnemogate(
            tmp_path, "chat", stdin="My name is Bo.\nWhat is my name?\n", OPENAI_API_KEY="sk-x"
        )
        assert done.returncode == 0, done.stderr
        assert f"through {url}" in done.stderr
        assert "Assistant: Your name is Bo." in done.stdout
        refused = mnemogate(
            tmp_path, "chat", "--user", "x" * 2000, stdin="Hi\n", OPENAI_API_KEY="sk-x"
        )
        assert "at most 1024" in refused.stdout
