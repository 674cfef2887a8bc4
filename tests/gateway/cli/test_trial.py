"""What a trial concludes from what a model did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.cli.trial import SCRIPT, Score, TurnResult, judge, report_of

WORK, DOG, NUTS = "Works as a beekeeper", "The dog is called Biscuit", "Allergic to walnuts"
NEW = "The dog is called Pepper, not Biscuit"
GOOD = [
    *([WORK], [WORK, DOG], [WORK, DOG], [WORK, DOG, NUTS], [WORK, DOG, NUTS]),
    *([WORK, DOG, NUTS],) * 3,
    *([WORK, NEW, NUTS],) * 2,
    *([WORK, NEW],) * 2,
]


def results():
    """Those of a model that does everything right."""
    out = []
    for turn, memory in zip(SCRIPT, GOOD, strict=True):
        calls = ["archival_memory_insert"] if turn.saves else []
        answer = f"It is {turn.finds}." if turn.finds else "Fine."
        out.append(
            TurnResult(answer, memory, calls, added_texts=len(calls), tokens_in=10, tokens_out=2)
        )
    return out


def values(verdict):
    return {name: value for name, (value, _) in verdict.settings.items()}


def test_a_model_that_does_everything_needs_no_help():
    verdict = judge(results())
    assert (verdict.saves, verdict.finds) == (Score(3, 3), Score(3, 3))
    assert (verdict.corrects, verdict.forgets, verdict.junk, verdict.failed_turns) == (
        True,
        True,
        0,
        0,
    )
    assert values(verdict) == {
        "memory.tools": "always",
        "memory.extract": "off",
        "memory.recall": "tools",
    }


def test_a_model_that_never_calls_is_helped_and_not_offered_what_it_does_not_use():
    found = [
        replace(r, calls=[], memory=[], added_texts=0, answer="I do not know.") for r in results()
    ]
    verdict = judge(found)
    assert (verdict.saves.correct, verdict.finds.correct, verdict.corrects) == (0, 0, False)
    assert values(verdict) == {
        "memory.tools": "with_client_tools",
        "memory.extract": "always",
        "memory.recall": "always",
    }


def test_a_model_that_saves_and_does_not_search_needs_recall_alone():
    found = results()
    for i in (5, 6, 7):
        found[i] = replace(found[i], answer="I do not know.")
    assert values(judge(found)) == {
        "memory.tools": "always",
        "memory.extract": "off",
        "memory.recall": "always",
    }


@pytest.mark.parametrize(
    "how", [{"offered": False}, {"calls": ["x", "x"], "refused_calls": 2}, {"added_texts": 3}]
)
def test_tools_that_do_harm_or_are_not_taken_are_not_offered(how):
    verdict = judge([replace(r, **how) for r in results()])
    assert values(verdict)["memory.tools"] == "never"
    assert values(verdict)["memory.extract"] == "always"


def test_what_is_corrected_must_not_stay_beside_it_and_what_is_forgotten_must_be_gone():
    found = results()
    found[8] = replace(found[8], memory=[*GOOD[8], DOG])
    found[10] = replace(found[10], memory=[*GOOD[10], NUTS])
    verdict = judge(found)
    assert (verdict.corrects, verdict.forgets) == (False, False)
    assert verdict.settings["memory.extract"] == (
        "always",
        "it saved 3 of 3 facts, did not correct and did not forget by itself",
    )


def test_a_turn_without_an_answer_counts_as_failed():
    found = [replace(r, error="timed out") for r in results()]
    verdict = judge(found)
    assert (verdict.failed_turns, verdict.takes_tools, verdict.saves.whole) == (12, False, False)


def test_the_report_has_the_cost_and_every_turn():
    report = report_of(judge(results()), results())
    assert report["tokens"] == {"input": 120, "output": 24}
    assert [t["passed"] for t in report["turns"]] == [True] * 12
    assert report["recommended"]["memory.extract"]["value"] == "off"
