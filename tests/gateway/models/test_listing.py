"""The answer of `/v1/models`."""

from __future__ import annotations

import json

from gateway.models.listing import model_card, model_list

CARD = {"id": "a", "object": "model", "created": 1_700_000_000, "owned_by": "mnemogate"}


def listed(names, more=()):
    return json.loads(model_list(names, more))["data"]


def test_configured_models_come_first_and_once():
    theirs = [{"id": "b", "created": 5, "owned_by": "them", "x": 1}, {"id": "a"}, {"id": ""}]
    assert listed(["a"], theirs) == [
        CARD,
        {"id": "b", "object": "model", "created": 5, "owned_by": "them", "x": 1},
    ]
    assert json.loads(model_card("a")) == CARD


def test_members_that_strict_clients_need_are_filled_in():
    assert listed([], [{"id": "a", "created": True, "owned_by": None}]) == [CARD]
    assert listed([], [{"id": "a", "created": 7.9}])[0]["created"] == 7
