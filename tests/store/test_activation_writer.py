"""Tests of the writer."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from cutaway.core.errors import Mismatch, NoRoom
from cutaway.store import activation_writer, files
from cutaway.store.activations import open_activations


@pytest.fixture
def table(tmp_path):
    return open_activations({"model": "gpt2"}, 100, tmp_path)


def _shards(table):
    return sorted(table.folder.glob("shard-*.safetensors"))


def test_a_shard_is_written_whenever_the_buffer_is_full(table):
    with table.writer(shard_bytes=400) as kept:
        for row in range(10):
            kept.append([row], {"x": torch.rand(1, 25)})
            assert len(_shards(table)) == (row + 1) // 4
    assert len(_shards(table)) == 3
    assert table.covered(["x"]).sum() == 10


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_what_was_appended_is_kept_when_the_pass_is_interrupted(table, error):
    with pytest.raises(error), table.writer() as kept:
        kept.append([0, 1], {"x": torch.rand(2, 3)})
        raise error
    assert table.covered(["x"]).sum() == 2


def test_a_full_disk_on_the_way_out_does_not_hide_the_first_error(table, monkeypatch):
    def full(*_args):
        raise NoRoom("full")

    monkeypatch.setattr(files, "check_free_space", full)
    with pytest.raises(ValueError, match="first") as caught, table.writer() as kept:
        kept.append([0], {"x": torch.rand(1, 3)})
        raise ValueError("first")
    assert "full" in caught.value.__notes__[0]
    with pytest.raises(NoRoom), table.writer() as kept:
        kept.append([0], {"x": torch.rand(1, 3)})


def test_rows_that_could_not_be_written_are_tried_again(table, monkeypatch):
    kept = table.writer()
    kept.append([0], {"x": torch.rand(1, 3)})
    with monkeypatch.context() as broken:
        broken.setattr(
            activation_writer, "write_shard", lambda *_: (_ for _ in ()).throw(NoRoom("full"))
        )
        with pytest.raises(NoRoom):
            kept.flush()
    kept.flush()
    assert table.covered(["x"]).sum() == 1


def test_columns_that_come_apart_are_kept_apart(table):
    with table.writer() as kept:
        kept.append([0, 1], {"a": torch.rand(2, 3), "b": torch.rand(2, 3)})
        kept.append([2], {"a": torch.rand(1, 3)})
        kept.append_ragged([0], [2], {"a/all": torch.rand(2, 3)})
    assert len(_shards(table)) == 3
    assert table.covered(["a"]).sum() == 3
    assert table.covered(["b"]).sum() == 2


def test_a_buffer_the_caller_uses_again_changes_nothing(table):
    batch = torch.ones(2, 3)
    with table.writer() as kept:
        kept.append([0, 1], {"x": batch})
        batch.zero_()
    assert table.read("x", [0, 1]).sum() == 6


def test_gradients_and_strides_are_left_behind(table):
    values = torch.rand(3, 2, requires_grad=True).T
    with table.writer() as kept:
        kept.append([0, 1], {"x": values})
    assert torch.equal(table.read("x", [0, 1]), values.detach())


@pytest.mark.parametrize("rows", [[], np.array([], dtype=int)])
def test_nothing_appended_is_nothing_written(table, rows):
    with table.writer() as kept:
        kept.append(rows, {"x": torch.rand(0, 3)})
        kept.append([1], {})
    assert _shards(table) == []


@pytest.mark.parametrize(
    ("rows", "block"),
    [
        ([0, 1], torch.rand(3, 2)),
        ([0], torch.tensor(1.0)),
        ([0.5], torch.rand(1, 2)),
        ([[0, 1]], torch.rand(2, 2)),
        (["a"], torch.rand(1, 2)),
        ([100], torch.rand(1, 2)),
    ],
)
def test_rows_and_values_that_do_not_fit_are_refused_and_not_kept(table, rows, block):
    with pytest.raises(Mismatch), table.writer() as kept:
        kept.append([7], {"x": torch.rand(1, 2)})
        kept.append(rows, {"x": block})
    assert np.flatnonzero(table.covered(["x"])).tolist() == [7]


@pytest.mark.parametrize("lengths", [[1], [1, 2, 3], [-1, 4], [2, 2]])
def test_lengths_that_do_not_fit_are_refused(table, lengths):
    with pytest.raises(Mismatch), table.writer() as kept:
        kept.append_ragged([0, 1], lengths, {"x": torch.rand(3, 2)})
    assert _shards(table) == []


def test_another_form_of_a_column_is_refused_at_once(table):
    with pytest.raises(Mismatch, match="several types or shapes"), table.writer() as kept:
        kept.append([0], {"x": torch.rand(1, 2)})
        kept.append([1], {"x": torch.rand(1, 3)})
    assert table.covered(["x"]).sum() == 1


_MUCH = """
import resource, sys, numpy as np, torch
from pathlib import Path
from cutaway.store.activations import open_activations

table, block = open_activations({"m": 1}, 6400, Path(sys.argv[1])), torch.ones(100, 2560)
with table.writer(4 << 20) as writer:
    writer.append(range(100), {"x": block})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with table.writer(4 << 20) as writer:
    for start in range(0, 6400, 100):
        writer.append(np.arange(start, start + 100), {"x": block})
assert sum(float(values.sum()) for _, values in table.mapped("x")) == 6400 * 2560
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_writing_and_streaming_much_takes_the_memory_of_one_shard(tmp_path):
    """64 MB through shards of 4 MB; the unit of ru_maxrss only makes it stricter on macOS."""
    command = [sys.executable, "-c", _MUCH, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20
