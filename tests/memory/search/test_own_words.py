"""What a user wrote, and what they pasted; what states something, and what does not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.search.own_words import (
    has_statement,
    is_like_request,
    may_tell,
    own_words,
    read_own_words,
)
from tests.memory.search.telling_lines import TELLING_LINES

CODE = "def add(a, b):\n    return a + b\n\nprint(add(1, 2));"
LOG = "2026-03-01 10:00:00 ERROR the server died\nTraceback (most recent call last):\n$ ls -la"
DOCUMENT = "\n\n".join(
    f"Paragraph {i} of a report on the {i}th quarter. " + "It says a lot. " * 20 for i in range(9)
)


@pytest.mark.parametrize(
    "pasted",
    [
        f"```python\n{CODE}\n```",
        f"~~~\n{CODE}",
        "```SELECT 1```",
        CODE,
        LOG,
        "> You wrote this\n> and I quote it",
        "“" + "A long quotation of somebody else. " * 10 + "”",
        '{"user": {"name": "Bob", "likes": ["tea"]}}',
        "<div class='x'>I am Bob</div>",
    ],
)
def test_what_is_pasted_is_left_out(pasted):
    found = own_words(f"My dog is Rex.\n\n{pasted}\n\n" + ("" if "~~~" in pasted else "I am Ada."))
    assert found.split("\n\n")[0] == "My dog is Rex."
    assert not [w for w in ("Bob", "SELECT", "add(", "died", "quot", "paragraph") if w in found]
    assert "~~~" in pasted or found.endswith("I am Ada.")


def test_of_a_pasted_document_only_what_stands_around_it_is_read():
    found = own_words(f"My report is done:\n\n{DOCUMENT}\n\nI wrote it in Lyon.")
    assert found == "My report is done:\n\nI wrote it in Lyon."


@pytest.mark.parametrize(
    "text",
    [
        "I am Ada, and my mail is ada@example.org; call me at +49 170 1234567.",
        "I live at 12 Elm Street (2nd floor), Lyon.",
        "我叫李明，住在北京。",
        "My sister's name is Mia\nand she lives in Bergen - since 2019!",
        "I earn $4,000 a month & pay 30% of it as rent",
    ],
)
def test_what_people_write_stays(text):
    assert own_words(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "My dog is Rex",
        "Hi! My dog is Rex.",
        "What is a monad? I study maths in Lyon.",
        "When I was five, we moved to Oslo",
        "Will is my brother",
        "Call me Ada",
        "Remember that my flight is on Friday",
        "my address is wrong, forget it",
        "Ich wohne in Bremen",
        "Vivo en Madrid",
        "我住在北京。",
        "The deadline is on Friday",
    ],
)
def test_statements(text):
    assert has_statement(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ok",
        "hello, how are you?",
        "Thanks, that helped!",
        "What is a monad",
        "can you help me with my essay",
        "Please write a poem about my dog",
        "Fix this function",
        "Wie spät ist es?",
        "Schreib mir ein Gedicht",
        "Escribe un poema",
        "¿Dónde está Madrid?",
        "北京在哪里",
        "请翻译这句话",
    ],
)
def test_questions_requests_and_small_talk_state_nothing(text):
    assert not has_statement(text)


# Sentences of our own, by language: what tells something, and what certainly tells nothing.
TELLS = {
    "en": """Can you remember that I'm allergic to peanuts?
Could you please note that my daughter starts school in May?
Update: I moved to Lyon.
Please delete the fact that I live in Berlin.
Add to your notes that we have two cats.
Change my job to nurse.
I'm vegetarian, what can I cook tonight?
Did I tell you that my sister is a pilot?
Forget my old address.
Don't call me Bob any more.
Remember: no onions for me.
FYI the deadline moved to Friday.
Since I can't eat gluten, which bread is safe?
I work nights;
Save this: the gate code is under the mat.""",
    "de": """Kannst du dir merken, dass ich keine Nüsse esse?
Notiere bitte, dass meine Mutter am Montag kommt.
Ich bin Vegetarier, was kann ich heute kochen?
Bitte lösche, dass ich in Berlin wohne.
Meine Frau heißt Jana.
Vergiss meine alte Adresse.
Ändere meinen Beruf auf Lehrer.
Weißt du noch, dass ich in Bremen wohne?""",
    "fr": """Peux-tu retenir que je suis allergique aux noix ?
