"""Loads once, for all forked commands of tests, what a server loads when something first asks."""

from __future__ import annotations

import httpx  # noqa: F401
import uvicorn.protocols.http.httptools_impl  # noqa: F401

import gateway.app
import gateway.cli.embedded
import gateway.cli.main
import gateway.server.uvicorn_server  # noqa: F401
from gateway.server.api_app import shared_api

shared_api()
