"""The names of projects, and the refusal of one that a user may not name."""

from __future__ import annotations

from gateway.errors import BadRequest, Forbidden
from memory import KIND_MARK

PROJECT_CHARACTERS = 256
# Postgres indexes no row above 2.7 kB.
PROJECT_BYTES = 700


def check_project_name(name: str) -> str:
    """Return a project's name, without white space around it. Raises BadRequest."""
    name = name.strip()
    if len(name) > PROJECT_CHARACTERS or len(name.encode("utf-8", "replace")) > PROJECT_BYTES:
        raise BadRequest(
            f"The project's name has {len(name)} characters; at most {PROJECT_CHARACTERS} are "
            f"allowed, and {PROJECT_BYTES} bytes in UTF-8.",
            param="x-memory-project",
        )
    if KIND_MARK in name:
        raise BadRequest(
            "The project's name has the control character U+001F. Leave it out.",
            param="x-memory-project",
        )
    return name


def forbidden_project(name: str, user: str | None) -> Forbidden:
    """Return the error for who is not listed in a declared project."""
    caller = "who names no user"
    if user is not None:
        caller = f"the user {user[:64]!r}"
    return Forbidden(
        f"The project {name[:64]!r} is declared, and {caller} is not listed in it. Ask for a place "
        "in it, or leave the project out.",
        code="project_not_allowed",
        param="x-memory-project",
    )
