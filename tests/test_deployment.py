"""The fleet of config/, and the image: the files agree with each other and with the settings."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from gateway.cli.main import cli
from gateway.config.loader import load
from gateway.server.uvicorn_server import KEPT_SECONDS

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "config"
COMPOSED = sorted(CONFIG.glob("compose*.yaml"))
SECRETS = {
    "MNEMOGATE_DATABASE": "postgresql+asyncpg://mnemogate:p@postgres/mnemogate",
    "MNEMOGATE_SECRET": "ab" * 32,
    "APP_KEY": "mg-app",
    "OPENAI_API_KEY": "sk",
}


def compose():
    return yaml.safe_load((CONFIG / "compose.yaml").read_text())


def gateways():
    services = compose()["services"]
    return {name: s for name, s in services.items() if name.startswith("gateway-")}


def test_the_gateways_have_all_that_their_settings_name():
    named = set(re.findall(r"\$\{(\w+)\}", (CONFIG / "fleet.toml").read_text()))
    services = [*gateways().values(), compose()["services"]["migrate"]]
    assert named == set(SECRETS)
    assert all(set(s["environment"]) == named for s in services)
    assert all(s["command"][2] == "/etc/mnemogate/fleet.toml" for s in gateways().values())
    mount = "./config/fleet.toml:/etc/mnemogate/fleet.toml:ro"
    assert all(mount in s["volumes"] for s in services)


def test_the_settings_reach_the_other_services():
    settings, services = load(CONFIG / "fleet.toml", SECRETS), compose()["services"]
    address = services["gateway-1"]["environment"]["MNEMOGATE_DATABASE"]
    assert address.endswith("@postgres/mnemogate")
    assert services["postgres"]["environment"]["POSTGRES_DB"] == "mnemogate"
    assert settings.storage.redis == "redis://redis:6379/0"
    assert "redis" in services
    assert (settings.mode, settings.single_user) == ("managed", False)
    assert [(k.name, k.trusted) for k in settings.keys] == [("app", True)]


def test_nginx_knows_every_gateway_and_passes_the_largest_body():
    found = (CONFIG / "nginx.conf").read_text()
    port = load(CONFIG / "fleet.toml", SECRETS).server.port
    assert set(re.findall(r"server ([\w-]+):(\d+)", found)) == {
        (name, str(port)) for name in gateways()
    }
    most = int(re.search(r"client_max_body_size (\d+)m", found)[1])
    assert most >= load(CONFIG / "fleet.toml", SECRETS).server.max_body_mib
    assert found.count("{") == found.count("}")


def test_nginx_closes_an_idle_connection_before_a_gateway_does():
    """Else a request that is sent in that moment is lost, and nginx answers 502."""
    kept = re.search(r"keepalive_timeout (\d+)s;", (CONFIG / "nginx.conf").read_text())
    assert int(kept[1]) < KEPT_SECONDS


def test_every_volume_is_declared_and_no_two_gateways_share_one():
    found = compose()
    used = [
        v.partition(":")[0]
        for s in found["services"].values()
        for v in s.get("volumes", ())
        if not v.startswith("./")
    ]
    assert sorted(used) == sorted(found["volumes"])


def test_the_redis_of_limits_evicts_nothing():
    assert "noeviction" in compose()["services"]["redis"]["command"]


def dockerfile():
    """The instructions of the image, each as its word and the rest."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


def last(word):
    return [rest for name, rest in dockerfile() if name == word][-1]


def services(path):
    return yaml.safe_load(path.read_text())["services"]


def built(path):
    """The services that run the Dockerfile's image."""
    return {name: s for name, s in services(path).items() if s.get("build") == "."}


@pytest.mark.parametrize("path", COMPOSED, ids=lambda path: path.stem)
def test_every_image_is_of_a_version(path):
    for service in services(path).values():
        if "image" in service:
            name, _, tag = service["image"].rpartition(":")
            assert name, service["image"]
            assert re.match(r"v?\d", tag), service["image"]


