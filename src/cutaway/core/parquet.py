"""What a parquet file says of itself, looked at before room is made for it."""

from typing import Any

from cutaway.core.errors import BadData, NoRoom

MAX_CELLS = 100_000_000
"""Cells of one file: as Python values they take some ten gigabytes."""
# Of memory over what the file says its values take when they are unfolded.
MEMORY_FACTOR = 4


def check_parquet_size(name: str, facts: Any, room: int) -> None:
    """NoRoom for a file that would unfold to more than there is room for; a few kilobytes can.

    BadData when its parts add up to another number of rows than it has: room is made for theirs.
    `facts` is pyarrow's `FileMetaData`, `room` the bytes of free memory.
    """
    groups = [facts.row_group(i) for i in range(facts.num_row_groups)]
    told = sum(group.num_rows for group in groups)
    if told != facts.num_rows or any(group.num_rows < 0 for group in groups):
        raise BadData(
            f"{name} is damaged: it says that it has {facts.num_rows:,} rows, and its parts "
            f"say {told:,}. Write it again."
        )
    size = MEMORY_FACTOR * sum(group.total_byte_size for group in groups)
    if facts.num_rows * facts.num_columns > MAX_CELLS or size > room:
        raise NoRoom(
            f"{name} unfolds to {facts.num_rows:,} rows of {facts.num_columns} columns, about "
            f"{size / 1e9:.1f} GB in memory: more than fits, or than {MAX_CELLS:,} cells. Keep "
            "the columns that are needed, and cut the file into several."
        )
