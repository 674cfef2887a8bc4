"""No packet leaves for an address that is not public, however it is spelled or resolved."""

from __future__ import annotations

import ipaddress
import random
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.url_guard import UrlGuard, UrlRefused, UrlRules, is_public, matches_host

PRIVATE = """
0.0.0.0 10.1.2.3 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 168.63.129.16
169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.170 192.0.2.5 192.88.99.1
192.168.1.1 198.18.0.1 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.1
255.255.255.255 :: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1
::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 100::1 2001::1
2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:db8::1 2002:7f00:1:: 2002:a00:1::1 2002:a9fe:a9fe::1
3fff::1 3ffe::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1 ff0e::1
2a00:1450::5efe:7f00:1 2a00:1450::200:5efe:a00:1
""".split()  # noqa: SIM905
PUBLIC = """
1.1.1.1 8.8.8.8 93.184.216.34 2606:4700:4700::1111 2a00:1450:4001:82a::200e ::ffff:8.8.8.8
64:ff9b::808:808 2002:808:808::1
""".split()  # noqa: SIM905


@pytest.mark.parametrize("text", PRIVATE)
def test_addresses_that_are_not_public(text):
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_addresses_that_are_public(text):
    assert is_public(ipaddress.ip_address(text))


@given(st.ip_addresses(v=4))
def test_an_address_inside_another_is_judged_as_itself(inner):
    packed = int(inner)
    for outer in (
        (0xFFFF << 32) | packed,
        (0x64FF9B << 96) | packed,
        (0x2002 << 112) | (packed << 80) | 1,
    ):
        assert is_public(ipaddress.IPv6Address(outer)) <= is_public(inner)
    assert is_public(inner) <= inner.is_global


LOOPBACK_SPELLINGS = """
127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.0.0.1 0x7f.1 0177.0.0.1 017700000001
00000177.0.0.1 127.0.0.1. 127.000.000.001 0 0.0.0.0 ①②⑦.⓪.⓪.① １２７.0.0.1 127。0。0。1
[::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [0:0:0:0:0:0:0:1] [::127.0.0.1] [64:ff9b::7f00:1]
[2002:7f00:1::] [fe80::1%25eth0] [fe80::1%lo] [v1.fe80::a] 127.0.0.1%00.example.com
%31%32%37.0.0.1 169.254.169.254 0xa9fea9fe 2852039166 [::ffff:169.254.169.254] 1.1.1.1.0x7f
""".split()  # noqa: SIM905


@pytest.mark.parametrize("host", LOOPBACK_SPELLINGS)
async def test_no_spelling_of_a_private_address_reaches_the_resolver(host):
    resolved = []

    async def resolve(name, port):
        resolved.append(name)
        return ["127.0.0.1"]

    guard = UrlGuard(UrlRules(), resolve)
    with pytest.raises(UrlRefused):
        await guard.find_addresses(guard.check(f"http://{host}/"))
    assert resolved == []


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "//example.com/",
        "http:///x",
        "http://user@example.com/",
        "http://user:pass@example.com/",
        "http://127.0.0.1@example.com/",
        "http://example.com@127.0.0.1/",
        "http://example.com:22/",
        "http://example.com:99999/",
        "http://example.com:x/",
        "http://example.com\\@127.0.0.1/",
        "http://exa mple.com/",
        "http://example.com/\r\nX: y",
        "ht\ntp://example.com/",
        "http://example.com\u2028/",
        "http://[::1/",
        "http://exam_ple..com/",
        "http://-/",
        "http://" + "a" * 300 + ".com/",
        "http://example.com/" + "a" * 9000,
        "http://ex\u0000ample.com/",
        "",
    ],
)
def test_urls_of_another_form_are_refused(url):
    with pytest.raises(UrlRefused):
        UrlGuard(UrlRules()).check(url)


@pytest.mark.parametrize(
    "answers",
    [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["::1"], ["fe80::1%2"], ["64:ff9b::7f00:1"], []],
)
async def test_every_address_of_a_name_is_public(answers):
    async def resolve(name, port):
        return answers

    guard = UrlGuard(UrlRules(), resolve)
    with pytest.raises(UrlRefused) as refusal:
        await guard.find_addresses(guard.check("https://example.com/secret"))
    # Nobody learns which address it was.
    assert str(refusal.value) == "https://example.com/secret is not a public address."


async def test_a_name_without_an_address_says_the_same_as_a_private_one():
    async def resolve(name, port):
        raise OSError("no such name")

    guard = UrlGuard(UrlRules(), resolve)
    with pytest.raises(UrlRefused, match="is not a public address"):
        await guard.find_addresses(guard.check("https://db.internal/"))


def test_rules_of_hosts_and_ports():
    rules = UrlRules(
        allow_hosts=("example.com", "*.example.org"),
        deny_hosts=("bad.example.org",),
        private_hosts=("10.0.0.7:8080", "[fd00::1]:80"),
    )
    guard = UrlGuard(rules)
    assert guard.check("http://EXAMPLE.com./a?b#c").text == "http://example.com/a?b"
    assert guard.check("https://www.example.org:443/").authority == "www.example.org"
    assert guard.check("http://10.0.0.7:8080/x").is_private
    assert guard.check("http://[FD00::1]/").is_private
    for url in (
        "http://example.net/",
        "http://example.org/",
        "http://bad.example.org/",
        "http://10.0.0.7/",
        "http://10.0.0.7:8081/",
        "http://example.com:8080/",
    ):
        with pytest.raises(UrlRefused):
            guard.check(url)
    assert not matches_host("*.example.com", "example.com")
    with pytest.raises(UrlRefused, match="https"):
        UrlGuard(UrlRules(secure_only=True)).check("http://example.com/")


def test_a_redirect_is_checked_anew():
    guard = UrlGuard(UrlRules())
    start = guard.check("https://example.com/a/b?c")
    assert guard.follow(start, "../d").text == "https://example.com/d"
    private = ("http://127.0.0.1/", "//10.0.0.1/", "file:///etc/passwd", "\\\\127.0.0.1")
    for location in (*private, "http://[::1"):
        with pytest.raises(UrlRefused):
            guard.follow(start, location)


@given(st.text(max_size=40) | st.text("[]:/@?#%.a1", max_size=20))
def test_any_text_is_checked_or_refused(text):
    guard = UrlGuard(UrlRules())
    start = guard.check("https://example.com/a")
    redirects = (lambda: guard.follow(start, text), lambda: guard.follow(start, f"http://{text}"))
    urls = (text, f"http://{text}/", f"https://example.com/{text}")
    for check in (*(partial(guard.check, url) for url in urls), *redirects):
        try:
            checked = check()
        except UrlRefused:
            continue
        assert checked.text.isascii()
        assert not set(checked.text) & set("\r\n \t\\")
        # What was checked is what is sent: reading it again gives the same.
        assert guard.check(checked.text) == checked


def test_random_bits_of_addresses():
    draw = random.Random(7)
    for _ in range(2000):
        address = ipaddress.IPv6Address(draw.getrandbits(128))
        if is_public(address):
            assert address in ipaddress.IPv6Network("2000::/3")
