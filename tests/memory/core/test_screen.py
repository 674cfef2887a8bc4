"""Secrets are found in any text around them; what only looks like one stays."""

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
        "Order 1234 5678 9012 3456",  # fails the check of Luhn
        "0000 0000 0000 0000",
        "I was born on 1990-01-01 at 12:30",
        "sk-learn is a library, and task-runner too",
        "My name is Ada",
    ],
)
def test_what_only_looks_like_a_secret_stays(text):
    assert Screen().mask(text) == (text, [])


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
