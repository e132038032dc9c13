"""The one registry type: a name for every model family, method and data set."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from zoo.errors import SpecError

T = TypeVar("T")
MOST = 40  # names that a sentence lists


class Registry(Generic[T]):
    """Named entries of one kind; refuses duplicates, and an unknown name gets the close ones.

    >>> colours: Registry[int] = Registry("colour")
    >>> colours.register("red", 1)
    1
    >>> colours.names()
    ('red',)
    >>> colours["reed"]
    Traceback (most recent call last):
    zoo.errors.SpecError: unknown colour 'reed'; did you mean 'red'?
    """

    def __init__(self, kind: str, error: Callable[[str], Exception] = SpecError) -> None:
        self._kind = kind
        self._error = error
        self._entries: dict[str, T] = {}

    def register(self, name: str, entry: T) -> T:
        if name in self._entries:
            raise self._error(f"{self._kind} {name!r} is registered twice")
        self._entries[name] = entry
        return entry

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._entries))

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise self._error(unknown(self._kind, name, self.names()))
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())


def unknown(kind: str, name: str, known: tuple[str, ...]) -> str:
    """The sentence for a name that is not among `known`: it names the close ones, or all.

    >>> unknown("number", "x", tuple(map(str, range(10, 1000))))[:55]
    "unknown number 'x'; known: 10, 11, 12, 13, 14, 15, 16, "
    """
    close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    if close:
        return f"unknown {kind} {name!r}; did you mean {' or '.join(repr(c) for c in close)}?"
    more = f" and {len(known) - MOST} more" if len(known) > MOST else ""
    return f"unknown {kind} {name!r}; known: {', '.join(known[:MOST])}{more}"
