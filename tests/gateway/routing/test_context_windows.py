"""Which window counts for a target: configured, told by its server, or learnt."""

from __future__ import annotations

import asyncio

import pytest

from gateway.config.settings import ProviderSettings
from gateway.errors import UpstreamUnreachable
from gateway.routing import context_windows
from gateway.routing.caller import Caller
from gateway.routing.context_windows import ContextWindows
from gateway.routing.router import Target
from gateway.upstream.window_probe import FoundWindow
from memory import PromptReport

SETTINGS = ProviderSettings(base_url="http://127.0.0.1:9/v1", api_key="k-provider")
CALLER = Caller()


def target(**more):
    return Target("p", "m", None, SETTINGS, **{"asks": True, **more})


class FakeProbe:
    """Answers in order, the last again; an exception is raised."""

    def __init__(self, *answers, gate=None):
        self.answers, self.gate, self.asked = list(answers), gate, []
        self.anew = []

    async def ask(self, model, authorization, *, anew=False):
        self.anew.append(anew)
        self.asked.append((model, authorization))
        if self.gate is not None:
            await self.gate.wait()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def windows_of(*answers, gate=None):
    probe = FakeProbe(*answers, gate=gate)
    return ContextWindows({"p": probe}), probe


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    found = Clock()
    monkeypatch.setattr(context_windows, "time", found)
    return found


async def test_the_first_turn_waits_a_moment_and_later_ones_do_not_ask(clock):
    windows, probe = windows_of(FoundWindow(8192))
    assert [await windows.find(target(window=100_000), CALLER) for _ in range(3)] == [8192] * 3
    assert probe.asked == [("m", b"Bearer k-provider")]


async def test_a_slow_server_holds_up_one_turn_for_a_moment_and_tells_later_ones(
    monkeypatch, clock
):
    monkeypatch.setattr(context_windows, "FIRST_SECONDS", 0.01)
    gate = asyncio.Event()
    windows, probe = windows_of(FoundWindow(8192), gate=gate)
    assert await windows.find(target(), CALLER) is None
    assert await windows.find(target(), CALLER) is None
    gate.set()
    await settled()
    assert await windows.find(target(), CALLER) == 8192
    assert len(probe.asked) == 1


async def test_an_answer_is_asked_again_in_the_background_when_it_is_old(clock):
    windows, probe = windows_of(FoundWindow(8192, 60.0), FoundWindow(4096, 60.0))
    assert await windows.find(target(), CALLER) == 8192
    clock.now += 61
    # Nobody waits for it.
    assert await windows.find(target(), CALLER) == 8192
    await settled()
    assert await windows.find(target(), CALLER) == 4096
    assert len(probe.asked) == 2


@pytest.mark.parametrize("fault", [UpstreamUnreachable("gone"), TimeoutError(), ValueError("bug")])
async def test_a_server_that_fails_fails_no_turn_and_is_asked_again_in_a_minute(clock, fault):
    windows, probe = windows_of(fault, FoundWindow(4096))
    assert await windows.find(target(window=9000), CALLER) == 9000
    assert await windows.find(target(window=9000), CALLER) == 9000
    assert len(probe.asked) == 1
    clock.now += 61
    await windows.find(target(window=9000), CALLER)
    await settled()
    assert await windows.find(target(window=9000), CALLER) == 4096


async def test_a_configured_window_is_not_asked_for():
    windows, probe = windows_of(FoundWindow(4096))
    assert await windows.find(target(asks=False, window=9000), CALLER) == 9000
    assert probe.asked == []


async def test_a_model_that_was_not_loaded_is_asked_about_again_after_its_answer(clock):
    windows, probe = windows_of(FoundWindow(4096, 60.0, loading=True), FoundWindow(32768))
    assert await windows.find(target(), CALLER) == 4096
    assert windows.note_report(target(), CALLER, PromptReport(700)) == 0
    await settled()
    assert await windows.find(target(), CALLER) == 32768
    assert probe.anew == [False, True]


