"""The context window of each target: configured, reported by its server, or learnt from answers.

The configuration comes first, then the server's report, then models.toml. A smaller window is
learnt if a server proves it: it refuses a prompt for its length, or it reports far fewer tokens
than it was sent, which means that it cut the prompt silently. What is learnt is used for an hour.
In own-key mode each account learns for itself.

Asking does not delay a turn, except briefly before a target's first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from sys import getsizeof

from gateway.errors import GatewayError
from gateway.routing.caller import Caller
from gateway.routing.router import Target
from gateway.upstream.window_probe import GREATEST, WindowProbe
from memory import Cache, PromptReport

log = logging.getLogger("mnemogate")
# That a target's first turn waits for its server to tell the window.
FIRST_SECONDS = 0.25
# Before a server that could not be reached is asked again.
RETRY_SECONDS = 60.0
# That a window holds which a server did not tell.
LEARNT_SECONDS = 3600.0
# Of a prompt that was refused, as a window: what was cut of it fits.
REFUSED_SHARE = 0.75
# Tokens; no smaller window is learnt from a refusal.
REFUSED_LEAST = 1024
# Times our count of a prompt, or a third of it, that a refusal may tell of it.
FITTING = 3
# Tokens; no window is smaller, so a smaller report counts something else.
CUT_LEAST = 512
# That a server is trusted with prompts of a size that it counted whole.
TAKEN_SECONDS = 3600.0
# Of the longest prompt that a server took: it cuts to no less.
STEADY_SHARE = 0.75
# Bounded: behind `*`, clients choose the names.
RECORDS_BYTES, RECORDS_EACH = 1 << 19, 400


@dataclass(slots=True)
class WindowRecord:
    """What is known of one target's window, in tokens. Times are of `time.monotonic`.

    reported_window: reported by its server. due: when to ask again. loading: its server had not
    loaded the model when asked. learnt: from refusals and usage, until a time. longest_prompt: the
    longest prompt that it counted whole. varies: it counted other prompts differently. unreliable:
    it counts only what is not in its cache, or reports the same number for every prompt, so its
    reports prove nothing. largest_request: bytes of the longest request of which its count proved
    that it read all, until a time.
    """

    reported_window: int | None = None
    due: float = 0.0
    loading: bool = False
    learnt: int | None = None
    until: float = 0.0
    longest_prompt: int = 0
    varies: bool = False
    unreliable: bool = False
    largest_request: int = 0
    taken_until: float = 0.0

    def note_whole(self, reported_tokens: int) -> None:
        """Note the count of a prompt that was not cut."""
        if reported_tokens == self.learnt and not self.varies:
            # It fits in what was taken for the window, and still counts the same.
            self.learnt = None
            self.unreliable = True
        self.varies = self.varies or self.longest_prompt not in (0, reported_tokens)
        self.longest_prompt = max(self.longest_prompt, reported_tokens)

    def believes(self, reported_tokens: int) -> bool:
        """Tell whether so small a count of a prompt proves that it was cut."""
        if reported_tokens < max(CUT_LEAST, STEADY_SHARE * self.longest_prompt):
            self.unreliable = True
        is_constant = reported_tokens == self.longest_prompt and not self.varies
        return not (self.unreliable or is_constant)


class ContextWindows:
    """The windows of all targets. probes: by provider, what asks its server."""

    def __init__(self, probes: Mapping[str, WindowProbe]) -> None:
        self.probes = probes
        self.records: Cache[str, WindowRecord] = Cache(
            RECORDS_BYTES, RECORDS_EACH, lambda name, _: getsizeof(name)
        )
        self._asking: dict[str, asyncio.Task[None]] = {}

    def get(self, target: Target, account: str) -> int | None:
        """Return a target's window, None if nobody knows it. account: see `Caller`."""
        if account:
            name = _name(target, account)
        else:
            name = target.label
        record = self.records.get(name) or WindowRecord()
        window = record.reported_window or target.window
        if record.learnt is None or time.monotonic() > record.until:
            return window
        return min(record.learnt, window or record.learnt)

    async def find(self, target: Target, caller: Caller) -> int | None:
        """Return a target's window; its first time, wait a moment for the server to tell it."""
        if target.asks and self._is_due(target, caller):
            is_first_look = self._record(target, caller).due == 0.0
            asking = self._ask(target, caller)
            if is_first_look:
                await asyncio.wait([asking], timeout=FIRST_SECONDS)
        return self.get(target, caller.account)

    def note_refusal(
        self,
        target: Target,
        caller: Caller,
        counted_tokens: int,
        quoted_sizes: tuple[int, int] | None,
    ) -> None:
        """Learn from a prompt that a target refused for its length.

        A refusal may quote the client, whose words must not shrink the window of others: sizes are
        believed only if they fit our count, and no window is learnt that a prompt that was served
        did not fit in.

        counted_tokens: our count of it, 0 if unknown. quoted_sizes: tokens of the prompt and of
        the window, if the error names them.
        """
        before = self.get(target, caller.account)
        window = 0
        if quoted_sizes is None:
            window = 0
            if before is None:
                window = int(REFUSED_SHARE * counted_tokens)
        elif (
            counted_tokens / FITTING <= quoted_sizes[0] <= counted_tokens * FITTING
            and quoted_sizes[1] < quoted_sizes[0]
        ):
            window = quoted_sizes[1]
        smallest_window = max(REFUSED_LEAST, self._record(target, caller).longest_prompt + 1)
        if smallest_window <= window <= GREATEST and window < (before or GREATEST):
            self._learn(target, caller, window)
            log.info("%s refused a prompt: its window is taken for %d", target.label, window)
        if target.asks and target.provider in self.probes:
            self._ask(target, caller, anew=True)

    def has_taken(self, target: Target, caller: Caller, size: int) -> bool:
        """Tell whether a target proved lately that it reads all of a request of so many bytes."""
        account = caller.account
        record = self.records.get(_name(target, account) if account else target.label)
        if record is None or not 0 < size <= record.largest_request:
            return False
        return time.monotonic() < record.taken_until

    def note_report(
        self, target: Target, caller: Caller, report: PromptReport | None, size: int = 0
    ) -> int:
        """Learn from the tokens that a target reports of a prompt.

        size: bytes of the client's request, 0 if unknown. Returns the target's window if it turns
        out to have cut the prompt, else 0.
        """
        record = self._record(target, caller)
        # By now it is loaded.
        if record.loading:
            record.loading = False
            self._ask(target, caller, anew=True)
        if report is None:
            return 0
        if report.is_whole:
            record.note_whole(report.reported_tokens)
            if report.fewest and size > record.largest_request:
                record.largest_request = size
                record.taken_until = time.monotonic() + TAKEN_SECONDS
            return 0
        record.largest_request = 0
        if not record.believes(report.reported_tokens):
            return 0
        window = max(report.reported_tokens, record.longest_prompt)
        if window >= (self.get(target, caller.account) or GREATEST):
            # No news: a prompt that no compaction made fit.
            return 0
        self._learn(target, caller, window)
        log.warning(
            "%s cut a prompt without saying so: it was sent at least %d tokens and reports %d. "
            "Its context window is taken for %d now. Set the server's own window higher, or "
            "context_window of this model to it",
            target.label,
            report.fewest,
            report.reported_tokens,
            window,
        )
        return window

    def _is_due(self, target: Target, caller: Caller) -> bool:
        if not target.asks or target.provider not in self.probes:
            return False
        return time.monotonic() >= self._record(target, caller).due

    def _ask(self, target: Target, caller: Caller, *, anew: bool = False) -> asyncio.Task[None]:
        """Ask in the background, unless that is being done. anew: see `WindowProbe.ask`."""
        name = _name(target, caller.account)
        if (asking := self._asking.get(name)) is None:
            asking = asyncio.create_task(self._put_answer(target, caller, anew), name="window")
            self._asking[name] = asking
            asking.add_done_callback(lambda _: self._asking.pop(name, None))
        return asking

    async def _put_answer(self, target: Target, caller: Caller, anew: bool) -> None:
        record = self._record(target, caller)
        record.due = time.monotonic() + RETRY_SECONDS
        try:
            probe = self.probes[target.provider]
            found_window = await probe.ask(target.model, caller.credential(target), anew=anew)
        except (GatewayError, TimeoutError) as e:
            log.info("%s does not tell its window: %s", target.label, type(e).__name__)
            return
        except Exception:
            # A task that nobody awaits. The target is used without a known window.
            log.exception("asking %s for its window failed", target.label)
            return
        record.reported_window = found_window.tokens
        record.due = time.monotonic() + found_window.seconds
        record.loading = found_window.loading

    def _learn(self, target: Target, caller: Caller, window: int) -> None:
        record = self._record(target, caller)
        record.learnt = window
        record.until = time.monotonic() + LEARNT_SECONDS
        record.largest_request = 0

    def _record(self, target: Target, caller: Caller) -> WindowRecord:
        account = caller.account
        if account:
            name = _name(target, account)
        else:
            name = target.label
        if (record := self.records.get(name)) is None:
            self.records.put(name, record := WindowRecord())
        return record


def _name(target: Target, account: str) -> str:
    if account:
        return f"{target.label}\x00{account}"
    return target.label
