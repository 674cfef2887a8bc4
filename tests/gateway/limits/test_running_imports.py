"""One import of a tenant runs at a time."""

from __future__ import annotations

import pytest

from gateway.errors import RequestConflict
from gateway.limits.running_imports import RunningImports


def test_a_second_import_of_a_tenant_is_refused_until_the_first_ends():
    imports = RunningImports()
    with imports.of("acme"), pytest.raises(RequestConflict, match="'acme' is running"):
        with imports.of("acme"):
            pass
    with imports.of("acme"):
        pass


def test_tenants_do_not_wait_for_each_other():
    imports = RunningImports()
    with imports.of("acme"), imports.of("globex"):
        pass


def test_an_import_that_fails_ends_too():
    imports = RunningImports()
    with pytest.raises(OSError, match="disk"), imports.of("acme"):
        raise OSError("disk")
    with imports.of("acme"):
        pass
