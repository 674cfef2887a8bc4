"""Many tools, long results: found by a search, read on piece by piece."""

from __future__ import annotations

import json
import re

from memory import TokenCounter
from tests.e2e.operator_tools import ADMIN, ToolServer, gateway, granting, offered
from tests.models import Model, call, calls

NOUNS = "issue invoice customer ticket photo deployment".split()  # noqa: SIM905
VERBS = "create list delete update archive close rename copy share move".split()  # noqa: SIM905


OWN = ("list_issue", "tool_search", "tool_call", "result_open")


def told_of(body):
    return [m["content"] for m in body["messages"] if m["role"] == "tool"]


async def test_t_g8_of_sixty_tools_the_right_one_is_found_and_the_list_stays_the_same(data):
    search = calls(call("tool_search", {"query": "archive an invoice"}, "c1"))
    run = {"name": "archive_invoice", "arguments": {"city": "7"}}
    script = (search, calls(call("tool_call", run, "c2")), "Done.")
    async with ToolServer(archive_invoice="archived") as server, Model(*script, "Hi.") as up:
        tools = {
            f"{verb}_{noun}": server.entry(
                f"{verb}_{noun}",
                description=f"Will {verb} one {noun} of the account by its number.",
            )
            for verb in VERBS
            for noun in NOUNS
        }
        tools["list_issue"] |= {"pinned": True}
        async with gateway(up, data, granting(tools, toolbox={"schema_tokens": 1000})) as live:
            messages = [{"role": "user", "content": "Go"}]
            for i in range(6):
                got = await live.chat(messages, user="ada")
                answer = got.json()["choices"][0]["message"]
                messages += [answer, {"role": "user", "content": f"And {i}?"}]
            assert len({json.dumps(body["tools"]) for body in up.bodies}) == 1
            shown = [n for n in offered(up.bodies[0]) if n in ("list_issue", "tool_search")]
            assert shown == ["list_issue", "tool_search"]
            own = [t for t in up.bodies[0]["tools"] if t["function"]["name"] in OWN]
            assert len(own) == len(OWN)
            # Of schema.
            assert TokenCounter().tools(own) < 900
            assert all('"name":"archive_invoice"' in told_of(body)[0] for body in up.bodies[1:3])
            assert told_of(up.bodies[2])[1].endswith("archived")
            assert [r.path for r in server.requests] == ["/archive_invoice/7"]
            listed = await live.memory("GET", "/tool-calls?tool=archive_invoice", headers=ADMIN)
            (run,) = listed.json()["data"]
            # Recorded as a call of the tool that it calls.
            assert (run["entry"], run["arguments"]) == ("archive_invoice", '{"city":"7"}')


async def test_a_search_does_not_find_what_rules_withhold(data):
    search = calls(call("tool_search", {"query": "archive or create an invoice"}, "c1"))
    rules = [{"type": "after", "tools": ["archive_invoice"], "after": ["create_invoice"]}]
    for withhold, is_found in (("schema", False), ("result", True)):
        async with ToolServer() as server, Model(search, "Done.") as up:
            names = ("archive_invoice", "create_invoice")
            tools = {name: server.entry(name) for name in names}
            toolbox = {"schema_tokens": 0, "rules": rules, "withhold": withhold}
            async with gateway(up, data / withhold, granting(tools, toolbox=toolbox)) as live:
                await live.chat("Go", user="ada")
                (hits,) = told_of(up.bodies[1])
                assert '"name":"create_invoice"' in hits
                assert ('"name":"archive_invoice"' in hits) is is_found


async def test_t_g9_a_long_result_is_cut_and_opened_and_another_ones_is_not(data):
    text = "".join(f"line {i}\n" for i in range(120_000))[: 1 << 20]
    seen = []

    def open_it(seen_request, wire):
        body = json.dumps(seen_request.json["messages"])
        seen.append(re.search(r"res_[0-9a-f]+", body)[0])
        return calls(call("result_open", {"id": seen[-1], "offset": 15_000}, "c2"))

    foreign = lambda s, w: calls(call("result_open", {"id": seen[0]}, "c3"))  # noqa: E731
    script = (calls(call("big", {"city": "x"}, "c1")), open_it, "Done.", foreign, "Done.")
    async with ToolServer(big=text) as server, Model(*script) as up:
        async with gateway(up, data, granting({"big": server.entry("big")})) as live:
            await live.chat("Go", user="ada")
            cut, opened = told_of(up.bodies[2])
            body = cut.partition("\n")[2]
            assert body.startswith(text[:15_000])
            assert body.endswith(text[-5_000:])
            assert len(body) < 20_120
            assert opened.partition("\n")[2].startswith(text[15_000:35_000])
            await live.chat("Go on", user="bob")
            assert told_of(up.bodies[4]) == ["Error: there is no such result."]
