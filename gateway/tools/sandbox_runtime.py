"""How a result becomes text, inside a sandbox.

The source of this module is run there, so it keeps to what the interpreter of `monty_sandbox`
understands, and its names are ones that no tool has.
"""

import json as _mnemogate_json
from datetime import date as _mnemogate_date
from datetime import datetime as _mnemogate_datetime
from decimal import Decimal as _MnemogateDecimal
from typing import Any as _MnemogateAny


def _mnemogate_plain(value: _MnemogateAny, depth: int) -> _MnemogateAny:
    """Return a value as JSON has it. Raises TypeError that names the type of another value."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if value != value:  # noqa: PLR0124 - NaN alone
            return "NaN"
        if value in {float("inf"), float("-inf")}:
            return "Infinity" if value > 0 else "-Infinity"
        return value
    if depth > 50:
        raise ValueError("the result is nested more than 50 levels deep")
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_mnemogate_plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {str(key): _mnemogate_plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (_mnemogate_date, _mnemogate_datetime)):
        return value.isoformat()
    if isinstance(value, _MnemogateDecimal):
        return str(value)
    raise TypeError(type(value).__name__)


def _mnemogate_render(value: _MnemogateAny) -> list[str]:
    """Return `[form, text]`; the form is `text`, `json`, or `other` with the name of the type."""
    if isinstance(value, str):
        return ["text", value]
    try:
        plain = _mnemogate_plain(value, 0)
    except TypeError as e:
        return ["other", str(e)]
    return ["json", _mnemogate_json.dumps(plain, ensure_ascii=False)]