Note que ma fille s'appelle Inès.
Je suis végétarien, que puis-je cuisiner ?
Supprime le fait que j'habite à Paris.
Oublie mon ancienne adresse.
Sais-tu que je travaille la nuit ?
J'ai déménagé à Lyon.""",
    "es": """¿Puedes recordar que soy alérgico a las nueces?
Apunta que mi hija se llama Inés.
Soy vegetariana, ¿qué puedo cocinar?
Borra que vivo en Madrid.
¿Sabías que vivo en Lyon?
Olvida mi antigua dirección.
Me mudé a Sevilla.""",
    "pt": """Você pode lembrar que sou alérgico a amendoim?
Anota que minha filha se chama Inês.
Sou vegetariano, o que posso cozinhar?
Apague que moro em Lisboa.
Sabia que moro em Lyon?
Esqueça meu endereço antigo.
Mudei para o Porto.""",
    "ru": """Можешь запомнить, что у меня аллергия на орехи?
Запиши, что мою дочь зовут Аня.
Я вегетарианец, что мне приготовить?
Удали, что я живу в Москве.
Ты знаешь, что я работаю ночью?
Забудь мой старый адрес.
Я не ем рыбу.""",
    "hi": """क्या तुम याद रख सकते हो कि मुझे मूंगफली से एलर्जी है?
नोट कर लो कि मेरी बेटी का नाम आशा है।
मैं शाकाहारी हूँ, आज क्या पकाऊँ?
यह हटा दो कि मैं दिल्ली में रहता हूँ।
मेरा पुराना पता भूल जाओ।
मैं रात में काम करता हूँ।""",
    "ar": """هل يمكنك أن تتذكر أنني أعاني من حساسية الفول السوداني؟
سجل أن ابنتي اسمها ليلى.
أنا نباتي، ماذا أطبخ اليوم؟
احذف أنني أسكن في القاهرة.
انس عنواني القديم.
أعمل في الليل.""",
    "ja": """ピーナッツアレルギーだと覚えておいてくれますか？
娘の名前はさくらだとメモしてください。
ラーメンが好きなんですが、おすすめはありますか？
私がベルリンに住んでいることは削除してください。
しかし私は魚を食べません。
いつか北海道に住みたい。
確かに、妻は医者です。
静かな町に住んでいます。
リヨンに引っ越しました。
夜に働いています。
何かあれば妻のアキに連絡してください。""",
    "zh": """你能记住我对花生过敏吗？
请记下我女儿叫小雨。
我吃素，今天做什么菜好？
请删除我住在柏林这条。
忘掉我的旧地址。
我不知道为什么，但我怕狗。
写作是我的爱好。
我搬到里昂了。""",
}
TELLS_NOTHING = {
    "en": """What is the capital of France?
How does a heat pump work?
Write a haiku about autumn.
Translate this into German.
Is it raining in Paris?
Thanks a lot!""",
    "de": """Was ist die Hauptstadt von Frankreich?
Wie funktioniert eine Wärmepumpe?
Schreibe ein Gedicht über den Herbst.
Vielen Dank!""",
    "fr": """Quelle est la capitale de la France ?
Comment fonctionne une pompe à chaleur ?
Écris un poème sur l'automne.
Merci beaucoup !""",
    "es": """¿Cuál es la capital de Francia?
¿Cómo funciona una bomba de calor?
Escribe un poema sobre el otoño.
¡Muchas gracias!""",
    "pt": """Qual é a capital da França?
Como funciona uma bomba de calor?
Escreva um poema sobre o outono.
Muito obrigado!""",
    "ru": """Какая столица Франции?
Как работает тепловой насос?
Напиши стихотворение об осени.
Спасибо!""",
    "hi": """फ्रांस की राजधानी कौन सी है?""",
    "ar": """ما هي عاصمة فرنسا؟
كيف تعمل المضخة الحرارية؟""",
    "ja": """フランスの首都はどこですか？
ヒートポンプはどう動きますか
ありがとうございます""",
    "zh": """法国的首都在哪里？
热泵怎么工作？
请翻译这句话
谢谢""",
}


def listed(sentences):
    return [(name, line) for name, text in sentences.items() for line in text.split("\n")]


