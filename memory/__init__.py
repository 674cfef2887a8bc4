"""A library of long-term memory for conversations with language models.

It knows nothing of HTTP. Its public face is what stands in the stub beside this module, together
with the public modules `memory.errors`, `memory.export_format`, `memory.formats`,
`memory.management` and `memory.session.toolbox`, the port of the operator's tools. Names are
imported on first use, so that using one of them does not load the database.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

# Of the stub: `from home import name as name`, one name or several.
_IMPORT = re.compile(r"^from (\S+) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
_NAME = re.compile(r"(\w+) as ")


def _read_homes() -> dict[str, str]:
    """Return the module of each public name: the stub is their only list."""
    stub = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    return {
        name: module
        for module, names, only_name in _IMPORT.findall(stub)
        for name in _NAME.findall(names or only_name)
    }


_MODULE_OF = _read_homes()
__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> object:
    """Import a public name on its first use (PEP 562)."""
    if (module := _MODULE_OF.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    """List the public names, imported yet or not."""
    return sorted({*globals(), *__all__})
