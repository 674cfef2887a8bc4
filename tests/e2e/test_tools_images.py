"""Pictures that tools return: shown on each API, stubs in what is recorded."""

from __future__ import annotations

import json

import pytest

from tests.e2e.messages.client import ask as ask_messages
from tests.e2e.operator_tools import ToolServer, gateway, granting
from tests.e2e.responses.asking import ask as ask_responses
from tests.models import Model, call, calls
from tests.wire_models import MessagesModel, ResponsesModel, say, use

PNG = b"\x89PNG\r\n\x1a\nnot much of a picture"
STUB = "[image/png, 0.0 MiB, not shown]"
DATA = "iVBORw0KGgpub3QgbXVjaCBvZiBhIHBpY3R1cmU="


async def test_t_g9_a_chat_completion_has_a_user_message_with_the_picture(data):
    async with ToolServer(chart=PNG) as server:
        async with Model(calls(call("chart", {"city": "x"})), "A chart.", "Yes.") as up:
            async with gateway(up, data, granting({"chart": server.entry("chart")})) as live:
                got = await live.chat("Draw", user="ada")
                result, shown = up.bodies[1]["messages"][-2:]
                assert result["role"] == "tool"
                assert [p["type"] for p in shown["content"]] == ["text", "image_url"]
                assert shown["content"][0]["text"] == "Image returned by chart:"
                assert shown["content"][1]["image_url"]["url"] == f"data:image/png;base64,{DATA}"
                answer = got.json()["choices"][0]["message"]
                first = {"role": "user", "content": "Draw"}
                again = {"role": "user", "content": "Nice?"}
                await live.chat([first, answer, again], user="ada")
                told = json.dumps(up.bodies[2])
                assert DATA not in told


async def test_t_g9_a_message_has_an_image_block_in_the_result(data):
    script = ([use("chart", {"city": "x"})], [say("A chart.")])
    async with ToolServer(chart=PNG) as server, MessagesModel(*script) as up:
        config = granting({"chart": server.entry("chart")})
        config["providers"] = {"a": {"kind": "anthropic", "base_url": up.url}}
        config["models"] = {"*": {"targets": [{"provider": "a"}]}}
        async with gateway(up, data, config) as live:
            await ask_messages(live, "Draw", stream=False)
            (result,) = up.bodies[1]["messages"][-1]["content"]
            text, image = result["content"]
            assert text["type"] == "text"
            assert image["source"] == {"type": "base64", "media_type": "image/png", "data": DATA}


async def test_t_g9_a_response_has_an_input_image_in_the_output(data):
    script = ([use("chart", {"city": "x"})], [say("A chart.")])
    async with ToolServer(chart=PNG) as server, ResponsesModel(*script) as up:
        async with gateway(up, data, granting({"chart": server.entry("chart")})) as live:
            await ask_responses(live, "Draw", store=False)
            items = up.bodies[1]["input"]
            (output,) = [i["output"] for i in items if i.get("type") == "function_call_output"]
            assert output[1] == {
                "type": "input_image",
                "image_url": f"data:image/png;base64,{DATA}",
            }


async def test_t_g9_a_target_that_takes_no_pictures_is_sent_stubs_at_once(data):
    script = (calls(call("chart", {"city": "x"})), "A chart.")
    async with ToolServer(chart=PNG) as server, Model(*script) as up:
        models = {"*": {"targets": [{"provider": "openai"}], "supports_images": False}}
        config = granting({"chart": server.entry("chart")}, models=models)
        async with gateway(up, data, config) as live:
            got = await live.chat("Draw", user="ada")
            assert got.json()["choices"][0]["message"]["content"] == "A chart."
            assert len(up.bodies) == 2
            assert up.bodies[1]["messages"][-1]["content"].endswith(STUB)


@pytest.mark.parametrize("status", [400, 422])
async def test_t_g9_a_target_that_refuses_pictures_gets_stubs_and_is_remembered(data, status):
    refusal = (status, {"error": {"message": "no images here", "type": "invalid_request_error"}})
    asked = calls(call("chart", {"city": "x"}))
    async with ToolServer(chart=PNG) as server:
        async with Model(asked, refusal, "A chart.", asked, "Another.") as up:
            async with gateway(up, data, granting({"chart": server.entry("chart")})) as live:
                for text in ("A chart.", "Another."):
                    got = await live.chat(f"Draw for {text}", user="ada")
                    assert got.json()["choices"][0]["message"]["content"] == text
                    assert up.bodies[-1]["messages"][-1]["content"].endswith(STUB)
                assert len(up.bodies) == 5
