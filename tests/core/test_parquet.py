"""Parquet files are checked from their metadata before they are read."""

from types import SimpleNamespace

import pytest

from cutaway.core.errors import BadData, NoRoom
from cutaway.core.parquet import MAX_CELLS, MEMORY_FACTOR, check_parquet_size


def metadata(*groups: tuple[int, int], rows: int | None = None, columns: int = 2):
    """Metadata as pyarrow has it; each group is (rows, bytes)."""
    made = [SimpleNamespace(num_rows=n, total_byte_size=size) for n, size in groups]
    total = sum(n for n, _ in groups) if rows is None else rows
    return SimpleNamespace(
        num_rows=total, num_columns=columns, num_row_groups=len(made), row_group=made.__getitem__
    )


def test_a_file_that_fits_is_accepted() -> None:
    check_parquet_size("x", metadata((3, 10), (2, 10)), MEMORY_FACTOR * 20)


def test_one_byte_less_of_memory_is_too_little() -> None:
    with pytest.raises(NoRoom, match="x has 5 rows of 2 columns"):
        check_parquet_size("x", metadata((3, 10), (2, 10)), MEMORY_FACTOR * 20 - 1)


def test_the_number_of_cells_is_limited_whatever_the_memory() -> None:
    check_parquet_size("x", metadata((MAX_CELLS, 1), columns=1), 10**12)
    with pytest.raises(NoRoom):
        check_parquet_size("x", metadata((MAX_CELLS + 1, 1), columns=1), 10**12)


@pytest.mark.parametrize(
    "damaged", [metadata((3, 10), rows=4), metadata((-1, 10), (1, 10)), metadata(rows=1)]
)
def test_row_groups_that_contradict_the_header_are_refused(damaged) -> None:
    with pytest.raises(BadData, match="damaged"):
        check_parquet_size("x", damaged, 10**12)


def test_metadata_of_a_real_file_is_understood(tmp_path) -> None:
    import polars as pl
    import pyarrow.parquet

    pl.DataFrame({"a": [1, 2, 3]}).write_parquet(tmp_path / "x.parquet")
    check_parquet_size("x", pyarrow.parquet.read_metadata(tmp_path / "x.parquet"), 10**9)
