"""Check the size of a parquet file from its metadata before reading it."""

from typing import Any

from cutaway.core.errors import BadData, NoRoom

MAX_CELLS = 100_000_000
"""Largest number of cells in one file: as Python values they take about 10 GB."""
# Memory needed, relative to the uncompressed size in the metadata.
MEMORY_FACTOR = 4


def check_parquet_size(name: str, metadata: Any, free_memory: int) -> None:
    """Raise NoRoom for a file too large for memory: a few kilobytes can hold billions of cells.

    Raises BadData if the row groups don't add up to the number of rows. `metadata` is pyarrow's
    `FileMetaData`, `free_memory` is in bytes.
    """
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    total = sum(group.num_rows for group in groups)
    if total != metadata.num_rows or any(group.num_rows < 0 for group in groups):
        raise BadData(
            f"{name} is damaged: its header has {metadata.num_rows:,} rows, its row groups have "
            f"{total:,}. Write it again."
        )
    size = MEMORY_FACTOR * sum(group.total_byte_size for group in groups)
    if metadata.num_rows * metadata.num_columns > MAX_CELLS or size > free_memory:
        raise NoRoom(
            f"{name} has {metadata.num_rows:,} rows of {metadata.num_columns} columns, about "
            f"{size / 1e9:.1f} GB in memory. That is more than the free memory or than "
            f"{MAX_CELLS:,} cells. Keep only the columns you need, or split the file."
        )
