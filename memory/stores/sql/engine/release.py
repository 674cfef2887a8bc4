"""Which release of the distribution runs: workers tell it to the others, and programs to theirs."""

from __future__ import annotations

from functools import cache

DISTRIBUTION = "mnemogate"


@cache
def installed_version() -> str:
    """Return the installed version; "" for a checkout that was never installed."""
    # Not before it is asked for: it takes a fiftieth of a start.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return ""


def product_name() -> str:
    """Return what requests name as their program, in `User-Agent`."""
    return f"{DISTRIBUTION}/{installed_version()}".rstrip("/")
