"""Pins: a server that was reached once changes nothing without a person who looks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.mcp_definitions import ListedTool
from gateway.tools.mcp_pinning import ChangedAgain, accept_listed, merge_listing, waiting_digest

LISTINGS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("123"), max_size=4).map(
    lambda found: {name: ListedTool(name, digest, digest) for name, digest in found.items()}
)


def offered(pins):
    return {name: pin.accepted for name, pin in pins.items() if pin.status == "ready"}


@given(st.lists(LISTINGS, min_size=1, max_size=6))
def test_nothing_is_offered_but_what_was_listed_first(listings):
    pins = None
    known = {name: tool.text for name, tool in listings[0].items()}
    for listing in listings:
        pins = merge_listing(pins, listing, "ask")
        now = {name: tool.text for name, tool in listing.items()}
        assert offered(pins) == {n: x for n, x in now.items() if known.get(n) == x}
        assert merge_listing(pins, listing, "ask") == pins


@given(st.lists(LISTINGS, min_size=1, max_size=6))
def test_strict_offers_nothing_by_itself_and_off_all_that_is_listed(listings):
    strict, off = None, None
    for listing in listings:
        strict, off = merge_listing(strict, listing, "strict"), merge_listing(off, listing, "off")
        assert offered(strict) == {}
        assert offered(off) == {name: tool.text for name, tool in listing.items()}


@given(LISTINGS, LISTINGS)
def test_what_is_accepted_is_what_was_looked_at(first, second):
    pins = merge_listing(merge_listing(None, first, "ask"), second, "ask")
    waiting = [pin for pin in pins.values() if pin.status in ("new", "changed")]
    accepted = accept_listed(pins, None, waiting_digest(waiting))
    assert offered(accepted) == {name: tool.text for name, tool in second.items()}
    with pytest.raises(ChangedAgain):
        accept_listed(pins, None, "another")
    with pytest.raises(KeyError):
        accept_listed(accepted, ["nowhere"])
