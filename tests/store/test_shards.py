"""Tests of one shard."""

import json
import os

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from cutaway.core.errors import Corrupt
from cutaway.store import files
from cutaway.store.shards import (
    ColumnInfo,
    find_shards,
    orphan_shards,
    read_shard,
    sidecar_path,
    write_shard,
)

VALUES = {"7/last": torch.arange(12.0).reshape(4, 3), "rows": torch.ones(4, 2).half()}
ROWS = np.array([5, 3, 9, 0])


@pytest.fixture
def path(tmp_path):
    columns = {name: [value[:1], value[1:]] for name, value in VALUES.items()}
    return write_shard(tmp_path, [ROWS[:1], ROWS[1:]], columns)


def _only(folder):
    (shard,) = find_shards(folder)
    return shard


def test_a_shard_comes_back_as_it_was_written(tmp_path, path):
    shard = _only(tmp_path)
    assert shard.path == path
    assert shard.rows.tolist() == ROWS.tolist()
    assert shard.columns["7/last"] == ColumnInfo("7/last", "float32", (3,), False)
    for name, value in VALUES.items():
        assert torch.equal(shard.block(name), value)


def test_a_column_may_have_any_name_even_that_of_the_rows(tmp_path):
    names = ["rows", "lengths", "__metadata__", "column/", "", "ü/\n", "a" * 300]
    write_shard(tmp_path, [np.arange(2)], {name: [torch.rand(2, 1)] for name in names})
    assert set(_only(tmp_path).columns) == set(names)
    assert _only(tmp_path).block("__metadata__").shape == (2, 1)


def test_any_safetensors_reader_can_read_it(path):
    read = load_file(path)
    assert torch.equal(read["column/7/last"], VALUES["7/last"])
    assert read["rows"].tolist() == ROWS.tolist()


def test_without_its_sidecar_a_shard_does_not_exist(tmp_path, path):
    sidecar_path(path).unlink()
    assert find_shards(tmp_path) == []
    assert orphan_shards(tmp_path) == []
    os.utime(path, (0, 0))
    assert orphan_shards(tmp_path) == [path]


def test_a_folder_that_is_not_there_has_no_shards(tmp_path):
    assert find_shards(tmp_path / "nowhere") == []
    assert read_shard(tmp_path / "shard-1.json") is None


def _flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)


def test_one_flipped_bit_is_found_in_its_column_and_nowhere_else(tmp_path, path):
    _flip(path, -1)
    shard = _only(tmp_path)
    with pytest.raises(Corrupt, match=rf"{path.name}.*'column/rows'"):
        shard.block("rows")
    assert torch.equal(shard.block("7/last"), VALUES["7/last"])
    with pytest.raises(Corrupt):
        shard.check()


def test_a_bit_flipped_after_the_first_read_is_found_too(tmp_path, path):
    assert _only(tmp_path).block("rows").shape == (4, 2)
    os.utime(path, ns=(0, 0))
    _flip(path, -1)
    with pytest.raises(Corrupt, match=path.name):
        _only(tmp_path).block("rows")


def test_every_byte_of_a_shard_counts(tmp_path, path):
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    missed = []
    for place in range(len(whole)):
        _flip(path, place)
        try:
            _only(tmp_path).check()
            missed.append(place)
        except Corrupt as error:
            assert path.name in str(error)
        path.write_bytes(whole)
    # Blanks that fill up the header say nothing, so a changed one may pass.
    padding = len(whole[:header]) - len(whole[:header].rstrip(b" "))
    assert len(missed) <= padding


@pytest.mark.parametrize("size", [0, 7, 100, -1])
def test_a_truncated_shard_is_named(tmp_path, path, size):
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(Corrupt, match=rf"{path.name}.*verify --repair"):
        _only(tmp_path).block("7/last")


def test_a_lost_file_is_named(tmp_path, path):
    path.unlink()
    with pytest.raises(Corrupt, match=path.name):
        _only(tmp_path).block("7/last")


@pytest.mark.parametrize("content", ["", "{}", '{"bytes": 3}', "[]"])
def test_a_damaged_sidecar_is_named(tmp_path, path, content):
    sidecar_path(path).write_text(content)
    with pytest.raises(Corrupt, match=sidecar_path(path).name):
        find_shards(tmp_path)


def test_a_sealed_sidecar_without_its_fields_is_corrupt(tmp_path, path):
    files.write_sealed(sidecar_path(path), {"bytes": 3})
    with pytest.raises(Corrupt, match="ragged"):
        find_shards(tmp_path)


def test_a_sidecar_that_names_another_column_is_corrupt(tmp_path, path):
    text = sidecar_path(path).read_text().replace("7/last", "8/last")
    sidecar_path(path).write_text(text)
    with pytest.raises(Corrupt):
        find_shards(tmp_path)
    assert json.loads(text)


def test_a_dropped_shard_leaves_nothing(tmp_path, path):
    _only(tmp_path).drop()
    assert list(tmp_path.iterdir()) == []
