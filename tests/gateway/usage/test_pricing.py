"""An upstream's usage object to tokens, tokens to USD, and the shipped prices."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from gateway.auth.authenticator import Principal
from gateway.config.settings import ModelSettings, Price, Settings
from gateway.models.facts import ModelFacts, facts_file
from gateway.routing.router import Router
from gateway.usage.pricing import MAX_COUNT, TokenUsage, cost_of, price_of, tokens_of

FACTS = ModelFacts.load(facts_file())
MINI = Price(input=0.15, cached_input=0.075, output=0.6)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        # chat completions
        ({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}, TokenUsage(9, output=4)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 5, "cache_creation_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            TokenUsage(9, 5, 3, 4, 2),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": None,
                "completion_tokens_details": "x",
            },
            TokenUsage(9, output=4),
        ),
        # reasoning beside the completion, in the total alone: xAI, Gemini
        (
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "completion_tokens_details": {"reasoning_tokens": 94},
            },
            TokenUsage(32, output=103, reasoning=94),
        ),
        (
            {"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623},
            TokenUsage(20, output=603, reasoning=405),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "total_tokens": 100,
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            TokenUsage(9, output=4, reasoning=2),
        ),
        # DeepSeek
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_cache_hit_tokens": 6,
                "prompt_cache_miss_tokens": 3,
            },
            TokenUsage(9, 6, output=4),
        ),
        # Responses
        (
            {
                "input_tokens": 9,
                "input_tokens_details": {"cached_tokens": 5},
                "output_tokens": 4,
                "output_tokens_details": {"reasoning_tokens": 2},
                "total_tokens": 13,
            },
            TokenUsage(9, 5, output=4, reasoning=2),
        ),
        # Messages: input leaves the cache out
        (
            {
                "input_tokens": 9,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 20,
                "output_tokens": 4,
            },
            TokenUsage(129, 100, 20, 4),
        ),
        (
            {
                "input_tokens": 9,
                "cache_read_input_tokens": None,
                "cache_creation_input_tokens": 0,
                "output_tokens": 4,
            },
            TokenUsage(9, output=4),
        ),
        ({"output_tokens": 4}, TokenUsage(output=4)),
        # a proxy that tells Anthropic's members in chat's shape: there the input holds the cache
        (
            {
                "prompt_tokens": 129,
                "completion_tokens": 4,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 20,
            },
            TokenUsage(129, 100, 20, 4),
        ),
        # embeddings
        ({"prompt_tokens": 9, "total_tokens": 9}, TokenUsage(9)),
        ({"total_tokens": 9}, TokenUsage(9)),
        # zero is a count
        ({"prompt_tokens": 0, "completion_tokens": 0}, TokenUsage()),
        # garbage
        ({"prompt_tokens": 9.0, "completion_tokens": "4"}, TokenUsage(9)),
        ({"prompt_tokens": True, "completion_tokens": -1, "total_tokens": float("nan")}, None),
        ({"prompt_tokens": 10**30, "completion_tokens": 1e300}, None),
        ({"prompt_tokens": 9, "completion_tokens": 2**31}, TokenUsage(9)),
        (
            {
                "prompt_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 9, "cache_creation_tokens": 9},
            },
            TokenUsage(5, 5),
        ),
        ({"type": "duration", "seconds": 3}, None),
        ({}, None),
        (None, None),
        ([1], None),
        ("x", None),
    ],
)
def test_an_upstreams_usage_is_read(usage, tokens):
    assert tokens_of(usage) == tokens


COUNTS = [
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cache_creation_tokens",
    "reasoning_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "prompt_cache_hit_tokens",
    "cache_write_tokens",
]
DETAILS = [
    "prompt_tokens_details",
    "completion_tokens_details",
    "input_tokens_details",
    "output_tokens_details",
]
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(0, 1000)
    | st.floats()
    | st.text(max_size=3)
    | st.lists(st.integers(), max_size=2)
)
ANY = st.dictionaries(
    st.sampled_from(COUNTS + DETAILS),
    VALUES | st.dictionaries(st.sampled_from(COUNTS), VALUES, max_size=4),
    max_size=8,
)


@given(ANY)
def test_whatever_an_upstream_says_the_parts_fit_into_the_whole(usage):
    tokens = tokens_of(usage)
    if tokens is not None:
        assert all(isinstance(n, int) and 0 <= n <= MAX_COUNT for n in astuple(tokens))
        assert tokens.cached_input + tokens.cache_write <= tokens.input
        assert tokens.reasoning <= tokens.output
        assert cost_of(tokens, MINI) >= 0


SMALL = st.integers(0, 10**6)
TOKENS = st.builds(
    lambda plain, read, written, said, thought: TokenUsage(
        plain + read + written, read, written, said + thought, thought
    ),
    SMALL,
    SMALL,
    SMALL,
    SMALL,
    SMALL,
)
USD = st.floats(0, 1000)
PRICES = st.builds(
    lambda i, c, w, o: Price(input=i, cached_input=c, cache_write=w, output=o),
    USD,
    st.none() | USD,
    st.none() | USD,
    USD,
)


@given(TOKENS)
def test_every_format_tells_the_same(t):
    chat = {
        "prompt_tokens": t.input,
        "prompt_tokens_details": {
            "cached_tokens": t.cached_input,
            "cache_creation_tokens": t.cache_write,
        },
        "completion_tokens": t.output,
        "completion_tokens_details": {"reasoning_tokens": t.reasoning},
        "total_tokens": t.input + t.output,
    }
    messages = {
        "input_tokens": t.input - t.cached_input - t.cache_write,
        "cache_read_input_tokens": t.cached_input,
        "cache_creation_input_tokens": t.cache_write,
        "output_tokens": t.output,
        "output_tokens_details": {"reasoning_tokens": t.reasoning},
    }
    responses = {
        k.replace("prompt", "input").replace("completion", "output"): v for k, v in chat.items()
    }
    assert tokens_of(chat) == tokens_of(messages) == tokens_of(responses) == t


@given(TOKENS, TOKENS, PRICES)
def test_two_rounds_cost_what_each_of_them_costs(a, b, price):
    assert cost_of(a + b, price) == pytest.approx(cost_of(a, price) + cost_of(b, price))


@pytest.mark.parametrize(
    ("price", "cost"),
    [
        (MINI, 0.15 + 0.075 + 0.15 + 0.6),
        (Price(input=3, cached_input=0.3, cache_write=3.75, output=15), 3 + 0.3 + 3.75 + 15),
        (Price(input=2, output=8), 2 + 2 + 2 + 8),
        (Price(input=0, output=0), 0.0),
        (None, None),
    ],
)
def test_a_cost_is_told_in_usd_and_an_unknown_one_as_unknown(price, cost):
    assert cost_of(TokenUsage(3_000_000, 1_000_000, 1_000_000, 1_000_000), price) == (
        None if cost is None else pytest.approx(cost)
    )


def test_a_deployment_whose_name_says_nothing_has_what_is_known_of_the_model_it_is_asked_for_as():
    """Azure alone: elsewhere a target's name is the maker's, and one that is not known is another
    model.
    """
    facts = ModelFacts(
        {"gpt-4o": {"context_window": 128_000, "price": {"input": 2.5, "output": 10}}}
    )
    settings = Settings.model_validate(
        {
            "providers": {
                "azure": {"kind": "azure", "base_url": "http://a"},
                "own": {"base_url": "http://o/v1"},
            },
            "models": {
                "gpt-4o": {
                    "targets": [
                        {"provider": "azure", "model": "team-7"},
                        {"provider": "own", "model": "team-7"},
                    ]
                },
                "fast": {"targets": [{"provider": "azure", "model": "team-7"}]},
            },
        }
    )
    router = Router(settings, {"azure": None, "own": None}, facts)
    route, other = (router.route(name, Principal("t", "k")) for name in ("gpt-4o", "fast"))
    assert [t.price for t in (*route.targets, *other.targets)] == [
        Price(input=2.5, output=10),
        None,
        None,
    ]
    assert [t.window for t in (*route.targets, *other.targets)] == [128_000, None, None]


def test_the_operators_price_stands_before_the_shipped_one():
    free, facts = Price(input=0, output=0), {"price": {"input": 1, "output": 2}}
    target = {"targets": [{"provider": "p"}]}
    assert price_of(ModelSettings(**target, price=free), facts) == free
    assert (
        price_of(ModelSettings(**target), facts)
        == price_of(None, facts)
        == Price(input=1, output=2)
    )
    assert price_of(ModelSettings(**target), {}) is price_of(None, {}) is None


@pytest.mark.parametrize(
    ("name", "price"),
    [(n, m["price"]) for n, m in tomllib.loads(facts_file().read_text()).items() if "price" in m],
)
def test_a_shipped_price_makes_sense(name, price):
    price = Price.model_validate(price)
    assert (price.cached_input or 0) <= price.input
    assert price.cache_write is None or price.input <= price.cache_write <= 1.25 * price.input
    assert price.output == 0 or price.input <= price.output


@pytest.mark.parametrize(
    ("name", "usd"),
    [
        ("openai/gpt-4o-2024-11-20", 2.5),
        ("gpt-4o-2024-05-13", 5),
        ("GPT-4o-mini", 0.15),
        ("gpt-4.1-nano-2025-04-14", 0.1),
        ("gpt-5-2025-08-07", 1.25),
        ("gpt-5-mini", 0.25),
        ("gpt-5-chat-latest", 1.25),
        ("o1-2024-12-17", 15),
        ("o3-mini", 1.1),
        ("claude-sonnet-4-5-20250929", 3),
        ("claude-opus-4-20250514", 15),
        ("claude-opus-4-5", 5),
        ("claude-3-5-haiku-20241022", 0.8),
        ("gemini-2.5-flash-lite", 0.1),
        ("text-embedding-3-small", 0.02),
        ("mnemogate-demo", 0),
        # what costs otherwise than the name it begins with, or came later
        ("gpt-4o-audio-preview", None),
        ("gpt-4o-realtime-preview", None),
        ("gpt-4o-search-preview", None),
        ("gpt-4o-mini-audio-preview", None),
        ("gpt-4o-mini-tts", None),
        ("gpt-4.9", None),
        ("gpt-5-image", None),
        ("gpt-5-search-api", None),
        ("gpt-5.9", None),
        ("gpt-5.4-image-2", None),
        ("o1-x", None),
        ("o3-deep-research", None),
        ("o4-mini-deep-research", None),
        ("gpt-3.5-turbo-16k", None),
        ("claude-opus-4-9", None),
        ("claude-3-x", None),
        ("gemini-2.5-flash-image", None),
        ("gemini-2.5-pro-preview-tts", None),
        ("gemini-3-pro-image-preview", None),
        ("mistral-large-latest", None),
        ("deepseek-chat", None),
        ("my-own", None),
    ],
)
def test_a_variant_never_has_the_price_of_another_model(name, usd):
    price = price_of(None, Router(Settings(), {}, FACTS).facts(name))
    assert (price and price.input) == usd
