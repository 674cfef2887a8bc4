"""Secrets are found in any text around them; what only looks like one stays."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.core import screen
from memory.core.screen import PATTERNS, Screen, receipt
from memory.errors import BadArguments

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
SECRETS = {
    "API key": [
        "sk-" + "proj-abcDEF1234567890abcdef",
        "sk-" + "ant-api03-abcdefghijklmnop",
        "gh" + "p_" + "a1" * 18,
        "AK" + "IAIOSFODNN7EXAMPLE",
        "AI" + "za" + "b1" * 18,
        "xo" + "xb-1234567890-abcdefghij",
        JWT,
    ],
    "card number": ["4111 1111 1111 1111", "5500-0000-0000-0004", "340000000000009"],
    "private key": [
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMIIE",
    ],
}
EACH = [(kind, secret) for kind, secrets in SECRETS.items() for secret in secrets]
words = st.text(st.characters(categories=["L", "Zs"]), max_size=20)


@given(st.sampled_from(EACH), words, words)
def test_a_secret_is_removed_and_the_words_around_it_stay(found, before, after):
    kind, secret = found
    masked, kinds = Screen().mask(f"{before} {secret} {after}")
    assert secret not in masked
    assert kinds == [kind]
    assert masked.startswith(before)
    if kind != "private key":
        assert masked.endswith(after)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("My password is hunter2 and I like tea", "hunter2"),
        ("Passwort: geheim!99", "geheim!99"),
        ("密码是abc123xyz", "abc123xyz"),
        ("wifi password = correct-horse", "correct-horse"),
        ("api key: 0123456789abcdef", "0123456789abcdef"),
        ("my password for the router is hunter2!", "hunter2!"),
        ("Mein WLAN-Passwort lautet k4tze-Rot", "k4tze-Rot"),
        ("Das Kennwort für den Server ist n1cht.gut", "n1cht.gut"),
        ("mon mot de passe est s0leil-levant", "s0leil-levant"),
        ("mot de passe : été2026!", "été2026!"),
        ("mi contraseña es gato_123", "gato_123"),
        ("la contraseña del wifi es p4lmera.1", "p4lmera.1"),
        ("minha senha é azul#77", "azul#77"),
        ("senha do banco: az9z9z9", "az9z9z9"),
        ("мой пароль: kot123!", "kot123!"),
        ("пароль от почты это sneg-2026", "sneg-2026"),
        ("मेरा पासवर्ड है billi@99", "billi@99"),
        ("मेरा पासवर्ड billi@99 है", "billi@99"),
        ("كلمة المرور هي qitta99!", "qitta99!"),
        ("كلمة السر: qitta99!", "qitta99!"),
        ("パスワードは neko-777 です", "neko-777"),
        ("パスワード：neko-777", "neko-777"),
        ("我的密码是mao123!", "mao123!"),
        ("密碼: mao123!", "mao123!"),
        ("postgres://app:s3cr3t@db.example.org:5432/prod", "s3cr3t"),
        ("use mysql+pymysql://root:hunter@127.0.0.1/x", "hunter"),
        ("redis://:p4ss@cache:6379/0", "p4ss"),
        ("mongodb+srv://ada:Tr0ub4dor@c0.mongodb.net", "Tr0ub4dor"),
        (
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        ),
        (
            "the AWS secret is wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        ),
        ("Authorization: Bearer abc123.def456-ghi789", "abc123.def456-ghi789"),
        ("curl -H 'authorization: Basic dXNlcjpwYXNzd29yZDE='", "dXNlcjpwYXNzd29yZDE="),
        ("use Bearer 0a1b2c3d4e5f6a7b", "0a1b2c3d4e5f6a7b"),
        ("API-Schlüssel: 0123456789abcdef", "0123456789abcdef"),
        ("clé API : 0123456789abcdef", "0123456789abcdef"),
        ("clave API es 0123456789abcdef", "0123456789abcdef"),
        ("ключ API: 0123456789abcdef", "0123456789abcdef"),
        ("APIキーは 0123456789abcdef", "0123456789abcdef"),
        ("api密钥是0123456789abcdef", "0123456789abcdef"),
    ],
)
def test_a_password_is_removed_and_what_names_it_stays(text, secret):
    masked, kinds = Screen().mask(text)
    assert secret not in masked
    assert len(kinds) == 1
    assert masked.startswith(text[: text.index(secret)])


@pytest.mark.parametrize(
    "text",
    [
        "The password is important to me.",
        "My phone is +49 170 1234567",
        # Fails the check of Luhn.
        "Order 1234 5678 9012 3456",
        "0000 0000 0000 0000",
        "I was born on 1990-01-01 at 12:30",
        "sk-learn is a library, and task-runner too",
        "My name is Ada",
        "password manager tips for 2026",
        "Bearer tokens are fun to read about",
        "my IMEI is 490154203237518",
        "IMEI: 356938035643809",
        "SIRET 362 521 879 00034",
        "SIRET 73282932000074",
        "ICCID 8944500102198304826",
        "8901260852290847607",
        "the message 175928847299117063 was mine",
        "tweet 1541815603606036480",
        "it happened at 1764081134013 sharp",
        "at 1764081134013000 and 1764081134013000123",
        "https://example.org:8080/a@b and ssh://git@example.org/x.git",
        "see http://user@host/path",
    ],
)
def test_what_only_looks_like_a_secret_stays(text):
    assert Screen().mask(text) == (text, [])


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("my card is 36000000000008", "36000000000008"),
        ("Visa 4222222222222", "4222222222222"),
        ("meine Karte: 5018 0000 0009", "5018 0000 0009"),
        ("ma carte 6304000000000000", "6304000000000000"),
        ("моя карта 2200 0000 0000 0004", "2200 0000 0000 0004"),
        ("मेरा कार्ड 6011 0000 0000 0004 है", "6011 0000 0000 0004"),
        ("我的卡 6200000000000005", "6200000000000005"),
        ("2221000000000009", "2221000000000009"),
        ("3530111333300000", "3530111333300000"),
    ],
)
def test_a_card_has_an_issuers_number_or_a_word_before_it(text, number):
    masked, kinds = Screen().mask(text)
    assert number not in masked
    assert kinds == ["card number"]


@given(st.sampled_from(EACH), words, words)
def test_what_a_pattern_takes_has_its_hint(found, before, after):
    text = f"{before} {found[1]} {after}"
    assert any(Screen()._hinted_windows(text))
    # Every pattern is searched, as if none were a shipped one.
    plain = Screen({name: f"{pattern}(?#)" for name, pattern in PATTERNS.items()})
    assert Screen().mask(text) == plain.mask(text)


@given(st.text(st.sampled_from("0123456789 -.ab:@é"), max_size=80))
def test_a_text_that_holds_no_secret_is_itself(text):
    masked, kinds = Screen().mask(text)
    assert kinds or masked is text


def test_patterns_can_be_added_replaced_and_taken_away():
    own = Screen({**PATTERNS, "staff number": r"\bEMP-\d{6}\b", "card number": ""})
    assert own.mask("EMP-123456 pays with 4111111111111111") == (
        "[removed: staff number] pays with 4111111111111111",
        ["staff number"],
    )


def test_a_call_keeps_what_is_no_secret_and_says_what_was_left_out():
    arguments = {"label": "human", "content": "Lives in Berlin, password: x9x9x9"}
    found = Screen().mask_arguments(arguments)
    assert arguments["content"] == "Lives in Berlin, password: [removed: password]"
    assert receipt(found) == " Left out: password; secrets are not kept."
    with pytest.raises(BadArguments, match="Nothing was saved"):
        Screen().mask_arguments({"content": EACH[0][1]})


def test_a_member_with_a_secret_is_refused_by_its_name():
    Screen().check("value", "Likes tea")
    Screen().check("value", None)
    with pytest.raises(BadArguments, match=r"`value`.*API key"):
        Screen().check("value", EACH[0][1])


@pytest.mark.parametrize(
    "unit", ["eyJabcdefghijk.", "-----BEGIN PRIVATE KEY-----", "1 ", "a-", "password: "]
)
def test_a_long_text_of_beginnings_is_screened_in_moments(unit):
    Screen().mask(unit * (200_000 // len(unit)))


def test_a_message_keeps_all_but_the_secrets_of_its_text():
    key = EACH[0][1]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    said = [{"type": "text", "text": f"my key {key}"}, image]
    masked = Screen().mask_message({"role": "user", "name": "ada", "content": said})
    text = {"type": "text", "text": "my key [removed: API key]"}
    assert masked == {"role": "user", "name": "ada", "content": [text, image]}
    assert Screen().mask_message({"role": "assistant", "content": None})["content"] is None


def test_secrets_leave_the_text_of_a_message_in_either_form():
    secret = SECRETS["API key"][0]
    part = {"type": "text", "text": secret}
    masked = Screen().mask(secret)[0]
    assert Screen().mask_message({"content": secret}) == {"content": masked}
    assert Screen().mask_message({"content": [part, {"type": "image_url"}, 3]}) == {
        "content": [{**part, "text": masked}, {"type": "image_url"}, 3]
    }
    assert Screen().mask_message({"content": None}) == {"content": None}


PIECES = ["sk-" + "a1" * 12, "password: q7w8e9", "4111 1111 1111 1111", "eyJ" + "a" * 6000]
WHOLE_KEY = "-----BEGIN " + "PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----"


# Each takes a second: a window of a few characters is moved along all of the text.
@settings(max_examples=40)
@given(
    st.lists(st.sampled_from([*PIECES, WHOLE_KEY, " ", "word ", "sk-", ".b" * 20, "-----BEGIN "])),
    st.integers(1, 40),
)
def test_a_long_text_is_screened_as_a_short_one(pieces, window):
    text = "".join(pieces)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(screen, "WINDOW_CHARACTERS", 1 << 30)
        expected = Screen().mask(text)
        patched.setattr(screen, "WINDOW_CHARACTERS", window)
        assert Screen().mask(text) == expected


def test_no_copy_of_a_long_text_is_made_where_nothing_is_secret():
    text = "The Café of Ms. Wong: api, key_ and 4 words. " * 100_000
    tracemalloc.start()
    try:
        assert Screen().mask(text) == (text, [])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_arguments_of_calls_are_masked_and_everything_else_is_kept():
    key = "sk-" + "a1B2" * 8
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "f", "arguments": f'{{"k":"{key}"}}'},
    }
    odd = [{"id": "x"}, "no call", {"function": {"name": "g"}}]
    message = {"role": "assistant", "content": None, "tool_calls": [call, *odd]}
    masked = Screen().mask_message(message)
    assert key not in str(masked)
    assert masked["tool_calls"][1:] == odd
    assert key in str(message)
    plain = {"role": "assistant", "content": None, "tool_calls": [odd[0]]}
    assert Screen().mask_message(plain) == plain


@given(st.lists(st.sampled_from([e[1] for e in EACH] + ["is fine", "and", ":"]), max_size=4))
def test_what_was_masked_once_stays_as_it_is(pieces):
    masked = Screen().mask(" ".join(pieces))[0]
    assert Screen().mask(masked) == (masked, [])


def test_a_long_text_is_searched_where_there_is_a_hint_alone(monkeypatch):
    """To search all of 60 MiB for passwords takes half a minute of CPU."""
    searched, compiled = [], screen._compile

    class Noting:
        def __init__(self, pattern):
            self.pattern, self.groupindex = pattern, pattern.groupindex

        def search(self, text, at, end):
            searched.append(end - at)
            return self.pattern.search(text, at, end)

        def __getattr__(self, name):
            return getattr(self.pattern, name)

    monkeypatch.setattr(screen, "_compile", lambda text: Noting(compiled(text)))
    words = "the quick brown fox " * 50_000
    text = f"{words}password: q7w8e9 {words}"
    masked, kinds = Screen().mask(text)
    assert (masked, kinds) == (f"{words}password: [removed: password] {words}", ["password"])
    assert sum(searched) < 20 * screen.WINDOW_CHARACTERS
    assert Screen().mask(words)[0] is words
