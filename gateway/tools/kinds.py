"""Makes a kind of tool from its settings. Modules of kinds are imported when one is configured."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

import msgspec

from gateway.config.settings import ConfigError, Settings
from gateway.config.tools import ToolSettings
from gateway.tools.kind import ToolKind

if TYPE_CHECKING:
    from memory import Memory

# One line a kind, beside its settings in `gateway.config.tools`: the module and what makes it. A
# factory is called with the name of the entry, its settings, and what the gateway has.
FACTORIES = {
    "http": "gateway.tools.http_tool:HttpTool",
}
# Of kinds whose results are made here, and not by somebody outside.
TRUSTED_KINDS = frozenset({"python", "run_code"})


class KindServices(msgspec.Struct, frozen=True):
    """What of the gateway a kind may use. secret: the server's own."""

    settings: Settings
    memory: Memory
    secret: bytes


def make_kind(name: str, settings: ToolSettings, services: KindServices) -> ToolKind:
    """Return the kind behind an entry. Raises ConfigError for one that this version cannot run."""
    place = FACTORIES.get(settings.kind)
    if place is None:
        raise ConfigError(
            f"tools.{name}: this version does not have the kind {settings.kind!r} yet; it has "
            f"{', '.join(FACTORIES)}"
        )
    module, _, factory = place.partition(":")
    made = getattr(import_module(module), factory)(name, settings, services)
    return cast("ToolKind", made)
