"""`mnemogate users ...`: whose memory there is, and giving it another name, across tenants and so across modes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.client import opened
from gateway.cli.options import (
    Failed,
    Where,
    config_option,
    json_option,
    shown_json,
    where_options,
    with_database,
)
from gateway.cli.tenants import holders, reachable

if TYPE_CHECKING:
    from gateway.settings import Settings
    from memory.stores.sql.moving import Move


class Listing(click.Group):
    """A group that lists where no command of it is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=Listing, short_help="Whose memory there is, and under which name.")
def users() -> None:
    """Whose memory there is (`list`, also without a word), and under which name.

    \b
    Examples:
      mnemogate users
      mnemogate users --url http://127.0.0.1:8080
      mnemogate users move me ada --from-tenant local --to-tenant acme
    """


@users.command("list", short_help="The users of whom something is stored.")
@json_option
@where_options
def list_(where: Where, as_json: bool) -> None:
    """List the users that the key may see, with counts and their last activity.

    \b
    Example:
      mnemogate users list
    """
    with opened(where, makes=False) as api:
        found = list(api.pages("/users", {"limit": 200}))
    if as_json:
        shown_json(found)
        return
    for user in found:
        counts = ", ".join(
            f"{user[kind]} {kind}" for kind in ("blocks", "passages", "messages", "conversations")
        )
        click.echo(f"{user['id']}  {counts}, last seen {user['last_active_at'][:16]}")
    if not found:
        click.echo("Nobody is known here yet.", err=True)


@users.command(short_help="Give a user's memory another name.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "--from-tenant", help="The tenant that FROM is of.  [default: the only one that knows FROM]"
)
@click.option(
    "--to-tenant",
    help="The tenant that TO is of.  [default: the one that requests have here, where it is one]",
)
@config_option
def move(
    source: str, target: str, from_tenant: str | None, to_tenant: str | None, config: Path | None
) -> None:
    """Give all memory of the user FROM, of all agents, to the user TO, who has none yet; the gateway may run meanwhile. What FROM
    has used and cost stays where it was.

    Tenants: `local` is single-user mode's, `open` that of open mode, `own-...` those of own keys; managed keys name theirs.
    Two memories are joined otherwise: `memory export --user FROM -o FILE`, then `memory import FILE --user TO`.

    \b
    Example:
      mnemogate users move me ada --from-tenant local --to-tenant acme
    """
    from memory.errors import MemoryFault
    from memory.stores.sql.moving import Move

    settings = with_database(config)
    if (spill := settings.data / "spill.ndjson").exists() and spill.stat().st_size:
        raise Failed(
            f"Turns wait in {spill} for the store. Start the gateway once, so that it takes them in, and then move."
        )
    asked = Move(
        _secret(settings),
        (_from(settings, source, from_tenant), source),
        (_to(settings, to_tenant), _named(target)),
    )
    if asked.source == asked.target:
        raise Failed(
            f"{source!r} of the tenant {asked.source[0]!r} is that user already. Give another TO or --to-tenant."
        )
    try:
        asyncio.run(_moved(settings, asked))
    except MemoryFault as e:
        text = str(e)
        raise Failed(
            f"{text[:1].upper()}{text[1:]}. `mnemogate users move --help` says how two memories are joined."
        ) from e
    click.echo(
        f"what was remembered of {source} ({asked.source[0]}) is {target}'s ({asked.target[0]}) now"
    )


async def _moved(settings: Settings, asked: Move) -> None:
    from memory.stores.sql import moving
    from memory.stores.sql.engine import Database

    db = Database(settings.database)
    await db.open()
    try:
        seen: dict[int, int] = {}
        for scope_id, agent in await db.read(lambda conn: moving.begun(conn, asked)):
            at: int | None = 0
            key = asked.key(agent)
            while at is not None:
                seen[scope_id] = at
                at = await db.write(
                    lambda conn, s=scope_id, k=key, a=at: moving.page(conn, s, k, a)
                )  # type: ignore[misc]
        await db.write(lambda conn: moving.ended(conn, asked, seen))
    finally:
        await db.close()


def _secret(settings: Settings) -> bytes:
    from gateway.secret import kept_secret

    if not (path := settings.data / "secret").exists():
        raise Failed(
            f"{path} is missing: without it no stored memory can be recognised. Restore it from a backup."
        )
    return kept_secret(path, 32)


def _named(user: str) -> str:
    from gateway.identity import USER_CHARACTERS

    if not user.strip() or user != user.strip() or len(user) > USER_CHARACTERS:
        raise Failed(
            f"TO is {user[:80]!r}: give 1 to {USER_CHARACTERS} characters, without white space around them."
        )
    return user


def _from(settings: Settings, user: str, tenant: str | None) -> str:
    found = holders(settings, user)
    if tenant is not None or len(found) == 1:
        return tenant or found[0]
    if not found:
        raise Failed(
            f"Nothing is stored of the user {user!r} here, in any tenant. `mnemogate users` lists who is known."
        )
    raise Failed(
        f"{len(found)} tenants know a user {user!r}: {', '.join(found[:10])}. Name one with --from-tenant."
    )


def _to(settings: Settings, tenant: str | None) -> str:
    found = sorted(reachable(settings) or ())
    if tenant is not None or len(found) == 1:
        return tenant or found[0]
    there = f": {', '.join(found[:10])}" if found else ", one for each own key"
    raise Failed(f"Requests have more than one tenant here{there}. Name one with --to-tenant.")
