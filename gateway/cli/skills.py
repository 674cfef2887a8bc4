"""`mnemogate skills ...`: a user's skills, and what reflections propose."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from gateway.cli.formatting import changed_lines, printable
from gateway.cli.memory import UserMemory, making_person_options, person_options
from gateway.cli.options import json_option, print_json, print_result, print_rows
from gateway.cli.users import Listing

STATUSES = ("candidate", "active", "retired")
DECISIONS = ("apply", "discard", "undo")
MARKDOWN = {"content-type": "text/markdown"}
DONE = {"apply": "applied", "discard": "discarded", "undo": "undone"}


@click.group(cls=Listing, short_help="List, show, activate and import a user's skills.")
def skills() -> None:
    """List a user's skills (`list`, the default), show one, make it active, retire or delete it.

    \b
    Examples:
      mnemogate skills list --user ann
      mnemogate skills show deploy-app --user ann
      mnemogate skills set deploy-app active --user ann
      mnemogate skills import SKILL.md --user ann
      mnemogate skills proposals --user ann
    """


@skills.command("list", short_help="List a user's skills.")
@json_option
@person_options
def list_(person: UserMemory, as_json: bool) -> None:
    """List a user's skills with their state, and how often they were used.

    \b
    Example:
      mnemogate skills list --user ann
    """
    skills = person.call("GET", "skills")["data"]
    hint = "There are no skills. docs/skills.md says how they come."
    print_rows(skills, _line, hint, as_json=as_json)


def _line(skill: dict[str, Any]) -> str:
    """Return a skill in one line."""
    uses = f"{skill['uses']} uses, {skill['failures']} failed"
    return "  ".join([skill["name"], skill["status"], uses, printable(skill["description"])])


@skills.command(short_help="Show a skill as SKILL.md, or its history.")
@click.argument("skill")
@click.option("--versions", is_flag=True, help="What each change of its text was.")
@json_option
@person_options
def show(person: UserMemory, skill: str, versions: bool, as_json: bool) -> None:
    """Show a skill, named by its id or name.

    \b
    Example:
      mnemogate skills show deploy-app --user ann
    """
    name = quote(skill, safe="")
    if versions:
        history = person.call("GET", "skills", name, "versions")["data"]
        if as_json:
            print_json(history)
            return
        for version in history:
            click.secho(f"version {version['version']}  {version['status']}", bold=True)
            _print_difference(version["before"], version["after"])
        return
    skill_data = person.call("GET", "skills", name)
    head = f"{skill_data['name']}  {skill_data['status']}  version {skill_data['version']}"
    text = "\n".join(
        map(printable, [skill_data["description"], "", *skill_data["text"].splitlines()])
    )
    print_result(f"{head}\n{text}", skill_data, as_json=as_json)


def _print_difference(before: str | None, after: str | None) -> None:
    for line in changed_lines(before, after):
        click.echo(f"  {line}")


@skills.command("set", short_help="Make a skill active, retire it, or let it wait again.")
@click.argument("skill")
@click.argument("status", type=click.Choice(STATUSES))
@json_option
@person_options
def set_(person: UserMemory, skill: str, status: str, as_json: bool) -> None:
    """Set the state of a skill. Requests list active ones.

    \b
    Example:
      mnemogate skills set deploy-app active --user ann
    """
    change = person.call("PATCH", "skills", quote(skill, safe=""), json={"status": status})
    text = f"{change['name']} is {change['status']}, at version {change['version']}."
    print_result(text, change, as_json=as_json)


@skills.command("import", short_help="Make a skill of a file SKILL.md.")
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
@making_person_options
def import_skill(person: UserMemory, path: Path, as_json: bool) -> None:
    """Make a skill of a file with front matter `name` and `description`.

    \b
    Example:
      mnemogate skills import SKILL.md --user ann
    """
    content = path.read_bytes()
    new_skill = person.call("POST", "skills", "import", content=content, headers=MARKDOWN)
    print_result(f"{new_skill['name']} is {new_skill['status']}.", new_skill, as_json=as_json)


@skills.command(short_help="Delete a skill.")
@click.argument("skill")
@json_option
@person_options
def delete(person: UserMemory, skill: str, as_json: bool) -> None:
    """Delete a skill with its versions, named by its id or name.

    \b
    Example:
      mnemogate skills delete deploy-app --user ann
    """
    receipt = person.call("DELETE", "skills", quote(skill, safe=""))
    print_result(f"{printable(skill)} is deleted.", receipt, as_json=as_json)


@skills.command(short_help="Show what reflections propose, as differences.")
@click.option(
    "--limit", type=click.IntRange(1, 200), default=10, show_default=True, help="Most proposals."
)
@json_option
@person_options
def proposals(person: UserMemory, limit: int, as_json: bool) -> None:
    """Show the changes that dry runs of reflections propose, newest first.

    \b
    Example:
      mnemogate skills proposals --user ann
    """
    reflections = person.call("GET", "reflections", params={"limit": limit})["data"]
    if as_json:
        print_json(reflections)
        return
    for proposal in reflections:
        moment = proposal["created_at"][:16]
        click.secho(f"{proposal['id']}  {proposal['status']}  {moment}", bold=True)
        for change in proposal["changes"]:
            click.echo(_name_of(change))
            _print_difference(change["before"], change["after"])
    if not reflections:
        click.echo("No proposals. `dry_run = true` of [memory] reflect brings them.", err=True)


def _name_of(change: dict[str, Any]) -> str:
    if change["kind"] == "block":
        return f" block {printable(change['label'])}"
    return f" passage {change['passage'] or '(new)'}"


@skills.command(short_help="Apply, discard or undo a proposal.")
@click.argument("proposal")
@click.argument("decision", type=click.Choice(DECISIONS))
@json_option
@person_options
def decide(person: UserMemory, proposal: str, decision: str, as_json: bool) -> None:
    """Apply all changes of a PROPOSAL, or none; `undo` takes back what was applied.

    \b
    Example:
      mnemogate skills decide refl_0123 apply --user ann
    """
    body = {"decision": decision}
    result = person.call("POST", "reflections", quote(proposal, safe=""), json=body)
    print_result(f"{result['id']} is {DONE[decision]}.", result, as_json=as_json)
