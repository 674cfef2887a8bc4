"""Days and times as people of a time zone tell them. Pure."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from memory.search.query import iso

UTC_NAME = "UTC"
MAX_NAME_CHARACTERS = 64
# What systems keep among their zones: the machine's own one, and the same zones counted otherwise.
MACHINE_NAMES = frozenset({"localtime", "posixrules", "Factory"})
OTHER_TREES = ("posix/", "right/")
# Seconds; no zone's offset of today is a part of one.
MINUTE = 60
# `strftime` would name days in the language of the server's locale.
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def parse_zone(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name. Raises ValueError."""
    is_of_machine = name in MACHINE_NAMES or name.startswith(OTHER_TREES)
    if not name or len(name) > MAX_NAME_CHARACTERS or is_of_machine:
        raise ValueError(f"{name[:MAX_NAME_CHARACTERS]!r} is no time zone")
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as e:
        raise ValueError(f"{name!r} is no time zone") from e


def day_of(timestamp: float, zone: str = UTC_NAME) -> str:
    """Return the day of a Unix time there, as an ISO 8601 date."""
    return _day_of_minute(int(timestamp // MINUTE), zone)


# What is recalled together was mostly said together.
@lru_cache(256)
def _day_of_minute(minute: int, zone: str) -> str:
    return f"{datetime.fromtimestamp(minute * MINUTE, parse_zone(zone)):%Y-%m-%d}"


def time_of(timestamp: float, zone: str = UTC_NAME) -> str:
    """Return a Unix time there as ISO 8601, with its offset."""
    if zone == UTC_NAME:
        return iso(timestamp)
    return datetime.fromtimestamp(timestamp, parse_zone(zone)).isoformat(timespec="seconds")


def moment_of(timestamp: float, zone: str = UTC_NAME) -> str:
    """Return a Unix time there, with its weekday and offset: Wed 2026-11-25 09:12 +01:00."""
    local_time = datetime.fromtimestamp(timestamp, parse_zone(zone))
    offset = f"{local_time:%z}"
    return (
        f"{_WEEKDAYS[local_time.weekday()]} {local_time:%Y-%m-%d %H:%M} {offset[:3]}:{offset[3:5]}"
    )
