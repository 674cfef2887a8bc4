"""`mnemogate config`: the default configuration, with its comments."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Print the default configuration, with its comments.")
def config() -> None:
    """Print every setting with its default and a comment, as a start for your own configuration.

    \b
    Example:
      mnemogate config > gateway.toml
    """
    gateway = Path(__file__).parent.parent
    installed_path = gateway / "defaults" / "gateway.toml"
    if installed_path.exists():
        file = installed_path
    else:
        file = gateway.parent / "config" / "gateway.toml"
    click.echo(file.read_text(encoding="utf-8"), nl=False)
