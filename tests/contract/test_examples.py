"""config/providers.toml: every example loads by itself and makes an upstream, all of them load
together, and as shipped none is there.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from gateway.config.loader import load
from gateway.upstream.factory import build_upstreams

FILE = Path(__file__).parents[2] / "config" / "providers.toml"
TEXT = FILE.read_text(encoding="utf-8")
UNCOMMENTED = re.sub(r"^#(?=[\w\[])", "", TEXT, flags=re.MULTILINE)
EXAMPLES = {
    m[1]: m[0] for m in re.finditer(r"^\[providers\.(\w+)\]\n(?:.+\n)+", UNCOMMENTED, re.MULTILINE)
}
ENV = dict.fromkeys(re.findall(r"\$\{(\w+)\}", TEXT), "sk-x")
KEYS = '[[keys]]\nname = "app"\nkey = "mg"\ntenant = "t"\n'


def test_the_file_as_it_is_holds_nothing():
    assert tomllib.loads(TEXT) == {}
    assert set(EXAMPLES) == {
        "openai",
        "azure",
        "anthropic",
        "groq",
        "gemini",
        "mistral",
        "deepseek",
        "xai",
        "together",
        "openrouter",
        "ollama",
        "vllm",
        "lmstudio",
        "llamacpp",
    }


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_loads_once_uncommented(tmp_path, name):
    (tmp_path / "g.toml").write_text(EXAMPLES[name] + KEYS)
    settings = load(tmp_path / "g.toml", ENV)
    assert list(settings.providers) == [name]
    assert [t.provider for m in settings.models.values() for t in m.targets] == [name]
    assert list(build_upstreams(settings, {name: None})) == [name]


def test_all_load_together(tmp_path):
    (tmp_path / "g.toml").write_text(UNCOMMENTED + KEYS)
    assert set(load(tmp_path / "g.toml", ENV).providers) == set(EXAMPLES)
