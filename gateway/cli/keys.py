"""`mnemogate keys ...`: create, list and revoke managed keys.

Every command calls the management API. If no gateway runs, one is opened for the command, with an
admin key that nobody else ever learns. So the first key can be created before any gateway ran, and
a gateway without an admin key can be repaired.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import click

from gateway.cli.client import ManagementClient, connect, token_for
from gateway.cli.lockfile import running_url
from gateway.cli.options import GatewayOptions, json_option, print_json, print_result, where_options

if TYPE_CHECKING:
    from gateway.config.settings import Settings

OWN = "mnemogate-keys-command"
FIRST = (
    "This is the first key of this data folder: from now on every request needs a managed key, "
    "even after all are revoked. What single-user mode remembered belongs to the tenant "
    "'local'."
)
LIMITS = ("rpm", "tpm", "concurrent")
BUDGET = ("usd", "period")


@click.group(short_help="Create, list and revoke managed keys.")
def keys() -> None:
    """Create, list and revoke managed keys, which clients send instead of a provider's key.

    Uses the gateway that runs on your data folder, which needs an admin key (--key or
    MNEMOGATE_KEY) once there are managed keys. If none runs, uses the database directly.

    \b
    Examples:
      mnemogate keys create --name app --tenant acme
      mnemogate keys list
      mnemogate keys revoke app
    """


@contextmanager
def open_admin_api(where: GatewayOptions) -> Iterator[ManagementClient]:
    """Yield the API with permission to manage keys. Raises CommandFailed, ConfigError."""
    from gateway.config.loader import read_settings

    # Not yet checked for serving, which may need the very key to be created.
    settings = read_settings(where.config)
    if url := where.url or running_url(settings.data):
        with connect(url, where.key or token_for(url, settings)) as api:
            yield api
        return
    from gateway.auth.key_store import new_key
    from gateway.cli.embedded import bind_socket, serve_in_thread
    from gateway.config.settings import KeySettings

    text, digest = new_key()
    own_key = KeySettings(name=OWN, tenant=OWN, admin=True, key_hash=digest)
    with (
        serve_in_thread(
            settings.model_copy(update={"keys": (*settings.keys, own_key)}),
            bind_socket("127.0.0.1", 0),
        ) as url,
        connect(url, text) as api,
    ):
        yield api


class Money(click.FloatRange):
    """An amount; infinity and NaN are refused."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        amount = float(super().convert(value, param, ctx))
        if not math.isfinite(amount):
            self.fail(f"{value} is not an amount.", param, ctx)
        return amount


@keys.command(short_help="Create a key.")
@click.option("--name", required=True, help="Its name in lists, logs and usage records.")
@click.option(
    "--tenant",
    required=True,
    help="The tenant whose memory it uses. Keys of one tenant share their users.",
)
@click.option(
    "--trusted/--no-trusted",
    default=True,
    help="Whether it may name any user of its tenant.  [default: it may]",
)
@click.option(
    "--user",
    "users",
    multiple=True,
    help="A user it may name although it is not trusted. Repeatable.",
)
@click.option("--default-user", help="The user of a request that names none.")
@click.option("--admin", is_flag=True, help="Let it manage every tenant and all keys.")
@click.option("--approve", is_flag=True, help="Let it decide on tool calls that wait for a person.")
@click.option(
    "--model",
    "models",
    multiple=True,
    help="A model it may call; * matches any ending. Repeatable.  [default: all]",
)
@click.option(
    "--path",
    "paths",
    multiple=True,
    help="A relayed path it may use beyond the stateless ones, such as '/v1/files*'. Repeatable.",
)
@click.option(
    "--memory",
    type=click.Choice(["full", "read", "write", "off"]),
    help="What its requests may do with memory at most.  [default: full]",
)
@click.option("--rpm", type=click.IntRange(0), help="Requests a minute.  [default: no limit]")
@click.option("--tpm", type=click.IntRange(0), help="Tokens a minute.  [default: no limit]")
@click.option(
    "--concurrent", type=click.IntRange(0), help="Requests at the same time.  [default: no limit]"
)
@click.option("--usd", type=Money(0), help="What it may spend in a period.  [default: no limit]")
@click.option(
    "--period",
    type=click.Choice(["hour", "day", "week", "month"]),
    help="The period of --usd.  [default: month]",
)
@json_option
@where_options
def create(where: GatewayOptions, as_json: bool, **options: Any) -> None:
    """Create a key and print it, alone, on standard output.

    It is shown only once, since only its hash is stored.

    \b
    Examples:
      KEY=$(mnemogate keys create --name app --tenant acme)
      mnemogate keys create --name ops --tenant acme --admin
      mnemogate keys create --name phone --tenant acme --no-trusted --default-user ada --rpm 60
      --usd 5
    """
    given_options = {name: value for name, value in options.items() if value not in (None, ())}
    body: dict[str, Any] = {
        name: value for name, value in given_options.items() if name not in (*LIMITS, *BUDGET)
    }
    body |= {
        "limits": {name: given_options[name] for name in LIMITS if name in given_options},
        "budget": {name: given_options[name] for name in BUDGET if name in given_options},
    }
    with open_admin_api(where) as api:
        new_key = api.call("POST", "/keys", json=body)
        is_first = new_key["note"] is None and [
            k["name"] for k in api.pages("/keys") if k["name"] != OWN
        ] == [new_key["name"]]
    if as_json:
        print_json(new_key)
        return
    click.echo(
        f"{new_key['id']}: {new_key['name']} of {new_key['tenant']}, {may(new_key)}. Save the key, "
        "it is shown only once:",
        err=True,
    )
    click.echo(new_key["key"])
    if note := FIRST if is_first else new_key["note"]:
        click.echo(note, err=True)


