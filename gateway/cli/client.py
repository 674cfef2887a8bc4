"""The management API as the commands use it: a running gateway's where there is one, else one
opened for this command alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from gateway.cli.lockfile import running_url
from gateway.cli.options import CommandFailed, GatewayOptions

if TYPE_CHECKING:
    import httpx

    from gateway.config.settings import Settings

TIMEOUT = 60.0
LOCAL = ("127.0.0.1", "localhost", "::1")


def local(url: str) -> bool:
    """Tell whether a URL leads to this machine."""
    return urlsplit(url).hostname in LOCAL


def message_of(response: httpx.Response) -> str:
    """Return what a refusal says, whatever its shape."""
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"{response.status_code} {response.reason_phrase}: {response.text[:200]}"


class ManagementClient:
    """`/memory/v1` of one gateway."""

    def __init__(self, http: httpx.Client, url: str) -> None:
        self._http, self.url = http, url

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """path: below /memory/v1.

        Raises Failed with what the gateway said; a 404 is for the caller to read.
        """
        import httpx

        try:
            response = self._http.request(method, f"{self.url}/memory/v1{path}", **options)
        except httpx.HTTPError as e:
            raise CommandFailed(
                f"The gateway at {self.url} does not answer: {e}. Is it running?"
            ) from e
        if response.status_code == 401:
            raise CommandFailed(
                f"{message_of(response)}\nGive a key with --key or MNEMOGATE_KEY, or --config "
                "with the configuration that the gateway runs on."
            )
        if response.is_error and response.status_code != 404:
            raise CommandFailed(message_of(response))
        return response

    def call(self, method: str, path: str, **options: Any) -> Any:
        """Return the JSON answer. Raises Failed, for a 404 too."""
        response = self.send(method, path, **options)
        if response.status_code == 404:
            raise CommandFailed(message_of(response))
        return response.json() if response.content else None

    def pages(self, path: str, params: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Yield every entry of a list, page by page. Raises Failed."""
        page: dict[str, Any] = {"next_cursor": None}
        while True:
            page = self.call(
                "GET",
                path,
                params={
                    **(params or {}),
                    **({"cursor": page["next_cursor"]} if page["next_cursor"] else {}),
                },
            )
            yield from page["data"]
            if not page["next_cursor"]:
                return

    def explain(self, ident: str) -> dict[str, Any] | None:
        """Return the explain record of a request; None when there is none to be had."""
        try:
            return dict(self.call("GET", f"/explain/{quote(ident, safe='')}"))
        except CommandFailed:
            return None


def user_path(user: str, *rest: str) -> str:
    return "/".join(["/users", quote(user, safe=""), *rest])


def local_token(data: Path) -> str | None:
    """Return the token of single-user mode, from the data folder."""
    try:
        return (data / "token").read_text().strip() or None
    except OSError:
        return None


@contextmanager
def connect(url: str, key: str | None) -> Iterator[ManagementClient]:
    """The API of the gateway at a URL."""
    import httpx

    headers = {"x-mnemogate-actor": "cli", **({"authorization": f"Bearer {key}"} if key else {})}
    with httpx.Client(timeout=TIMEOUT, headers=headers, trust_env=False) as http:
        yield ManagementClient(http, url)


@contextmanager
def open_api(where: GatewayOptions, *, makes: bool = True) -> Iterator[ManagementClient]:
    """The API of the gateway that `where` means; opens the database itself only where none runs.

    Raises Failed, ConfigError.

    makes: whether a database is made where there is none; what only looks needs none.
    """
    settings = where.settings()
    data = settings.data
    if url := where.url or running_url(data):
        with connect(url, where.key or token_for(url, settings)) as api:
            yield api
        return
    if not makes and settings.sqlite_file and not settings.sqlite_file.exists():
        raise CommandFailed(
            f"There is no database at {settings.sqlite_file} yet, so nobody is known here. "
            "A running gateway, the demo too, is asked with --url http://127.0.0.1:8080"
        )
    from gateway.cli.embedded import bind_socket, serve_in_thread

    with (
        serve_in_thread(settings, bind_socket("127.0.0.1", 0)) as url,
        connect(url, where.key or local_token(data)) as api,
    ):
        yield api


def token_for(url: str, settings: Settings) -> str | None:
    """Return the local token that the gateway at this URL takes: of the data folder that it serves,
    the demo's included. Never sent elsewhere.
    """
    if not local(url):
        return None
    port = urlsplit(url).port
    folders = (settings.data, settings.data / "demo")
    serving = next(
        (f for f in folders if (found := running_url(f)) and urlsplit(found).port == port), None
    )
    return local_token(serving) if serving else None
