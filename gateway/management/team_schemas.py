"""The objects of teams and projects in the management API."""

from __future__ import annotations

from typing import Annotated

import msgspec

from memory import iso
from memory.export_format import Description, Name
from memory.management.layers import ProjectRules, StoredProject, StoredTeam, TeamMember

# Users, or teams, of one project.
MOST_LISTED = 10_000
UserNames = Annotated[
    list[Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]],
    msgspec.Meta(max_length=MOST_LISTED),
]
TeamNames = Annotated[list[Name], msgspec.Meta(max_length=MOST_LISTED)]


class Team(msgspec.Struct):
    """members: how many."""

    name: str
    description: str
    members: int
    created_at: str
    updated_at: str
    object: str = "team"


class TeamUser(msgspec.Struct):
    """A user of a team."""

    user: str
    write: bool
    joined_at: str
    object: str = "team.member"


class UserTeam(msgspec.Struct):
    """A team of a user."""

    team: str
    write: bool
    joined_at: str
    object: str = "team.member"


class Project(msgspec.Struct):
    """teams, users, everyone: who may name it. write: they may also share with it."""

    name: str
    description: str
    teams: list[str]
    users: list[str]
    everyone: bool
    write: bool
    created_at: str
    updated_at: str
    object: str = "project"


class LayerRemoved(msgspec.Struct):
    """A receipt: what went with a team or a project, by kind."""

    id: str
    erased: dict[str, int]
    object: str
    deleted: bool = True


class _SentLayer(msgspec.Struct, forbid_unknown_fields=True):
    pass


class TeamPut(_SentLayer):
    description: Description = ""


class TeamUserPut(_SentLayer):
    """write: they may put passages into the team's memory."""

    write: bool = False


class ProjectPut(_SentLayer):
    """What is left out is as its default says."""

    description: Description = ""
    teams: TeamNames = []
    users: UserNames = []
    everyone: bool = False
    write: bool = False


def team_object(team: StoredTeam) -> Team:
    """Return a team as the API shows it."""
    name, description, members, created_at, updated_at = team
    return Team(name, description, members, iso(created_at), iso(updated_at))


def team_user(member: TeamMember) -> TeamUser:
    return TeamUser(member.name, member.write, iso(member.joined_at))


def user_team(member: TeamMember) -> UserTeam:
    return UserTeam(member.name, member.write, iso(member.joined_at))


def project_object(project: StoredProject) -> Project:
    """Return a declared project as the API shows it."""
    rules = project.rules
    return Project(
        project.name,
        rules.description,
        list(rules.teams),
        list(rules.users),
        rules.everyone,
        rules.write,
        iso(project.created_at),
        iso(project.updated_at),
    )


def rules_of(project_put: ProjectPut) -> ProjectRules:
    """Return what a body declares a project with."""
    users = [name.strip() for name in project_put.users]
    return ProjectRules(
        project_put.description, project_put.teams, users, project_put.everyone, project_put.write
    )
