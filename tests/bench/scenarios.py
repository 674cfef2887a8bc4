"""What is played, on every subject in turn, round after round, and what stands of it: medians, with
the range of CPU beside.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from tests.bench.load import OPENING, SETTLE, Load, Result, Shape, Talk
from tests.bench.subjects import Mock, Subject

# Whose window is known.
WINDOWED = "gpt-3.5-turbo"
# Streams first: what others leave to be indexed later is not theirs.
SCENARIOS = {
    "stream": Shape(users=16, conversations=64, turns=4, stream=True),
    # At the third turn: 8 messages, 4 KB.
    "small": Shape(users=16, conversations=320, old=2, size=550),
    # 60 messages, 200 KB.
    "big": Shape(users=8, conversations=48, old=54, size=3500),
    "one": Shape(users=1, conversations=100, old=2, size=550),
    "many": Shape(users=64, conversations=320, old=2, size=550),
    "round": Shape(users=4, conversations=20, turns=5, model="calls"),
    # At the sixth turn: 202 messages, 81 KB.
    "history": Shape(users=8, conversations=16, turns=10, old=190, size=360),
    "chat": Shape(users=32, conversations=64, turns=10),
    # what recall finds is about all that users said in eight conversations before
    "known": Shape(users=8, conversations=16, turns=10, earlier=8),
    # at the third turn .65 and .75 of a window of 16,385 tokens, in bytes: more may not fit
    "below": Shape(users=8, conversations=48, old=16, size=460, model=WINDOWED),
    "above": Shape(users=8, conversations=48, old=16, size=540, model=WINDOWED),
}
# Played under the default settings too.
UNASKED = ("chat", "known")
# times as many rounds: a machine that idles nine tenths of the time wakes now cheaply, now dearly
OFTEN = {"stream": 2}
NUMBERS = itertools.count()
Figures = dict[str, Any]


def talks(name: str, shape: Shape) -> list[Talk]:
    """Conversations that nobody had before, of 200 users."""
    return [
        Talk(shape, number, f"{name}-{number % 200}")
        for number in itertools.islice(NUMBERS, shape.conversations)
    ]


async def measured(
    mock: Mock, subject: Subject, found: Sequence[Talk], users: int, until: int
) -> Result:
    """Brings the talks to turn `until`, and tells what that took."""
    load = Load(subject.url, subject.headers)
    mock.counted()
    recorded, cpu = subject.recorded(), subject.cpu()
    result = await load.play(found, users, until)
    await asyncio.sleep(SETTLE)
    result.cpu, result.recorded = subject.cpu() - cpu, subject.recorded() - recorded
    result.calls, result.rounds = mock.counted()
    return result


async def played(mock: Mock, subject: Subject, name: str, cold: str = "") -> dict[str, Result]:
    """One scenario once.

    cold: the name under which each user's conversation goes on for one turn more after a restart,
    so that nothing of it is cached; the code is warmed before by other users.
    """
    shape = SCENARIOS[name]
    found = talks(name, shape)
    load = Load(subject.url, subject.headers)
    for _ in range(shape.earlier):
        before = [Talk(shape, next(NUMBERS), talk.user) for talk in found]
        await load.play(before, shape.users, OPENING)
    if shape.earlier:
        await subject.indexed()
    await load.play(found, shape.users, OPENING)
    out = {subject.name: await measured(mock, subject, found, shape.users, shape.turns)}
    if cold:
        subject.restart()
        await load.play(talks("warming", Shape(users=8, conversations=16, turns=8)), 8, 8)
        out[cold] = await measured(
            mock, subject, list({t.user: t for t in found}.values()), shape.users, shape.turns + 1
        )
    return out


async def compared(
    mock: Mock,
    subjects: Sequence[Subject],
    names: Sequence[str],
    rounds: int,
    told: Callable[[str], None],
) -> dict[str, dict[str, Figures]]:
    """By scenario and subject: the medians over the rounds, and `cpu_range`."""
    out = {}
    for name in names:
        runs: dict[str, list[Result]] = {}
        many = rounds * OFTEN.get(name, 1)
        for i in range(many):
            for subject in subjects:
                if subject.name == "auto" and name not in UNASKED:
                    continue
                told(f"{name}: round {i + 1} of {many}, {subject.name}")
                cold = "cold" if name == "chat" and subject.name == "on" else ""
                for which, result in (await played(mock, subject, name, cold)).items():
                    runs.setdefault(which, []).append(result)
        out[name] = {which: middle([r.figures() for r in found]) for which, found in runs.items()}
    return out


def middle(runs: list[Figures]) -> Figures:
    def over(key: str) -> float | None:
        values = [r[key] for r in runs if r[key] is not None]
        return statistics.median(values) if values else None

    return {
        **{key: over(key) for key in runs[0]},
        "errors": sum(r["errors"] for r in runs),
        "cpu_range": [min(r["cpu_us"] for r in runs), max(r["cpu_us"] for r in runs)],
    }


EARLY, LATE, PARTS = 100, 2000, 10
# Of each part; long ones hold two summaries of each conversation.
TURNS, LONG = 10, 50
# conversations that grow side by side: a server that sleeps between two turns wakes at a cost of
# its own
SIDE = 4
# Whose window, of 16,385 tokens, is full after some 350 turns.
SUMMARISED = {"model": WINDOWED}
# By what they resend.
CLIENTS: dict[str, dict[str, Any]] = {
    "all of its history": {},
    "its newest 40 messages": {"newest": 40},
    "its newest message, by name": {"named": True},
    "all of it, summarised": SUMMARISED,
    "its newest, summarised": {"named": True, **SUMMARISED},
}


async def growth(
    mock: Mock, subject: Subject, floor: Subject, told: Callable[[str], None]
) -> dict[str, Figures]:
    """By client: CPU us of a turn around turns EARLY and LATE of its conversation, and the floor's
    for the same bodies, all in turn.

    ratio: late to early, of what is beyond the floor's. of all: of the whole, without what the
    floor too pays more for the client's longer body. Medians; where the history is summarised,
    means, so that the turns in which that happens count.
    """
    out = {}
    for client, kind in CLIENTS.items():
        model = kind.get("model", "brief")
        shape = Shape(SIDE, SIDE, size=40, model=model, newest=kind.get("newest", 0))
        played: list[tuple[Subject, list[Talk], int]] = []
        for at in (LATE, EARLY):
            told(f"growth, clients that resend {client}: to turn {at}")
            talks = [
                Talk(shape, next(NUMBERS), f"growth-{len(out)}-{at}-{i}", kind.get("named", False))
                for i in range(SIDE)
            ]
            turns = LONG if at == LATE and model != "brief" else TURNS
            await Load(subject.url, subject.headers).play(talks, SIDE, at - PARTS * turns // 2)
            same = [copy.copy(t) for t in talks]
            for talk in same:
                talk.messages = list(talk.messages)
            played += [(subject, talks, turns), (floor, same, turns)]
        told(f"growth, clients that resend {client}: both in turn")
        parts = [[await _turn_cpu(mock, *one) for one in played] for _ in range(PARTS)]
        late, floor_late, early, floor_early = map(
            statistics.median if model == "brief" else statistics.mean, zip(*parts, strict=True)
        )
        out[client] = {
            f"turn {EARLY}": early,
            f"floor at {EARLY}": floor_early,
            f"turn {LATE}": late,
            f"floor at {LATE}": floor_late,
            "ratio": (late - floor_late) / (early - floor_early),
            "of all": (late - floor_late + floor_early) / early,
        }
    return out


async def _turn_cpu(mock: Mock, subject: Subject, talks: Sequence[Talk], turns: int) -> float:
    """Of the next turns of each, in us."""
    return (
        (await measured(mock, subject, talks, len(talks), talks[0].turn + turns)).cpu
        * 1e6
        / turns
        / len(talks)
    )
