"""How many of a provider's connections one account may have, in own-key mode, where anybody brings
a key.

An account takes another place while it has fewer than `GREED` times as many as would then be free
(the dynamic threshold of Choudhury and Hahne, 1998): alone it comes to eight ninths, and with
others to as much as they; none can take the last. Who has none is never held up here. Kept in this
process.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field

from gateway.errors import Unavailable

GREED = 8


@dataclass(slots=True)
class _ProviderShares:
    """One provider's. most: places in all. held, waiting: by account."""

    most: int = 0
    taken: int = 0
    held: Counter[str] = field(default_factory=Counter)
    waiting: dict[str, deque[asyncio.Future[None]]] = field(default_factory=dict)

    def open_to(self, account: str) -> bool:
        mine = self.held[account]
        return not mine or mine < GREED * (self.most - self.taken - 1)

    def hold(self, account: str) -> None:
        self.held[account] += 1
        self.taken += 1

    def leave(self, account: str) -> None:
        self.taken -= 1
        self.held[account] -= 1
        if self.held[account] <= 0:
            del self.held[account]
        for name, turns in list(self.waiting.items()):
            while turns and self.open_to(name):
                if not (turn := turns.popleft()).done():
                    self.hold(name)
                    turn.set_result(None)
            if not turns:
                del self.waiting[name]

    def forget(self, account: str, turn: asyncio.Future[None]) -> None:
        if (turns := self.waiting.get(account)) and turn in turns:
            turns.remove(turn)
            if not turns:
                del self.waiting[account]


class AccountShares:
    """Places by provider and account."""

    def __init__(self) -> None:
        self._providers: dict[str, _ProviderShares] = {}

    async def take(self, provider: str, account: str, most: int, patience: float) -> None:
        """One more place for the account, within `patience` seconds.

        most: the provider's places. Raises Unavailable.
        """
        places = self._providers.setdefault(provider, _ProviderShares())
        places.most = most
        if account not in places.waiting and places.open_to(account):
            places.hold(account)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        places.waiting.setdefault(account, deque()).append(turn)
        try:
            async with asyncio.timeout(patience):
                await turn
        except BaseException as e:
            if turn.done() and not turn.cancelled():
                places.leave(account)  # it came in the same moment
            else:
                places.forget(account, turn)
            if isinstance(e, TimeoutError):
                raise Unavailable(
                    f"Your account has {places.held[account]} of the {most} connections to "
                    f"{provider!r}, the rest is kept for others, and none of "
                    f"yours ended within {patience:g} s. Try again shortly.",
                    headers=[(b"retry-after", b"1")],
                ) from e
            raise

    def give(self, provider: str, account: str) -> None:
        """A place of the account is free again."""
        self._providers[provider].leave(account)
