"""Settings: the shipped file shows every one with its default; what cannot be used is refused by
name and path.
"""

from __future__ import annotations

import re
import tomllib
import typing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from gateway.config.loader import load
from gateway.config.settings import ConfigError, Settings
from gateway.config.tools import KINDS, ToolSettings
from gateway.config.validation import HIDDEN

FILE = Path(__file__).parents[3] / "config" / "gateway.toml"
EXAMPLES = {"OPENAI_API_KEY": "sk-openai", "MNEMOGATE_APP_KEY": "mg-app"}


def uncommented() -> str:
    """The file with its examples (lines of # and no space) in force."""
    return re.sub(r"^#(?=[\w\[])", "", FILE.read_text(), flags=re.MULTILINE)


def parts(annotation: Any) -> list[type[BaseModel]]:
    """The models a field's type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for a in typing.get_args(annotation) for m in parts(a)]


def plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {k: plain(getattr(value, k)) for k in type(value).model_fields}
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return [plain(v) for v in value] if isinstance(value, tuple | list) else value


def compare(model: type[BaseModel], shown: dict[str, Any], where: str, found: list[str]) -> None:
    for name, field in model.model_fields.items():
        path = f"{where}.{name}".lstrip(".")
        if name not in shown:
            found.append(f"{path} is missing")
            continue
        value, default = (
            shown[name],
            None if field.is_required() else field.get_default(call_default_factory=True),
        )
        # What every kind takes is shown at one of them.
        if path == "tools":
            common = {k: v for e in reversed(value.values()) for k, v in e.items()}
            common = {k: v for k, v in common.items() if k in ToolSettings.model_fields}
            for entry, told in value.items():
                # One of two is needed, and neither is a default.
                needed = {"python": "source", "mcp": "url"}.get(told["kind"])
                told = {**told, needed: ""} if needed else told
                compare(KINDS[told["kind"]], {**common, **told}, f"tools.{entry}", found)
            continue
        inner = parts(field.annotation)
        if isinstance(value, dict) and inner:
            entries = (
                list(value.values()) if typing.get_origin(field.annotation) is dict else [value]
            )
            compare(inner[0], {k: v for e in reversed(entries) for k, v in e.items()}, path, found)
        elif isinstance(value, list) and inner and not default:
            compare(inner[0], value[0], f"{path}[0]", found)
        if (
            not field.is_required()
            and default not in (None, {}, ())
            and plain(default) != plain(value)
        ):
            found.append(f"{path} is {value!r}, its default is {default!r}")
    found.extend(
        f"{where}.{name} is no setting" for name in shown if name not in model.model_fields
    )


def test_the_file_shows_every_setting_with_its_default():
    found: list[str] = []
    compare(Settings, tomllib.loads(uncommented()), "", found)
    assert found == []


def test_every_setting_has_its_comment():
    """In a repeated table, where it stands first."""
    bare, seen = [], set()
    for line in FILE.read_text().splitlines():
        if m := re.match(r"#?(\w+) = ", line):
            if "  # " not in line and " # " not in line and m[1] not in seen:
                bare.append(line)
            seen.add(m[1])
    assert [b for b in bare if not b.startswith("read_only")] == []


def test_the_file_as_it_is_changes_nothing():
    assert load(FILE, {}) == load(None, {})


def test_the_examples_load_once_uncommented(tmp_path):
    path = tmp_path / "g.toml"
    path.write_text(re.sub(r"^key_hash = .*$", "", uncommented(), flags=re.MULTILINE))
    settings = load(path, EXAMPLES)
    assert (settings.mode, settings.single_user) == ("managed", False)
    assert settings.keys[0].tenant == "acme"
    assert settings.providers["openai"].api_key.get_secret_value() == "sk-openai"
    assert "sk-openai" not in repr(settings)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    return path


def test_the_environment_wins_over_the_file_and_an_option_over_both(tmp_path):
    path = written(tmp_path, "[server]\nport = 1000\n")
    env = {
        "MNEMOGATE_SERVER__PORT": "2000",
        "MNEMOGATE_SERVER__CORS_ORIGINS": '["http://a", "http://b"]',
        "MNEMOGATE_MEMORY__MAX_ROUNDS": "3",
    }
    settings = load(path, env)
    assert (settings.server.port, settings.server.cors_origins, settings.memory.max_rounds) == (
        2000,
        ("http://a", "http://b"),
        3,
    )
    assert load(path, env, {"server.port": 3000}).server.port == 3000


def test_tables_and_lists_come_from_the_environment_as_json():
    keys = '[{"name": "a", "key": "secret-a", "tenant": "t"}]'
    settings = load(
        None,
        {
            "MNEMOGATE_KEYS": keys,
            "MNEMOGATE_ROUTING__COOLDOWN": '{"failures": 9}',
            "MNEMOGATE_SERVER__OPEN": "false",
        },
    )
    assert (settings.mode, settings.routing.cooldown.failures, settings.server.open) == (
        "managed",
        9,
        False,
    )


def test_a_variable_is_filled_in_and_may_have_a_default(tmp_path):
    path = written(tmp_path, '[providers.local]\nbase_url = "http://${HOST}:${PORT:-11434}/v1"\n')
    assert load(path, {"HOST": "box"}).providers["local"].base_url == "http://box:11434/v1"
    assert load(path, {"HOST": "box", "PORT": "1"}).providers["local"].base_url == "http://box:1/v1"


@pytest.mark.parametrize("env", [{}, {"NOT_THERE": ""}])
def test_an_unset_variable_stops_the_start_by_name_and_path(tmp_path, env):
    path = written(
        tmp_path, '[providers.openai]\nbase_url = "http://x/v1"\napi_key = "${NOT_THERE}"\n'
    )
    with pytest.raises(
        ConfigError, match=r"providers\.openai\.api_key uses \$\{NOT_THERE\}, which is not set"
    ):
        load(path, env)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[server]\nprot = 1\n", "server.prot: there is no such setting"),
        ("[memory.reflect]\nevery = 1\n", "memory.reflect.every: there is no such setting"),
        (
            '[providers.o]\nbase_url = "http://x/v1"\ntimeouts = { read = 1 }\n',
            "providers.o.timeouts.read: there is no such setting",
        ),
        (
            '[[keys]]\nname = "a"\nkey = "k"\ntenant = "t"\nrole = "x"\n',
            "keys.0.role: there is no such setting",
        ),
        ("[server]\nport = 70000\n", "server.port: "),
        ('[storage]\nsynchronous = "OFF"\n', "storage.synchronous: "),
        (
            '[storage]\nvectors = "chroma:db.example.com:8000"\n',
            "storage.vectors: use chroma:embedded, chroma:http://host:8000 or none",
        ),
        ('[storage]\nvectors = "pinecone"\n', "storage.vectors: use "),
        (
            '[server]\ncors_origins = "https://a.example"\n',
            "server.cors_origins: this must be a list",
        ),
        ("[memory]\nreflect = 3\n", "memory.reflect: this must be a table"),
        ("[server\n", "is not valid TOML"),
        (
            '[providers.o]\nbase_url = "http://x/v1"\napi_key = "sk-secret"\n',
            "there is no managed key",
        ),
        ('[server]\nopen = true\nhost = "0.0.0.0"\n', "binds loopback only"),
        ('[server]\nsingle_user = true\nhost = "0.0.0.0"\n', r"needs a [[keys]] entry"),
        (
            '[models.m]\ntargets = [{ provider = "none" }]\n',
            "names the provider 'none', which is not configured",
        ),
        (
            '[providers.p]\nbase_url = "http://x"\n[models.m]\ntargets = [{ provider = "p" }]\n'
            'fallbacks = ["n"]\n',
            "names the model 'n'",
        ),
        (
            '[providers.p]\nbase_url = "http://x"\n[models."m*"]\ntargets = [{ provider = '
            '"p" '
            "}]\n"
            'fallbacks = ["m*"]\n',
            "names the model 'm*'",
        ),
        (
            '[models.m]\ntargets = [{ provider = "p" }]\nprice = { input = 1, output = inf }\n',
            "models.m.price.output",
        ),
        ('[[keys]]\nname = "a"\ntenant = "t"\n', "either `key` or `key_hash`"),
        ('[[keys]]\nname = "a"\nkey = "k"\ntenant = ""\n', "keys.0.tenant"),
        (
            '[[keys]]\nname = "a"\nkey_hash = "sk-secret"\ntenant = "t"\n',
            "keys.0: `key_hash` is not a SHA-256 hash in hex (64 digits)",
        ),
        (
            '[[keys]]\nname = "a"\nkey = "sk-secret"\ntenant = "t"\n[[keys]]\nname = "b"\n'
            "key "
            "= "
            '"sk-secret"\ntenant = "u"\n',
            "'a' and 'b' are the same key",
        ),
        (
            '[providers.o]\nbase_url = "http://x/v1"\n[models."gpt-*"]\ntargets = [{ '
            "provider "
            "= "
            '"o" }]\nfallbacks = ["gpt-4o", "gtp-4o"]\n',
            "models.'gpt-*'.fallbacks names the model 'gtp-4o', which no [models] entry "
            "serves; there are: gpt-*",
        ),
        (
            '[providers.o]\nbase_url = "http://x/v1"\n[models.m]\ntargets = [{ provider = '
            '"o" '
            "}]\n"
            '[memory]\nsummarizer = "cheap"\n',
            "memory.summarizer names the model 'cheap', which no [models] entry serves; there "
            "are: m",
        ),
        (
            '[[memory.blocks]]\nlabel = "Human"\n',
            "memory.blocks.0.label: a label must match [a-z][a-z0-9_]{0,62} and must not be a "
            "reserved name, not 'Human'",
        ),
        ('[[memory.blocks]]\nlabel = "human"\nlimit = 2\nvalue = "abc"\n', "its limit is 2"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_path(tmp_path, text, told):
    with pytest.raises(ConfigError) as refused:
        load(written(tmp_path, text), {})
    assert told in str(refused.value)
    assert "sk-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[server]\nport = 70000\n",
            "server.port: Input should be less than or equal to 65535, not 70000",
        ),
        ('[server]\nport = "many"\n', "server.port: this must be a whole number, not 'many'"),
        ("[server]\nport = [1]\n", "server.port: this must be a whole number, not a list"),
        ('[server]\nopen = "perhaps"\n', "server.open: this must be true or false, not 'perhaps'"),
        (
            '[server]\nsingle_user = "perhaps"\n',
            "server.single_user: use auto, true or false, not 'perhaps'",
        ),
        ("[server]\nhost = true\n", "server.host: this must be a string, not true"),
        ("[server]\nhost = 2026-03-01\n", "server.host: this must be a string, not 2026-03-01"),
        (
            '[server]\nforward_headers = ["x-a", "Cookie"]\n',
            "server.forward_headers.1: this header is never sent upstream: credentials, cookies, "
            "hop-by-hop and Mnemogate's own headers stay here; name another one, not 'Cookie'",
        ),
        (
            '[server]\ncors_origins = "https://a.example"\n',
            """server.cors_origins: this must be a list, such as ["a", "b"], not 'https://a.example'""",
        ),
        (
            '[storage]\nsynchronous = "OFF"\n',
            "storage.synchronous: Input should be 'NORMAL' or 'FULL', not 'OFF'",
        ),
        (
            '[storage]\nvectors = "https://bob:sk-secret@db.example"\n',
            "storage.vectors: use chroma:embedded, chroma:http://host:8000 or none, not "
            "'https://db.example'",
        ),
        (
            f'[storage]\nvectors = "{"x" * 60}sk-secret"\n',
            f"or none, not '{'x' * 60}'… (69 characters)",
        ),
        (
            "[memory]\nturn_seconds = nan\n",
            "memory.turn_seconds: Input should be greater than 0, not nan",
        ),
        (
            '[memory]\nignore = ["a\\n", "("]\n',
            "memory.ignore.1: this must be a regular expression (missing ), unterminated "
            "subpattern), not '('",
        ),
        (
            "[models.m]\ntargets = []\n",
            "models.m.targets: Tuple should have at least 1 item after validation, not 0",
        ),
        (
            '[providers.o]\nbase_url = "localhost:11434/v1"\n',
            "providers.o.base_url: the URL needs a scheme, http or https: write "
            "http://localhost:11434/v1, not",
        ),
        (
            '[providers.o]\nbase_url = "api.openai.com/v1"\n',
            "write https://api.openai.com/v1, not 'api.openai.com/v1'",
        ),
        (
            '[providers.o]\nbase_url = "//192.168.1.5:8000/v1"\n',
            "write http://192.168.1.5:8000/v1, not '//192.168.1.5:8000/v1'",
        ),
        (
            '[providers.o]\nbase_url = "ftp://models.example"\n',
            "write https://models.example, not 'ftp://models.example'",
        ),
        (
            '[providers.o]\nbase_url = "http:models.example/v1"\n',
            "write https://models.example/v1, not",
        ),
        (
            '[providers.o]\nbase_url = "bob:sk-secret@models.example/v1"\n',
            "write https://models.example/v1, not",
        ),
        ('[providers.o]\nbase_url = ""\n', "write http://host, not ''"),
        ('[providers.o]\nbase_url = "http://"\n', "write http://host, not 'http://'"),
        ('[providers.o]\nbase_url = "http://[/v1"\n', "providers.o.base_url: Invalid IPv6 URL"),
        ('[providers."a.b"]\nkind = "openai"\n', "providers.a.b.base_url: this is required"),
        (
            'identity = ["headers"]\n',
            "identity.order.0: Input should be 'header', 'path', 'user', 'safety_identifier' "
            "or 'alias', not 'headers'",
        ),
        (
            "providers = 3\n",
            "providers: this must be a table of tables, such as [providers.name], not a number",
        ),
        (
            "[server]\nPrt = 1\n",
            "server.Prt: there is no such setting, did you mean port? config/gateway.toml "
            "lists them all",
        ),
        (
            "[server]\nxyz = 1\n",
            "server.xyz: there is no such setting; config/gateway.toml lists them all",
        ),
        ("[rooting]\nretries = 1\n", "rooting: there is no such setting, did you mean routing?"),
        (
            '[models.m]\ntargets = [{ provider = "p", modle = "x" }]\n',
            "models.m.targets.0.modle: there is no such setting, did you mean model?",
        ),
        (
            "[models.m]\nprice = { imput = 1 }\n",
            "models.m.price.imput: there is no such setting, did you mean input?",
        ),
    ],
)
def test_the_value_is_named_with_what_is_allowed_and_what_may_be_meant(tmp_path, text, told):
    with pytest.raises(ConfigError) as refused:
        load(written(tmp_path, text), {})
    assert told in str(refused.value)
    assert "sk-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[providers.o]\nbase_url = "http://x"\napi_kye = "sk-secret"\n',
            "providers.o.api_kye: there is no such setting, did you mean api_key?",
        ),
        (
            '[providers.o]\nbase_url = "http://x"\napi_key = ["sk-secret"]\n',
            "providers.o.api_key: this must be a string, not a list",
        ),
        (
            '[providers.o]\nbase_url = "http://x"\napi_key = 5318008\n',
            "providers.o.api_key: this must be a string, not a number",
        ),
        (
            '[[keys]]\nname = "a"\ntenant = "t"\nkey_hash = 5318008\n',
            "keys.0.key_hash: this must be a string, not a number",
        ),
        (
            '[providers]\no = "sk-secret"\n',
            "providers.o: this must be a table (in JSON, an object), not a string",
        ),
        ('keys = "sk-secret"\n', 'keys: this must be a list, such as ["a", "b"], not a string'),
        (
            'keys = ["sk-secret"]\n',
            "keys.0: this must be a table (in JSON, an object), not a string",
        ),
        (
            '[keys]\napp = "sk-secret"\n',
            'keys: this must be a list, such as ["a", "b"], not an object',
        ),
        (
            '[server]\nport = "${SECRET}"\n',
            "server.port: this must be a whole number, not '${SECRET}'",
        ),
        (
            '[server]\nforward_headers = ["Cookie${SECRET}", "${COOKIE}"]\n',
            "name another one, not '${COOKIE}'",
        ),
        (
            '[storage]\nvectors = "at ${SECRET}"\n',
            "storage.vectors: use chroma:embedded, chroma:http://host:8000 or none, not 'at "
            "${SECRET}'",
        ),
        ('[memory]\nignore = ["(${SECRET}"]\n', "not '(${SECRET}'"),
        (
            '[[memory.blocks]]\nlabel = "${SECRET}"\n',
            "and must not be a reserved name, not '${SECRET}'",
        ),
        (
            '[[keys]]\nname = "${SECRET}\\u0000"\ntenant = "t"\nkey = "k"\n',
            "(it means all), not '${SECRET}\\x00'",
        ),
    ],
)
def test_what_may_be_a_key_is_named_and_not_shown(tmp_path, text, told):
    with pytest.raises(ConfigError) as refused:
        load(written(tmp_path, text), {"SECRET": "sk-secret", "COOKIE": "cookie"})
    assert told in str(refused.value)
    assert "sk-secret" not in str(refused.value)
    assert "5318008" not in str(refused.value)


def test_every_member_that_holds_a_secret_is_known_as_one():
    def secrets(model):
        for name, field in model.model_fields.items():
            if "SecretStr" in str(field.annotation):
                yield name
            for part in parts(field.annotation):
                yield from secrets(part)

    assert {*secrets(Settings)} == {"key", "api_key", "secret"}
    assert {*secrets(Settings)} <= HIDDEN


@pytest.mark.parametrize(
    ("env", "told"),
    [
        (
            {"MNEMOGATE_SERVER__PORT": "many"},
            "server.port: this must be a whole number, not 'many' (from MNEMOGATE_SERVER__PORT)",
        ),
        (
            {"MNEMOGATE_SERVR__PORT": "1"},
            "servr: there is no such setting, did you mean server? config/gateway.toml lists "
            "them all (from MNEMOGATE_SERVR__PORT)",
        ),
        (
            {"MNEMOGATE_KEYS": "sk-secret"},
            'keys: this must be a list, such as ["a", "b"], not a string (from MNEMOGATE_KEYS)',
        ),
        (
            {"MNEMOGATE_KEYS": '[{"name": "a", "tenant": "t", "key": 5318008}]'},
            "keys.0.key: this must be a string, not a number (from MNEMOGATE_KEYS)",
        ),
        (
            {"MNEMOGATE_PROVIDERS__O__API_KEY": '["sk-secret"]'},
            "providers.o.api_key: this must be a string, not a list (from "
            "MNEMOGATE_PROVIDERS__O__API_KEY)",
        ),
    ],
)
def test_a_variable_of_the_environment_is_named(env, told):
    with pytest.raises(ConfigError) as refused:
        load(None, env)
    assert told in str(refused.value).splitlines()
    assert "sk-secret" not in str(refused.value)
    assert "5318008" not in str(refused.value)


def test_an_option_that_wins_over_a_variable_is_not_told_as_its():
    with pytest.raises(ConfigError) as refused:
        load(None, {"MNEMOGATE_SERVER__PORT": "80"}, {"server.port": 70000})
    assert (
        str(refused.value) == "server.port: Input should be less than or equal to 65535, not 70000"
    )


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        load(tmp_path / "none.toml", {})


@pytest.mark.parametrize(
    ("text", "mode", "single"),
    [
        ("", "own-key", True),
        ('[server]\nhost = "0.0.0.0"\n', "own-key", False),
        ("[server]\nsingle_user = false\n", "own-key", False),
        (
            '[server]\nopen = true\n[providers.o]\nbase_url = "http://x/v1"\napi_key = "k"\n',
            "open",
            True,
        ),
        ('[[keys]]\nname = "a"\nkey = "k"\ntenant = "t"\n', "managed", False),
    ],
)
def test_the_mode_follows_from_what_is_configured(tmp_path, text, mode, single):
    settings = load(written(tmp_path, text), {})
    assert (settings.mode, settings.single_user) == (mode, single)


def test_an_upstream_may_be_named_without_a_file():
    assert (
        load(None, {"MNEMOGATE_UPSTREAM": "http://x/v1"}).providers["openai"].base_url
        == "http://x/v1"
    )
    assert (
        load(None, {"MNEMOGATE_UPSTREAM": "http://x/v1"}, {"upstream": "http://y/v1"})
        .providers["openai"]
        .base_url
        == "http://y/v1"
    )
    assert load(None, {}).providers["openai"].base_url == "https://api.openai.com/v1"


def test_a_server_of_anthropics_is_known_by_its_address():
    address = "https://api.anthropic.com/v1"
    named = load(None, {}, {"upstream": address}).providers
    assert {n: p.kind for n, p in named.items()} == {"anthropic": "anthropic"}
    provider = {"base_url": address}
    assert load(None, {}, {"providers": {"a": provider}}).providers["a"].kind == "anthropic"
    provider["kind"] = "openai"
    assert load(None, {}, {"providers": {"a": provider}}).providers["a"].kind == "openai"
    other = load(None, {}, {"upstream": "https://api.anthropic.com.example.org/v1"}).providers
    assert {n: p.kind for n, p in other.items()} == {"openai": "openai"}


def test_a_relative_database_lies_in_the_data_folder(tmp_path):
    settings = load(None, {}, {"storage.data": str(tmp_path)})
    assert settings.database == f"sqlite+aiosqlite:///{tmp_path}/mnemogate.db"
    absolute = f"sqlite+aiosqlite:///{tmp_path}/x/other.db"
    settings = load(None, {}, {"storage.database": absolute})
    assert (settings.database, settings.data) == (absolute, tmp_path / "x")
