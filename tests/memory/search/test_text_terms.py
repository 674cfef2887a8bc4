"""What is indexed of a text is what a query looks for: in ten languages, however it is written."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.search.query import index_text, index_words, query_terms
from memory.search.text_terms import ROOT_END, parts_of, query_words, text_words

FINDS = [
    ("I am severely allergic to hazelnuts.", "which hazelnuts?"),
    ("Ich bin gegen Haselnüsse allergisch.", "Rezept für einen Haselnusskuchen"),
    ("Ich bin gegen Haselnüsse allergisch.", "haselnuss"),
    ("Je suis allergique aux noisettes.", "une tarte à la noisette"),
    ("Soy alérgica a las avellanas.", "una tarta de avellana"),
    ("Soy alérgica a las avellanas.", "alergica"),
    ("Sou alérgica a avelãs.", "uma torta de avelã"),
    ("У меня аллергия на фундук.", "торт с фундуком"),
    ("Ёжик живёт в лесу", "ежик"),
    ("私は花粉症です", "花粉に効く薬"),
    ("膝が痛いです", "膝に優しい運動は?"),
    ("ﾊﾟｸﾁｰが苦手です", "パクチー"),
    ("我对榛子严重过敏。", "榛子酱"),
    ("我养了一只猫。", "猫"),
    ("عندي حساسية من البندق.", "كعكة بالبندق"),
    ("كِتَابُ", "كتاب"),
    ("मुझे मूंगफली से एलर्जी है।", "मूंगफलियों की मिठाई"),
    ("मशीन टूट गई", "मशीन"),
    ("Ο καφές μου", "καφες"),
    ("İstanbul'da yaşıyorum", "istanbul"),
    ("Diyarbakır güzel", "diyarbakir"),
    ("Café au lait", "cafe"),
    ("A cafe\u0301 at noon", "café"),
    ("고양이를 키워요", "고양이"),
    ("개를 키워요", "개"),
    ("ฉันแพ้ถั่วลิสง", "ถั่วลิสง"),
    ("Ｔｏｋｙｏ tower", "tokyo"),
]


def looked_for(query: str) -> set[str]:
    return {form for term in query_terms(query).terms for form in term.words}


@pytest.mark.parametrize(("text", "query"), FINDS)
def test_search_folds_what_people_fold_and_stems_what_they_inflect(text, query):
    assert looked_for(query) & set(index_words(text))


@pytest.mark.parametrize(("text", "query"), FINDS)
def test_a_text_is_found_in_either_normal_form(text, query):
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert looked_for(query) & set(index_words(unicodedata.normalize(form, text)))
        assert looked_for(unicodedata.normalize(form, query)) & set(index_words(text))


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("My daughter has asthma.", "Is chlorine bad for asthmatics?"),
        ("Ich habe Asthma.", "Ist Chlor für Asthmatiker schlecht?"),
        ("I train for a triathlon.", "What do triathletes eat?"),
        ("Я держу черепах", "план для черепахи"),
    ],
)
def test_a_quick_query_finds_what_is_derived_from_a_rare_word(text, query):
    forms = {form for term in query_terms(query, thorough=False).terms for form in term.words}
    assert forms & set(index_words(text))
    assert not any(form.endswith(ROOT_END) for form in looked_for(query))


def test_hindi_words_are_whole():
    assert len(text_words("मशीन").words) == 1
    assert all(
        word.isalnum() or ord(max(word)) >= 0xF0000 for word in text_words("मशीन हिन्दी").words
    )


def test_english_words_are_indexed_as_they_are_written():
    assert index_words("The hazelnuts of my sisters")[:5] == [
        "the",
        "hazelnuts",
        "of",
        "my",
        "sisters",
    ]


def test_a_word_is_rare_by_its_language_and_not_by_the_memory():
    rare = {w.word for w in query_words("Suggest a recipe for a hazelnut cake with coffee")}
    rare = {
        w.word for w in query_words("Suggest a cake with hazelnuts for the coffee") if w.is_rare
    }
    assert rare == {"hazelnuts"}
    assert not any(w.is_rare for w in query_words("What did we do in 2024, at 10 or w09?"))


COMMONEST = set("a of with das für sich du le es la en um para для की 的 を の إلى من".split())  # noqa: SIM905


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("Plan a Saturday at a farm with lots of dogs", "dogs"),
        ("Welche Strecke empfiehlt sich für das Auto?", "auto"),
        ("Quel restaurant sert du poisson le lundi ?", "poisson"),
        ("¿Cuál es la ruta más corta en metro?", "metro"),
        ("Escolhe um bom café para a reunião", "café"),
        ("Посоветуй инструмент для левой руки", "левой"),
        ("दूध वाली कोई मिठाई", "मिठाई"),
        ("電話での面接の練習をしたい", "電話"),
        ("推荐几款不含乳糖的甜品", "乳糖"),
        ("من ينقل أثاثا ثقيلا إلى الطابق الخامس؟", "ثقيلا"),
    ],
)
def test_an_everyday_word_tells_what_a_text_is_about_and_the_commonest_do_not(text, topic):
    topical = {w.word for w in query_words(text) if w.is_topical}
    assert topic in topical
    assert topical.isdisjoint(COMMONEST)


@pytest.mark.parametrize("text", ["моё резюме", "私の書類", "Dê-me dicas de trabalho"])
def test_what_is_spelt_like_one_of_the_commonest_tells_nothing(text):
    telling = {w.word for w in query_words(text) if w.is_telling}
    assert telling
    assert telling.isdisjoint({"мое", "моё", "私", "の", "dê", "de"})


def test_an_arabic_preposition_that_is_written_with_its_word_hides_nothing():
    assert set(index_words("عندي قطة")) & looked_for("كيف أعتني بقطة صغيرة؟") > set()
    assert "كل" not in looked_for("لكل")


@pytest.mark.parametrize(
    ("fact", "task"),
    [
        ("パクチーが苦手です。", "パクチーサラダの作り方は?"),
        ("ピーナッツは食べられません。", "ピーナッツバターのレシピ"),
        ("グルテンを避けています。", "グルテンフリーのパン"),
    ],
)
def test_a_compound_in_katakana_finds_what_it_begins_with(fact, task):
    words = [w for w in query_words(task) if len(w.word) > 2]
    assert any(w.is_topical and set(w.forms) & set(index_words(fact)) for w in words)
    assert all(len(w.forms) <= 9 for w in query_words("ア" * 500))


FINNISH = "Minulla on vaikea pähkinäallergia joten en voi syödä mitään mikä sisältää pähkinöitä."


def test_in_a_language_without_a_list_no_word_is_rare_and_all_are_found():
    query = "Ehdota jokin helppo resepti ystävälle jolla on vaikea pähkinäallergia eikä muuta"
    assert not any(word.is_rare or word.is_telling for word in query_words(query))
    assert {"vaikea", "pahkinaallergia"} <= set(index_words(FINNISH)) & looked_for(query)


def test_in_a_language_without_a_list_inflected_words_are_found():
    query = "Missä kaupassa myydään näitä pähkinäallergioita aiheuttavia tuotteita halvalla"
    forms = {form for term in query_terms(query, thorough=False).terms for form in term.words}
    assert forms & {word for word in index_words(FINNISH) if word.endswith(ROOT_END)}


def test_the_parts_of_a_compound_are_those_of_common_words():
    assert parts_of("haselnusskuchen", "de") == ("haselnuss", "kuchen")
    assert parts_of("arbeitszimmer", "de") == ("arbeit", "zimmer")
    assert parts_of("kaffeexyzab", "de") == ("kaffee", "xyzab")
    assert parts_of("kuchen", "de") == ()
    assert parts_of("xqzvwkjpflm", "de") == ()


def test_function_words_are_not_looked_for():
    assert "ich" not in looked_for("Wo wohne ich jetzt am Hafen?")
    assert looked_for("der die das") == {"der", "die", "das"} | looked_for("der die das")


@given(st.text(max_size=200))
def test_any_text_gives_words_that_the_index_can_hold(text):
    for word in index_words(text):
        assert word
        assert not any(c.isspace() or c in "\"'*()" for c in word)
    assert index_text(1, text) == " ".join(f"s1x{w}" for w in index_words(text))
    for term in query_terms(text, thorough=False).terms:
        assert term.words
        assert not any(c.isspace() or c == '"' for form in term.words for c in form)


@pytest.mark.parametrize("unit", ["aa", "ना", "ああ", "اا", "ก้", "猫犬"])
def test_one_long_word_is_bounded(unit):
    text = unit * 50_000
    assert index_words(text)
    assert query_terms(text[:4000], thorough=False).terms


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("दूधवाली चाय के अलावा क्या?", "मुझे दूध नहीं पचता"),
        ("टखनों को मज़बूत कैसे करें?", "मेरे टखने का ऑपरेशन है"),
        ("Бывает ли безлактозный сыр?", "У меня непереносимость лактозы"),
        ("Quais cafés estão em alta?", "não tomo café"),
    ],
)
def test_a_word_of_a_query_is_looked_for_by_what_it_is_made_of(query, told):
    terms = {form for word in query_words(query) for form in word.forms}
    assert terms & {x for x in text_words(told).all() if len(x) > 1}
