"""`mnemogate users ...`: list users, move their memory to another name, merge two memories."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.client import open_api, user_path
from gateway.cli.formatting import printable
from gateway.cli.options import (
    CommandFailed,
    GatewayOptions,
    config_option,
    json_option,
    print_result,
    print_rows,
    where_options,
    with_database,
)
from gateway.cli.tenants import holders, reachable

if TYPE_CHECKING:
    from gateway.config.settings import Settings
    from memory import OwnerRename


class Listing(click.Group):
    """A group whose default command is `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=Listing, short_help="List users, and move their memory.")
def users() -> None:
    """List users (`list`, the default), and move their memory to another name or tenant.

    \b
    Examples:
      mnemogate users
      mnemogate users --url http://127.0.0.1:8080
      mnemogate users move me ada --from-tenant local --to-tenant acme
      mnemogate users merge me ada
    """


@users.command("list", short_help="List the users about whom something is stored.")
@json_option
@where_options
def list_(where: GatewayOptions, as_json: bool) -> None:
    """List the users that the key may see, with counts and their last activity.

    \b
    Example:
      mnemogate users list
    """
    with open_api(where, makes=False) as api:
        users = list(api.pages("/users", {"limit": 200}))
    hint = "There are no users yet."
    print_rows(users, _line, hint, as_json=as_json)


def _line(user: dict[str, Any]) -> str:
    """Return a user in one line."""
    kinds = ("blocks", "passages", "messages", "conversations")
    counts = ", ".join(f"{user[kind]} {kind}" for kind in kinds)
    return f"{user['id']}  {counts}, last seen {user['last_active_at'][:16]}"


@users.command(short_help="Move a user's memory to another name.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "--from-tenant", help="The tenant of FROM.  [default: the only one that has such a user]"
)
@click.option(
    "--to-tenant",
    help="The tenant of TO.  [default: the tenant of requests, if there is only one]",
)
@json_option
@config_option
def move(
    source: str, target: str, config: Path | None, *, as_json: bool, **tenants: str | None
) -> None:
    """Move all memory of the user FROM, with all agents, to TO, who must have none yet. The
    gateway may keep running. Usage records of FROM do not move.

    Tenants: `local` in single-user mode, `open` in open mode, `own-...` in own-key mode; managed
    keys name theirs. To add one memory to another instead: `users merge`.

    \b
    Example:
      mnemogate users move me ada --from-tenant local --to-tenant acme
    """
    from memory import MemoryFault, OwnerRename

    settings = with_database(config)
    _require_empty_spill(settings)
    rename = OwnerRename(
        _secret(settings),
        (_from(settings, source, tenants["from_tenant"]), source),
        (_to(settings, tenants["to_tenant"]), _require_user(target)),
    )
    if rename.source == rename.target:
        raise CommandFailed(
            f"{source!r} of the tenant {rename.source[0]!r} is that user already. Choose another "
            "TO or --to-tenant."
        )
    try:
        asyncio.run(_move(settings, rename))
    except MemoryFault as e:
        message = str(e)[:1].upper() + str(e)[1:]
        how = "`mnemogate users merge FROM INTO` adds one memory to another."
        raise CommandFailed(f"{message}. {how}") from e
    ends = {"from": rename.source, "to": rename.target}
    print_result(
        f"the memory of {source} ({rename.source[0]}) now belongs to {target} ({rename.target[0]})",
        {end: {"tenant": tenant, "user": user} for end, (tenant, user) in ends.items()},
        as_json=as_json,
    )


@users.command(short_help="Add a user's memory to another's.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="INTO")
@click.option("--from-tenant", help="The tenant of FROM, for admin keys.")
@click.option("--into-tenant", help="The tenant of INTO, for admin keys.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@where_options
def merge(
    where: GatewayOptions, source: str, target: str, *, yes: bool, as_json: bool, **tenants: str
) -> None:
    """Add all memory of the user FROM, with all agents, to that of INTO, and erase it at FROM.

    Shows first what will happen. If it is interrupted, run it again. Blocks that both have are
    joined: INTO's text, then the lines that only FROM has. Versions of such a block, explain
    records and the policy of FROM are not taken over.

    \b
    Example:
      mnemogate users merge me ada
    """
    body = {"into": target, "tenant": tenants["into_tenant"]}
    path = user_path(source, "merge")
    tenant = tenants["from_tenant"]
    options: dict[str, Any] = {"params": {"tenant": tenant} if tenant else {}, "timeout": None}
    with open_api(where, makes=False) as api:
        plan = api.call("POST", path, json={**body, "dry_run": True}, **options)
        if not yes:
            for line in _describe_merge(plan):
                click.echo(line, err=True)
            question = f"Merge {source!r} into {target!r}? This cannot be undone"
            click.confirm(question, abort=True, err=True)
        report = api.call("POST", path, json=body, **options)
    print_result(f"the memory of {source} is now in that of {target}", report, as_json=as_json)


def _describe_merge(plan: dict[str, Any]) -> Iterator[str]:
    """Yield what a merge will do, for people."""
    counts = (f"{n} {kind if n != 1 else kind[:-1]}" for kind, n in plan["merged"].items())
    yield f"It moves {', '.join(counts)}."
    for agent, labels in plan["joined_blocks"].items():
        yield f"Blocks that both have are joined ({agent}): {', '.join(labels)}."
    for agent, names in plan["renamed_conversations"].items():
        for old_name, new_name in names.items():
            yield (
                f"The conversation {printable(old_name)} ({agent}) is called "
                f"{printable(new_name)} then."
            )


def _require_empty_spill(settings: Settings) -> None:
    """Raise CommandFailed while turns wait in the recovery log."""
    if (log_path := settings.data / "spill.ndjson").exists() and log_path.stat().st_size:
        raise CommandFailed(
            f"{log_path} has turns that are not stored yet. Start the gateway once to store "
            "them, then retry."
        )


async def _move(settings: Settings, rename: OwnerRename) -> None:
    from gateway.storage.responses import ResponseTable
    from memory import Database
    from memory.management.renaming import rename_user

    db = Database(settings.database, secret=rename.secret)
    db.application_tables.append(ResponseTable(db))
    await db.open()
    try:
        await rename_user(db, rename)
    finally:
        await db.close()


def _secret(settings: Settings) -> bytes:
    from gateway.config.secret_file import server_secret

    path = settings.data / "secret"
    if not settings.storage.secret.get_secret_value() and not path.exists():
        raise CommandFailed(
            f"{path} is missing: without it no stored memory can be recognised. Restore it from "
            "a backup."
        )
    return server_secret(settings)


def _require_user(user: str) -> str:
    from gateway.auth.user_resolver import USER_CHARACTERS

    if not user.strip() or user != user.strip() or len(user) > USER_CHARACTERS:
        raise CommandFailed(
            f"TO is {user[:80]!r}: give 1 to {USER_CHARACTERS} characters, without white space "
            "around them."
        )
    return user


def _from(settings: Settings, user: str, tenant: str | None) -> str:
    tenants = holders(settings, user)
    if tenant is not None or len(tenants) == 1:
        return tenant or tenants[0]
    if not tenants:
        raise CommandFailed(
            f"Nothing is stored about the user {user!r}, in any tenant. `mnemogate users` "
            "lists all users."
        )
    raise CommandFailed(
        f"{len(tenants)} tenants have a user {user!r}: {', '.join(tenants[:10])}. Name one with "
        "--from-tenant."
    )


def _to(settings: Settings, tenant: str | None) -> str:
    tenants = sorted(reachable(settings) or ())
    if tenant is not None or len(tenants) == 1:
        return tenant or tenants[0]
    suffix = ", one for each own key"
    if tenants:
        suffix = f": {', '.join(tenants[:10])}"
    raise CommandFailed(
        f"Requests here have more than one tenant{suffix}. Name one with --to-tenant."
    )
