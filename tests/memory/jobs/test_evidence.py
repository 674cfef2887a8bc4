"""No fact without the user's own words, however a model copies them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.jobs.evidence import find_evidence, fold_texts, is_about
from memory.jobs.fact_answer import ProposedFact


def evidence(text, quote, *said):
    return find_evidence(ProposedFact(quote, text=text), fold_texts(said))


def test_evidence_is_a_literal_quote_apart_from_white_space_and_case():
    said = ("hello there", "my cat is Tom and he is old")
    assert evidence("The cat is called Tom", "my  cat\nis Tom", *said).place == 1
    assert evidence("The cat is called Tom", "My cat is Tom.", *said).place == 1
    assert evidence("The cat is called Tom", "my cat was Tom", *said) == (None, "no_quote")
    assert evidence("The cat is called Tom", " ", *said) == (None, "no_quote")
    assert evidence("The cat is called Tom", "...", *said) == (None, "no_quote")


def test_evidence_states_something_that_the_fact_is_about():
    said = ("is my cat Tom?", "thanks a lot", "I like tea", "explain this to my cat Tom")
    assert evidence("The cat is called Tom", "is my cat Tom?", *said) == (None, "question")
    assert evidence("The user thanks", "thanks a lot", *said) == (None, "question")
    assert evidence("The user is a pilot", "I like tea", *said) == (None, "no_shared_word")
    assert evidence("The cat is called Tom", "explain this to my cat Tom", *said).place is None
    assert evidence("The user likes tea", "I like tea", *said).place == 2


@pytest.mark.parametrize(
    "quote",
    ["Why does everyone forget I'm left-handed?", "who decided I can't eat gluten?"],
)
def test_what_a_question_takes_for_granted_is_evidence(quote):
    assert evidence(quote, quote, quote).place == 0
    assert evidence("The user has gout", "Do I have gout?", "Do I have gout?").place is None


# What a user said, how a model quoted it, and the fact: in ten languages.
SLIPS = [
    ("I don’t eat nuts – ever!", "I don't eat nuts - ever", "The user does not eat nuts"),
    ("I live at “Casa Verde” now", 'i live at "Casa Verde" now.', "The user lives at Casa Verde"),
    ("Ich wohne in Köln.", "ich wohne in Ko\u0308ln", "Der Nutzer wohnt in Köln"),
    ("J’habite à Lyon depuis mai", "J'habite à Lyon", "L'utilisateur habite à Lyon"),
    ("¡Vivo en Sevilla, con Ana!", "vivo en Sevilla, con Ana", "El usuario vive en Sevilla"),
    ("Não como carne…", "não como carne...", "O usuário não come carne"),
    ("Я живу в Казани", "«я живу в Казани»", "Пользователь живёт в Казани"),
    ("मैं दिल्ली में रहता हूँ।", "मैं दिल्ली में रहता हूँ", "उपयोगकर्ता दिल्ली में रहता है"),
    ("أسكن في القاهرة، قرب النيل", "أسكن في القاهرة", "المستخدم يسكن في القاهرة"),
    ("ｶﾞｰﾃﾞﾆﾝｸﾞが好きです", "ガーデニングが好きです。", "ユーザーはガーデニングが好き"),
    ("我住在里昂，养了一只猫。", "“我住在里昂”", "用户住在里昂"),
    (
        "My dog Rex is old, and we moved to Lyon in May",
        "My dog Rex ... moved to Lyon",
        "Rex in Lyon",
    ),
]


@pytest.mark.parametrize(("said", "quote", "fact"), SLIPS)
def test_a_quote_in_another_form_is_still_the_users(said, quote, fact):
    assert evidence(fact, quote, said).place == 0


@pytest.mark.parametrize(
    ("said", "quote"),
    [
        ("Ich wohne in Köln.", "ich wohne in Bonn"),
        ("I eat nuts", "I do not eat nuts"),
        ("我住在里昂", "我住在巴黎"),
        ("Я живу в Казани", "Я не живу в Казани"),
        ("I moved to Lyon; my dog is Rex", "my dog is Rex ... moved to Lyon"),
    ],
)
def test_an_invented_quote_is_refused(said, quote):
    assert evidence(quote, quote, said) == (None, "no_quote")


def test_a_message_of_one_word_is_an_answer():
    assert evidence("The user is vegan", "Vegan", "hello", "Vegan.").place == 1
    assert evidence("The user is vegan", "Vegan", "I ate at Vegan Corner").place is None
    assert evidence("The user says thanks", "thanks", "thanks").place is None


@given(st.text(), st.text(), st.text())
def test_any_text_can_be_looked_for(text, quote, said):
    evidence(text, quote, said)


# A known fact, and operations that name it: about it, and about something else.
ABOUT = [
    ("The user lives in Lyon", "The user lives in Oslo", "The user has a cat called Tom"),
    ("Der Nutzer wohnt in Bremen", "Der Nutzer wohnt in Kiel", "Der Nutzer hat eine Katze"),
    ("L'utilisateur habite à Lyon", "L'utilisateur habite à Nice", "L'utilisateur a un chat"),
    ("El usuario vive en Sevilla", "El usuario vive en Cádiz", "El usuario tiene un gato"),
    ("O usuário mora no Porto", "O usuário mora em Braga", "O usuário tem um gato"),
    ("Пользователь живёт в Казани", "Пользователь живёт в Омске", "У пользователя есть кот"),
    ("उपयोगकर्ता दिल्ली में रहता है", "उपयोगकर्ता पुणे में रहता है", "उपयोगकर्ता के पास बिल्ली है"),
    ("المستخدم يسكن في القاهرة", "المستخدم يسكن في طنطا", "المستخدم لديه قطة"),
    ("ユーザーは大阪に住んでいる", "ユーザーは京都に住んでいる", "ユーザーは猫を飼う"),
    ("用户住在里昂", "用户住在巴黎", "用户养了一只猫"),
]


@pytest.mark.parametrize(("known", "same", "another"), ABOUT)
def test_a_wrong_number_replaces_only_what_shares_a_content_word(known, same, another):
    assert is_about(known, ProposedFact(same, "supersede", same, 1))
    assert not is_about(known, ProposedFact(another, "supersede", another, 1))
