"""The management API for the commands: of a running gateway, or of one opened for the command."""

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
    """Tell whether a URL points to this machine."""
    return urlsplit(url).hostname in LOCAL


def message_of(response: httpx.Response) -> str:
    """Return the message of an error response, whatever its shape."""
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"{response.status_code} {response.reason_phrase}: {response.text[:200]}"


def code_of(response: httpx.Response) -> str:
    """Return the code of an error response, "" if it has none."""
    try:
        return str(response.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""


class GatewayRefused(CommandFailed):
    """The gateway answered with an error. status: of HTTP. code: of the error."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(message_of(response))
        self.status = response.status_code
        self.code = code_of(response)


class ManagementClient:
    """`/memory/v1` of one gateway."""

    def __init__(self, http: httpx.Client, url: str) -> None:
        self._http = http
        self.url = url

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request; return the response, a 404 too.

        path: below /memory/v1. Raises CommandFailed with the gateway's error message.
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
            raise GatewayRefused(response)
        return response

    def call(self, method: str, path: str, **options: Any) -> Any:
        """Send a request and return its JSON. Raises CommandFailed, for a 404 too."""
        response = self.send(method, path, **options)
        if response.status_code == 404:
            raise CommandFailed(message_of(response))
        if response.content:
            return response.json()
        return None

    def pages(self, path: str, params: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Yield every entry of a list, page by page. Raises CommandFailed."""
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
        """Return the explain record of a request; None if it is not available."""
        try:
            return dict(self.call("GET", f"/explain/{quote(ident, safe='')}"))
        except CommandFailed:
            return None


def user_path(user: str, *segments: str) -> str:
    return "/".join(["/users", quote(user, safe=""), *segments])


def local_token(data: Path) -> str | None:
    """Return the local token from the data folder."""
    try:
        return (data / "token").read_text().strip() or None
    except OSError:
        return None


@contextmanager
def connect(url: str, key: str | None) -> Iterator[ManagementClient]:
    """Yield a client of the gateway at a URL."""
    import httpx

    headers = {"x-mnemogate-actor": "cli", **({"authorization": f"Bearer {key}"} if key else {})}
    with httpx.Client(timeout=TIMEOUT, headers=headers, trust_env=False) as http:
        yield ManagementClient(http, url)


@contextmanager
def open_api(where: GatewayOptions, *, makes: bool = True) -> Iterator[ManagementClient]:
    """Yield a client of the gateway that `where` means; open the database if none runs.

    makes: create the database if there is none. Raises CommandFailed, ConfigError.
    """
    settings = where.settings()
    data = settings.data
    if url := where.url or running_url(data):
        with connect(url, where.key or token_for(url, settings)) as api:
            yield api
        return
    if not makes and settings.sqlite_file and not settings.sqlite_file.exists():
        raise CommandFailed(
            f"There is no database at {settings.sqlite_file} yet, so there are no users. "
            "To ask a running gateway, or the demo, give --url http://127.0.0.1:8080"
        )
    from gateway.cli.embedded import bind_socket, serve_in_thread

    with (
        serve_in_thread(settings, bind_socket("127.0.0.1", 0)) as url,
        connect(url, where.key or local_token(data)) as api,
    ):
        yield api


def token_for(url: str, settings: Settings) -> str | None:
    """Return the local token for the gateway at this URL, from its data folder or the demo's.

    Never sent to another machine.
    """
    if not local(url):
        return None
    port = urlsplit(url).port
    folders = (settings.data, settings.data / "demo")
    serving = next(
        (
            f
            for f in folders
            if (url_of_folder := running_url(f)) and urlsplit(url_of_folder).port == port
        ),
        None,
    )
    if serving:
        return local_token(serving)
    return None
