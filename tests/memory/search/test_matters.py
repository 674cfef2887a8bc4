"""What is now and what was speak of one matter, in ten languages; other facts do not."""

from __future__ import annotations

import time

import pytest

from memory.search.matters import MAX_CHARACTERS, find_matters

PAIRS = {
    "home": [
        ("The user lives in Bremen", "I moved to Lyon last week"),
        ("Ich wohne in Bremen", "Letzte Woche bin ich nach Lyon gezogen"),
        ("J'habite à Brême", "J'ai déménagé à Lyon"),
        ("Vivo en Bremen", "Me mudé a Lyon"),
        ("Moro em Bremen", "Eu me mudei para Lyon"),
        ("Я живу в Бремене", "Я переехала в Лион"),
        ("أسكن في بريمن", "انتقلنا إلى ليون"),
        ("मैं ब्रेमेन में रहती हूँ", "मैं लियोन शिफ़्ट हो गई"),
        ("我住在不来梅", "我搬到里昂了"),
        ("ブレーメンに住んでいます", "リヨンに引っ越しました"),
    ],
    "work": [
        ("The user works at Nordwind", "I have a new job at the harbour"),
        ("Ich arbeite bei Nordwind", "Ich habe eine neue Stelle am Hafen"),
        ("Je travaille chez Nordwind", "J'ai un nouvel emploi au port"),
        ("Trabajo en Nordwind", "Tengo un nuevo empleo en el puerto"),
        ("Trabalho na Nordwind", "Tenho um novo emprego no porto"),
        ("Я работаю в Нордвинде", "У меня новая должность в порту"),
        ("أعمل في نوردويند", "لدي وظيفة جديدة في الميناء"),
        ("मैं नॉर्डविंड में काम करता हूँ", "मुझे बंदरगाह पर नई नौकरी मिली"),
        ("我在北风公司上班", "我在港口找到了新工作"),
        ("ノルドウィンドで働いています", "港に転職しました"),
    ],
    "partner": [
        ("The user is single", "I got married in May"),
        ("Ich bin ledig", "Ich habe im Mai geheiratet"),
        ("Je suis célibataire", "J'ai un mari depuis mai"),
        ("Soy soltera", "Me casé en mayo"),
        ("Sou solteira", "Casei em maio"),
        ("Я не замужем", "В мае я развелась"),
        ("أنا أعزب", "تزوجت في مايو"),
        ("मैं अविवाहित हूँ", "मई में मेरी शादी हुई"),
        ("我是单身", "我五月结婚了"),
        ("独身です", "五月に結婚しました"),
    ],
    "diet": [
        ("The user is vegan", "I eat fish again"),
        ("Ich bin Veganerin", "Ich esse wieder Fisch"),
        ("Je suis végétarienne", "Je mange de nouveau du poisson"),
        ("Soy vegana", "Vuelvo a comer pescado"),
        ("Sou vegetariano", "Voltei a comer peixe"),
        ("Я веган", "Я снова ем рыбу"),
        ("أنا نباتي", "عدت إلى أكل السمك"),
        ("मैं शाकाहारी हूँ", "मैं फिर मछली खाता हूँ"),
        ("我吃素", "我又开始吃肉了"),
        ("ベジタリアンです", "また魚を食べています"),
    ],
}


@pytest.mark.parametrize(
    ("matter", "before", "now"), [(name, *pair) for name, pairs in PAIRS.items() for pair in pairs]
)
def test_what_was_and_what_is_speak_of_one_matter(matter, before, now):
    assert matter in find_matters(before) & find_matters(now)


@pytest.mark.parametrize(
    "text",
    [
        "The user's cat is called Tom",
        "Mein Hund heißt Rex",
        "我的猫叫小虎",
        "猫の名前はタマです",
        "",
    ],
)
def test_other_facts_speak_of_none(text):
    assert not find_matters(text)


def test_no_text_takes_long():
    began = time.thread_time()
    find_matters("word " * 1_000_000)
    assert time.thread_time() - began < 0.2
    assert not find_matters("x " * MAX_CHARACTERS + "I live in Bremen")
