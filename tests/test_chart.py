"""The chart of config/: no helm is at hand, so its templates are read with a small stand-in, and
what comes out is looked at as Kubernetes would.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import yaml

from gateway.config.loader import load
from gateway.config.settings import Settings

CHART = Path(__file__).parents[1] / "config" / "chart"
TEMPLATES = sorted((CHART / "templates").glob("*.yaml"))
KINDS = {
    "ConfigMap": "v1",
    "StatefulSet": "apps/v1",
    "Service": "v1",
    "PodDisruptionBudget": "policy/v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "Job": "batch/v1",
}
SECRETS = {
    "MNEMOGATE_DATABASE": "postgresql+asyncpg://mnemogate:p@postgres/mnemogate",
    "MNEMOGATE_SECRET": "ab" * 32,
    "APP_KEY": "mg-app",
    "OPENAI_API_KEY": "sk",
}
ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}")
INCLUDED = re.compile(r'\{\{- (include "([\w.]+)" \.|toYaml (\.[\w.]+)) \| nindent (\d+) \}\}')


def values():
    return yaml.safe_load((CHART / "values.yaml").read_text())


def looked_up(path):
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    found = {
        "Values": values(),
        "Release": {"Name": "r", "Revision": 1},
        "Chart": {"AppVersion": chart["appVersion"]},
    }
    for part in path.strip(".").split("."):
        found = found[part]
    return found


def definition(name):
    text = (CHART / "templates" / "_pod.tpl").read_text()
    found = re.search(rf'define "{name}" -\}}\}}\n(.*?)\{{\{{- end', text, re.DOTALL)
    return ACTION.sub(put, found[1].rstrip())


def put(action):
    """What a template's action stands for. Raises for one that this stand-in does not know."""
    told = action[1]
    if told.startswith(("if ", "end")):
        return ""
    if found := re.fullmatch(r'include "([\w.]+)" \.( \| quote)?', told):
        return f'"{definition(found[1])}"' if found[2] else definition(found[1])
    if found := re.fullmatch(r"add (\.[\w.]+) (\d+)", told):
        return str(looked_up(found[1]) + int(found[2]))
    path, *pipes = told.split(" | ")
    out = looked_up(path)
    for pipe in pipes:
        if pipe.startswith("default "):
            out = out or looked_up(pipe.removeprefix("default "))
        elif pipe == "quote":
            out = yaml.safe_dump(str(out), default_style='"', width=10**6).strip()
        elif pipe == "sha256sum":
            out = "0" * 64
        else:
            raise AssertionError(f"an unknown pipe: {pipe}")
    return str(out)


def block(found):
    text = definition(found[2]) if found[2] else yaml.safe_dump(looked_up(found[3]))
    return "\n" + textwrap.indent(text.strip(), " " * int(found[4]))


def rendered(path):
    text = INCLUDED.sub(block, path.read_text())
    return yaml.safe_load(ACTION.sub(put, text))


def all_rendered():
    return {found["kind"]: found for found in map(rendered, TEMPLATES)}


def pods():
    found = all_rendered()
    return [found[kind]["spec"]["template"]["spec"] for kind in ("StatefulSet", "Job")]


def test_the_chart_says_what_it_is():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["apiVersion"], chart["name"], chart["type"]) == ("v2", "mnemogate", "application")
    assert re.fullmatch(r"\d+\.\d+\.\d+", chart["version"])


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_each_template_is_one_object_of_a_known_kind(path):
    found = rendered(path)
    assert KINDS[found["kind"]] == found["apiVersion"]
    assert found["metadata"]["name"].startswith("r")
    assert path.read_text().count("{{- if ") == path.read_text().count("{{- end }}")


def test_what_selects_pods_finds_them():
    found = all_rendered()
    labels = found["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert found["StatefulSet"]["spec"]["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    target = found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("StatefulSet", "r")


def test_a_pod_has_whatever_it_mounts_and_writes_nowhere_else():
    claimed = {
        c["metadata"]["name"] for c in all_rendered()["StatefulSet"]["spec"]["volumeClaimTemplates"]
    }
    for pod in pods():
        there = {volume["name"] for volume in pod["volumes"]} | claimed
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} <= there
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert security["runAsNonRoot"]


def test_answers_may_finish_before_a_pod_is_killed(tmp_path):
    path = tmp_path / "gateway.toml"
    path.write_text(values()["config"])
    settings = load(path, SECRETS)
    pod, _ = pods()
    assert settings.server.drain_seconds == values()["drainSeconds"]
    assert pod["terminationGracePeriodSeconds"] == values()["drainSeconds"] + 15
    (container,) = pod["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"


def test_the_settings_are_valid_and_name_the_secrets_of_the_comment(tmp_path):
    path = tmp_path / "gateway.toml"
    path.write_text(all_rendered()["ConfigMap"]["data"]["gateway.toml"])
    settings = load(path, SECRETS)
    assert settings.storage.is_postgres
    named = set(re.findall(r"\$\{(\w+)\}", path.read_text()))
    assert named == set(SECRETS)
    assert all(
        name in (CHART / "values.yaml").read_text().partition("replicas")[0] for name in named
    )


def paths(found, before=""):
    """The names of all values, those of a mapping with its own before them."""
    for name, value in found.items():
        path = f"{before}.{name}"
        yield path
        if isinstance(value, dict):
            yield from paths(value, path)


def test_every_value_that_a_template_reads_is_there_and_every_one_is_read():
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    read = set(re.findall(r"\.Values((?:\.\w+)+)", text))
    there = set(paths(values()))
    assert read <= there
    assert all(
        any(f"{path}.".startswith(f"{one}.") or one.startswith(f"{path}.") for one in read)
        for path in there
    )


def test_the_settings_and_the_port_that_a_pod_names_exist(tmp_path):
    path = tmp_path / "gateway.toml"
    path.write_text(values()["config"])
    gateway, upgrade = (pod["containers"][0] for pod in pods())
    names = [one["name"] for one in upgrade["env"]]
    assert names
    for name in names:
        section, _, setting = name.removeprefix("MNEMOGATE_").lower().partition("__")
        assert setting in Settings.model_fields[section].annotation.model_fields
    port = gateway["ports"][0]["containerPort"]
    assert port == load(path, SECRETS).server.port
    assert f"EXPOSE {port}\n" in (CHART.parents[1] / "Dockerfile").read_text()


def test_a_pod_runs_as_the_user_who_owns_its_folder():
    image = (CHART.parents[1] / "Dockerfile").read_text()
    user = re.search(r"^USER (\d+):", image, re.MULTILINE)[1]
    assert pods()[0]["securityContext"]["fsGroup"] == int(user)
    assert "/data" in [m["mountPath"] for m in pods()[0]["containers"][0]["volumeMounts"]]
    assert re.search(r"^VOLUME /data$", image, re.MULTILINE)
