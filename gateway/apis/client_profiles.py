"""Which program sent a request, and what follows from it: see `gateway.config.clients`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.apis.base import RequestFacts
from gateway.config.clients import ClientSettings, UtilityRule
from gateway.config.settings import Settings
from gateway.wire.chat import Json
from memory import SHIPPED_HARNESS, Harness

Headers = Mapping[bytes, bytes]
CONVERSATION_CHARACTERS = 256
# What a program sends for a conversation that has no name yet.
UNNAMED = frozenset({"new"})
LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")


@dataclass(frozen=True, slots=True)
class ClientProfile:
    """One client program.

    known_by: headers of its own. summaries: beginnings of messages in which it sends a summary of
    its own. unnamed: names of conversations that name none, in lower case. harness: what it puts
    around its user's words.
    """

    agents: tuple[bytes, ...] = ()
    known_by: frozenset[bytes] = frozenset()
    conversations: tuple[bytes, ...] = ()
    projects: tuple[bytes, ...] = ()
    utility: tuple[UtilityRule, ...] = ()
    summaries: tuple[str, ...] = ()
    unnamed: frozenset[str] = UNNAMED
    harness: Harness = SHIPPED_HARNESS

    @classmethod
    def of(cls, settings: ClientSettings, unnamed: frozenset[str]) -> ClientProfile:
        """Return a profile as the settings describe it."""
        named_headers = (
            *settings.conversation_headers,
            *settings.user_headers,
            *settings.project_headers,
        )
        own_headers = {*named_headers, *(r.header for r in settings.utility if r.header)}
        return cls(
            tuple(a.lower().encode() for a in settings.user_agents),
            frozenset(name.encode() for name in own_headers),
            tuple(name.encode() for name in settings.conversation_headers),
            tuple(name.encode() for name in settings.project_headers),
            settings.utility,
            settings.summaries,
            unnamed,
            Harness(settings.harness),
        )

    def has_sent(self, headers: Headers) -> bool:
        """Tell whether a request is this program's."""
        agent = headers.get(b"user-agent", b"").lower()
        return agent.startswith(self.agents) or not self.known_by.isdisjoint(headers)

    def conversation(self, headers: Headers) -> str:
        """Return the conversation that the program names, "" for none.

        Of a long one the beginning.
        """
        for header in self.conversations:
            name = headers.get(header, b"").decode("utf-8", "replace").strip()
            if name and name.lower() not in self.unnamed and not name.startswith("{{"):
                return name[:CONVERSATION_CHARACTERS]
        return ""

    def project(self, headers: Headers) -> str:
        """Return the project that the program names, "" for none."""
        for header in self.projects:
            name = headers.get(header, b"").decode("utf-8", "replace").strip()
            if name and name.lower() not in self.unnamed and not name.startswith("{{"):
                return name
        return ""

    def asks_for_itself(self, headers: Headers, body: Json, facts: RequestFacts) -> bool:
        """Tell whether this is a call of the program for itself, such as for a title."""
        return any(_fits(rule, headers, body, facts) for rule in self.utility)


ANYONE = ClientProfile()


class ClientProfiles:
    """The programs that the settings describe; those of the operator come first."""

    def __init__(self, settings: Settings) -> None:
        unnamed = UNNAMED | {p.lower() for p in settings.identity.placeholders}
        self._profiles = [ClientProfile.of(c, unnamed) for c in settings.clients.values()]
        # One look at all of them: most requests are of no program that is known.
        self._common_profile = ClientProfile(
            tuple(agent for c in self._profiles for agent in c.agents),
            frozenset().union(*(c.known_by for c in self._profiles)),
        )

    def find(self, headers: Headers) -> ClientProfile:
        """Return the profile of the program that sent a request; `ANYONE` if none is known."""
        common_profile = self._common_profile
        agent = headers.get(b"user-agent")
        if common_profile.known_by.isdisjoint(headers) and not (
            agent is not None and agent.lower().startswith(common_profile.agents)
        ):
            return ANYONE
        return next(c for c in self._profiles if c.has_sent(headers))


def _fits(rule: UtilityRule, headers: Headers, body: Json, facts: RequestFacts) -> bool:
    if rule.header is not None:
        value = headers.get(rule.header.encode())
        wanted_bytes = (rule.contains or "").encode()
        if value is None or b"".join(wanted_bytes.split()) not in b"".join(value.split()):
            return False
    if rule.tools is not None and bool(body.get("tools")) is not rule.tools:
        return False
    if rule.json_answer is not None and facts.wants_json is not rule.json_answer:
        return False
    return rule.max_tokens is None or rule.max_tokens in [body.get(name) for name in LIMITS]
