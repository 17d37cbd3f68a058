"""Every error Cutaway raises on purpose.

    CutawayError
    ├── RequestError      the request is wrong; exit status 2
    │   ├── UnknownName   a name that is in no table (did you mean ...?)
    │   ├── BadSpec       an option with a value that can't be
    │   ├── BadData       a file, a column, a label that can't be used
    │   ├── BadModel      a checkpoint that can't be opened or isn't safe to open
    │   ├── Missing       something needed isn't here; the message says how to get it
    │   ├── Mismatch      two things that don't belong together (another model's file, other rows)
    │   └── NoRoom        the disk or the memory can't hold what was asked for
    └── RunError          the request was fine, the run failed; exit status 1
        ├── Corrupt       a stored file fails its checksum or is cut short
        └── CheckFailed   the model fails a law it must hold at the door

One template for messages: subject, value with `!r`, the allowed set or bound, the step that
mends it.
"""


class CutawayError(Exception):
    """The root: catch this to catch everything Cutaway raises on purpose."""

    exit_status = 1


class RequestError(CutawayError):
    """The request is wrong, and its message says how to mend it."""

    exit_status = 2


class UnknownName(RequestError):
    """A name that is in no table."""


class BadSpec(RequestError):
    """An option with a value that can't be."""


class BadData(RequestError):
    """A file, a column or a label that can't be used."""


class BadModel(RequestError):
    """A checkpoint that can't be opened, or isn't safe to open."""


class Missing(RequestError):
    """Something needed isn't here; the message says how to get it."""


class Mismatch(RequestError):
    """Two things that don't belong together."""


class NoRoom(RequestError):
    """The disk or the memory can't hold what was asked for."""


class RunError(CutawayError):
    """The request was fine, the run failed."""


class Corrupt(RunError):
    """A stored file fails its checksum or is cut short."""


class CheckFailed(RunError):
    """The model fails a law it must hold at the door."""
