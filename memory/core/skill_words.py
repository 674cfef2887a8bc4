"""Finds what a skill's text names that did not occur in the turns it was made from. Pure.

A text that a model wrote may name a tool, a URL or a path that was never there, whether it was
made up or brought in by a page that a tool returned. Such a text is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

# That are told.
MAX_WORDS = 5
_url = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s<>\"'`)\]}]+|\bwww\.[^\s<>\"'`)\]}]+")
_path = re.compile(
    r"(?<![\w/.:~-])(?:~|\.{1,2})?/[\w@.+-]+(?:/[\w@.+-]+){0,40}"
    r"|\b[A-Za-z]:\\[^\s<>\"'`]+"
    r"|(?<![\w/:.@+-])[\w@.+-]+(?:/[\w@.+-]+){2,40}"
    r"|(?<![\w/:.@+-])[\w@.+-]+/[\w@+-]+\.[A-Za-z0-9]{1,8}\b"
)
_file = re.compile(
    r"(?<![\w/.-])[\w-]+\.(?:py|js|ts|sh|json|ya?ml|toml|md|txt|csv|sql|html?|xml|go|rs|java|env"
    r"|ini|cfg|conf|log|pdf|docx?|xlsx?|zip|gz|exe|bat|ps1)\b",
    re.IGNORECASE,
)
# Hosts are opened as URLs are: with an ending that names have, and no program's member.
_host = re.compile(
    r"(?<![\w.-])(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})\.){1,8}"
    r"(?:com|net|org|edu|gov|mil|int|info|biz|name|pro|app|dev|cloud|online|site|store|shop|tech|xyz"
    r"|top|club|live|link|page|icu|example|test|invalid|local|localhost|internal|onion|[a-z]{2})"
    r"(?![\w(-])(?!\.\w)"
)
_code = re.compile(r"`([^`\n]{1,200})`")
_identifier = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)*")
_compound = re.compile(r"(?<![\w-])[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+(?![\w-])")
_camel = re.compile(r"(?<![\w-])[a-z]+[a-z0-9]*[A-Z]\w*(?![\w-])")
_called = re.compile(r"(?<![\w-])([A-Za-z_]\w{2,})\((?!s\))")
_verb = re.compile(
    r"(?i)\b(?:call|calls|calling|invoke|invokes|run|runs|use|uses|using|tool)[ \t]+"
    r"(?:the[ \t]+)?(?:tool[ \t]+)?[\"'*]{0,2}([A-Za-z_][\w-]*)"
)
_ENDS = ".,;:!?*"


def find_foreign_words(
    text: str, evidence: str, tools: Collection[str], other_tools: Collection[str]
) -> list[str]:
    """Return what a text names that is not in its turns: a few tools, URLs and paths.

    evidence: all that was said, called and returned in them. tools: names of their calls.
    other_tools: names of tools that exist beside.
    """
    foreign_words: list[str] = []
    for word in _named_places(text):
        if word not in evidence and word not in foreign_words:
            foreign_words.append(word)
    for word in _named_tools(text, frozenset(other_tools).difference(tools)):
        if word not in tools and word not in foreign_words:
            foreign_words.append(word)
    for word in _code_words(text):
        if word not in evidence and word not in tools and word not in foreign_words:
            foreign_words.append(word)
    return foreign_words[:MAX_WORDS]


def _named_places(text: str) -> Iterator[str]:
    """Yield the URLs, the paths, the files and the hosts that a text names."""
    for match in _url.finditer(text):
        yield match[0].rstrip(_ENDS)
    without_urls = _url.sub(" ", text)
    for pattern in (_path, _file, _host):
        for match in pattern.finditer(without_urls):
            yield match[0].rstrip(_ENDS)


def _named_tools(text: str, other_tools: Collection[str]) -> Iterator[str]:
    """Yield names of other tools: such as stand there as code, or that are to be called."""
    for pattern in (_verb, _called, _compound, _camel):
        for match in pattern.finditer(text):
            word = match[1] if pattern.groups else match[0]
            if word in other_tools:
                yield word
    for match in _code.finditer(text):
        yield from (word for word in _identifier.findall(match[1]) if word in other_tools)


def _code_words(text: str) -> Iterator[str]:
    """Yield the words of a text that look like names in a program."""
    for pattern in (_compound, _camel, _called):
        for match in pattern.finditer(_url.sub(" ", text)):
            yield match[1] if pattern.groups else match[0]
    for match in _code.finditer(text):
        if _identifier.fullmatch(match[1]):
            yield match[1]
