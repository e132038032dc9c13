"""Reading JSON field by field: what does not fit is said with its place."""

from __future__ import annotations

import json
import math
from typing import Any

from ghn_fl.errors import ReportError

LARGEST = 2**63  # above it is no count of bytes, samples or rounds


def parse(text: bytes, where: str) -> Fields:
    """The fields of a JSON object; NaN and Infinity are not JSON and are refused."""
    try:
        raw = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as err:
        raise ReportError(f"{where} is not whole JSON: {err}") from err
    return Fields(raw, where)


def is_whole(text: bytes) -> bool:
    """Whether the text is JSON to its end, with or without sense."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number")


class Fields:
    """One JSON object and where it stands, for example "rounds.jsonl, line 3"."""

    def __init__(self, raw: object, where: str) -> None:
        if not isinstance(raw, dict):
            raise ReportError(f"{where}: expected an object {{...}}, got {_shown(raw)}")
        self.raw: dict[str, Any] = raw
        self.where = where

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self.raw.get(key) is not None

    def text(self, key: str) -> str:
        return self._text(key, self._get(key))

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(self._text(key, value) for value in self._list(key))

    def whole(self, key: str) -> int:
        return self._whole(key, self._get(key))

    def wholes(self, key: str) -> tuple[int, ...]:
        return tuple(self._whole(key, value) for value in self._list(key))

    def number(self, key: str) -> float:
        return self._number(key, self._get(key))

    def number_or_none(self, key: str) -> float | None:
        return self.number(key) if self.has(key) else None

    def accuracy_or_none(self, key: str) -> float | None:
        # correlations, the score of some text tasks, may be negative
        value = self.number_or_none(key)
        if value is not None and not -1 <= value <= 1:
            raise self.error(key, "a fraction such as 0.97", value)
        return value

    def shares(self, key: str) -> tuple[float, ...]:
        """Numbers that are not negative."""
        values = tuple(self._number(key, value) for value in self._list(key))
        if any(value < 0 for value in values):
            raise self.error(key, "no negative number", min(values))
        return values

    def numbers(self, key: str) -> dict[str, float]:
        """The numbers of an object by name; those that are null are left out."""
        inner = self.child(key)
        return {_printable(name): inner.number(name) for name in inner.raw if inner.has(name)}

    def child(self, key: str) -> Fields:
        return Fields(self._get(key), f"{self.where}, {key}")

    def children(self, key: str) -> list[Fields]:
        """The objects of a list, each with its place in it."""
        values = self._list(key)
        return [Fields(v, f"{self.where}, {key}[{i}]") for i, v in enumerate(values)]

    def error(self, key: str, expected: str, got: object) -> ReportError:
        return ReportError(f"{self.where}: {key!r} must be {expected}, got {_shown(got)}")

    def _get(self, key: str) -> object:
        if key not in self.raw:
            raise ReportError(f"{self.where}: there is no {key!r}")
        return self.raw[key]

    def _list(self, key: str) -> list[object]:
        value = self._get(key)
        if not isinstance(value, list):
            raise self.error(key, "a list", value)
        return value

    def _text(self, key: str, value: object) -> str:
        if not isinstance(value, str):
            raise self.error(key, "a text", value)
        return _printable(value)

    def _whole(self, key: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < LARGEST:
            raise self.error(key, "a whole number, 0 or more", value)
        return value

    def _number(self, key: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, "a number", value)
        if abs(value) >= LARGEST or not math.isfinite(value):
            raise self.error(key, "a finite number", value)
        return float(value)


def _printable(text: str) -> str:
    """The text without what could steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "..."
