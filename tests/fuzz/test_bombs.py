"""Law: a small file that asks for much is refused before the memory is taken."""

import hashlib
import json
import re
import shutil
import struct
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cutaway.core.errors import CutawayError
from cutaway.data.load import load_text_set
from cutaway.methods.graft.skill import load_skill
from cutaway.models.load import open_model
from cutaway.store import files
from cutaway.store.artefacts import load_artefact
from cutaway.store.records import ROWS_FILE, Record
from tests.store.samples import keep
from tests.tiny import tiny

# What reading may take besides, in bytes and seconds: a refusal needs neither.
SPARE, SECONDS = 300 << 20, 20
HUGE = 1 << 60


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    return tiny("gpt2", tmp_path_factory.mktemp("sound") / "gpt2")


def refused(read: Callable[[], Any]) -> str:
    """What the refusal says; it cost no memory and no time to speak of."""
    before, start = psutil.Process().memory_info().rss, time.process_time()
    with pytest.raises(CutawayError) as caught:
        read()
    assert psutil.Process().memory_info().rss - before < SPARE
    assert time.process_time() - start < SECONDS
    return str(caught.value)


def repeated(path: Path, batches: int, rows: int = 1_000_000) -> Path:
    """A file of a few kilobytes that holds the same row some million times."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["word"]))
    batch = pa.record_batch([column], names=["text"])
    with pq.ParquetWriter(path, batch.schema, compression="zstd") as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return path


def test_a_table_that_unfolds_to_more_than_fits_is_refused_unread(tmp_path) -> None:
    path = repeated(tmp_path / "many.parquet", batches=101)
    assert path.stat().st_size < 4 << 20
    assert "101,000,000 rows" in refused(lambda: load_text_set(path))


def lying(path: Path, count: int) -> Path:
    """A table of 4 rows, one of its counts changed to two thousand millions: the last of the
    file's own (1) or that of its one part (3)."""
    pl.DataFrame({"text": ["a b", "c", "d e f", "g"]}).write_parquet(path)
    whole = path.read_bytes()
    # Thrift keeps a small whole number, doubled, in one byte behind its kind.
    four, many = b"\x16\x08", b"\x16\xfe\xff\xff\xff\x0f"
    place = [found.start() for found in re.finditer(re.escape(four), whole)][count]
    footer = struct.unpack("<I", whole[-8:-4])[0] + len(many) - len(four)
    head = whole[:place] + many + whole[place + len(four) : -8]
    path.write_bytes(head + struct.pack("<I", footer) + b"PAR1")
    return path


@pytest.mark.parametrize("count", [1, 3])
def test_a_table_whose_counts_of_rows_differ_is_refused_unread(count, tmp_path) -> None:
    assert "2,147,483,647" in refused(
        lambda: load_text_set(lying(tmp_path / "lying.parquet", count))
    )


def sent(path: Path, whole: bytes) -> Record:
    """A run with this table, under a right checksum."""
    record = keep(path)
    (record.path / ROWS_FILE).write_bytes(whole)
    seal = {"sha256": hashlib.sha256(whole).hexdigest(), "bytes": len(whole)}
    return replace(record, files={**record.files, ROWS_FILE: seal})


@pytest.mark.parametrize("count", [1, 3])
def test_a_run_whose_table_lies_about_its_rows_is_refused(count, tmp_path) -> None:
    record = sent(tmp_path / "runs", lying(tmp_path / "lying.parquet", count).read_bytes())
    assert "2,147,483,647" in refused(lambda: record.rows)


def test_a_run_whose_table_unfolds_to_more_than_fits_is_refused(tmp_path) -> None:
    whole = repeated(tmp_path / "many.parquet", batches=101).read_bytes()
    assert "101,000,000 rows" in refused(lambda: sent(tmp_path / "runs", whole).rows)


def test_a_text_that_unfolds_to_more_than_fits_is_refused_unread(tmp_path, monkeypatch) -> None:
    path = tmp_path / "long.parquet"
    table = pa.table({"text": ["x" * (64 << 20)]})
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 1 << 20
    room = type("Room", (), {"available": 128 << 20})
    monkeypatch.setattr("cutaway.data.files.virtual_memory", lambda: room)
    assert "has 1 rows" in refused(lambda: load_text_set(path))