@pytest.mark.parametrize(("language", "line"), listed(TELLS))
def test_only_what_certainly_tells_nothing_is_withheld(language, line):
    assert has_statement(own_words(line)), language
    assert may_tell(own_words(line)), language
    assert may_tell(own_words(f"Hello!\n{line}")), language


@pytest.mark.parametrize("language", TELLING_LINES)
def test_what_is_told_beside_a_question_or_a_correction_is_not_withheld(language):
    assert [x for x in TELLING_LINES[language] if not may_tell(own_words(x))] == []


@pytest.mark.parametrize(("language", "line"), listed(TELLS_NOTHING))
def test_questions_and_requests_about_the_world_tell_nothing(language, line):
    assert not has_statement(own_words(line)), language
    assert not may_tell(own_words(line)), language


@pytest.mark.parametrize(
    "line",
    [
        *("is my cat Tom?", "What does my dog Rex eat?", "Write a letter to my boss"),
        *("Vegan.", "Lyon", "What should I cook given that Tom can't have dairy?"),
        *("¿Qué regalo le hago a mi madre, que adora las orquídeas?", "ماذا أهدي أمي؟"),
        *("Что подарить маме, которая любит орхидеи?", "मेरी माँ को क्या दूँ?"),
        *("蘭が好きな母に何を贈ればいいですか？", "送什么给喜欢兰花的妈妈？"),
    ],
)
def test_a_question_about_ones_own_and_a_word_that_answers_may_tell(line):
    assert may_tell(line)


@pytest.mark.parametrize("line", ["thanks", "continue", "why", "ok", "5", "", "...", "!"])
def test_a_word_that_answers_nothing_does_not(line):
    assert not may_tell(line)


def test_a_long_paragraph_is_the_users_own():
    long = "I grew up near the sea, and this is my story of it. " * 60
    assert own_words(long) == long.strip()
    assert read_own_words(long).left_out == ()


def test_of_a_very_long_text_the_beginning_and_the_end_are_read_and_the_rest_is_told():
    text = "I am Ada. " + "More of my story goes here. " * 800 + " I live in Lyon."
    words, left_out = read_own_words(text)
    assert words.startswith("I am Ada.")
    assert words.endswith("I live in Lyon.")
    assert len(words) < 6100
    assert left_out == ("too_long",)


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        (f"I am Ada.\n```\n{CODE}\n```", ("code",)),
        (f"I am Ada.\n{LOG}", ("code",)),
        ("> You wrote this\nI am Ada.", ("quoted",)),
        ("I am Ada. “" + "A long quotation of somebody. " * 10 + "”", ("quoted",)),
        (f"Summarise this:\n\n{DOCUMENT}", ("quoted",)),
        ("I am Ada.", ()),
    ],
)
def test_what_is_left_out_is_told_with_its_reason(text, left_out):
    assert read_own_words(text).left_out == left_out


@given(st.text())
def test_any_text_can_be_read(text):
    has_statement(own_words(text))


@pytest.mark.parametrize("text", ['"', "```\n", "„", "> ", "a b ", "\n\n", "[2026-", "x;\n"])
def test_the_cost_is_linear(text):
    begun = time.process_time()
    has_statement(own_words(text * 500_000))
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("earlier", "message"),
    [
        ("Plane einen Ausflug bei Pollenflug.", "Plane ein Wochenende in Lissabon."),
        ("Planea una salida en primavera.", "Planea un fin de semana en Lisboa."),
        ("Спланируй прогулку весной.", "Спланируй выходные в Лиссабоне."),
        ("हेज़लनट वाली मिठाई सुझाओ", "पुलों पर शीर्षक सुझाओ"),
    ],
)
def test_an_earlier_request_of_the_same_kind_tells_nothing(earlier, message):
    assert is_like_request(earlier, message)


@pytest.mark.parametrize(
    ("earlier", "message"),
    [
        ("Plane meinen Geburtstag.", "Plane ein Wochenende in Lissabon."),
        ("Plane einen Ausflug nach Lissabon.", "Plane ein Wochenende in Lissabon."),
        ("Hazelnuts give my son a rash.", "Hazelnuts in a cake: how long do they keep?"),
        ("The boiler is by Vaillant.", "Which boiler is quiet?"),
        ("Plane einen Ausflug.", ""),
        ("?", "Plane ein Wochenende."),
    ],
)
def test_what_tells_something_else_is_no_such_request(earlier, message):
    assert not is_like_request(earlier, message)
