"""What a URL says by itself."""

from __future__ import annotations

import pytest

from gateway.config.addresses import complete_url, has_version, nearby


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "::1", "ollama", "box.local", "a.lan"])
def test_hosts_of_ones_own_are_nearby(host):
    assert nearby(host)


@pytest.mark.parametrize("host", ["8.8.8.8", "api.openai.com"])
def test_public_hosts_are_not_nearby(host):
    assert not nearby(host)


@pytest.mark.parametrize(
    ("url", "suggestion"),
    [
        ("api.openai.com/v1", "https://api.openai.com/v1"),
        ("localhost:11434/v1", "http://localhost:11434/v1"),
        ("https:/x.example", "https://x.example"),
        ("ftp://x.example", "https://x.example"),
        ("", "http://host"),
        ("[::1", r"http://\[::1"),
    ],
)
def test_a_url_without_a_usable_scheme_is_refused_with_a_suggestion(url, suggestion):
    with pytest.raises(ValueError, match=f"write {suggestion}$"):
        complete_url(url)


def test_a_complete_url_and_another_type_pass():
    assert complete_url("http://x.example") == "http://x.example"
    assert complete_url(3) == 3


def test_the_version_of_an_api_is_found_in_the_path():
    assert has_version("https://x.example/v1")
    assert has_version("https://x.example/v1beta/openai")
    assert not has_version("https://v1.example/api")
