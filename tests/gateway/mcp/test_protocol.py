"""The protocol's messages: whatever comes is a request or an error, never a failure."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mcp.errors import RpcError
from gateway.mcp.protocol import MAX_DEPTH, MODERN, header_value, read_line, read_request
from gateway.mcp.stdio import routing_headers

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
MEMBERS = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"])
HEADERS = st.lists(
    st.tuples(
        st.sampled_from([b"mcp-protocol-version", b"mcp-method", b"mcp-name"]),
        st.binary(max_size=20) | st.just(MODERN.encode()),
    ),
    max_size=4,
)


def request_or_error(body, headers):
    with contextlib.suppress(RpcError):
        read_request(body, headers)


@given(st.binary(max_size=200), HEADERS)
def test_any_bytes_are_a_request_or_an_error(body, headers):
    request_or_error(body, headers)


@given(st.dictionaries(MEMBERS, JSON | st.just("2.0")), HEADERS)
def test_any_object_is_a_request_or_an_error(members, headers):
    request_or_error(json.dumps(members).encode(), headers)


@given(st.text(max_size=40), st.text(min_size=1, max_size=40))
def test_the_headers_of_a_line_are_those_that_the_door_reads(name, method):
    envelope = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    for named in (method, "tools/call"):
        params = {"_meta": envelope, "name": name}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": named, "params": params}).encode()
        line = read_line(body)
        headers = [(k.encode(), v.encode("latin-1")) for k, v in routing_headers(line).items()]
        assert read_request(body, headers) == line


@pytest.mark.parametrize("value", [b"=?base64?YQ=?=", b"=?base64?YR==?=", b"=?base64?/w==?="])
def test_a_malformed_base64_form_is_no_text(value):
    assert header_value(value) is None


def test_brackets_in_strings_are_no_depth():
    text = json.dumps('{["\\' * 1000)
    body = f'{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":{text}}}}}'.encode()
    assert read_request(body, []).params["a"] == '{["\\' * 1000
    deep = "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)
    body = f'{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":{deep}}}}}'.encode()
    with pytest.raises(RpcError):
        read_request(body, [])