@pytest.mark.parametrize("path", COMPOSED, ids=lambda path: path.stem)
def test_every_service_that_is_waited_for_is_there(path):
    found = services(path)
    waited = {name for s in found.values() for name in s.get("depends_on", ())}
    assert waited <= set(found)


@pytest.mark.parametrize("path", COMPOSED, ids=lambda path: path.stem)
def test_files_that_are_mounted_are_there_where_the_command_reads_them(path):
    for service in services(path).values():
        mounts = [v for v in service.get("volumes", ()) if v.startswith("./")]
        assert all((ROOT / mount.split(":")[0]).is_file() for mount in mounts)
        assert all(mount.endswith(":ro") for mount in mounts)
    for service in built(path).values():
        read = [word for word in service["command"] if word.startswith("/etc/")]
        assert {mount.split(":")[1] for mount in service["volumes"] if mount[0] == "."} == set(read)


@pytest.mark.parametrize("path", COMPOSED, ids=lambda path: path.stem)
def test_the_commands_of_the_image_are_the_gateways_own(path):
    assert last("ENTRYPOINT") == '["mnemogate"]'
    for service in built(path).values():
        found = cli
        for word in service["command"]:
            if not word.startswith("-"):
                found = found.commands[word]
            if not hasattr(found, "commands"):
                break
        options = {name for one in found.params for name in one.opts}
        assert {word for word in service["command"] if word.startswith("--")} <= options


@pytest.mark.parametrize("path", COMPOSED, ids=lambda path: path.stem)
def test_answers_may_finish_before_a_container_is_killed(path):
    for service in built(path).values():
        if service["command"][0] == "serve":
            named = service["command"][2].removeprefix("/etc/mnemogate/")
            settings = load(CONFIG / named, {**SECRETS, "HOUSEHOLD_KEY": "k"})
            seconds = int(service.get("stop_grace_period", "10s").removesuffix("s"))
            assert seconds == settings.server.drain_seconds + 15


def test_the_image_serves_the_port_and_keeps_the_folder_that_others_count_on(tmp_path):
    assert last("EXPOSE") == str(load(None, {}, {"storage.data": str(tmp_path)}).server.port)
    assert f":{last('EXPOSE')}/health" in last("HEALTHCHECK")
    assert last("VOLUME") == last("WORKDIR") == "/data"
    assert "MNEMOGATE_DATA=/data" in last("ENV")
    for path in COMPOSED:
        for name, service in built(path).items():
            kept = [v for v in service["volumes"] if v[0] != "."]
            assert [v.split(":")[1] for v in kept] == (["/data"] if name != "migrate" else [])
            # Only what stands before it is reached.
            assert not service.get("ports")


def test_the_image_is_not_root_and_of_a_version():
    user, group = last("USER").split(":")
    assert user == group
    assert int(user) > 0
    assert f"--uid {user}" in " ".join(rest for name, rest in dockerfile() if name == "RUN")
    assert re.fullmatch(r"BASE=python:3\.\d+-slim", last("ARG"))
    assert all(rest.startswith("${BASE}") for name, rest in dockerfile() if name == "FROM")
    runs = [rest for name, rest in dockerfile() if name == "RUN"]
    assert all(
        "--no-cache-dir" in part for run in runs for part in re.findall("pip install.*?&&", run)
    )


def test_what_the_image_is_built_from_is_let_into_the_build():
    let = {
        line[1:].rstrip("/")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        word.removeprefix("./")
        for name, rest in dockerfile()
        if name == "COPY" and not rest.startswith("--from")
        for word in rest.split()[:-1]
    }
    assert copied == let
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize("path", COMPOSED, ids=lambda path: path.stem)
def test_a_compose_file_passes_the_schema_of_the_compose_specification(path):
    schema = json.loads((ROOT / "tests/vendor/compose-spec/compose-spec.json").read_text())
    found = list(jsonschema.Draft7Validator(schema).iter_errors(yaml.safe_load(path.read_text())))
    assert not found
    broken = {"services": {"gateway": {"imagine": "mnemogate"}}}
    assert not jsonschema.Draft7Validator(schema).is_valid(broken)
