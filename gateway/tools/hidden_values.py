"""Values of the configuration that no result, record or log repeats, though servers echo them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gateway.config.tool_entry import ToolSettings

# Of a value; a shorter one is no secret, and is a part of many words.
SECRET_CHARACTERS = 6
HIDDEN = "[secret]"
# Names of variables that hold a secret. Others name folders, modes and languages.
SECRET_NAME = re.compile(r"key|token|secret|passw|auth|credential", re.IGNORECASE)


class HiddenValues:
    """Takes values out of texts, whole and without the scheme that headers have in front."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        whole_values = tuple(values)
        parts = (*whole_values, *(value.rpartition(" ")[2] for value in whole_values))
        self._values = sorted(
            {part for part in parts if len(part) >= SECRET_CHARACTERS}, key=len, reverse=True
        )

    def hide(self, text: str) -> str:
        """Return a text without these values."""
        for value in self._values:
            text = text.replace(value, HIDDEN)
        return text


def hidden_values_of(settings: ToolSettings, forwarded_values: Iterable[str] = ()) -> HiddenValues:
    """Return what is hidden of an entry. forwarded_values: of headers that a client sent along."""
    headers: Mapping[str, str] = getattr(settings, "headers", {})
    secrets: Mapping[str, str] = getattr(settings, "secrets", {})
    env: Mapping[str, str] = getattr(settings, "env", {})
    of_env = (value for name, value in env.items() if SECRET_NAME.search(name))
    return HiddenValues((*headers.values(), *secrets.values(), *of_env, *forwarded_values))
