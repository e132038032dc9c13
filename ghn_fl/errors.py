"""Everything that is said to a person who gave input we cannot use, in one tree.

GhnFlError                     this package's own
zoo.SpecError                  a model that cannot be parsed, built, scaled or fitted
"""

from zoo.errors import SpecError


class GhnFlError(ValueError):
    """Base of the package's errors for people: expected, got, where, what to do."""


USER_ERRORS: tuple[type[Exception], ...] = (GhnFlError, SpecError)
