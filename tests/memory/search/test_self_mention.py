"""Who speaks of themselves, in ten languages."""

from __future__ import annotations

import pytest

from memory.search.self_mention import bare_sentence, mentions_self


@pytest.mark.parametrize(
    "text",
    [
        "Where does my sister live?",
        "Wie heißt meine Schwester?",
        "Où est-ce que j'habite ?",
        "¿Dónde vive mi hermana?",
        "Onde mora a minha irmã?",
        "Где живёт моя сестра?",
        "मेरी बहन कहाँ रहती है?",
        "أين تسكن أختي أنا؟",
        "私の妹はどこに住んでいますか",
        "我妹妹住在哪里?",
        "娘の名前は?",
    ],
)
def test_a_question_about_oneself_speaks_of_its_user(text):
    assert mentions_self(text)


@pytest.mark.parametrize(
    "text",
    [
        "How do I sort a list in Python?",
        "Give me three tips.",
        "Can you help me with this?",
        "Was ist die Hauptstadt von Peru?",
        "帮我写一首诗",
        "Quelle est la capitale du Pérou ?",
    ],
)
def test_a_request_does_not(text):
    assert not mentions_self(text)


def test_courtesies_at_the_beginning_do_not_count():
    assert bare_sentence("Hello, please, TELL me") == "tell me"
    assert bare_sentence("“Tell me”") == "tell me”"[:7]
