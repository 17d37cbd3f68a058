"""Every error Cutaway raises on purpose.

    CutawayError
    ├── RequestError      the request is wrong; exit status 2
    │   ├── UnknownName   a name that is in no table (did you mean ...?)
    │   ├── BadSpec       an option with an invalid value
    │   ├── BadData       a file, column or label that can't be used
    │   ├── BadModel      a checkpoint that can't be opened or isn't safe to open
    │   ├── Missing       a required file or package; the message says how to get it
    │   ├── Mismatch      two things that don't belong together (another model's file, other rows)
    │   └── NoRoom        not enough disk space or memory for the request
    └── RunError          the request was valid, the run failed; exit status 1
        ├── Corrupt       a stored file is truncated or fails its checksum
        └── CheckFailed   the model fails a consistency check

Every message names the subject, the value (with `!r`), what is allowed, and how to fix it.
"""


class CutawayError(Exception):
    """Base class of every error that Cutaway raises on purpose."""

    exit_status = 1


class RequestError(CutawayError):
    """The request is wrong; the message says how to fix it."""

    exit_status = 2


class UnknownName(RequestError):
    """A name that is in no table."""


class BadSpec(RequestError):
    """An option with an invalid value."""


class BadData(RequestError):
    """A file, column or label that can't be used."""


class BadModel(RequestError):
    """A checkpoint that can't be opened, or isn't safe to open."""


class Missing(RequestError):
    """A required file or package is missing; the message says how to get it."""


class Mismatch(RequestError):
    """Two things that don't belong together."""


class NoRoom(RequestError):
    """Not enough disk space or memory for the request."""


class RunError(CutawayError):
    """The request was valid, the run failed."""


class Corrupt(RunError):
    """A stored file is truncated or fails its checksum."""


class CheckFailed(RunError):
    """The model fails a consistency check."""
