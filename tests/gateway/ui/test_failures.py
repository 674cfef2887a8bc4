"""What fails is told as what it is, the same by header, log, `Why?` and Live."""

from __future__ import annotations

import pytest

from tests.conftest import SENTINEL_KEY
from tests.gateway.ui.looking import shown, words

GONE = "http://127.0.0.1:9/v1"
REFUSED = (401, {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}})
MISSING = (404, {"detail": "Not Found"})
FAULTS = {
    "upstream down": (None, (502, 503, 504), "did not answer"),
    "wrong key": (REFUSED, (401, 502), "key"),
    "no /v1": (MISSING, (404, 502), "/v1"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failed_request_is_told_first_and_in_red(data, fault, caplog):
    answer, statuses, advice = FAULTS[fault]
    config = {"upstream": GONE} if answer is None else {}
    async with shown(data, answer or "Hi.", **config) as (live, sign_in):
        looker = await sign_in(SENTINEL_KEY)
        sent = await live.chat("Hello", user="ada")
        assert sent.status_code in statuses, sent.text
        status, ident = str(sent.status_code), sent.headers["x-mnemogate-request-id"]
        page = await looker.get("/why")
        assert ident in words(page)
        assert status in words(page)
        assert advice in words(page)
        first = page.text.partition('<ul class="findings">')[2].partition("</li>")[0]
        assert "card bad" in first
        assert "The newest request failed" in first
        assert "Does the app use this gateway?" not in words(page)
        live_page = await looker.get("/feed")
        assert "card turn failed" in live_page.text
        assert f"failed {status}" in words(live_page)
        assert "Connect your app" not in words(live_page)
        assert status in words(await looker.get(f"/why?id={ident}"))


async def test_a_failed_request_of_others_is_not_told(data):
    async with shown(data, (500, {"error": {"message": "broken"}})) as (live, sign_in):
        await live.chat("Hello", user="bob")
        looker = await sign_in("sk-ada")
        assert "failed" not in words(await looker.get("/feed"))
        assert "The newest request failed" not in words(await looker.get("/why"))
