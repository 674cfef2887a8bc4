"""The routes of passages: of users, teams, projects and the tenant; and of teams and projects."""

from __future__ import annotations

from gateway.management import layer_passages, passages, projects, teams

ROUTES = (*passages.ROUTES, *teams.ROUTES, *projects.ROUTES, *layer_passages.ROUTES)
