"""The user a request is about: names that every store can index."""

from __future__ import annotations

import pytest

from gateway.auth.authenticator import Principal
from gateway.auth.user_resolver import UserResolver
from gateway.config.settings import Settings
from gateway.errors import BadRequest

NAMES = UserResolver(Settings())
CALLER = Principal("acme", "app")


@pytest.mark.parametrize("name", ["x" * 1024, "日" * 341, "Zoë"])
def test_a_name_of_at_most_1024_bytes_is_taken(name):
    assert NAMES.user(CALLER, {}, name, {}) == name


@pytest.mark.parametrize("name", ["x" * 1025, "日" * 342])
def test_a_longer_name_is_refused_with_its_size_and_the_limit(name):
    with pytest.raises(BadRequest, match=rf"has {len(name.encode())} bytes .* at most 1024"):
        NAMES.user(CALLER, {}, name, {})
