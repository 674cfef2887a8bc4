"""Which release runs, and what requests name as their program."""

from __future__ import annotations

from importlib import metadata

import pytest

from memory.stores.sql.engine import release


@pytest.fixture(autouse=True)
def _anew():
    release.installed_version.cache_clear()
    yield
    release.installed_version.cache_clear()


def test_the_installed_version_is_told():
    assert release.installed_version() == metadata.version("mnemogate")
    assert release.product_name() == f"mnemogate/{metadata.version('mnemogate')}"


def test_a_checkout_that_was_never_installed_has_a_name_without_a_version(monkeypatch):
    monkeypatch.setattr(release, "DISTRIBUTION", "never-installed")
    assert release.installed_version() == ""
    assert release.product_name() == "never-installed"
