"""Who calls: what each kind of credential comes to, in each mode. Identity fails closed."""

from __future__ import annotations

import pytest

from gateway.auth.authenticator import LOCAL, Authenticator, Principal, bearer
from gateway.auth.key_store import digest_of, new_key
from gateway.config.settings import ConfigError, KeyGrant, Settings
from gateway.errors import Unauthenticated, Unavailable
from gateway.storage.key_probe import NONE, KeyCounts

UP = {"up": {"base_url": "http://up/v1"}}
APP = {"name": "app", "key": "sk-app", "tenant": "acme"}
TOKEN = "the-local-token"


class MadeKeys:
    """The keys made at run time, as they were read."""

    read = True

    def __init__(self, **grants):
        self.grants = {digest_of(k.replace("_", "-").encode()): g for k, g in grants.items()}

    @property
    def admins(self):
        return sum(g.admin for g in self.grants.values())

    def get(self, digest):
        return self.grants.get(digest)


def authenticator(made=None, counts=NONE, **settings):
    found = Settings.model_validate({"providers": UP, **settings}).validated_for_serving(counts)
    return Authenticator(found, b"s" * 32, TOKEN, made or MadeKeys())


def own_keys(**server):
    return authenticator(server={"single_user": False, **server})


def sent(credential):
    return {b"authorization": b"Bearer " + credential.encode()}


def test_a_managed_key_is_what_its_entry_says():
    entry = {
        **APP,
        "trusted": False,
        "users": ["ada"],
        "default_user": "bob",
        "models": ["gpt-*"],
        "paths": ["/v1/files*"],
        "limits": {"rpm": 5},
        "budget": {"usd": 1, "period": "day"},
    }
    found = authenticator(keys=[entry]).caller(sent("sk-app"))
    assert (found.tenant, found.key, found.trusted, found.admin) == ("acme", "app", False, False)
    assert (found.users, found.default_user) == (frozenset({"ada"}), "bob")
    assert (found.models, found.paths) == (("gpt-*",), ("/v1/files*",))
    assert (found.limits.rpm, found.budget.usd, found.budget.period) == (5, 1, "day")
    assert found.authorization is None
    assert found.limited


@pytest.mark.parametrize("credential", ["sk-other", "sk-ap", ""])
def test_what_is_no_key_is_nobody(credential):
    with pytest.raises(Unauthenticated):
        authenticator(keys=[APP]).caller(sent(credential))


def test_who_sends_none_is_told_what_to_send():
    with pytest.raises(Unauthenticated, match="Send a Mnemogate key"):
        authenticator(keys=[APP]).caller({})
    with pytest.raises(Unauthenticated, match="Send your provider's key"):
        own_keys().caller({})


def test_a_key_made_at_run_time_counts_as_much():
    made = MadeKeys(sk_made=KeyGrant(name="made", tenant="acme", admin=True))
    keys = authenticator(made, KeyCounts(1, 1), keys=[APP])
    assert keys.caller(sent("sk-made")).key == "made"
    assert keys.admins == 1


def test_a_store_that_is_not_read_yet_refuses_nobody_for_good():
    made = MadeKeys()
    made.read = False
    with pytest.raises(Unavailable) as met:
        authenticator(made, KeyCounts(1, 1), keys=[APP]).caller(sent("sk-made"))
    assert dict(met.value.headers)[b"retry-after"] == b"1"
    # Where none was ever made there is nothing to wait for.
    with pytest.raises(Unauthenticated):
        authenticator(made, NONE, keys=[APP]).caller(sent("sk-made"))


def test_that_every_made_key_is_revoked_opens_nothing():
    with pytest.raises(Unauthenticated):
        authenticator(MadeKeys(), KeyCounts(2, 0)).caller(sent("sk-revoked"))


