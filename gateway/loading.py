"""Configuration as it is given: a TOML file, `${VAR}` in its strings, `MNEMOGATE_SECTION__MEMBER` over it.

An unset variable without a default fails by name, never with its value.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.errors import Filled, kind_of
from gateway.settings import ConfigError, Settings, checked
from memory.stores.sql.glance import NONE, glance

VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def load(
    path: Path | None = None,
    env: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings that may be served: see `read`, and whether keys were made at run time, which decides the mode. Raises ConfigError."""
    settings = read(path, env, overrides)
    file = settings.sqlite_file
    return settings.guarded(glance(file) if file else NONE)


def read(
    path: Path | None,
    env: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings from a file (None: defaults), the environment and `overrides` (dotted member to value), the later winning.

    Raises ConfigError. `MNEMOGATE_UPSTREAM` or the override `upstream` is the base URL used when no provider is configured.
    """
    data: dict[str, Any] = {}
    if path is not None:
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as e:
            raise ConfigError(f"cannot read the configuration {path}: {e.strerror}") from e
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
            raise ConfigError(f"{path} is not valid TOML: {e}") from e
        try:
            data = _expanded(data, env, "")
        except ConfigError as e:
            raise ConfigError(f"{path}: {e}") from e
    variables = _from_environment(data, env)
    upstream = env.get("MNEMOGATE_UPSTREAM")
    for member, value in (overrides or {}).items():
        if member == "upstream":
            upstream = value or upstream
        elif value is not None:
            _put(data, member.split("."), value)
            variables.pop(tuple(member.split(".")), None)
    for table in ("providers", "models"):
        if not isinstance(data.get(table, {}), dict):
            raise ConfigError(
                f"{table}: this is a table of tables, such as [{table}.name], not {kind_of(data[table])}"
            )
    if not data.get("providers") or upstream:
        base = upstream or "https://api.openai.com/v1"
        providers = data.setdefault("providers", {})
        name = next(iter(providers), "openai")
        providers[name] = {**providers.get(name, {}), "base_url": base}
    if not data.get("models"):
        data["models"] = {"*": {"targets": [{"provider": next(iter(data["providers"]))}]}}
    return checked(data, variables)


def _expanded(value: Any, env: Mapping[str, str], where: str) -> Any:
    if isinstance(value, dict):
        return {k: _expanded(v, env, f"{where}.{k}".lstrip(".")) for k, v in value.items()}
    if isinstance(value, list):
        return [_expanded(v, env, f"{where}[{i}]") for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value

    def named(m: re.Match[str]) -> str:
        found = env.get(m[1], m[2])
        if found is None or (found == "" and m[2] is None):
            raise ConfigError(
                f"{where} uses ${{{m[1]}}}, which is not set. Set it, or give a default: ${{{m[1]}:-...}}"
            )
        return found

    if bad := re.search(r"\$\{[^}]*\}?", VARIABLE.sub("", value)):
        raise ConfigError(
            f"{where} holds {bad[0]!r}, which names no variable: letters, digits and _ only, as in ${{NAME}} or ${{NAME:-default}}"
        )
    if (text := VARIABLE.sub(named, value)) == value:
        return value
    filled = Filled(text)
    filled.raw = value
    return filled


def _from_environment(data: dict[str, Any], env: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Returns the variables that were found, by the path that each set."""
    found: dict[tuple[str, ...], str] = {}
    for name, value in env.items():
        path = name.removeprefix("MNEMOGATE_").lower().split("__")
        if (name.startswith("MNEMOGATE_") and "__" in name) or name in (
            "MNEMOGATE_KEYS",
            "MNEMOGATE_PROVIDERS",
            "MNEMOGATE_MODELS",
            "MNEMOGATE_IDENTITY",
        ):
            _put(data, path, _value(value))
            found[tuple(path)] = name
    return found


def _value(text: str) -> Any:
    if text[:1] in "[{" or text in ("true", "false"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _put(data: dict[str, Any], path: list[str], value: Any) -> None:
    *parents, last = path
    for name in parents:
        data = data.setdefault(name, {})
        if not isinstance(data, dict):
            raise ConfigError(f"{'.'.join(path)}: {name} is not a table")
    data[last] = value
