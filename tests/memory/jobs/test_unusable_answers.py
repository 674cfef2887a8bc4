"""How often a model is asked whose answers cannot be used."""

from __future__ import annotations

from memory.jobs.unusable_answers import MAX_MODELS, UnusableAnswers


def test_a_model_is_asked_half_as_often_after_three_unusable_answers_in_a_row():
    answers = UnusableAnswers()
    turns = []
    for _ in range(5):
        turns.append(answers.turns_between("m", 6))
        answers.count("m")
    assert turns == [6, 6, 6, 12, 12]
    assert answers.turns_between("another", 6) == 6
    answers.forget("m")
    assert answers.turns_between("m", 6) == 6


def test_models_that_clients_invent_take_a_bounded_place():
    answers = UnusableAnswers()
    for i in range(2 * MAX_MODELS):
        answers.count(f"model {i}")
    assert len(answers.counts) == MAX_MODELS
