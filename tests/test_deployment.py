"""The fleet of config/: its files agree with each other and with the settings."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from gateway.config.loader import load

CONFIG = Path(__file__).parents[1] / "config"
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
