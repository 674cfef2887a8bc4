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

    capacity: slots in all. held, waiters_by_account: by account.
    """

    capacity: int = 0
    taken_slots: int = 0
    slots_by_account: Counter[str] = field(default_factory=Counter)
    waiters_by_account: dict[str, deque[asyncio.Future[None]]] = field(default_factory=dict)

    def open_to(self, account: str) -> bool:
        account_slots = self.slots_by_account[account]
        return not account_slots or account_slots < GREED * (self.capacity - self.taken_slots - 1)

    def hold(self, account: str) -> None:
        self.slots_by_account[account] += 1
        self.taken_slots += 1

    def leave(self, account: str) -> None:
        self.taken_slots -= 1
        self.slots_by_account[account] -= 1
        if self.slots_by_account[account] <= 0:
            del self.slots_by_account[account]
        for name, waiters in list(self.waiters_by_account.items()):
            while waiters and self.open_to(name):
                if not (waiter := waiters.popleft()).done():
                    self.hold(name)
                    waiter.set_result(None)
            if not waiters:
                del self.waiters_by_account[name]

    def forget(self, account: str, waiter: asyncio.Future[None]) -> None:
        if (waiters := self.waiters_by_account.get(account)) and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self.waiters_by_account[account]


class AccountShares:
    """Slots by provider and account."""

    def __init__(self) -> None:
        self._providers: dict[str, _ProviderShares] = {}

    async def take(self, provider: str, account: str, capacity: int, patience: float) -> None:
        """Take one more slot for the account, within `patience` seconds.

        capacity: slots of the provider. Raises Unavailable.
        """
        shares = self._providers.setdefault(provider, _ProviderShares())
        shares.capacity = capacity
        if account not in shares.waiters_by_account and shares.open_to(account):
            shares.hold(account)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        shares.waiters_by_account.setdefault(account, deque()).append(waiter)
        try:
            async with asyncio.timeout(patience):
                await waiter
        except (TimeoutError, asyncio.CancelledError) as e:
            if waiter.done() and not waiter.cancelled():
                # Granted at the same moment.
                shares.leave(account)
            else:
                shares.forget(account, waiter)
            if isinstance(e, TimeoutError):
                raise Unavailable(
                    f"Your account has {shares.slots_by_account[account]} of the {capacity} "
                    f"connections to {provider!r}; the rest is kept for others, and none of "
                    f"yours ended within {patience:g} s. Try again shortly.",
                    headers=[(b"retry-after", b"1")],
                ) from e
            raise

    def give(self, provider: str, account: str) -> None:
        """Release a slot of the account."""
        self._providers[provider].leave(account)

    def drop_idle(self, name: str) -> None:
        """Forget what nobody uses: clients may choose the names of targets."""
        if (shares := self._providers.get(name)) and not (
            shares.taken_slots or shares.waiters_by_account
        ):
            del self._providers[name]
