"""Whose a loopback connection is: by both ways to ask, in both families, among many."""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import struct
import time

import pytest

from gateway.auth import peer_user
from gateway.auth.peer_user import GONE, can_find_peer_user, find_peer_user
from tests.other_user import NOBODY, needs_root

DUAL = "::"
HOSTS = ["127.0.0.1", "127.8.9.1", "::1", DUAL]


@pytest.fixture(params=["sock_diag", "tables"])
def way(request, monkeypatch):
    """Each way to ask, alone."""
    if request.param == "tables":

        def unserved(*_):
            raise OSError

        monkeypatch.setattr(peer_user, "_ask_kernel", unserved)
    else:
        monkeypatch.setattr(peer_user, "PROC", peer_user.PROC / "none")


@contextlib.contextmanager
def connected(host):
    """Both ends of a connection: the client's socket, and the addresses as a server sees them."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        if host == DUAL:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, 0))
        listener.listen()
        to = "127.0.0.1" if host == DUAL else host
        with socket.create_connection((to, listener.getsockname()[1])) as client:
            server, address = listener.accept()
            with server:
                yield client, address[:2], server.getsockname()[:2]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("host", HOSTS)
def test_a_connection_belongs_to_who_opened_it(host):
    with connected(host) as (_, client, server):
        assert find_peer_user(client, server) == os.geteuid()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("reset", [False, True])
def test_a_closed_connection_belongs_to_nobody(host, reset):
    with connected(host) as (sock, client, server):
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        assert find_peer_user(client, server) == GONE


@needs_root
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("host", HOSTS)
def test_a_connection_of_another_user_is_told(host):
    os.seteuid(NOBODY)
    try:
        with connected(host) as (_, client, server):
            os.seteuid(0)
            assert find_peer_user(client, server) == NOBODY
    finally:
        os.seteuid(0)


def test_a_system_that_tells_nothing_is_known_as_such(monkeypatch):
    monkeypatch.setattr(peer_user, "PROC", peer_user.PROC / "none")
    monkeypatch.delattr(socket, "AF_NETLINK")
    with connected("127.0.0.1") as (_, client, server):
        assert find_peer_user(client, server) is None
    assert not can_find_peer_user()


def test_this_system_tells():
    assert can_find_peer_user()


def test_a_look_costs_the_same_among_thousands():
    """By netlink: the median of 300 looks among 2,000 open connections."""
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        ends = []
        for _ in range(1000):
            ends += [socket.create_connection(listener.getsockname()), listener.accept()[0]]
        try:
            seconds = []
            for client in ends[:600:2]:
                begun = time.thread_time()
                assert find_peer_user(client.getsockname(), listener.getsockname()) == os.geteuid()
                seconds.append(time.thread_time() - begun)
        finally:
            for end in ends:
                end.close()
    assert statistics.median(seconds) < 0.0005
