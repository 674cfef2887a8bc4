"""What two tenants with the same names of everything hold, each object with its owner's word."""

from __future__ import annotations

from typing import Any

from tests.conftest import Live

SECRET = "mg-0123456789abcdef0123"
# The tenants.
FIRST, SECOND = "first", "second"
MARKS = {FIRST: "quokkaalpha", SECOND: "quokkabeta"}
SOURCE = 'def triple(days: int) -> str:\n    """TOLD river."""\n    return "TOLD river"\n'
MEMORY = "/memory/v1"
APOLLO = {"x-memory-project": "apollo"}
# Whoever is named reads the words of `open`; those of others are an owner's alone.
OPEN, ANN, CORE, APOLLO_SHARED, PARTITION, SUPPORT, LETTA = (
    "open",
    "ann",
    "core",
    "apollo",
    "partition",
    "support",
    "letta",
)


def word(tenant: str, owner: str = "") -> str:
    """Return the word of an owner, or what all words of a tenant begin with."""
    return MARKS[tenant] + owner


def told(tenant: str, owner: str) -> str:
    return f"{word(tenant, owner)} river"


def key_of(tenant: str) -> str:
    return f"{SECRET}-{tenant}"


def keys() -> list[dict[str, Any]]:
    """A trusted key of each tenant, one of each user, and one that operates."""
    made: list[dict[str, Any]] = []
    for tenant in (FIRST, SECOND):
        base = {"tenant": tenant, "tools": ["*"]}
        made.append({"name": tenant, "key": key_of(tenant), **base})
        for user in ("ann", "bob"):
            limited = {"trusted": False, "users": [user], "default_user": user}
            key = f"{key_of(tenant)}-{user}"
            made.append({"name": f"{tenant}-{user}", "key": key, **base, **limited})
    made.append({"name": "setup", "key": f"{SECRET}-admin", "tenant": FIRST, "admin": True})
    return made


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


class Filler:
    """Gives a tenant one of everything."""

    def __init__(self, live: Live, tenant: str) -> None:
        self.live, self.tenant = live, tenant

    async def make(self, method: str, path: str, **options: Any) -> Any:
        headers = {**bearer(key_of(self.tenant)), **options.pop("headers", {})}
        url = f"{self.live.root}{path}"
        answer = await self.live.http.request(method, url, headers=headers, **options)
        assert answer.status_code < 300, (method, path, answer.text)
        return answer.json() if answer.content else {}

    async def fill(self) -> None:
        await self._make_agents()
        await self._make_layers()
        await self._make_shared_blocks()
        await self._make_own_memory()
        await self._make_letta_agent()
        await self._chat()

    async def _make_agents(self) -> None:
        for name, home, owner in (("support", "agent", SUPPORT), ("helper", "user", OPEN)):
            text = told(self.tenant, owner)
            profile = {
                "model": "m",
                "home": home,
                "title": text,
                "description": text,
                "instruction": text,
                "metadata": {"told": text},
                "blocks": [{"label": "persona", "value": text, "description": text}],
            }
            await self.make("PUT", f"{MEMORY}/agents/{name}", json=profile)
        inbox = {"text": told(self.tenant, SUPPORT), "from": "an app"}
        await self.make("POST", f"{MEMORY}/agents/support/inbox", json=inbox)

    async def _make_layers(self) -> None:
        core, apollo = told(self.tenant, CORE), told(self.tenant, APOLLO_SHARED)
        await self.make("PUT", f"{MEMORY}/teams/core", json={"description": core})
        await self.make("PUT", f"{MEMORY}/teams/core/members/ann", json={"write": True})
        project = {"description": apollo, "users": ["ann"], "teams": ["core"], "write": True}
        await self.make("PUT", f"{MEMORY}/projects/apollo", json=project)
        for whose, owner in (
            ("users/ann", ANN),
            ("teams/core", CORE),
            ("projects/apollo", APOLLO_SHARED),
            ("tenant", OPEN),
        ):
            text = {"content": told(self.tenant, owner)}
            await self.make("POST", f"{MEMORY}/{whose}/passages", json=text)

    async def _make_shared_blocks(self) -> None:
        for label, owner, who in (
            ("board", OPEN, {"everyone": True}),
            ("notes", ANN, {"user": "ann"}),
            ("plan", SUPPORT, {"agent": "support"}),
            ("rules", CORE, {"team": "core"}),
            ("goal", APOLLO_SHARED, {"project": "apollo"}),
        ):
            text = told(self.tenant, owner)
            shared = {"label": label, "value": text, "description": text, "members": [who]}
            await self.make("POST", f"{MEMORY}/shared-blocks", json=shared)

    async def _make_own_memory(self) -> None:
        text, users = told(self.tenant, ANN), f"{MEMORY}/users/ann"
        await self.make("PUT", f"{users}/blocks/human", json={"value": text})
        part = told(self.tenant, PARTITION)
        query = {"params": {"project": "apollo"}}
        await self.make("PUT", f"{users}/blocks/project", json={"value": part}, **query)
        await self.make("POST", f"{users}/passages", json={"content": part}, **query)
        content = f"# Plan\n\n{text}\n".encode()
        headers = {"content-type": "text/plain"}
        await self.make("PUT", f"{users}/files/plan.md", content=content, headers=headers)
        # The other user has a memory too, so that there is something to see.
        await self.make("PUT", f"{MEMORY}/users/bob/blocks/human", json={"value": "bob river"})
        await self.make("POST", f"{MEMORY}/users/bob/passages", json={"content": "bob river"})

    async def _make_letta_agent(self) -> None:
        text = told(self.tenant, LETTA)
        blocks = [{"label": "human", "value": text}]
        sent = {"model": "m", "name": text, "memory_blocks": blocks, "system": text}
        agent = await self.make("POST", "/letta/v1/agents", json=sent)
        path = f"/letta/v1/agents/{agent['id']}"
        messages = {"messages": [{"role": "user", "content": text}]}
        await self.make("POST", f"{path}/messages", json=messages)
        await self.make("POST", f"{path}/archival-memory", json={"text": text})

    async def _chat(self) -> None:
        """Ann talks to every agent, in the project and without."""
        for model, owner in (("m", ANN), ("agent:support", SUPPORT), ("agent:helper", ANN)):
            for project in ({}, APOLLO):
                owner = PARTITION if project and owner == ANN else owner
                said = [{"role": "user", "content": told(self.tenant, owner)}]
                headers = {"x-memory-user": "ann", **project}
                body = {"model": model, "messages": said}
                await self.make("POST", "/v1/chat/completions", json=body, headers=headers)


async def add_tool(live: Live) -> None:
    """Make a Python tool of the first tenant, where the sandbox is installed."""
    source = SOURCE.replace("TOLD", word(FIRST, OPEN))
    headers = bearer(f"{SECRET}-admin")
    url = f"{live.root}{MEMORY}/tools/triple"
    await live.http.put(url, json={"source": source}, headers=headers)
