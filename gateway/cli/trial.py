"""What `mnemogate try` plays, and what it concludes. Pure.

Twelve turns in six sessions. The user states three facts, two of them without mentioning memory.
Two turns are small talk. Later sessions, which do not see the earlier ones, ask for the facts. One
fact is corrected, one is to be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """One turn. session: turns of one share a history.

    saves: words of which one must stand in the memory afterwards. finds, avoids: words that the
    answer must and must not have. idle: nothing is worth saving.
    """

    session: int
    says: str
    saves: str = ""
    finds: str = ""
    avoids: str = ""
    idle: bool = False


DOG, NEW_DOG, WORK, AVOIDED = "Biscuit", "Pepper", "beekeeper", "walnut"
SCRIPT = (
    ScriptedTurn(1, f"Hi! I am Mara. I work as a {WORK} in Uppsala.", saves=WORK),
    ScriptedTurn(1, f"Please remember that my dog is called {DOG}.", saves=DOG),
    ScriptedTurn(1, "Thanks! And how are you today?", idle=True),
    ScriptedTurn(2, f"What could I bake? I am allergic to {AVOIDED}s.", saves=AVOIDED),
    ScriptedTurn(2, "What is 17 times 3?", idle=True),
    ScriptedTurn(3, "What is my dog called?", finds=DOG),
    ScriptedTurn(3, "And what do I do for a living?", finds=WORK),
    ScriptedTurn(3, "Is there anything that I must not eat?", finds=AVOIDED),
    ScriptedTurn(4, f"I was wrong: my dog is called {NEW_DOG}, not {DOG}.", saves=NEW_DOG),
    ScriptedTurn(5, "What is the name of my dog?", finds=NEW_DOG, avoids=DOG),
    ScriptedTurn(5, f"I am not allergic to {AVOIDED}s after all. Forget that I said so, please."),
    ScriptedTurn(6, "Am I allergic to anything, as far as you know?", avoids=AVOIDED),
)
SAVING, FINDING, CORRECTING, FORGETTING = (0, 1, 3), (5, 6, 7), (8, 9), (10, 11)
SECRETLY = {WORK: "Mara works as a beekeeper.", DOG: "Mara's dog is called Biscuit.",
            AVOIDED: "Mara is allergic to walnuts."}  # fmt: skip


@dataclass(slots=True)
class TurnResult:
    """What came of a turn. memory: the texts that are kept after it. error: why none came.

    calls: names of the memory tools that were called; refused_calls: how many of them failed.
    helped: the fact was put into the memory by the trial, since the model had not saved it.
    """

    answer: str = ""
    memory: Sequence[str] = ()
    calls: list[str] = field(default_factory=list)
    refused_calls: int = 0
    added_texts: int = 0
    offered: bool = True
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """How many of how many."""

    correct: int
    total: int

    @property
    def whole(self) -> bool:
        return self.correct == self.total


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the trial found.

    junk: texts saved from small talk. settings: recommended, with the reason. A model that misses
    one fact of three, a correction or a deletion is helped: what is missed is lost.
    """

    saves: Score
    finds: Score
    corrects: bool
    forgets: bool
    junk: int
    refused_calls: int
    calls: int
    failed_turns: int
    takes_tools: bool
    settings: Mapping[str, tuple[str, str]]


def has(word: str, texts: Iterable[str]) -> bool:
    return any(word.casefold() in text.casefold() for text in texts)


def succeeds(turn: ScriptedTurn, result: TurnResult) -> bool:
    """Tell whether a turn came out as it should."""
    if result.error:
        return False
    if turn.idle:
        return not result.added_texts
    return (
        (not turn.saves or has(turn.saves, result.memory))
        and (not turn.finds or has(turn.finds, [result.answer]))
        and (not turn.avoids or not has(turn.avoids, [result.answer]))
    )


