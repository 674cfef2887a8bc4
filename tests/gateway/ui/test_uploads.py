"""Forms that bring a file: what a client sends is read, and anything else is refused."""

from __future__ import annotations

import time

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BadRequest
from gateway.ui.uploads import is_upload, read_upload

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(st.dictionaries(st.from_regex(r"[a-z.0-9-]{1,20}", fullmatch=True), TEXTS, min_size=1))
def test_what_a_client_sends_is_read(fields):
    files = {name: (f"{name}.af", text.encode()) for name, text in fields.items()}
    request = httpx.Request("POST", "http://x/", files=files)
    kind = request.headers["content-type"]
    assert is_upload(kind)
    assert read_upload(request.read(), kind, len(fields)) == fields


@given(st.binary(max_size=300), st.sampled_from([b"", b"--x\r\n", b"\r\n--x--", b"--x"]))
def test_anything_else_is_refused_or_read(noise, end):
    for body in (noise, b"--x\r\n" + noise + end, noise + end):
        try:
            read_upload(body, "multipart/form-data; boundary=x", 10)
        except BadRequest:
            continue


def test_many_parts_and_long_ones_cost_no_more_than_their_length():
    many = b"--x\r\n" * 400_000
    long = b"--x\r\nname=" + b'; name="' * 500_000
    began = time.process_time()
    for body in (many, long):
        with pytest.raises(BadRequest):
            read_upload(body, "multipart/form-data; boundary=x", 1000)
    assert time.process_time() - began < 2


@given(st.dictionaries(st.from_regex(r"[a-z.0-9-]{1,20}", fullmatch=True), st.binary(), min_size=1))
def test_bytes_of_a_file_are_kept_as_they_are(contents):
    files = {name: (f"{name}.bin", data) for name, data in contents.items()}
    request = httpx.Request("POST", "http://x/", files=files)
    kind = request.headers["content-type"]
    form = read_upload(request.read(), kind, len(files), keeps_bytes=True)
    assert form == {}
    kept = {name: (file.name, bytes(file.content)) for name, file in form.files.items()}
    assert kept == files


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ("a/b.md", "b.md"),
        (r"C:\a\b.md", "b.md"),
        ("a%22b.md", 'a"b.md'),
        ("\u00fc.md", "\u00fc.md"),
    ],
)
def test_a_file_has_its_name_without_folders(sent, name):
    head = f'Content-Disposition: form-data; name="file"; filename="{sent}"'.encode()
    body = b"--x\r\n" + head + b"\r\n\r\nhi\r\n--x--\r\n"
    form = read_upload(body, "multipart/form-data; boundary=x", 1, keeps_bytes=True)
    assert form.files["file"].name == name
