"""Metrics: true counts, bounded labels, no names of people, and who may read them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.metrics import Metrics
from gateway.usage.log import UsageRecord
from tests.conftest import running
from tests.e2e.wire.rows import row
from tests.gateway.management.managing import KEYS, as_key
from tests.models import Model, call, calls

ROOT = Path(__file__).parents[3]
FIND = call("archival_memory_search", {"query": "zebra"})
BASE_UNITS = (
    "_seconds",
    "_tokens",
    "_usd_total",
    "_total",
    "_progress",
    "_ready",
    "_dropped",
    "_turns",
    "_running",
    "_waiting",
    "_up",
)


async def scrape(live, **options):
    response = await live.http.get(f"{live.root}/metrics", **options)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return response.text


def samples(text, name):
    return {
        tuple(sorted(s.labels.items())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if s.name == name
    }


def total(text, name, **labels):
    return sum(
        value
        for found, value in samples(text, name).items()
        if labels.items() <= dict(found).items()
    )


@row(158)
async def test_counters_are_the_true_counts_under_load(data):
    async with Model("Hello.") as up, running(up.url, data) as live:
        done = await asyncio.gather(*(live.chat(f"Hi {i}", user=f"u{i}") for i in range(40)))
        assert {r.status_code for r in done} == {200}
        await live.chat("Hi", headers={"x-memory": "off"})
        assert (await live.chat("Hi", headers={"x-memory": "sideways"})).status_code == 400
        text = await scrape(live)
    assert total(text, "mnemogate_requests_total", memory="ok", status="2xx") == 40
    assert total(text, "mnemogate_requests_total", memory="off", status="2xx") == 1
    assert total(text, "mnemogate_tokens_total", kind="input") == 4100
    assert total(text, "mnemogate_rounds_total") == 41
    assert total(text, "mnemogate_request_duration_seconds_count") == 41
    assert total(text, "mnemogate_injected_tokens_count") == 40
    assert total(text, "mnemogate_http_responses_total", route="v1", status="2xx") == 41
    assert total(text, "mnemogate_http_responses_total", route="v1", status="4xx") == 1
    assert total(text, "mnemogate_requests_in_progress") == 0
    assert total(text, "mnemogate_memory_ready") == 1


async def test_invented_names_add_no_label(data):
    config = {
        "models": {"known": {"targets": [{"provider": "p"}]}, "*": {"targets": [{"provider": "p"}]}}
    }
    async with Model("Hello.") as up:
        config["providers"] = {"p": {"base_url": up.url}}
        async with running(up.url, data, config) as live:
            await live.chat("Hi", model="known")
            before = await scrape(live)
            for i in range(60):
                await live.chat("Hi", model=f"invented-{i}", headers={"x-memory": "off"})
                await live.http.get(f"{live.root}/nowhere-{i}")
            after = await scrape(live)
    assert "invented" not in after
    assert "nowhere" not in after
    assert total(after, "mnemogate_requests_total", model="other") == 60
    assert total(after, "mnemogate_requests_total", model="known", provider="p") == 1
    assert len(after.splitlines()) < len(before.splitlines()) + 60


def test_ten_thousand_invented_names_add_no_label():
    metrics = Metrics(["known", "*"], ["p"])

    def count(name):
        record = UsageRecord(
            name, 0.0, name, name, name, name, f"{name}/{name}", f"/{name}", "full", 5.0, 200
        )
        record.input, record.output, record.rounds, record.cost = 5, 1, 1, 0.5
        record.agent = name
        metrics.observe_request(record, "ok")

    count("invented")
    before = metrics.render({}).decode()
    for number in range(10_000):
        count(f"invented-{number}")
    after = metrics.render({}).decode()
    assert "invented" not in after
    assert len(after.splitlines()) == len(before.splitlines())
    assert total(after, "mnemogate_requests_total", model="other", provider="other") == 10_001
    assert metrics.health == {}


def test_requests_to_agents_of_the_configuration_are_counted_by_name():
    metrics = Metrics(["known"], ["p"], ["house"])
    for agent in ("house", "house", "of-a-tenant", ""):
        record = UsageRecord("r", 0.0, "t", None, "k", "known", "p/m", "/x", "full", 5.0, 200)
        record.agent, record.input, record.cost = agent, 5, 0.5
        metrics.observe_request(record, "ok")
    text = metrics.render({}).decode()
    assert total(text, "mnemogate_agent_requests_total", agent="house", status="2xx") == 2
    assert total(text, "mnemogate_agent_requests_total", agent="other") == 1
    assert total(text, "mnemogate_agent_tokens_total", agent="house", kind="input") == 10
    assert total(text, "mnemogate_agent_cost_usd_total", agent="house") == 1.0
    assert total(text, "mnemogate_requests_total", model="known") == 4
    # A reload without it.
    metrics.configure(["known"], ["p"])
    metrics.observe_request(record, "ok")
    assert "of-a-tenant" not in text


async def test_what_the_memory_did_is_counted(data):
    script = (
        calls(call("core_memory_append", {"label": "human", "content": "Tea"}), FIND),
        "Noted.",
    )
    async with Model(*script) as up, running(up.url, data) as live:
        await live.chat("I like tea", user="ada")
        text = await scrape(live)
    assert total(text, "mnemogate_memory_calls_total", tool="core_memory_append", outcome="ok") == 1
    found = total(
        text, "mnemogate_memory_calls_total", tool="archival_memory_search", outcome="empty"
    )
    assert found == 1
    assert total(text, "mnemogate_memory_search_seconds_count") == 1


async def test_the_text_passes_the_rules_of_the_format(data):
    async with Model("Hello.") as up, running(up.url, data) as live:
        await live.chat("a secret wish", user="ada@example.com")
        text = await scrape(live)
    families = list(text_string_to_metric_families(text))
    assert len(families) == len({f.name for f in families})
    for family in families:
        assert family.documentation, family.name
        assert re.fullmatch(r"mnemogate_[a-z_]+", family.name)
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert name.endswith(BASE_UNITS), name
        assert not (family.type != "counter" and name.endswith("_total"))
    assert "ada" not in text
    assert "secret" not in text
    assert "app" not in text


@pytest.mark.parametrize(
    ("who", "statuses"),
    [
        ("auto", (200, 200, 200)),
        ("open", (200, 200, 200)),
        ("key", (401, 403, 200)),
        ("off", (404, 404, 404)),
    ],
)
async def test_who_may_read_them(data, who, statuses):
    config = {"keys": KEYS, "telemetry.metrics": who}
    async with Model("Hello.") as up, running(up.url, data, config, key="") as live:
        asked = [{}, as_key("sk-other"), as_key("sk-root")]
        found = [await live.http.get(f"{live.root}/metrics", **how) for how in asked]
        assert tuple(r.status_code for r in found) == statuses


async def test_off_loopback_they_need_an_admin_key(data):
    config = {"keys": KEYS, "server.host": "0.0.0.0"}
    async with Model("Hello.") as up, running(up.url, data, config, key="") as live:
        assert (await live.http.get(f"{live.root}/metrics")).status_code == 401
        await scrape(live, **as_key("sk-root"))


COUNT = """
from gateway.telemetry.metrics import Metrics
from types import SimpleNamespace as N
m = Metrics(["m"], ["p"])
for _ in range(3):
    m.observe_request(N(model="m", target="p/m", path="/responses", status=200, code=None, input=5,
        cached_input=0, cache_write=0, output=1, reasoning=0, cost=None, rounds=1, latency_ms=1.0,
        first_token_ms=None, agent=""), "ok")
