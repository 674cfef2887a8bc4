"""The text of PDF, office and other files, by kreuzberg (the extra `files`)."""

from __future__ import annotations

from importlib import import_module

from memory.formats.documents.plain_text import clean_text
from memory.formats.documents.unreadable import Unreadable

MISSING = "this type needs kreuzberg: pip install 'mnemogate[tools]'"
REASON_CHARACTERS = 200


def extract_pages(media_type: str, data: bytes) -> tuple[list[str], bool]:
    """Return the text by page, and whether these are pages. Raises Unreadable."""
    try:
        kreuzberg = import_module("kreuzberg")
    except ImportError as e:
        raise Unreadable(MISSING) from e
    config = kreuzberg.ExtractionConfig(
        use_cache=False,
        enable_quality_processing=False,
        disable_ocr=True,
        pages=kreuzberg.PageConfig(extract_pages=True),
    )
    try:
        extracted = kreuzberg.extract_bytes_sync(data, media_type, config)
    except Exception as e:
        # Each parser has errors of its own; the file fails with what they say.
        raise Unreadable(_reason_of(str(e))) from e
    if extracted.pages and media_type == "application/pdf":
        return [clean_text(str(page["content"])) for page in extracted.pages], True
    return [clean_text(str(extracted.content))], False


def _reason_of(message: str) -> str:
    lower_message = message.lower()
    if "password" in lower_message or "encrypt" in lower_message:
        return "the file is encrypted"
    line = " ".join(clean_text(message).split())
    return f"the file cannot be read: {line[:REASON_CHARACTERS]}"
