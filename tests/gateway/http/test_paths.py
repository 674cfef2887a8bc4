"""Every spelling of a path goes through its one door, or through none."""

from __future__ import annotations

import ast
import random
import re
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import ResourceNotFound
from gateway.http.paths import (
    SERVED,
    canonical_path,
    folded_segments,
    relayed_path,
    tail_of,
    upstream_path,
    user_in,
)
from gateway.server.middleware import normalize_path

ROOT = Path(__file__).parents[3] / "gateway"
NAMES = ["resp_1", "conv_Ab-9", "msg_0f"]
OUTSIDE = [("files",), ("files", "file-1"), ("vector_stores", "vs_1", "files"), ("batches",)]


def spelt_once(rng, names):
    """One way of writing a path that some server takes for the canonical one."""
    tail = "/".join(names)
    at = rng.randrange(len(tail))
    inside = tail[at]
    code = f"%{ord(inside):02{rng.choice('xX')}}"
    slash = rng.choice(["%2F", "%2f", "%252f", "%5C", "\\", "%u002f", "%25252F", "//", "/./"])
    return rng.choice(
        [
            tail[:at] + code + tail[at + 1 :],
            tail[:at] + code.replace("%", "%25") + tail[at + 1 :],
            tail.replace("/", slash),
            slash + tail,
            tail + slash,
            tail
            + rng.choice(["/", "//", ".", "%2e", ";", ";a=b", "%3Ba", "%20", "%00", "%3F", "%23x"]),
            rng.choice(["./", "%2e/", ".%2f", "x/../", "x/%2e%2e/", "..;/", "%2e%2e%5c", ";/"])
            + tail,
            "/".join(n.title() for n in names),
            tail.upper(),
            "/".join(f"{n};v=1" for n in names),
            tail.replace("s", "\uff53"),
        ]
    )


def canonical(tail, root="/v1"):
    try:
        return canonical_path(normalize_path(f"{root}/{tail}".encode("utf-8", "surrogateescape")))
    except ResourceNotFound:
        return None


def filled(pattern, rng):
    return [rng.choice(NAMES) if word == "*" else word for word in pattern]


@given(st.integers(0, 10**9), st.sampled_from(SERVED), st.sampled_from(["/v1", "/u/ada/v1"]))
@settings(max_examples=3000, deadline=None)
def test_a_spelling_of_a_path_served_here_is_canonical_or_nothing(seed, pattern, root):
    rng = random.Random(seed)
    names = filled(pattern, rng)
    tail = spelt_once(rng, names)
    found = canonical(tail, root)
    if found is None:
        return
    reached = tail_of(found).split("/")[1:]
    # Whose names may have slashes, and which keep nothing.
    if pattern[0] == "models":
        return
    assert reached == names or not reads_as(reached, names), (tail, found)


def reads_as(reached, names):
    """Whether some server takes a path for another: decoded as often as you like, in any case."""
    text = "/".join(reached)
    for _ in range(6):
        text = unquote(text)
    parts = [
        re.split(r"[;?#\x00]", p)[0].strip().strip(".").lower() for p in re.split(r"[/\\]", text)
    ]
    return [p for p in parts if p] == [n.lower() for n in names]


@given(st.integers(0, 10**9), st.sampled_from(OUTSIDE))
@settings(max_examples=2000, deadline=None)
def test_what_is_relayed_for_a_fenced_key_is_the_folded_path(seed, names):
    tail = spelt_once(random.Random(seed), names)
    if (found := canonical(tail)) is None:
        return
    try:
        sent = relayed_path(tail_of(found), "", folded=True)
    except ResourceNotFound:
        return
    checked = "/" + "/".join(folded_segments(tail_of(found)))
    assert unquote(sent) == checked
    assert not re.search(r"//|/\.|%2[fF]|%5[cC]|;|%25", sent)


@given(st.text(max_size=40), st.text(max_size=40))
@settings(max_examples=2000, deadline=None)
def test_a_name_stays_one_segment(first, second):
    if {first, second} & {"", ".", ".."}:
        with pytest.raises(ResourceNotFound):
            upstream_path("conversations", first, "items", second)
        return
    sent = upstream_path("conversations", first, "items", second)
    assert sent.count("/") == 4
    assert re.fullmatch(r"[A-Za-z0-9/_.~%-]+", sent)
    if first.isprintable() and second.isprintable():
        assert [unquote(p) for p in sent.split("/")[1:]] == [
            "conversations",
            first,
            "items",
            second,
        ]


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ("/v1/files/a%2Fb", "/v1/files/a%2Fb"),
        ("/v1/models/ft:gpt-4o%2Fx", "/v1/models/ft:gpt-4o%2Fx"),
        ("/v1//chat///completions/", "/v1/chat/completions"),
        ("/%761/./responses", "/v1/responses"),
        ("/u/a%2Fb/v1/responses/", "/u/a%2Fb/v1/responses"),
        ("/u/v1/v1/embeddings", "/u/v1/v1/embeddings"),
        ("/u/./v1/embeddings", "/u/./v1/embeddings"),
        ("/memory/v1/users/", "/memory/v1/users/"),
    ],
)
def test_what_apps_send_keeps_its_sense(sent, found):
    assert canonical_path(normalize_path(sent.encode())) == found


def test_the_user_and_the_rest_are_told_apart():
    assert (user_in("/u/a%2Fb/v1/x/y"), tail_of("/u/a%2Fb/v1/x/y")) == ("a/b", "/x/y")
    assert (user_in("/v1/x"), tail_of("/v1/x")) == (None, "/x")


def test_paths_fold_in_linear_time():
    for tail in (
        "%2F" * 20_000,
        "%25" * 20_000 + "2F",
        "a;" * 20_000,
        "%u002f" * 20_000,
        "é" * 20_000,
    ):
        canonical(quote(tail, safe="%;/"))


def test_only_one_module_makes_paths_of_requests_to_an_upstream():
    """A formatted path is no UpstreamPath: the type checker refuses it, unless it is called one."""
    makers = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called in ("UpstreamPath", "cast") and "UpstreamPath" in ast.unparse(node):
                makers.add(path.relative_to(ROOT).as_posix())
    assert makers == {"http/paths.py"}
    base = (ROOT / "http" / "upstream_request.py").read_text(encoding="utf-8")
    assert "    path: UpstreamPath\n" in base
