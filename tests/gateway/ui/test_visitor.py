"""Forms of the dashboard: bounded, and parsed beside the event loop where they are long."""

from __future__ import annotations

import threading

from gateway.ui import visitor
from gateway.ui.visitor import SHORT_FORM_BYTES
from tests.conftest import SENTINEL_KEY
from tests.gateway.ui.looking import shown


async def test_a_long_form_does_not_stop_the_loop(data, monkeypatch):
    threads, parse = [], visitor.parse_qsl

    def note(*args, **options):
        threads.append(threading.current_thread())
        return parse(*args, **options)

    async with shown(data) as (_, sign_in):
        looker = await sign_in(SENTINEL_KEY)
        monkeypatch.setattr(visitor, "parse_qsl", note)
        saved = await looker.send("/user/passages?user=ada", content="é" * 20_000, tags="")
        assert saved.status_code == 303
        assert threads
        assert threading.main_thread() not in threads


async def test_who_is_not_signed_in_sends_a_short_form(data):
    async with shown(data) as (_, sign_in):
        refused = await sign_in.arrive().sign_in("%" * SHORT_FORM_BYTES)
        assert refused.status_code == 413
        assert f"{SHORT_FORM_BYTES}" in refused.text
