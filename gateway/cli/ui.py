"""`mnemogate ui`: open the dashboard in the browser, one press of a button from signed in."""

from __future__ import annotations

import webbrowser

import click

from gateway.cli.client import message_of, token_for
from gateway.cli.lockfile import running_url
from gateway.cli.options import CommandFailed, GatewayOptions, where_options

TIMEOUT_SECONDS = 10.0


@click.command(short_help="Open the dashboard in the browser.")
@click.option("--print", "only_print", is_flag=True, help="Print the link; open no browser.")
@where_options
def ui(where: GatewayOptions, only_print: bool) -> None:
    """Open the dashboard of a running gateway in the browser.

    The page has a button that signs you in. It works once, for a minute.

    \b
    Examples:
      mnemogate ui
      mnemogate ui --print
      mnemogate ui --url https://memory.example --key "$KEY"
    """
    link = sign_in_link(where)
    if only_print or not webbrowser.open(link):
        click.echo(link)
    else:
        click.echo(f"The dashboard is open in your browser: {link.partition('/ui')[0]}/ui")


def sign_in_link(where: GatewayOptions) -> str:
    """Return a link to a button that signs in whoever presses it first. Raises CommandFailed."""
    import httpx

    settings = where.settings()
    url = where.url or running_url(settings.data) or running_url(settings.data / "demo")
    if not url:
        raise CommandFailed(
            "No gateway runs on this data folder. Start one with `mnemogate serve`, or name one "
            "with --url."
        )
    if (key := where.key or token_for(url, settings)) is None:
        raise CommandFailed(f"The gateway at {url} needs a key: give one with --key.")
    try:
        response = httpx.post(
            f"{url}/ui/links",
            headers={"authorization": f"Bearer {key}"},
            timeout=TIMEOUT_SECONDS,
            trust_env=False,
        )
    except httpx.HTTPError as e:
        raise CommandFailed(f"The gateway at {url} does not answer: {e}. Is it running?") from e
    if response.status_code in (401, 403):
        raise CommandFailed(
            f"The gateway at {url} does not know this key. Give an admin key with --key or "
            "MNEMOGATE_KEY, or --config with the configuration that the gateway runs on."
        )
    if response.is_error:
        raise CommandFailed(message_of(response))
    return f"{url}{response.json()['path']}"
