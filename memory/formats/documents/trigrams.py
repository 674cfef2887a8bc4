"""Which passages of a file may hold a text: the numbers of their trigrams. Pure.

A trigram is three characters, without case; its number has 16 bits, so two may share one, and a
passage that has all numbers of a text is looked at. The passages of a number are a bitmap of their
places, or a list of places where that is shorter.

Many passages have the trigrams of a phrase of frequent words, in another order. Pairs of trigrams
tell them apart: one stands `APART` characters behind the other, mostly in the next word. There are
many pairs, so they share a few numbers, as in a Bloom filter (Bloom, Space/Time Trade-offs in Hash
Coding, 1970). A passage of English has 40 % of them, so a phrase with a dozen is rarely in doubt.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from sys import byteorder
from zlib import crc32

LENGTH = 3
NUMBERS = 1 << 16
# Has every place, in an index that has pairs: those of earlier versions have none.
HAS_PAIRS = NUMBERS
FIRST_PAIR = NUMBERS + 1
PAIRS = 1 << 11
# From the beginning of a trigram to that of the second one of a pair.
APART = 5
MAX_NUMBER = FIRST_PAIR + PAIRS - 1
# Trigrams whose numbers are kept at hand.
CACHED = 200_000
BITMAP = b"\x00"
PLACES = b"\x01"


class _GramNumbers(dict[str, int]):
    """The numbers of trigrams, by the trigram."""

    def __missing__(self, gram: str) -> int:
        if len(self) >= CACHED:
            self.clear()
        number = crc32(gram.encode("utf-8", "surrogatepass")) & (NUMBERS - 1)
        self[gram] = number
        return number


def gram_numbers(text: str) -> set[int]:
    """Return the numbers of the trigrams of a text."""
    return set(_number_trigrams(text, _GramNumbers()))


def pair_numbers(text: str) -> set[int]:
    """Return the numbers of the pairs of trigrams of a text."""
    return _number_pairs(_number_trigrams(text, _GramNumbers()))


def _number_trigrams(text: str, numbers: _GramNumbers) -> list[int]:
    """Return the numbers of the trigrams that begin at each character."""
    folded_text = text.casefold()
    return [numbers[folded_text[i : i + LENGTH]] for i in range(len(folded_text) - LENGTH + 1)]


def _number_pairs(trigrams: Sequence[int]) -> set[int]:
    pairs = zip(trigrams, trigrams[APART:], strict=False)
    return {FIRST_PAIR + (31 * first + second) % PAIRS for first, second in pairs}


class GramIndex:
    """The places of trigrams in the passages of one file, which are added in order."""

    def __init__(self) -> None:
        self._places: dict[int, array[int]] = {}
        self._numbers = _GramNumbers()
        self._size = 0

    def add(self, text: str) -> None:
        """Add the next passage."""
        trigrams = _number_trigrams(text, self._numbers)
        for number in (*set(trigrams), *_number_pairs(trigrams), HAS_PAIRS):
            places = self._places.get(number)
            if places is None:
                places = self._places[number] = array("I")
            places.append(self._size)
        self._size += 1

    def encode(self) -> Iterator[tuple[int, bytes]]:
        """Yield each number with its places, as `decode_places` reads them."""
        for number in sorted(self._places):
            yield number, encode_places(self._places[number], self._size)


def encode_places(places: array[int], size: int) -> bytes:
    """Return places as bytes. size: how many passages there are."""
    if len(places) * 4 < size // 8:
        if byteorder == "big":
            places = array("I", places)
            places.byteswap()
        return PLACES + places.tobytes()
    bitmap = bytearray(size // 8 + 1)
    for place in places:
        bitmap[place >> 3] |= 1 << (place & 7)
    return BITMAP + bytes(bitmap)


def decode_places(data: bytes) -> int:
    """Return places as the bits of a number."""
    if data[:1] == BITMAP:
        return int.from_bytes(data[1:], "little")
    bitmap = 0
    for i in range(1, len(data) - 3, 4):
        bitmap |= 1 << int.from_bytes(data[i : i + 4], "little")
    return bitmap


def common_places(bitmaps: Iterable[int]) -> int:
    """Return the places that are in each of some bitmaps."""
    common_bits = -1
    for bitmap in bitmaps:
        common_bits &= bitmap
    return max(common_bits, 0)


def list_places(bitmap: int) -> list[int]:
    """Return the places of a bitmap, in order."""
    text = bin(bitmap)[:1:-1]
    places: list[int] = []
    bit_place = text.find("1")
    while bit_place >= 0:
        places.append(bit_place)
        bit_place = text.find("1", bit_place + 1)
    return places