print(m.render({"memory_ready": 1, "requests_in_progress": 2}).decode())
"""


@row(158)
def test_several_processes_are_summed(tmp_path):
    env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    runs = [
        subprocess.run(
            [sys.executable, "-c", COUNT],
            env=env,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for _ in range(2)
    ]
    assert total(runs[0].stdout, "mnemogate_requests_total") == 3
    assert total(runs[1].stdout, "mnemogate_requests_total", path="/responses") == 6
    assert total(runs[1].stdout, "mnemogate_tokens_total", kind="input") == 30
    # Both count as alive: neither was told that it ends.
    assert total(runs[1].stdout, "mnemogate_memory_ready") == 1
    assert total(runs[1].stdout, "mnemogate_requests_in_progress") == 4


def names_in(text):
    return set(re.findall(r"mnemogate_[a-z_]+", text))


async def test_the_dashboard_and_the_alerts_ask_for_metrics_that_exist(data):
    async with Model(calls(FIND), "Hello.") as up, running(up.url, data) as live:
        await live.chat("Hi", user="ada")
        there = names_in(await scrape(live))
    there |= {f"{n.removesuffix('_total')}_total" for n in there} | {"mnemogate_cost_usd_total"}
    dashboard = (ROOT / "config/grafana.json").read_text()
    assert json.loads(dashboard)["panels"]
    alerts = (ROOT / "config/alerts.yaml").read_text()
    for text in (dashboard, alerts):
        assert names_in(text)
        assert names_in(text) <= there | {"mnemogate_compactions_total"}


def test_a_process_that_ends_leaves_its_counters_and_takes_its_gauges(tmp_path):
    env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}

    def run(code):
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, env=env, cwd=ROOT, capture_output=True, text=True, check=True
        )
        return done.stdout

    ending = "import asyncio; from gateway.telemetry.metrics import close_metrics"
    run(f"{COUNT}{ending}; asyncio.run(close_metrics())")
    text = run(COUNT)
    assert total(text, "mnemogate_requests_in_progress") == 2
    assert total(text, "mnemogate_requests_total") == 6
