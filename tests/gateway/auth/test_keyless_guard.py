"""The guard on requests that need no key, by itself; `e2e/test_keyless` has it over sockets."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.keyless_guard import FROM_ELSEWHERE, KeylessGuard, sign_of_a_proxy
from gateway.auth.peer_user import GONE
from gateway.config.settings import parse_settings
from gateway.errors import Forbidden
from gateway.http.asgi import CONNECTION

BASE = {
    "providers": {"p": {"base_url": "http://127.0.0.1:1/v1"}},
    "models": {"*": {"targets": [{"provider": "p"}]}},
}


class Connection:
    def __init__(self, user):
        self.user, self.asked = user, 0

    def find_peer_user(self):
        self.asked += 1
        return self.user


def guard(**server):
    settings = parse_settings({**BASE, "server": server})
    return KeylessGuard(settings)


def scope(user=None, path="/v1/models", **more):
    connection = Connection(os.geteuid() if user is None else user)
    return {"client": ("127.0.0.1", 9), "path": path, CONNECTION: connection, **more}


HOST = {b"host": b"127.0.0.1:8080"}


@pytest.mark.parametrize("user", [os.geteuid() + 1, 0 if os.geteuid() else 1, GONE])
def test_other_users_and_who_has_left_are_refused(user):
    with pytest.raises(Forbidden, match=r"server\.peers"):
        guard().check(scope(user), HOST, is_listed=False)
    with pytest.raises(Forbidden, match=r"server\.peers"):
        guard().check(scope(user), HOST, is_listed=True)


@pytest.mark.parametrize(
    "server", [{"peers": "any"}, {"hosts": ["host.docker.internal"]}], ids=["peers", "hosts"]
)
def test_the_settings_let_other_users_in_and_nobody_is_looked_up(server):
    seen = scope(os.geteuid() + 1)
    guard(**server).check(seen, HOST, is_listed=False)
    assert seen[CONNECTION].asked == 0


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics"])
def test_who_watches_the_service_may_be_another_user(path):
    guard().check(scope(os.geteuid() + 1, path), HOST, is_listed=False)


def test_a_system_that_tells_no_users_is_answered():
    seen = scope()
    seen[CONNECTION].user = None
    guard().check(seen, HOST, is_listed=False)
    guard().check({"client": None, "path": "/"}, HOST, is_listed=False)


@given(st.sampled_from(["cross-site", "same-site", " Same-Site ", "CROSS-SITE"]))
def test_pages_of_other_sites_and_ports_are_refused(site):
    with pytest.raises(Forbidden, match="other sites and ports"):
        guard().check(scope(), {**HOST, b"sec-fetch-site": site.encode()}, is_listed=False)


@given(st.sampled_from(sorted(FROM_ELSEWHERE)))
def test_each_header_of_a_proxy_is_a_sign(name):
    assert name.decode() in sign_of_a_proxy(scope(), {**HOST, name: b"x"})
    assert not sign_of_a_proxy(scope(), HOST)
