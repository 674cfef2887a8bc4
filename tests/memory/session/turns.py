"""Turns for unit tests: real values, over a store that does what a test says."""

from __future__ import annotations

from msgspec.structs import replace

from memory.context.tokens import TokenCounter
from memory.conversation.matching import RequestHistory
from memory.conversation.messages import DigestCache
from memory.core.blocks import CoreBlock
from memory.errors import StoreUnavailable
from memory.retrieval.retriever import RecallHits
from memory.scope import Scope
from memory.session.context import RequestAttempt, TurnServices, start_turn
from memory.session.in_flight import InFlight
from memory.session.model_records import ModelRecords
from memory.session.request import Policy, TurnRequest
from memory.session.shared_changes import SharedChanges
from memory.stores.sql.rows.scopes import ScopeOwner
from memory.stores.sql.turns.turn_reader import Snapshot

BLOCKS = {"human": CoreBlock("human", "Likes tea."), "persona": CoreBlock("persona", "")}
SECRET = b"s" * 32


class FakeJournal:
    """A journal that takes nothing, so that each turn is written at once."""

    def waits(self, scope, but=None):
        return False

    def append(self, conn, entry):
        return False


class FakeFiler:
    """What files no journal, since nothing waits in it."""

    async def file_of(self, scope, deadline, but=None):
        pass


class FakeDatabase:
    """A store without rows.

    faults: what its next writes and reads raise, None for nothing. answers: what a read gives.
    """

    version = (1, 1)

    is_shared = False

    holder = None

    application_tables = ()

    def __init__(self):
        self.faults, self.answers, self.written = [], [], []
        self.journal, self.filer = FakeJournal(), FakeFiler()

    def _fail(self):
        if self.faults and (fault := self.faults.pop(0)) is not None:
            raise fault

    def write_now(self, work):
        # It waits its turn.
        return None

    async def write(self, work, **_):
        self._fail()
        out = work(None)
        self.written.append(out)
        return out

    async def read(self, work, seconds=None, small=False):
        self._fail()
        return self.answers.pop(0)


class FakeLines:
    """Where turns leave what the next one reads. taken: the ends that were asked for."""

    def __init__(self):
        self.taken, self.kept, self.forgotten, self.place = [], [], 0, object()

    def entries_of(self, scope):
        return self.place

    def take(self, shelf, end):
        self.taken.append(end)

    def keep(self, scope, began, where, line):
        self.kept.append((began, where, line))

    def forget(self, scope):
        self.forgotten += 1


class FakeRetrieval:
    """Finds what a test says. added: how often rows were told to have come."""

    def __init__(self):
        self.found_passages, self.found_messages, self.asked, self.added = [], [], [], 0
        self.indexing, self.meaning = self, None

    def notify_added(self):
        self.added += 1

    def jobs(self, scope_id):
        return []

    async def may_find(self, scope_id, sent):
        return True

    async def find(self, scope_id, wanted, sent):
        self.asked.append(wanted)
        return RecallHits(self.found_passages, self.found_messages)

    async def passages(self, scope_id, wanted):
        self.asked.append(wanted)
        return self.found_passages

    async def messages(self, scope_id, wanted):
        return self.found_messages


class FakeSpill:
    """The file of what the store did not take."""

    def __init__(self, broken=False):
        self.kept, self.broken = [], broken

    async def keep(self, record):
        if self.broken:
            raise OSError("no space left")
        self.kept.append(record)


def user(text):
    return {"role": "user", "content": text}


def late():
    return StoreUnavailable("late")


def a_turn(messages=None, *, snapshot=None, in_flight=None, policy=None, **asked):
    """A turn that begins. snapshot: members of what the store said. asked: of the request."""
    scope = asked.pop("scope", None) or Scope("t", "ada", "default", SECRET)
    history = RequestHistory.of(scope.key, messages or [user("hello")], not scope.is_named)
    ask = TurnRequest(scope, history.messages, "m", "request-1", **asked)
    owner = ScopeOwner(scope, 0)
    read = replace(
        Snapshot(owner, 7, history, blocks=dict(BLOCKS), defaults=BLOCKS), **(snapshot or {})
    )
    lines, retrieval = FakeLines(), FakeRetrieval()
    services = TurnServices(
        FakeDatabase(),
        lines,
        DigestCache(),
        retrieval,
        FakeSpill(),
        TokenCounter(),
        ModelRecords(),
        lambda: None,
        retrieval,
        SharedChanges(FakeDatabase()),
    )
    claim = (in_flight or InFlight()).claim(b"request")
    attempt = RequestAttempt(claim, lines.place)
    return start_turn(services, ask, read, attempt, policy or Policy(blocks=BLOCKS))