@pytest.mark.parametrize("change", [
    {"n_layer": 1_000_000}, {"n_embd": 1 << 18}, {"vocab_size": 1 << 40}, {"n_inner": 1 << 40},
    {"n_positions": 1 << 40},
], ids=lambda change: next(iter(change)))  # fmt: skip
def test_a_config_that_asks_for_more_than_its_files_hold_is_refused(sound, tmp_path, change):
    folder = Path(shutil.copytree(sound, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    assert "The config belongs to another model" in refused(lambda: open_model(str(folder)))


HEADERS: dict[str, tuple[Any, int | None]] = {
    "a header longer than the file": ({}, HUGE),
    "a tensor longer than the file": (
        {"w": {"dtype": "F32", "shape": [1 << 40, 1 << 20], "data_offsets": [0, 1 << 62]}}, None),
    "a shape that overflows": (
        {"w": {"dtype": "F32", "shape": [1 << 32, 1 << 32], "data_offsets": [0, 0]}}, None),
    "two tensors in one place": (
        {name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in "ab"}, None),
    "nothing but names": (
        {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(9)}, None),
}  # fmt: skip


def header(path: Path, entries: Any, length: int | None) -> Path:
    text = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", length or len(text)) + text + bytes(4))
    return path


@pytest.mark.parametrize("name", HEADERS)
def test_weights_with_a_lying_header_are_refused(name, sound, tmp_path) -> None:
    folder = Path(shutil.copytree(sound, tmp_path / "model"))
    header(folder / "model.safetensors", *HEADERS[name])
    refused(lambda: open_model(str(folder)))


@pytest.mark.parametrize("read", [load_artefact, load_skill], ids=["artefact", "skill"])
@pytest.mark.parametrize("name", [n for n in HEADERS if n != "nothing but names"])
def test_artefacts_with_a_lying_header_are_refused_even_when_sealed(name, read, tmp_path) -> None:
    path = header(tmp_path / "x.safetensors", *HEADERS[name])
    seal = {"sha256": files.sha256_file(path), "bytes": path.stat().st_size}
    files.write_sealed(path.with_suffix(".json"), {"meta": {"method": "graft"}, **seal})
    refused(lambda: read(path))


def test_an_index_cannot_lead_out_of_its_folder(sound, tmp_path) -> None:
    folder = Path(shutil.copytree(sound, tmp_path / "model"))
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"transformer.wte.weight": "../../sound/gpt2/model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "must be in the same folder" in refused(lambda: open_model(str(folder)))


@pytest.mark.parametrize(
    "counts",
    [(HUGE, HUGE), (1, 0), (0, 1)],
    ids=["both", "tensors", "metadata"],
)
def test_a_gguf_file_that_announces_much_is_refused_by_its_header(counts, tmp_path) -> None:
    path = tmp_path / "model.gguf"
    announced = b"GGUF" + struct.pack("<IQQ", 3, *counts) + struct.pack("<Q", HUGE)
    path.write_bytes(announced + bytes(64))
    assert "not a complete GGUF file" in refused(lambda: open_model(str(path)))
    assert "not a complete GGUF file" in refused(lambda: open_model(str(tmp_path)))


def test_archives_are_not_unpacked(sound, tmp_path) -> None:
    folder = Path(shutil.copytree(sound, tmp_path / "model"))
    (folder / "model.safetensors").unlink()
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", bytes(64 << 20))
    assert "pickle" in refused(lambda: open_model(str(folder)))
    shutil.move(folder / "pytorch_model.bin", tmp_path / "data.zip")
    assert "Known endings" in refused(lambda: load_text_set(tmp_path / "data.zip"))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_json_nested_without_end_is_refused(name, sound, tmp_path) -> None:
    folder = Path(shutil.copytree(sound, tmp_path / "model"))
    (folder / name).write_text("[" * 200_000)
    refused(lambda: open_model(str(folder)))
