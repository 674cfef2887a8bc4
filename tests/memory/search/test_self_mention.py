"""Who speaks of themselves, in ten languages."""

from __future__ import annotations

import re

import pytest

from memory.search.languages.self_words import FRAMED_SELF, FRAMES, SELF
from memory.search.own_words import may_tell
from memory.search.self_mention import bare_sentence, mentions_self, names_self


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
    ("text", "is_own"),
    [
        ("¿Qué dieta sigo?", True),
        ("Que línguas falo?", True),
        ("Sigo las instrucciones del manual", False),
        ("ماذا آكل؟", True),
        ("何の楽器を習っていますか？", True),
        ("仕事は何だったっけ？", True),
        ("富士山は何メートルですか？", False),
        ("¿Cuál es la capital de Perú?", False),
    ],
)
def test_a_language_may_ask_for_oneself_without_a_word_for_it(text, is_own):
    assert names_self(text) == is_own


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


@pytest.mark.parametrize(
    "question",
    [
        "As a vegetarian: which proteins?",
        "Being a beekeeper, what grows well near hives?",
        "Als Linkshänder: welche Gitarre?",
        "En tant que diabétique, quel pain ?",
        "Como celíaca, ¿qué pan?",
        "Como canhoto, qual tesoura?",
        "Как диабетик, какой хлеб выбрать?",
        "Как диабетику правильно питаться?",
        "Как веганке получить достаточно белка?",
        "Что взрослому аллергику принять весной?",
        "Где одинокой матери найти работу?",
        "Можно ли пенсионеру оформить субсидию?",
        "كمريض سكري، ماذا آكل؟",
        "كنباتية ما أفضل مصادر البروتين؟",
        "كيف لمريض السكري أن يصوم؟",
        "ما الأطعمة المناسبة لحامل؟",
        "بصفتي ممرضة ليلية، ما أفضل وقت للنوم؟",
        "作为糖尿病人，吃什么面包好？",
        "Come diabetico, cosa posso mangiare?",
        "Enquanto diabético, que pão escolher?",
        "Étant diabétique, quel pain choisir ?",
        "당뇨 환자로서 어떤 빵이 좋을까요?",
        "एक मधुमेह रोगी के रूप में क्या खाना चाहिए?",
        "शाकाहारी होने के नाते क्या खाएँ?",
    ],
)
def test_who_says_what_they_are_speaks_of_themselves_and_is_listened_to(question):
    assert mentions_self(question)
    assert may_tell(question)


@pytest.mark.parametrize(
    "question",
    [
        "As a rule, which bread?",
        "Als nächstes: was ist der Brocken?",
        "Como siempre, ¿qué hora es?",
        "Come si fa il pane?",
        "Come mai, secondo te?",
        "Come va, tutto bene?",
        "Enquanto isso, que horas são?",
        "Étant donné, quel est le prix ?",
        "예로서 무엇이 있나요?",
        "उदाहरण के तौर पर क्या है?",
        "Как машину помыть зимой?",
        "Как компьютеру помочь?",
        "Как графику в отчёте сделать?",
        "Как странице задать поля?",
        "Как диабетик живёт?",
        "كيف أتعلم بايثون؟",
        "كم عدد سكان مصر؟",
        "ما عاصمة بيرو؟",
    ],
)
def test_other_beginnings_are_nobodys(question):
    assert not mentions_self(question)


def test_a_word_for_the_user_in_a_frame_is_listed():
    in_frames = set(re.findall(r"[^\s()|?:\[\]-]+", " ".join(FRAMES).replace(r"\b", " ")))
    assert in_frames & set(" ".join(SELF.values()).split()) == set(FRAMED_SELF.split())
