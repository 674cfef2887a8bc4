"""A fair share of a provider's connections for each account, in own-key mode.

An account may take another slot while it holds fewer than `GREED` times the slots that would then
be free (the dynamic threshold of Choudhury and Hahne, 1998). Alone, an account gets eight ninths;
several get equal shares; none can take the last slot. An account without a slot is never held up
here. Counted in this process.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field

from gateway.errors import Unavailable

GREED = 8


@dataclass(slots=True)
class _ProviderShares:
    """Slots of one provider.

    most: slots in all. held, waiting: by account.
    """

    most: int = 0
    taken: int = 0
    held: Counter[str] = field(default_factory=Counter)
    waiting: dict[str, deque[asyncio.Future[None]]] = field(default_factory=dict)

    def open_to(self, account: str) -> bool:
        held = self.held[account]
        return not held or held < GREED * (self.most - self.taken - 1)

    def hold(self, account: str) -> None:
        self.held[account] += 1
        self.taken += 1

    def leave(self, account: str) -> None:
        self.taken -= 1
        self.held[account] -= 1
        if self.held[account] <= 0:
            del self.held[account]
        for name, waiters in list(self.waiting.items()):
            while waiters and self.open_to(name):
                if not (waiter := waiters.popleft()).done():
                    self.hold(name)
                    waiter.set_result(None)
            if not waiters:
                del self.waiting[name]

    def forget(self, account: str, waiter: asyncio.Future[None]) -> None:
        if (waiters := self.waiting.get(account)) and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self.waiting[account]


class AccountShares:
    """Slots by provider and account."""

    def __init__(self) -> None:
        self._providers: dict[str, _ProviderShares] = {}

    async def take(self, provider: str, account: str, most: int, patience: float) -> None:
        """Take one more slot for the account, within `patience` seconds.

        most: slots of the provider. Raises Unavailable.
        """
        shares = self._providers.setdefault(provider, _ProviderShares())
        shares.most = most
        if account not in shares.waiting and shares.open_to(account):
            shares.hold(account)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        shares.waiting.setdefault(account, deque()).append(waiter)
        try:
            async with asyncio.timeout(patience):
                await waiter
        except (TimeoutError, asyncio.CancelledError) as e:
            if waiter.done() and not waiter.cancelled():
                shares.leave(account)  # granted at the same moment
            else:
                shares.forget(account, waiter)
            if isinstance(e, TimeoutError):
                raise Unavailable(
                    f"Your account has {shares.held[account]} of the {most} connections to "
                    f"{provider!r}; the rest is kept for others, and none of "
                    f"yours ended within {patience:g} s. Try again shortly.",
                    headers=[(b"retry-after", b"1")],
                ) from e
            raise

    def give(self, provider: str, account: str) -> None:
        """Release a slot of the account."""
        self._providers[provider].leave(account)

    def drop_idle(self, name: str) -> None:
        """Forget what nobody uses: clients may choose the names of targets."""
        if (shares := self._providers.get(name)) and not (shares.taken or shares.waiting):
            del self._providers[name]
