"""`mnemogate doctor` and proxies: which are used, whether they answer, and what mends it."""

from __future__ import annotations

import asyncio

from gateway.cli.proxy_check import check_proxies
from gateway.cli.upstream_check import check_upstream
from gateway.config.loader import load
from tests.proxies import Proxy
from tests.sockets import within

FAR = {"base_url": "https://models.example/v1"}
CLOSED = "http://127.0.0.1:9"


def settings_of(tmp_path, **providers):
    return load(None, {}, {"storage.data": str(tmp_path), "providers": providers})


def look(tmp_path, environ, **providers):
    """Returns the state and the text of each finding."""
    found = check_proxies(settings_of(tmp_path, **providers), environ)
    return [(f.state, f.told) for f in found]


async def test_a_proxy_that_does_not_answer_is_told_with_what_names_it(tmp_path):
    environ = {"HTTPS_PROXY": "http://ada:geheim@127.0.0.1:9"}
    [(state, told)] = look(tmp_path, environ, far=FAR, other=FAR)
    assert state == "failed"
    assert told.startswith("127.0.0.1:9 (from HTTPS_PROXY) does not answer")
    assert told.endswith("correct or unset that variable")
    assert "geheim" not in told
    [(state, told)] = look(tmp_path, environ, far={**FAR, "proxy": CLOSED})
    assert state == "failed"
    assert "(from providers.far.proxy) does not answer" in told
    assert "set it to 'none'" in told
    [(state, told)] = look(tmp_path, {"https_proxy": "gopher://x"}, far=FAR)
    assert (state, "give a URL that begins with http://" in told) == ("failed", True)


async def test_proxies_that_answer_are_told_with_who_uses_them(tmp_path):
    async with Proxy() as proxy:
        environ = {"HTTPS_PROXY": proxy.url, "ALL_PROXY": proxy.url, "NO_PROXY": "other.example"}
        providers = {"far": FAR, "other": {"base_url": "https://other.example/v1"}}
        found = await asyncio.to_thread(look, tmp_path, environ, **providers)
        [(state, told)] = found
        assert (state, told.endswith("answers; it is used for far")) == ("ok", True)
        near = {"base_url": "http://127.0.0.1:11434/v1"}
        [(state, told)] = await asyncio.to_thread(look, tmp_path, environ, near=near)
        assert (state, told.endswith('set providers.near.proxy = "none"')) == ("note", True)
        assert await within(5, lambda: (proxy.connections, proxy.open) == (2, 0))
    direct = [("ok", "none is used")]
    assert look(tmp_path, {**environ, "NO_PROXY": "*"}, far=FAR) == direct
    assert look(tmp_path, environ, far={**FAR, "proxy": "none"}) == direct


async def test_a_proxy_that_wants_a_password_is_told_so(tmp_path):
    async with Proxy(auth="ada:geheim") as proxy:
        bare = proxy.url.replace("ada:geheim@", "")
        for scheme in ("http", "https"):
            provider = {"base_url": f"{scheme}://127.0.0.1:9/v1", "proxy": bare}
            settings = settings_of(tmp_path, p=provider)
            found = await asyncio.to_thread(check_upstream, "p", settings)
            assert found.state == "failed", found
            assert "put the proxy's user and password into its URL" in found.told
