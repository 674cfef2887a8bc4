"""A form is read as every server reads it, or not at all."""

from __future__ import annotations

import pytest

from gateway.wire import multipart
from gateway.wire.multipart import (
    LINE_BYTES,
    LINES,
    PARTS,
    VALUE_BYTES,
    MalformedForm,
    field,
    fields,
    is_form,
    may_name_field,
)
from memory.conversation import json_strings

KIND = b"multipart/form-data; boundary=b"


def part(head, value=b"v"):
    return b"--b\r\n" + head + b"\r\n\r\n" + value + b"\r\n"


def named(name, value=b"v", more=b""):
    return part(b'Content-Disposition: form-data; name="' + name + b'"' + more, value)


def form(*parts):
    return b"".join(parts) + b"--b--\r\n"


def test_parts_come_in_their_order_with_their_values():
    body = form(named(b"a", b"1"), named(b"f", b"2\r\n3", b'; filename="x"'), named(b"b", b""))
    found = list(fields(body, KIND))
    assert [(f.name, f.file, body[f.start : f.end]) for f in found] == [
        (b"a", False, b"1"),
        (b"f", True, b"2\r\n3"),
        (b"b", False, b""),
    ]


def test_a_field_is_found_by_its_name():
    body = form(named(b"a"), named(b"model", b"m"))
    found = field(body, KIND, b"model")
    assert body[found.start : found.end] == b"m"
    assert field(form(named(b"a")), KIND, b"model") is None


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([named(b"model"), named(b"model")], "several parts"),
        ([named(b"Model")], "a part is named 'Model'"),
        ([named(b"model[]")], "a part is named"),
        ([named(b"%6dodel")], "a part is named"),
        ([named(b"model", b"")], "empty"),
        ([named(b"model", b"m" * (VALUE_BYTES + 1))], "over"),
        ([named(b"model", b"m", b"; filename=x")], "is a file"),
    ],
)
def test_a_field_that_servers_may_read_differently_is_refused(parts, words):
    with pytest.raises(MalformedForm, match=words):
        field(form(*parts), KIND, b"model")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"x" + form(named(b"a")), "begin with its boundary"),
        (form(named(b"a")) + named(b"b"), "goes on after its end"),
        (named(b"a"), "no end"),
        (form(named(b"a")).replace(b"--b\r\n", b"--bX\r\n"), "line of its own"),
        (form(*[named(b"a")] * (PARTS + 1)), f"more than {PARTS} parts"),
        (form(part(b"no header")), "plain lines"),
        (form(part(b"X: " + b"a" * LINE_BYTES)), "plain lines"),
        (form(part(b"X: 1\r\nx: 2")), "a header twice"),
        (form(part(b"\r\n".join(b"X%d: 1" % i for i in range(LINES + 1)))), "header lines"),
        (form(part(b"Content-Transfer-Encoding: base64")), "transfer encoding"),
        (form(part(b"Content-Disposition: attachment; name=a")), "plainly"),
        (form(part(b"X: 1")), "plainly"),
        (form(named(b"a\\b")), "plainly"),
        (form(named(b"a", more=b"; name*=utf-8''b")), "plainly"),
        (form(named(b"a", more=b"; !")), "plainly"),
        (form(named(b"a", more=b"; name=b")), "'name' twice"),
    ],
)
def test_an_odd_form_is_not_read(body, words):
    with pytest.raises(MalformedForm, match=words):
        list(fields(body, KIND))


@pytest.mark.parametrize("kind", [b"multipart/form-data", KIND + b"; boundary=c", KIND + b' "'])
def test_a_form_names_one_boundary(kind):
    with pytest.raises(MalformedForm, match="one boundary"):
        list(fields(form(named(b"a")), kind))


def test_a_boundary_may_be_quoted():
    assert list(fields(form(named(b"a")), b'multipart/form-data; boundary="b"'))


def test_a_form_is_known_by_its_content_type():
    assert is_form(KIND)
    assert is_form(b" Multipart/Form-Data ;x")
    assert not is_form(b"application/json")


@pytest.mark.parametrize("step", range(1, 12))
def test_where_a_step_ends_makes_no_difference(monkeypatch, step):
    body = form(named(b"a", b"--\r\n-b"), named(b"FILE_ID", b"x" * 20), named(b"c"))
    parts = list(fields(body, KIND))
    assert may_name_field(body, [b'_id"', b"_ids["])
    monkeypatch.setattr(json_strings, "SEARCH_STEP_BYTES", step)
    monkeypatch.setattr(multipart, "STEP_BYTES", step)
    assert list(fields(body, KIND)) == parts
    assert may_name_field(body, [b'_id"', b"_ids["])
    assert not may_name_field(body, [b'_ie"', b"_ids["])
