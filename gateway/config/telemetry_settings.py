"""The settings of telemetry."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from gateway.config.section import Section


class TelemetrySettings(Section):
    metrics: Literal["auto", "open", "key", "off"] = "auto"
    traces: str = ""
    trace_content: bool = False

    @field_validator("traces")
    @classmethod
    def _endpoint(cls, url: str) -> str:
        if url and not url.startswith(("http://", "https://")):
            raise ValueError("use a URL such as http://127.0.0.1:4318/v1/traces, or leave it empty")
        return url