def judge(results: Sequence[TurnResult]) -> Verdict:
    """Return the verdict on the results, in the order of SCRIPT.

    A fact is corrected if the memory no longer holds the old one by itself, and forgotten if the
    memory holds nothing of it.
    """
    successes = [succeeds(turn, result) for turn, result in zip(SCRIPT, results, strict=True)]
    saves = Score(sum(successes[i] for i in SAVING), len(SAVING))
    finds = Score(sum(successes[i] for i in FINDING), len(FINDING))
    correction_result, forget_result = (results[group[0]] for group in (CORRECTING, FORGETTING))
    corrected = correction_result.memory
    stale_texts = [t for t in corrected if has(DOG, [t]) and not has(NEW_DOG, [t])]
    junk = sum(r.added_texts for t, r in zip(SCRIPT, results, strict=True) if t.idle)
    calls, refused_calls = (
        sum(n) for n in zip(*((len(r.calls), r.refused_calls) for r in results), strict=True)
    )
    answered_turns = [r for r in results if not r.error]
    takes_tools = bool(answered_turns) and any(
        r.offered for r in answered_turns[len(answered_turns) // 2 :]
    )
    tools = _tools(takes_tools, calls, refused_calls, junk)
    corrects = all(successes[i] for i in CORRECTING) and not stale_texts
    forgets = all(successes[i] for i in FORGETTING) and not has(AVOIDED, forget_result.memory)
    extract, recall = _extract(saves, corrects=corrects, forgets=forgets), _recall(finds)
    # Without tools it can do nothing by itself.
    if tools[0] != "always":
        extract, recall = ("always", extract[1]), ("always", recall[1])
    return Verdict(
        saves,
        finds,
        corrects=corrects,
        forgets=forgets,
        junk=junk,
        refused_calls=refused_calls,
        calls=calls,
        failed_turns=len(results) - len(answered_turns),
        takes_tools=takes_tools,
        settings={"memory.tools": tools, "memory.extract": extract, "memory.recall": recall},
    )


Advice = tuple[str, str]


def _tools(takes_tools: bool, calls: int, refused_calls: int, junk: int) -> Advice:
    if not takes_tools:
        return "never", "the server refuses requests with tools"
    if 2 * refused_calls > calls > 0:
        return "never", f"{refused_calls} of {calls} calls were wrong"
    if junk > 2:
        return "never", f"{junk} texts were saved from small talk"
    if not calls:
        return "with_client_tools", "no tool was called, so offering them costs tokens for nothing"
    return "always", "the calls were right"


def _extract(saves: Score, *, corrects: bool, forgets: bool) -> Advice:
    why = (
        f"it saved {saves.correct} of {saves.total} facts, "
        f"{'corrected' if corrects else 'did not correct'} and "
        f"{'forgot' if forgets else 'did not forget'} by itself"
    )
    return ("off" if saves.whole and corrects and forgets else "always"), why


def _recall(finds: Score) -> Advice:
    why = f"it found {finds.correct} of {finds.total} facts by itself"
    return ("tools" if finds.whole else "always"), why


def report_of(verdict: Verdict, results: Sequence[TurnResult]) -> dict[str, Any]:
    """Return the report as JSON's values."""
    return {
        "object": "trial",
        "saves": {"right": verdict.saves.correct, "of": verdict.saves.total},
        "finds": {"right": verdict.finds.correct, "of": verdict.finds.total},
        "corrects": verdict.corrects,
        "forgets": verdict.forgets,
        "takes_tools": verdict.takes_tools,
        "calls": verdict.calls,
        "calls_refused": verdict.refused_calls,
        "junk": verdict.junk,
        "turns_failed": verdict.failed_turns,
        "tokens": {
            "input": sum(r.tokens_in for r in results),
            "output": sum(r.tokens_out for r in results),
        },
        "seconds": round(sum(r.seconds for r in results), 3),
        "turns": [
            {
                "says": turn.says,
                "passed": succeeds(turn, result),
                "answer": result.answer[:500],
                "calls": result.calls,
                "tokens": {"input": result.tokens_in, "output": result.tokens_out},
                "seconds": round(result.seconds, 3),
                **({"error": result.error} if result.error else {}),
            }
            for turn, result in zip(SCRIPT, results, strict=True)
        ],
        "recommended": {
            name: {"value": value, "why": why} for name, (value, why) in verdict.settings.items()
        },
    }