async def test_a_refusal_that_names_the_window_is_believed_for_an_hour(clock):
    windows, probe = windows_of(FoundWindow(8192))
    await windows.find(target(), CALLER)
    windows.note_refusal(target(), CALLER, 9000, (9000, 6000))
    assert windows.get(target(), "") == 6000
    assert len(probe.asked) == 1
    await settled()
    # A server that refuses may have loaded another model.
    assert probe.anew == [False, True]
    clock.now += context_windows.LEARNT_SECONDS + 1
    assert windows.get(target(), "") == 8192


@pytest.mark.parametrize(
    ("told", "learnt"),
    [
        ((1, 0), None),
        ((10, 50), None),
        # Smaller than any model's.
        ((4100, 300), None),
        # Not the prompt that was sent.
        ((90_000, 3000), None),
        ((1300, 1200), None),
        ((4100, 2000), 2000),
        (None, 3000),
    ],
)
async def test_what_a_refusal_does_not_prove_is_not_learnt(told, learnt):
    windows = ContextWindows({})
    windows.note_refusal(target(asks=False), CALLER, 4000, told)
    assert windows.get(target(asks=False), "") == learnt


@pytest.mark.parametrize("told", [(4100, 2000), None])
async def test_no_window_is_learnt_that_a_served_prompt_did_not_fit_in(told):
    windows, plain = ContextWindows({}), target(asks=False)
    windows.note_report(plain, CALLER, PromptReport(3500))
    windows.note_refusal(plain, CALLER, 4000, told)
    assert windows.get(plain, "") is None


async def test_without_a_name_for_it_a_known_window_stays(clock):
    windows = ContextWindows({})
    windows.note_refusal(target(asks=False, window=9000), CALLER, 4000, None)
    assert windows.get(target(asks=False, window=9000), "") == 9000


async def test_a_cut_is_learnt_and_told_once(caplog):
    windows, plain = ContextWindows({}), target(asks=False, window=32768)
    assert windows.note_report(plain, CALLER, PromptReport(3000)) == 0
    assert windows.note_report(plain, CALLER, PromptReport(4050, 6000)) == 4050
    assert windows.note_report(plain, CALLER, PromptReport(4050, 6000)) == 0
    assert windows.get(plain, "") == 4050
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "4050" in caplog.text


async def test_a_report_of_what_was_not_cached_is_no_cut():
    windows, plain = ContextWindows({}), target(asks=False)
    windows.note_report(plain, CALLER, PromptReport(3000))
    assert windows.note_report(plain, CALLER, PromptReport(600, 3100)) == 0
    # Nor any later one.
    assert windows.note_report(plain, CALLER, PromptReport(2900, 6000)) == 0
    assert windows.get(plain, "") is None


async def test_accounts_learn_for_themselves():
    windows, plain = ContextWindows({}), target(asks=False)
    windows.note_refusal(plain, Caller(managed=False, account="acme"), 9000, (9000, 6000))
    assert windows.get(plain, "acme") == 6000
    assert windows.get(plain, "other") is None


async def test_a_server_that_reports_the_same_of_every_prompt_proves_nothing(clock):
    windows, _ = windows_of(FoundWindow(None))
    one = target()
    # Some are longer than the number that it reports.
    for fewest in (0, 300, 0, 1100, 5000):
        assert windows.note_report(one, CALLER, PromptReport(1000, fewest)) == 0
    assert windows.get(one, CALLER.account) is None


async def test_what_a_first_report_made_believe_is_forgotten_when_a_short_prompt_counts_the_same(
    clock,
):
    windows, _ = windows_of(FoundWindow(None))
    one = target()
    assert windows.note_report(one, CALLER, PromptReport(1000, 20_000)) == 1000
    assert windows.get(one, CALLER.account) == 1000
    assert windows.note_report(one, CALLER, PromptReport(1000, 600)) == 0
    assert windows.get(one, CALLER.account) is None
    assert windows.note_report(one, CALLER, PromptReport(1000, 20_000)) == 0


async def test_a_server_whose_counts_vary_is_believed(clock):
    windows, _ = windows_of(FoundWindow(None))
    one = target()
    for count in (700, 1500, 4096):
        assert windows.note_report(one, CALLER, PromptReport(count, count // 2)) == 0
    assert windows.note_report(one, CALLER, PromptReport(4096, 6000)) == 4096
    assert windows.note_report(one, CALLER, PromptReport(4096, 3900)) == 0
    assert windows.get(one, CALLER.account) == 4096