@pytest.mark.parametrize("lent", [{}, {"api_key": "sk-lent"}])
def test_on_a_server_that_is_away_the_mode_is_not_guessed(lent):
    storage = {"database": "postgresql+asyncpg://m:pw@db/m", "secret": "5" * 64}
    settings = {"storage": storage, "providers": {"up": {**UP["up"], **lent}}}
    with pytest.raises(ConfigError, match=r"cannot be read, so whether keys were made"):
        Settings.model_validate(settings).validated_for_serving(None)
    found = Settings.model_validate({**settings, "keys": [APP]}).validated_for_serving(None)
    assert found.mode == "managed"


def test_each_provider_key_is_a_tenant_of_its_own():
    keys = own_keys()
    one, same, other = (keys.caller(sent(k)) for k in ("sk-1", "sk-1", "sk-2"))
    assert one.tenant == same.tenant != other.tenant
    assert one.tenant.startswith("own-")
    assert "sk-1" not in one.tenant
    assert (one.key, one.authorization) == ("own", b"Bearer sk-1")


def test_a_tenant_is_known_under_one_secret_alone():
    settings = Settings.model_validate({"providers": UP, "server": {"single_user": False}})
    found = {
        Authenticator(settings, secret, TOKEN, MadeKeys()).caller(sent("sk-1")).tenant
        for secret in (b"a" * 32, b"b" * 32)
    }
    assert len(found) == 2


def test_single_user_mode_has_one_tenant_for_whatever_key():
    keys = authenticator()
    one, other = keys.caller(sent("sk-1")), keys.caller({b"x-api-key": b"sk-2"})
    assert one.tenant == other.tenant == LOCAL
    assert (one.default_user, other.authorization) == ("me", b"Bearer sk-2")


def test_our_own_keys_and_token_never_go_upstream():
    text, digest = new_key()
    made = MadeKeys()
    made.grants[digest] = KeyGrant(name="made", tenant="acme")
    with pytest.raises(Unauthenticated, match="keys are not active yet"):
        authenticator(made).caller(sent(text))
    with pytest.raises(Unauthenticated, match="local token"):
        authenticator().caller(sent(TOKEN))


def test_an_open_server_asks_for_nothing():
    found = authenticator(server={"open": True, "single_user": False}).caller({})
    assert (found.tenant, found.key, found.default_user) == ("open", "open", "")
    assert authenticator(server={"open": True}).caller({}).default_user == "me"


def test_memory_on_ones_own_machine_is_managed_with_the_local_token():
    keys = authenticator()
    assert keys.manager(sent(TOKEN)) == Principal(LOCAL, "token", default_user="me")
    for headers in ({}, sent("sk-1"), sent(TOKEN + "x")):
        with pytest.raises(Unauthenticated, match="local token"):
            keys.manager(headers)


def test_elsewhere_it_is_managed_with_the_key_that_calls():
    assert authenticator(keys=[APP]).manager(sent("sk-app")).key == "app"
    assert own_keys().manager(sent("sk-1")).key == "own"


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, None),
        ({b"authorization": b"Bearer k"}, b"k"),
        ({b"authorization": b"bearer  k "}, b"k"),
        ({b"authorization": b"Bearer "}, None),
        ({b"authorization": b"k"}, b"k"),
        ({b"authorization": b"Basic k"}, b"Basic k"),
        ({b"x-api-key": b" k "}, b"k"),
        ({b"x-api-key": b" "}, None),
        ({b"authorization": b"", b"x-api-key": b"k"}, None),
    ],
)
def test_where_a_credential_stands(headers, found):
    assert bearer(headers) == found


@pytest.mark.parametrize(
    ("principal", "may", "may_not", "listed"),
    [
        (Principal("t", "k"), ["anybody"], [], None),
        (Principal("t", "k", trusted=False, admin=True), ["anybody"], [], None),
        (Principal("t", "k", trusted=False), [], ["anybody", ""], []),
        (
            Principal("t", "k", trusted=False, users=frozenset({"b", "a"}), default_user="c"),
            ["a", "b", "c"],
            ["d", ""],
            ["a", "b", "c"],
        ),
    ],
)
def test_for_whom_a_key_may_speak(principal, may, may_not, listed):
    assert all(principal.may_name(u) for u in may)
    assert not any(principal.may_name(u) for u in may_not)
    assert principal.only == listed
