"""Lets one import of a tenant run at a time, over the API and the dashboard alike."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gateway.errors import RequestConflict


class RunningImports:
    """The running imports: one per tenant.

    Several would finish no sooner, and each holds its whole body in memory.
    """

    def __init__(self) -> None:
        self._tenants: set[str] = set()

    @contextlib.contextmanager
    def of(self, tenant: str) -> Iterator[None]:
        """Hold the import of a tenant. Raises RequestConflict if another one is running."""
        if tenant in self._tenants:
            raise RequestConflict(
                f"An import of the tenant {tenant[:64]!r} is running, and only one runs at a "
                "time. Retry once it has finished.",
                code="import_running",
                headers=[(b"retry-after", b"5")],
            )
        self._tenants.add(tenant)
        try:
            yield
        finally:
            self._tenants.discard(tenant)
