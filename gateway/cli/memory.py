"""`mnemogate memory ...`: see and change a user's memory.

Every command makes a few calls of the management API.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any
from urllib.parse import quote

import click

from gateway.cli.client import ManagementClient, open_api, user_path
from gateway.cli.formatting import changed_lines
from gateway.cli.options import (
    CommandFailed,
    GatewayOptions,
    json_option,
    print_json,
    print_result,
    where_options,
)

MOST_LISTED = 20
UNDONE = {
    "block": "the edit of the block {} is undone; it now reads",
    "edited": "the edit of {} is undone; it now reads",
    "forgotten": "{} is remembered again",
    "added": "{} is forgotten again",
}
# Most users listed in a message.
KNOWN = 20
PASSAGE = re.compile(r"passage_[0-9a-f]{32}")


@click.group(short_help="See and change a user's memory.")
def memory() -> None:
    """See and change a user's memory.

    Uses the gateway that runs on your data folder. If none runs, uses the database directly.

    \b
    Examples:
      mnemogate memory show
      mnemogate memory remember "The spare key is with Bob" --user ada
      mnemogate memory search "spare key" --user ada
    """


class UserMemory:
    """The memory of a user and agent, through the API. project: in which, None for none."""

    def __init__(
        self, api: ManagementClient, user: str, agent: str | None, project: str | None = None
    ) -> None:
        self.api = api
        self.user = user
        parameters = {"agent": agent, "project": project}
        self.params = {name: value for name, value in parameters.items() if value}

    def path(self, *segments: str) -> str:
        return user_path(self.user, *segments)

    def call(
        self, method: str, *segments: str, params: dict[str, Any] | None = None, **options: Any
    ) -> Any:
        return self.api.call(
            method, self.path(*segments), params={**self.params, **(params or {})}, **options
        )

    def block(self, label: str) -> str:
        return self.path("blocks", quote(label, safe=""))


@dataclass(frozen=True, slots=True)
class PersonOptions:
    """Whose memory a command is about, and which gateway has it."""

    where: GatewayOptions
    user: str
    agent: str | None
    project: str | None = None

    @contextmanager
    def open(self, *, makes: bool = False) -> Iterator[UserMemory]:
        """Yield the memory. makes: see `open_api`. Raises CommandFailed, ConfigError."""
        with open_api(self.where, makes=makes) as api:
            yield UserMemory(api, self.user, self.agent, self.project)


def user_options(command: Callable[..., None]) -> Callable[..., Any]:
    """Add --user, --agent, --project and the gateway options, passed as one `person_options`."""

    @click.option("--project", help="The user's part of the memory in this project.")
    @click.option(
        "--agent",
        help="One of the user's agents.  [default: default; export and import use all of them]",
    )
    @click.option("--user", default="me", show_default=True, help="Whose memory.")
    @where_options
    @wraps(command)
    def wrapped(where: GatewayOptions, user: str, **options: Any) -> None:
        if not user:
            raise CommandFailed("--user is empty. Name the user.")
        place = options.pop("agent"), options.pop("project")
        command(person_options=PersonOptions(where, user, *place), **options)

    return wrapped


def person_options(command: Callable[..., None], *, makes: bool = False) -> Callable[..., Any]:
    """Add what `user_options` adds, passed as one `person`, whose memory is open.

    makes: see `open_api`.
    """

    @user_options
    @wraps(command)
    def wrapped(person_options: PersonOptions, **options: Any) -> None:
        with person_options.open(makes=makes) as person:
            command(person=person, **options)

    return wrapped


making_person_options = partial(person_options, makes=True)


@memory.command(short_help="The memory blocks and the newest passages.")
@json_option
@person_options
def show(person: UserMemory, as_json: bool) -> None:
    """Show the user's memory blocks, which the model always sees, and the newest passages.

    \b
    Example:
      mnemogate memory show --user ada
    """
    blocks = person.call("GET", "blocks")["data"]
    passages = person.call("GET", "passages", params={"limit": 5})
    if not any(block["version"] for block in blocks) and not passages["data"]:
        _require_known(person)
    if as_json:
        print_json({"blocks": blocks, "passages": passages["data"]})
        return
    for block in blocks:
        lock_text = ""
        if block.get("read_only"):
            lock_text = ", read-only"
        click.secho(
            f"{block['label']}  ({len(block['value'])}/{block['limit']} characters, version "
            f"{block['version']}{lock_text})",
            bold=True,
        )
        click.echo(indent(block["value"]) or "  (empty)")
    if passages["data"]:
        click.secho("newest passages", bold=True)
        for passage in passages["data"]:
            click.echo(f"  {passage['id']}  {passage['content']}")


def _require_known(person: UserMemory) -> None:
    """Raise CommandFailed, listing known users, if nothing is stored about the user."""
    names = [user["id"] for user in person.api.pages("/users", {"limit": 200})]
    if person.user not in names:
        ellipsis = ", ..." if len(names) > KNOWN else ""
        known_users = "There are no users yet"
        if names:
            known_users = (
                f"Known users: {', '.join(names[:KNOWN])}{ellipsis}. Choose one with --user"
            )
        raise CommandFailed(
            f"Nothing is stored about the user {person.user!r}. {known_users}; `mnemogate users` "
            "lists all."
        )


def indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


@memory.command(short_help="Store a passage.")
@click.argument("text")
@click.option("--tag", "tags", multiple=True, help="A tag to find it by. Repeatable.")
@json_option
@making_person_options
def remember(person: UserMemory, text: str, tags: tuple[str, ...], as_json: bool) -> None:
    """Store TEXT in archival memory, where the model finds it by searching.

    \b
    Example:
      mnemogate memory remember "Grace arrives on Friday" --tag family
    """
    answer = person.call("POST", "passages", json={"content": text, "tags": list(tags)})
    if isinstance(answer, dict):
        passages = answer["data"]
    else:
        passages = answer
    message = "\n".join(f"remembered as {passage['id']}" for passage in passages)
    print_result(message, passages, as_json=as_json)


@memory.command(short_help="Change a block or a passage.")
@click.argument("label")
@click.option(
    "--value", help="The new text.  [default: standard input, or your $EDITOR on a terminal]"
)
@json_option
@making_person_options
def edit(person: UserMemory, label: str, value: str | None, as_json: bool) -> None:
    """Change the block LABEL, or a passage by its id: by --value, from standard input, or in your
    $EDITOR. `undo` takes it back.

    Of a block refused if it changed meanwhile. A LABEL that does not exist yet creates a block.

    \b
    Examples:
      mnemogate memory edit human
      mnemogate memory edit human --value "Name: Ada"
      mnemogate memory edit passage_0123456789abcdef0123456789abcdef --value "Likes black tea"
    """
    if PASSAGE.fullmatch(label):
        _edit_passage(person, label, value, as_json=as_json)
        return
    response = person.api.send("GET", person.block(label), params=person.params)
    block = None
    if response.status_code == 200:
        block = response.json()
    text = value if value is not None else _ask_for_text(block["value"] if block else "")
    if text is None or (block and text == block["value"]):
        print_result("unchanged", block, as_json=as_json)
        return
    headers = {"if-match": response.headers["etag"]} if block and "etag" in response.headers else {}
    method = "PATCH" if block else "PUT"
    saved_block = person.api.call(
        method, person.block(label), params=person.params, json={"value": text}, headers=headers
    )
    print_result(
        f"{label} is now at version {saved_block['version']}", saved_block, as_json=as_json
    )


def _edit_passage(person: UserMemory, ident: str, value: str | None, *, as_json: bool) -> None:
    passage = person.call("GET", "passages", ident)
    text = value if value is not None else _ask_for_text(passage["content"])
    if text is None or text == passage["content"]:
        print_result("unchanged", passage, as_json=as_json)
        return
    saved_passage = person.call("PATCH", "passages", ident, json={"content": text})
    message = (
        f"{ident} now reads: {saved_passage['content']}\n"
        f"`mnemogate memory undo {ident}` takes it back"
    )
    print_result(message, saved_passage, as_json=as_json)


def _ask_for_text(before: str) -> str | None:
    """Return new text from a pipe or the editor; None if the editor was left without saving."""
    if not sys.stdin.isatty():
        text = sys.stdin.read().removesuffix("\n")
        if not text.strip():
            raise CommandFailed(
                "Standard input is empty, so nothing was changed. Pipe the new text in, or "
                "empty "
                'the block with --value "".'
            )
        return text
    after = click.edit(before, extension=".txt")
    if after is None:
        return None
    return after.removesuffix("\n")


@memory.command(short_help="Delete a passage, or a line of a block.")
@click.argument("text_or_id", metavar="WHAT")
@json_option
@person_options
def forget(person: UserMemory, text_or_id: str, as_json: bool) -> None:
    """Forget WHAT: a passage by its id or its text, a line of a block by its text, or words that
    only one of them has. If several have them, they are listed. `undo` restores it.

    \b
    Examples:
      mnemogate memory forget tea
      mnemogate memory forget "Likes green tea"
      mnemogate memory forget passage_0123456789abcdef0123456789abcdef --user ada
    """
    passages, lines = _find_forgettable(person, text_or_id)
    if not passages and not lines:
        raise CommandFailed(
            "No passage and no line of a block is exactly that text, or has it in it. Find "
            f"the id with `mnemogate memory search --json`: {text_or_id[:80]!r}"
        )
    is_exact = PASSAGE.fullmatch(text_or_id) or all(
        _squeeze(text) == _squeeze(text_or_id) for text in (*passages.values(), *lines)
    )
    if not is_exact and len(passages) + len(lines) > 1:
        choices = [f"  {ident}  {text}" for ident, text in passages.items()]
        choices += [f"  {line}" for line in lines]
        raise CommandFailed(
            "Several have that in them. Give the id or the whole text of one:\n"
            + "\n".join(choices[:MOST_LISTED])
        )
    for ident in passages:
        person.call("POST", "passages", ident, "forget")
    labels = [
        block["label"]
        for block in person.call("GET", "blocks")["data"]
        if [line for line in lines if _remove_line(person, block, _squeeze(line))]
    ]
    messages = [
        f"{ident} is forgotten ({text}); {_restored_by(ident)}" for ident, text in passages.items()
    ]
    messages += [f"a line of {label} is forgotten; {_restored_by(label)}" for label in labels]
    print_result("\n".join(messages), {"passages": [*passages], "blocks": labels}, as_json=as_json)


def _find_forgettable(person: UserMemory, text_or_id: str) -> tuple[dict[str, str], list[str]]:
    """Return passages by id, and lines of blocks: those that read so, else those with it in them.

    text_or_id: an id of a passage, a text, or words in a row.
    """
    if PASSAGE.fullmatch(text_or_id):
        return {text_or_id: person.call("GET", "passages", text_or_id)["content"]}, []
    pages = person.api.pages(person.path("passages"), {**person.params, "limit": 200})
    passages = {p["id"]: p["content"] for p in pages}
    blocks = [b for b in person.call("GET", "blocks")["data"] if not b.get("read_only")]
    lines = dict.fromkeys(line for b in blocks for line in b["value"].split("\n") if line.strip())
    folded_text = _squeeze(text_or_id).casefold()
    if not folded_text:
        return {}, []
    for fits in (folded_text.__eq__, lambda text: folded_text in text):
        passage_matches = {
            k: text for k, text in passages.items() if fits(_squeeze(text).casefold())
        }
        line_matches = [line for line in lines if fits(_squeeze(line).casefold())]
        if passage_matches or line_matches:
            return passage_matches, line_matches
    return {}, []


def _restored_by(name: str) -> str:
    return f"`mnemogate memory undo {name}` restores it"


def _remove_line(person: UserMemory, block: dict[str, Any], line: str) -> bool:
    """Remove the line from the block, if it has it."""
    lines = block["value"].split("\n")
    remaining_lines = [block_line for block_line in lines if _squeeze(block_line) != line]
    if not line or len(remaining_lines) == len(lines):
        return False
    person.api.call(
        "PATCH",
        person.block(block["label"]),
        params=person.params,
        json={"value": "\n".join(remaining_lines)},
        headers={"if-match": str(block["version"])},
    )
    return True


def _squeeze(text: str) -> str:
    return " ".join(text.split())


@memory.command(short_help="Undo the last change, of a block or a passage.")
@click.argument("label", required=False)
@json_option
@person_options
def undo(person: UserMemory, label: str | None, as_json: bool) -> None:
    """Undo the last change of the block LABEL, or of a passage by its id; without either, the
    newest change of both kinds. Repeat to undo earlier ones.

    A deleted block is restored, and so is a forgotten passage.

    \b
    Examples:
      mnemogate memory undo
      mnemogate memory undo human
    """
    if label is None:
        undone = person.call("POST", "undo")
        message = UNDONE[undone["kind"]].format(undone["name"])
        text_now = indent(undone["text"] or "(empty)")
        print_result(f"{message}:\n{text_now}", undone, as_json=as_json)
        return
    if PASSAGE.fullmatch(label):
        is_there = person.api.send("GET", person.path("passages", label), params=person.params)
        verb = "undo" if is_there.status_code == 200 else "restore"
        passage = person.call("POST", "passages", label, verb)
        print_result(f"{label} is restored: {passage['content']}", passage, as_json=as_json)
        return
    block = person.call("POST", "blocks", quote(label, safe=""), "undo")
    message = f"{label} is removed, since that change had created it"
    if "value" in block:
        text = indent(block["value"]) or "  (empty)"
        message = f"{label} is now at version {block['version']}:\n{text}"
    print_result(message, block, as_json=as_json)


@memory.command(short_help="The versions of a block.")
@click.argument("label")
@json_option
@person_options
def history(person: UserMemory, label: str, as_json: bool) -> None:
    """Show the changes of the block LABEL: who, when, before and after.

    \b
    Example:
      mnemogate memory history human
    """
    versions = list(
        person.api.pages(person.path("blocks", quote(label, safe=""), "versions"), person.params)
    )
    if as_json:
        print_json(versions)
        return
    if not versions:
        click.echo(f"{label} was never changed.", err=True)
    for version in versions:
        click.secho(
            f"version {version['version']}  {version['created_at']}  by {version['actor']}",
            bold=True,
        )
        for line in changed_lines(version["before"], version["after"]):
            click.echo(f"  {line}")


@memory.command(short_help="Search passages and messages.")
@click.argument("query")
@click.option(
    "--limit",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="Most results of each kind.",
)
@json_option
@person_options
def search(person: UserMemory, query: str, limit: int, as_json: bool) -> None:
    """Search passages and messages, best first; --json shows how each was scored.

    \b
    Example:
      mnemogate memory search "sister" --user ada
    """
    parameters = {"q": query, "limit": limit}
    hits_by_kind = {
        kind: person.call("GET", kind, "search", params=parameters)["data"]
        for kind in ("passages", "messages")
    }
    if as_json:
        print_json(hits_by_kind)
        return
    for kind, hits in hits_by_kind.items():
        for hit in hits:
            role = f"{hit['role']}: " if hit.get("role") else ""
            click.echo(
                f"{kind.removesuffix('s'):<8} {hit['created_at'][:16]}  {role}{hit['content']}"
            )
    if not any(hits_by_kind.values()):
        click.echo("nothing found")


@memory.command(short_help="Erase everything about a user.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@person_options
def erase(person: UserMemory, yes: bool) -> None:
    """Erase everything about the user, with all agents, and print a receipt.

    `mnemogate db vacuum` then removes it from the files.

    \b
    Example:
      mnemogate memory erase --user ada
    """
    if person.params:
        raise CommandFailed(
            "A user is always erased with all agents and projects. Leave out --agent and --project."
        )
    if not yes:
        click.confirm(
            f"Erase every block, passage and message of {person.user!r}? This cannot be undone",
            abort=True,
            err=True,
        )
    # Even if nothing is known: pending writes are erased too.
    receipt = person.api.call("DELETE", person.path())
    if not any(receipt["erased"].values()):
        _require_known(person)
    print_json(receipt)
