"""Activation tables."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.errors import Corrupt, Mismatch, Missing, UnknownName
from cutaway.store.activations import load_activations, open_activations
from cutaway.store.home import cache_folder
from tests.store.samples import DISK

KEY = {"model": "gpt2", "weights": "ab12", "rows": "cd34"}
FLOATS = ["float32", "float16", "bfloat16", "float64"]


def _values(rows: int, dtype: str = "float32", *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, *(shape or (3,)), generator=generator).to(getattr(torch, dtype))


@pytest.fixture
def table(tmp_path):
    return open_activations(KEY, 10, tmp_path)


def _fill(table, *names, rows=None, **options):
    numbers = np.arange(table.rows) if rows is None else np.asarray(rows)
    with table.writer(**options) as writer:
        writer.append(numbers, {name: _values(table.rows)[numbers] for name in names})


@st.composite
def batches(draw):
    """Row numbers in any order, cut anywhere, some of them twice."""
    rows = draw(st.integers(1, 12))
    order = draw(st.permutations(range(rows))) + draw(st.lists(st.integers(0, rows - 1)))
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), max_size=4)))
    return rows, [order[a:b] for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True)]


@DISK
@given(batches(), st.sampled_from(FLOATS), st.sampled_from([1, 50, 1 << 20]), st.data())
def test_rows_are_restored_in_order_and_to_the_bit(tmp_path_factory, cut, dtype, shard_bytes, data):
    rows, parts = cut
    values = _values(rows, dtype)
    table = open_activations(KEY, rows, tmp_path_factory.mktemp("table"))
    with table.writer(shard_bytes) as writer:
        for part in parts:
            writer.append(part, {"7/last": values[part], "8/last": 2 * values[part]})
    assert torch.equal(table.read("7/last", dtype=None), values)
    assert torch.equal(table.read("8/last"), (2 * values).float())
    some = data.draw(st.lists(st.integers(0, rows - 1)))
    assert torch.equal(table.read("7/last", some, dtype=None), values[some])
    seen = [
        (r, v)
        for numbers, block in table.mapped("7/last")
        for r, v in zip(numbers, block, strict=True)
    ]
    assert sorted(int(r) for r, _ in seen) == list(range(rows))
    assert all(torch.equal(v, values[r]) for r, v in seen)


@DISK
@given(batches(), st.sampled_from(FLOATS), st.sampled_from([1, 50, 1 << 20]), st.data())
def test_ragged_rows_come_back_in_order_and_to_the_bit(
    tmp_path_factory, cut, dtype, shard_bytes, data
):
    rows, parts = cut
    texts = [_values(data.draw(st.integers(0, 3)), dtype) + i for i in range(rows)]
    table = open_activations(KEY, rows, tmp_path_factory.mktemp("table"))
    with table.writer(shard_bytes) as writer:
        for part in parts:
            if part:
                block = torch.cat([texts[row] for row in part])
                writer.append_ragged(part, [len(texts[row]) for row in part], {"7/all": block})
    wanted = data.draw(st.lists(st.integers(0, rows - 1))) or list(range(rows))
    read, offsets = table.read_ragged("7/all", wanted, dtype=None)
    for place, row in enumerate(wanted):
        assert torch.equal(read[offsets[place] : offsets[place + 1]], texts[row])
    assert len(offsets) == len(wanted) + 1
    for numbers, lengths, block in table.mapped_ragged("7/all"):
        pieces = torch.split(block, lengths.tolist())
        for row, piece in zip(numbers, pieces, strict=True):
            assert torch.equal(piece, texts[row])


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_a_row_may_be_a_number_or_a_table(table, shape):
    values = torch.rand(10, *shape)
    with table.writer() as writer:
        writer.append(range(10), {"x": values})
    assert torch.equal(table.read("x"), values)
    assert table.columns()["x"].shape == shape


def test_whole_numbers_stay_whole(table):
    with table.writer() as writer:
        writer.append(range(10), {"id": torch.arange(10) + 2**53 + 1})
    assert table.read("id").tolist() == [2**53 + 1 + i for i in range(10)]


@pytest.mark.parametrize("dtype", ["float16", torch.float16])
def test_the_type_is_the_one_asked_for(table, dtype):
    _fill(table, "x")
    assert table.read("x", dtype=dtype).dtype == torch.float16


def test_an_unknown_type_gets_a_suggestion(table):
    _fill(table, "x")
    with pytest.raises(UnknownName, match="float32"):
        table.read("x", dtype="flaot32")


def test_a_table_is_known_by_its_key_alone(tmp_path):
    key = {"model": "gpt2", "layers": (1, 2), "n": np.int64(3)}
    same = {"n": 3, "layers": [1, 2], "model": "gpt2"}
    assert open_activations(key, 10, tmp_path).folder == open_activations(same, 10, tmp_path).folder
    assert (
        open_activations({**key, "n": 4}, 10, tmp_path).folder
        != open_activations(key, 10, tmp_path).folder
    )


def test_tables_stand_in_the_home_by_default():
    assert open_activations(KEY, 10).folder.parent == cache_folder() / "activations"


def test_opening_and_asking_write_nothing(tmp_path, table):
    assert table.columns() == {}
    assert table.covered(["x"]).tolist() == [False] * 10
    assert table.covered([]).all()
    assert list(tmp_path.iterdir()) == []


def test_the_manifest_holds_the_whole_key(table):
    _fill(table, "x")
    content = json.loads((table.folder / "manifest.json").read_text())
    assert content == {"format": 1, "rows": 10, "key": KEY}
    again = load_activations(table.folder)
    assert (again.key, again.rows) == (KEY, 10)
    assert torch.equal(again.read("x"), table.read("x"))


def test_a_lost_or_damaged_manifest_is_written_again(table):
    _fill(table, "x", rows=[0, 1])
    for spoil in ("", '{"format": 1, "rows": 10, "key": {}}', "[]"):
        (table.folder / "manifest.json").write_text(spoil)
        with pytest.raises(Corrupt, match=r"manifest\.json"):
            load_activations(table.folder)
        _fill(open_activations(KEY, 10, table.folder.parent), "x", rows=[2])
        assert load_activations(table.folder).rows == 10
    assert table.covered(["x"]).sum() == 3


def test_another_number_of_rows_or_another_format_is_a_mismatch(table):
    _fill(table, "x")
    with pytest.raises(Mismatch, match="10 rows, expected 11"):
        open_activations(KEY, 11, table.folder.parent)
    path = table.folder / "manifest.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(Mismatch, match="format 2"):
        open_activations(KEY, 10, table.folder.parent)


def test_a_column_is_complete_when_all_its_rows_are_there(table):
    _fill(table, "a", "b", rows=range(6))
    _fill(table, "a", rows=range(4, 10))
    assert list(table.columns()) == ["a"]
    assert table.covered(["a"]).all()
    assert table.covered(["a", "b"]).tolist() == [True] * 6 + [False] * 4
    assert not table.covered(["a", "c"]).any()
    assert len(table.read("b", range(6))) == 6
    with pytest.raises(Missing, match="lacks 4 of 10 rows"):
        table.read("b")


def test_an_unknown_column_gets_a_suggestion(table):
    _fill(table, "7/last", "7/mean")
    with pytest.raises(Missing, match=r"Did you mean '7/last'\?"):
        table.read("7/lasst")


@pytest.mark.parametrize("rows", [[10], [-1], [0, 99]])
def test_a_row_beyond_the_table_is_refused(table, rows):
    _fill(table, "x")
    with pytest.raises(Mismatch, match=r"not in 0\.\.9"):
        table.read("x", rows)
    with pytest.raises(Mismatch, match=r"not in 0\.\.9"), table.writer() as writer:
        writer.append(rows, {"x": torch.rand(len(rows), 3)})


def test_dense_and_ragged_are_not_mixed_up(table):
    _fill(table, "dense")
    with table.writer() as writer:
        writer.append_ragged(range(10), [1] * 10, {"ragged": torch.rand(10, 3)})
    with pytest.raises(Mismatch, match="use read_ragged"):
        table.read("ragged")
    with pytest.raises(Mismatch, match="use read or"):
        table.read_ragged("dense")
    assert table.columns()["ragged"].ragged


def test_a_column_in_several_forms_is_a_mismatch(table):
    _fill(table, "x")
    with table.writer() as writer:
        writer.append([0], {"x": torch.rand(1, 7)})
    with pytest.raises(Mismatch, match="several types or shapes"):
        table.read("x")


def test_rows_written_twice_count_once(table):
    _fill(table, "x")
    _fill(table, "x")
    assert sum(len(numbers) for numbers, _ in table.mapped("x")) == 10


def test_a_shard_with_rows_of_a_longer_table_is_corrupt(tmp_path, table):
    _fill(table, "x")
    short = open_activations({**KEY, "short": True}, 3, tmp_path)
    _fill(short, "y")
    for path in table.folder.glob("shard-*"):
        path.rename(short.folder / path.name)
    with pytest.raises(Corrupt, match="beyond"):
        short.read("x")


def test_no_torch_is_loaded_before_it_is_needed():
    modules = "activations, cache, results, artefacts, files, home, query"
    code = f"from cutaway.store import {modules}; import sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_reading_one_column_reads_only_its_bytes(table):
    """Every other byte of the file is spoiled, and nobody notices."""
    with table.writer() as writer:
        writer.append(range(10), {f"{i}/last": _values(10) + i for i in range(50)})
    (path,) = table.folder.glob("*.safetensors")
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    places = json.loads(data[8:start])
    keep = [places[name]["data_offsets"] for name in ("rows", "column/7/last")]
    spoiled = bytearray(data[:start] + b"\xee" * (len(data) - start))
    for a, b in keep:
        spoiled[start + a : start + b] = data[start + a : start + b]
    path.write_bytes(spoiled)
    assert torch.equal(table.read("7/last"), _values(10) + 7)
    with pytest.raises(Corrupt):
        table.read("8/last")


def test_a_shard_dropped_while_it_is_looked_at_was_never_there(table, monkeypatch):
    _fill(table, "a")
    found = table._shards()
    for shard in found:
        shard.drop()
    monkeypatch.setattr(type(table), "_shards", lambda self: found)
    assert not table.covered(["a"]).any()


def test_a_shard_that_lost_its_file_alone_is_still_corrupt(table):
    _fill(table, "a")
    for shard in table._shards():
        shard.path.unlink()
    with pytest.raises(Corrupt, match="is missing"):
        table.covered(["a"])
