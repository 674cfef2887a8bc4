"""A gateway on Postgres, and a conversation with whatever gateway."""

from __future__ import annotations

from tests import stores

ADA = {"x-memory-user": "ada"}


def storage(url, **more):
    return {
        "storage.database": url,
        "storage.secret": stores.SECRET.hex(),
        "server.single_user": "false",
        **more,
    }


class Chat:
    """A conversation that resends its history, at whatever gateway."""

    def __init__(self):
        self.history, self.newest = [], False

    async def say(self, live, words, stream=False, headers=ADA):
        self.history.append({"role": "user", "content": words})
        sent = self.history[-1:] if self.newest else self.history
        if stream:
            response, _ = await live.stream(sent, headers)
            self.history.append({"role": "assistant", "content": "so be it"})
        else:
            response = await live.chat(sent, headers)
            self.history.append(response.json()["choices"][0]["message"])
        told = response.headers
        found = (response.status_code, told["x-memory-status"])
        assert found == (200, "ok"), told.get("x-memory-reason")
