"""Settings of what runs Python: the sandbox, `run_code`, and tools from source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator, model_validator

from gateway.config.section import Section
from gateway.config.web_tools import OwnToolSettings

SandboxName = Literal["monty", "bubblewrap"]
SOURCE_BYTES = 32 << 10
SECURE_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
PLAIN_HOST = re.compile(r"http://([a-z0-9_.-]+|\[[0-9a-f:.]+\]):[0-9]{1,5}")
SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class SandboxSettings(Section):
    """What a run in the sandbox may use. calls: of functions of the gateway, such as `fetch`."""

    workers: int = Field(2, ge=1, le=64)
    seconds: float = Field(5, gt=0, le=30)
    memory_mib: int = Field(64, ge=16, le=512)
    print_characters: int = Field(8000, ge=0, le=1_000_000)
    recursion: int = Field(200, ge=10, le=1000)
    calls: int = Field(50, ge=0, le=1000)


class SandboxedSettings(OwnToolSettings):
    """What every entry takes that runs in a sandbox. None: that of [sandbox]."""

    sandbox: SandboxName = "monty"
    seconds: float | None = Field(None, gt=0, le=30)
    memory_mib: int | None = Field(None, ge=16, le=512)


class RunCodeSettings(SandboxedSettings):
    """The tool that runs what a model writes."""

    kind: Literal["run_code"] = "run_code"


class PythonToolSettings(SandboxedSettings):
    """A tool that is a Python function.

    source_file: read when the configuration is. hosts: what `fetch` may reach: a name, by https; or
    `http://host:port`, which may be private. secrets: sent to these hosts alone.
    """

    kind: Literal["python"] = "python"
    source: str = ""
    source_file: str = ""
    hosts: tuple[str, ...] = Field((), max_length=100)
    secrets: Mapping[str, str] = Field(default_factory=dict, repr=False)

    @field_validator("hosts")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not SECURE_HOST.fullmatch(host) and not PLAIN_HOST.fullmatch(host):
                raise ValueError(
                    f"{host[:80]!r}: give a host name such as api.example.com, which is reached by "
                    "https, or http://HOST:PORT"
                )
        return hosts

    @field_validator("secrets")
    @classmethod
    def _are_secrets(cls, secrets: Mapping[str, str]) -> Mapping[str, str]:
        for name, value in secrets.items():
            if not SECRET_NAME.fullmatch(name):
                raise ValueError(f"the secret {name[:64]!r}: use letters, digits and _")
            if len(value) < 4:
                raise ValueError(f"the secret {name!r} has fewer than 4 characters: is it set?")
        return secrets

    @model_validator(mode="after")
    def _has_one_source(self) -> PythonToolSettings:
        if bool(self.source) == bool(self.source_file):
            raise ValueError("give `source` or `source_file`, and not both")
        if self.secrets and not self.hosts:
            raise ValueError("`secrets` are sent to `hosts`, of which there are none")
        return self
