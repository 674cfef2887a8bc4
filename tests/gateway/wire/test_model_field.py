"""The model of a request is read and replaced, and nothing else of the body changes."""

from __future__ import annotations

import pytest

from gateway.errors import BadRequest
from gateway.wire.json_weight import MOST_MEMBERS
from gateway.wire.model_field import model_for_certain, model_of, replace_model, usage_of
from tests.gateway.wire.test_multipart import KIND, form, named

JSON = b"application/json"
FORM = form(named(b"file", b"model", b"; filename=x"), named(b"model", b"m"))


@pytest.mark.parametrize(
    ("body", "kind", "model"),
    [
        (b'{"model": "m", "x": 1}', JSON, "m"),
        (b'{"x": 1}', JSON, None),
        (b'{"model": 3}', JSON, None),
        (b"no json", JSON, None),
        (FORM, KIND, "m"),
        (form(named(b"a")), KIND, None),
        (b"no form", KIND, None),
    ],
)
def test_a_body_names_its_model_where_it_can_be_read(body, kind, model):
    assert model_of(body, kind) == model


@pytest.mark.parametrize(
    ("body", "kind", "model"),
    [
        (b'{"model": "m", "x": {"model": "n"}}', JSON, "m"),
        (b'{"x": 1}', JSON, None),
        (b'{"model": "m", "x": "\\ud83d"}', JSON, "m"),
        (FORM, KIND, "m"),
        (form(named(b"a")), KIND, None),
    ],
)
def test_a_plain_body_names_one_model_for_certain(body, kind, model):
    assert model_for_certain(body, kind) == model


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (b'{"model": "m", "model": "n"}', JSON, "stands twice"),
        (b'{"\\u006dodel": "m"}', JSON, "escapes"),
        (b'{"model": "m", "Model ": "n"}', JSON, "'Model ' may be taken"),
        (b'{"model": "m", "models": []}', JSON, "'models' may be taken"),
        (b'{"model": "m"', JSON, "no plain JSON"),
        (b'{"a":' * 5000, JSON, "no plain JSON"),
        (b"model=m", b"application/x-www-form-urlencoded", "Send JSON"),
        (b"no form", KIND, "this form is not"),
        (form(named(b"model", b"\xff")), KIND, "this form is not"),
    ],
)
def test_a_body_that_may_name_another_model_is_refused(body, kind, words):
    with pytest.raises(BadRequest, match=words):
        model_for_certain(body, kind)


@pytest.mark.parametrize(
    ("body", "kind", "replaced"),
    [
        (b'{"x": 1.50, "model": "m"}', JSON, b'{"x":1.50,"model":"n"}'),
        (b'{"response": {"model": "m"}}', JSON, b'{"response":{"model":"n"}}'),
        (b'{"response": {"x":  1}}', JSON, b'{"response": {"x":  1}}'),
        (b"no json", JSON, b"no json"),
        (FORM, KIND, FORM.replace(b"\r\n\r\nm\r\n", b"\r\n\r\nn\r\n")),
        (b"no form", KIND, b"no form"),
    ],
)
def test_only_the_model_is_replaced(body, kind, replaced):
    assert replace_model(body, "n", kind) == replaced


@pytest.mark.parametrize(
    ("data", "usage"),
    [
        (b'{"usage": {"n": 1}}', {"n": 1}),
        (b'{"response": {"usage": {"n": 2}}}', {"n": 2}),
        (b'{"response": {}, "message": {"usage": {"n": 3}}}', {"n": 3}),
        (b'{"response": 3}', None),
        (b"no json", None),
    ],
)
def test_usage_is_found_in_the_body_or_in_the_object_of_an_event(data, usage):
    assert usage_of(data) == usage


def members(many):
    return b'{"model":"m",' + b",".join(b'"a%d":1' % i for i in range(many)) + b"}"


def test_a_body_of_too_many_members_is_no_plain_one():
    with pytest.raises(BadRequest, match="100000 members of one object") as refused:
        model_for_certain(members(MOST_MEMBERS + 100), JSON)
    assert refused.value.code == "too_many_values"


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (members(1_000_000), "m"),
        (b'{"x":"' + b"\\n" * (5 << 20) + b'","model":"m"}', "m"),
        (b'{"x":"' + b"\\n" * (5 << 20) + b'","model":3}', None),
        (b'{"x":"' + b"\\n" * (5 << 20) + b'"}', None),
        (b'["' + b"\\n" * (5 << 20) + b'"]', None),
    ],
)
def test_the_model_of_a_long_body_is_found_without_decoding_it(body, model):
    assert model_of(body, JSON) == model
