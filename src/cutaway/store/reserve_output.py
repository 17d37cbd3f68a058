"""Keep two runs from writing to the same place at the same time."""

import glob
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cutaway.core.errors import BadSpec
from cutaway.store import files
from cutaway.store.process_suffix import DAY, FOREVER, is_abandoned, owner_token


@contextmanager
def reserve_output(out: str | None, address: str) -> Iterator[None]:
    """Within the block no other run may write to `out`; BadSpec if one is doing so.

    The reservation is a file beside it that names the run and its process; it is void when the
    process ends.
    """
    if out is None:
        yield
        return
    path = Path(out).absolute()
    start = f".{path.name}.writing-"
    marker = path.with_name(f"{start}{address}-{owner_token()}")
    with files.disk_errors(path):
        files.make_folder(path.parent)
        marker.touch()
    try:
        for other in path.parent.glob(f"{glob.escape(start)}*"):
            if is_abandoned(other, here=FOREVER, elsewhere=DAY):
                files.discard(other)
            elif not other.name.startswith(start + address) and _is_older(other, marker):
                raise BadSpec(
                    f"Another run, {other.name.removeprefix(start).split('-')[0]}, is writing to "
                    f"out {out!r}. Wait until it ends, or choose another name."
                )
        yield
    finally:
        files.discard(marker)


def _is_older(one: Path, other: Path) -> bool:
    """Whether one file was made before the other; of two that start together one goes on."""
    with suppress(FileNotFoundError):
        return (one.stat().st_mtime_ns, one.name) < (other.stat().st_mtime_ns, other.name)
    return False
