"""What of an upstream's text a client may read: its first line, short, without markup, traceback or
address.
"""

import time

import pytest

from gateway.wire.error_excerpt import excerpt


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("busy", "busy"),
        ("", ""),
        ("  \n\n first \n second", "first"),
        (
            "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><h1>502 Bad "
            "Gateway</h1></body>",
            "502 Bad Gateway",
        ),
        (
            "<html><style>b{}</style><p>The <b>model</b> is busy.</p><p>nginx</p>",
            "The model is busy.",
        ),
        ("x" * 300, "x" * 200),
        (
            'Traceback (most recent call last):\n  File "/srv/app/main.py", line 3\nValueError: no',
            "",
        ),
        ("connect to 10.0.0.7:8000 failed", "connect to [address] failed"),
        (
            "connect to [fd00::7]:8000 and ::1 and fe80::1%eth0 failed",
            "connect to [address] and [address] and [address]%eth0 failed",
        ),
        ("dial tcp 2001:db8:0:1:1:1:1:1 refused", "dial tcp [address] refused"),
        (
            "no upstream gpu-box:8000, vllm.internal.svc or http://x:1/a?key=b",
            "no upstream [address], [address] or [address]",
        ),
        (
            "cannot open /srv/models/llama/x.bin, ~/x/y or C:\\models\\x",
            "cannot open [path], [path] or [path]",
        ),
        (
            "Cannot POST /v1/chat/completions at 12:30:45 with gpt-4.1-mini 1.25.3, std::bad_alloc",
            "Cannot POST /v1/chat/completions at 12:30:45 with gpt-4.1-mini 1.25.3, std::bad_alloc",
        ),
    ],
)
def test_a_text_is_quoted_by_its_first_line_without_addresses(text, told):
    assert excerpt(text.encode()) == told


@pytest.mark.parametrize(
    "unit",
    [
        "<",
        "<script",
        "a-",
        "a.",
        "1.",
        "f:",
        "::",
        "/a",
        "a:",
        "~/",
        "\\",
        "http:",
        "[",
        "</",
        "\n",
        "<a ",
        "é",
        "0:0:",
    ],
)
def test_no_text_takes_long_to_quote(unit):
    began = time.process_time()
    excerpt((unit * 1_000_000).encode())
    assert time.process_time() - began < 0.5
