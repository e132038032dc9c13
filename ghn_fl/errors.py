"""Everything that is said to a person who gave input we cannot use, in one tree.

GhnFlError                     this package's own
    ConfigError                a setting, an option or a file of settings
    RunError                   a run folder, or a run that cannot go on
    GHNError                   a hypernetwork, or what it was asked to generate
    DataError                  a data set that cannot be had or read, or shared out that way
    ReportError                a run folder that cannot be read, a report that cannot be made
    WriteError                 a file that cannot be written
graphs.GraphError              a model that cannot be traced, a graph that is none
zoo.SpecError                  a model that cannot be parsed, built, scaled or fitted
"""

from graphs.errors import GraphError
from zoo.errors import SpecError


class GhnFlError(ValueError):
    """Base of the package's errors for people: expected, got, where, what to do."""


class ConfigError(GhnFlError):
    """A setting that is unknown, of the wrong kind, or impossible."""


class RunError(GhnFlError):
    """A run folder that is damaged or in use, or a run that cannot go on."""


class GHNError(GhnFlError):
    """A hypernetwork that cannot be built, read, asked or taught that way."""


class DataError(GhnFlError):
    """A data set that cannot be had, a file that is none, or a partition that is impossible."""


class ReportError(GhnFlError):
    """A run folder that is none, is broken, or cannot be shown that way."""


class WriteError(GhnFlError):
    """A file that cannot be written: no such folder, no permission, a full disk."""


USER_ERRORS: tuple[type[Exception], ...] = (GhnFlError, GraphError, SpecError)
FAILURES = (RunError, WriteError)  # of them those that are nobody's wrong usage
