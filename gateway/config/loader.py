"""Read the configuration: a TOML file, `${VAR}` in its strings, environment variables over it.

`MNEMOGATE_SECTION__MEMBER` sets one member. An unset variable without a default is reported by
name.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.config.addresses import kind_by_address
from gateway.config.settings import ConfigError, Settings, parse_settings
from gateway.config.validation import InterpolatedText
from gateway.errors import kind_of
from gateway.storage.key_probe import read_key_counts

VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def load(
    path: Path | None = None,
    env: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """Read the settings and check that they may be served.

    Looks into the database for keys created at run time, which decide the mode; see
    `read_settings`. Raises ConfigError.
    """
    settings = read_settings(path, env, overrides)
    return settings.validated_for_serving(read_key_counts(settings.database))


def read_settings(
    path: Path | None,
    env: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """Read the settings from a file, the environment and overrides; later ones win.

    path: None for the defaults. overrides: dotted member to value; the override `upstream`, or
    `MNEMOGATE_UPSTREAM`, is the base URL used if no provider is configured. Raises ConfigError.
    """
    if path is not None:
        data = _read_file(path, env)
    else:
        data = {}
    variables = _from_environment(data, env)
    upstream = env.get("MNEMOGATE_UPSTREAM")
    for member, value in (overrides or {}).items():
        if member == "upstream":
            upstream = value or upstream
        elif value is not None:
            _set_member(data, member.split("."), value)
            variables.pop(tuple(member.split(".")), None)
    _fill_in_upstream(data, upstream)
    return parse_settings(data, variables)


def _read_file(path: Path, env: Mapping[str, str]) -> dict[str, Any]:
    """Read a configuration file and substitute its `${...}`. Raises ConfigError."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ConfigError(f"cannot read the configuration {path}: {e.strerror}") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path} is not valid TOML: {e}") from e
    try:
        expanded: dict[str, Any] = _expand(data, env, "")
    except ConfigError as e:
        raise ConfigError(f"{path}: {e}") from e
    return expanded


def _fill_in_upstream(data: dict[str, Any], upstream: str | None) -> None:
    """Add a default provider and model if none is configured. Raises ConfigError."""
    for table in ("providers", "models"):
        if not isinstance(data.get(table, {}), dict):
            raise ConfigError(
                f"{table}: this must be a table of tables, such as [{table}.name], not "
                f"{kind_of(data[table])}"
            )
    if not data.get("providers") or upstream:
        base = upstream or "https://api.openai.com/v1"
        providers = data.setdefault("providers", {})
        name = next(iter(providers), kind_by_address(base))
        providers[name] = {**providers.get(name, {}), "base_url": base}
    for provider in data["providers"].values():
        if isinstance(provider, dict) and "kind" not in provider:
            provider["kind"] = kind_by_address(provider.get("base_url"))
    if not data.get("models"):
        data["models"] = {"*": {"targets": [{"provider": next(iter(data["providers"]))}]}}


def _expand(value: Any, env: Mapping[str, str], where: str) -> Any:
    if isinstance(value, dict):
        return {k: _expand(v, env, f"{where}.{k}".lstrip(".")) for k, v in value.items()}
    if isinstance(value, list):
        return [_expand(v, env, f"{where}[{i}]") for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value

    def look_up(match: re.Match[str]) -> str:
        variable = env.get(match[1], match[2])
        if variable is None or (variable == "" and match[2] is None):
            raise ConfigError(
                f"{where} uses ${{{match[1]}}}, which is not set. Set it, or give a default: "
                f"${{{match[1]}:-...}}"
            )
        return variable

    if malformed := re.search(r"\$\{[^}]*\}?", VARIABLE.sub("", value)):
        raise ConfigError(
            f"{where} has {malformed[0]!r}, which is not a variable: use letters, digits and _, as "
            "in ${NAME} or ${NAME:-default}"
        )
    if (text := VARIABLE.sub(look_up, value)) == value:
        return value
    interpolated = InterpolatedText(text)
    interpolated.raw = value
    return interpolated


def _from_environment(data: dict[str, Any], env: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Apply the environment variables; return their names by the path that each set."""
    variables_by_path: dict[tuple[str, ...], str] = {}
    for name, value in env.items():
        path = name.removeprefix("MNEMOGATE_").lower().split("__")
        if (name.startswith("MNEMOGATE_") and "__" in name) or name in (
            "MNEMOGATE_KEYS",
            "MNEMOGATE_PROVIDERS",
            "MNEMOGATE_MODELS",
            "MNEMOGATE_IDENTITY",
        ):
            _set_member(data, path, _value(value))
            variables_by_path[tuple(path)] = name
    return variables_by_path


def _value(text: str) -> Any:
    if text[:1] in "[{" or text in ("true", "false"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _set_member(data: dict[str, Any], path: list[str], value: Any) -> None:
    *parents, member = path
    for name in parents:
        data = data.setdefault(name, {})
        if not isinstance(data, dict):
            raise ConfigError(f"{'.'.join(path)}: {name} is not a table")
    data[member] = value