def may(key: dict[str, Any]) -> str:
    """Describe in one line what a key may do."""
    users = key["users"] + (
        [key["default_user"]]
        if key["default_user"] and key["default_user"] not in key["users"]
        else []
    )
    rights = ["admin"] if key["admin"] else []
    if key["approve"]:
        rights += ["approves tool calls"]
    rights.append(
        "any user" if key["trusted"] or key["admin"] else f"users {', '.join(users) or 'none'}"
    )
    if key["models"] != ["*"]:
        rights += [f"models {', '.join(key['models'])}"]
    if key["paths"]:
        rights += [f"paths {', '.join(key['paths'])}"]
    if key["memory"] != "full":
        rights += [f"memory {key['memory']}"]
    rights += [f"{name} {key['limits'][name]}" for name in LIMITS if key["limits"][name]]
    return "; ".join(
        rights
        + (
            [f"{key['budget']['usd']:g} USD a {key['budget']['period']}"]
            if key["budget"]["usd"]
            else []
        )
    )


@keys.command("list", short_help="List the keys and what each may do.")
@click.option("--all", "every", is_flag=True, help="Include revoked keys.")
@json_option
@where_options
def list_(where: GatewayOptions, every: bool, as_json: bool) -> None:
    """List the configured keys and the created ones.

    The keys themselves cannot be shown, since only their hashes are stored.

    \b
    Example:
      mnemogate keys list --all
    """
    with open_admin_api(where) as api:
        keys_list = [
            k for k in api.pages("/keys") if k["name"] != OWN and (every or not k["revoked_at"])
        ]
    if as_json:
        print_json(keys_list)
        return
    for key in keys_list:
        since = "in the configuration"
        if key["created_at"]:
            since = f"created {key['created_at'][:16]}"
        revoked_text = ""
        if key["revoked_at"]:
            revoked_text = f", revoked {key['revoked_at'][:16]}"
        click.secho(f"{key['name']}  of {key['tenant']}, {since}{revoked_text}", bold=True)
        click.echo(f"  {key['id'] or '':<36}  {may(key)}")
    if not keys_list:
        click.echo("There are no keys. Create one with `mnemogate keys create`.", err=True)


@keys.command(short_help="Revoke a key.")
@click.argument("name", metavar="KEY")
@json_option
@where_options
def revoke(where: GatewayOptions, name: str, as_json: bool) -> None:
    """Revoke KEY, given by its name or id (never the key itself).

    A running gateway refuses it at once.

    \b
    Example:
      mnemogate keys revoke app
    """
    with open_admin_api(where) as api:
        revoked_key = api.call("DELETE", f"/keys/{quote(name, safe='')}")
    print_result(
        f"{revoked_key['name']} ({revoked_key['id']}) is revoked", revoked_key, as_json=as_json
    )
    if revoked_key["note"] and not as_json:
        click.echo(revoked_key["note"], err=True)


def key_summary(settings: Settings) -> str:
    """Return how many keys are valid at the start."""
    created_text = "the database cannot be read for created ones"
    if settings.key_counts:
        created_text = f"{settings.key_counts.live} created"
    return f"{len(settings.keys)} in the configuration, {created_text}"


def missing_admin_warning(settings: Settings) -> str | None:
    """Return a warning if the managed keys do not suffice; None otherwise."""
    if settings.mode != "managed" or settings.key_counts is None:
        return None
    if not settings.keys and not settings.key_counts.live:
        return (
            "every key is revoked, so nobody is served; create one with `mnemogate keys create "
            "--name NAME "
            "--tenant TENANT`"
        )
    if not settings.key_counts.admins and not any(key.admin for key in settings.keys):
        return (
            "there is no admin key, so keys can only be created and revoked while the gateway is "
            "stopped; create one with `mnemogate keys create --admin --name NAME --tenant TENANT`"
        )
    return None


def keyless_provider_warnings(settings: Settings) -> list[str]:
    """Return warnings for providers that are called without any key but probably need one.

    Not an error, since no server has to need one.
    """
    from gateway.errors import redact_url

    if settings.mode == "own-key":
        return []
    return [
        f"providers.{name} has no api_key, and clients' keys are not forwarded: "
        f"{redact_url(p.base_url)} is called without one. Set providers.{name}.api_key, unless "
        "that server needs none"
        for name, p in settings.providers.items()
        if not p.api_key and not _keyless(p.base_url)
    ]


def _keyless(url: str) -> bool:
    """Tell whether a server probably needs no key: it is local, or its URL has credentials."""
    from gateway.config.addresses import nearby

    parts = urlsplit(url)
    return nearby(parts.hostname or "") or bool(parts.username)


def describe_peers(settings: Settings) -> str:
    """Return which programs of this machine are answered without a key."""
    from gateway.auth.peer_user import can_find_peer_user

    proxy_warning = (
        "behind a proxy of this machine, strangers would read this memory: use managed keys there"
    )
    if settings.server.answers_any_peer:
        why = "server.hosts is set"
        if settings.server.peers == "any":
            why = 'server.peers = "any"'
        return f"programs of every user of this machine, since {why}; {proxy_warning}"
    if not can_find_peer_user():
        return (
            "programs of every user, since this system does not tell whose they are; "
            f"{proxy_warning}"
        )
    return (
        f"programs of this user only ({os.geteuid()}); a proxy of the same user cannot be told "
        "apart: use managed keys behind one"
    )
