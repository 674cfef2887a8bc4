"""What a browser is shown at `/`: where the dashboard is, and the base URL for apps."""

from __future__ import annotations

from html import escape
from typing import Any

from litestar import Request, Response, get

from gateway.errors import ResourceNotFound
from gateway.wire.headers import merge_headers

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Mnemogate</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>body{{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem}}
code{{font-size:1.05em}}</style></head>
<body><h1>Mnemogate runs here</h1>
<p>Base URL for your apps: <code>{base}/v1</code></p>
<p>Anthropic's clients take it without <code>/v1</code>: <code>{base}</code></p>
<p><a href="/ui">Open the dashboard</a>, or run <code>mnemogate ui</code>, which signs you in.</p>
<p>Start a client behind it: <code>mnemogate run -- claude</code></p>
</body></html>
"""
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@get("/", include_in_schema=False)
async def front_page(request: Request[Any, Any, Any]) -> Response[str]:
    """Show the page to who asks for HTML. Raises ResourceNotFound for others."""
    headers = merge_headers(request.scope["headers"])
    if b"text/html" not in headers.get(b"accept", b"").lower():
        raise ResourceNotFound(
            "There is nothing at '/'. The base URL for apps ends in /v1, the dashboard is at /ui."
        )
    host = headers.get(b"host", b"").decode("latin-1")
    base = f"{request.scope.get('scheme', 'http')}://{host}"
    return Response(PAGE.format(base=escape(base)), media_type="text/html", headers=HEADERS)
