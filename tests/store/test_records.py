"""Tests of one finished run."""

import json

import pytest
import torch

from cutaway.core.errors import BadSpec, Corrupt, Missing, UnknownName
from cutaway.store.artefacts import save_artefact
from cutaway.store.records import (
    RESULT_FIELDS,
    join_names,
    read_if_intact,
    read_record,
    run_file_path,
    run_folder,
)
from tests.store.samples import ADDRESS, fields, keep, rows

ESCAPES = ["", ".", "..", "../x", "../../x", "/etc", "a/b", "a\\b", "a\0b", "x" * 200, "~", "-rf",
           "x.tmp-1", "x.partial", "a b", "\n", "é"]  # fmt: skip


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("part", ["method", "address"])
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path, name, part):
    with pytest.raises(BadSpec, match=part):
        run_folder(tmp_path, **{"method": "probe", "address": "a", part: name})


@pytest.mark.parametrize("name", ["", ".", "../x", "a/../../x", "/etc/passwd", "a//../b", "a\\b"])
def test_a_file_name_that_could_lead_elsewhere_is_refused(name):
    with pytest.raises(BadSpec, match="can't name a file"):
        run_file_path(name)


def test_a_record_says_what_was_saved(tmp_path):
    keep(tmp_path)
    record = read_record(tmp_path / "probe" / ADDRESS)
    assert {name: getattr(record, name) for name in RESULT_FIELDS} == fields()
    assert record.rows.equals(rows())
    assert record.plain()["path"] == str(record.path)
    assert json.dumps(record.plain())
    assert record.brief()["model"] == "gpt2"


def test_artefacts_and_files_are_found_by_name(tmp_path):
    made = save_artefact(tmp_path / "jump.safetensors", {"w": torch.ones(2)}, {"r2": 1})
    held = {"jump.safetensors": made, "jump.json": made.with_suffix(".json"), "a/b.txt": b"text"}
    record = keep(tmp_path / "runs", files=held)
    assert torch.equal(record.artefact("jump.safetensors").tensor("w"), torch.ones(2))
    assert record.file("a/b.txt").read_bytes() == b"text"
    with pytest.raises(UnknownName, match=r"Did you mean 'jump\.json'"):
        record.file("jmp.json")


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-1], lambda data: data[:40] + b"x" + data[41:]]
)
def test_changed_rows_are_corrupt_and_named(tmp_path, spoil):
    record = keep(tmp_path)
    path = record.path / "rows.parquet"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(Corrupt, match=r"rows\.parquet"):
        _ = read_record(record.path).rows
    assert read_if_intact(record.path) is None


def test_lost_rows_are_corrupt(tmp_path):
    record = keep(tmp_path)
    (record.path / "rows.parquet").unlink()
    with pytest.raises(Corrupt, match="is missing"):
        _ = read_record(record.path).rows


def test_a_changed_artefact_is_corrupt_and_a_lost_one_missing(tmp_path):
    record = keep(tmp_path, files={"note.txt": b"true"})
    (record.path / "note.txt").write_bytes(b"fake")
    with pytest.raises(Corrupt, match=r"note\.txt"):
        record.file("note.txt")
    (record.path / "note.txt").unlink()
    with pytest.raises(Missing, match="cutaway probe"):
        record.file("note.txt")


def _by_hand(folder, **changed):
    path = folder / "probe" / ADDRESS
    path.mkdir(parents=True)
    (path / "result.json").write_text(json.dumps(fields(**changed)))
    return path


def test_a_record_written_by_hand_is_read_without_checksums(tmp_path):
    path = _by_hand(tmp_path)
    rows().write_parquet(path / "rows.parquet")
    assert read_record(path).rows.equals(rows())


def test_rows_that_are_no_parquet_are_corrupt(tmp_path):
    path = _by_hand(tmp_path)
    (path / "rows.parquet").write_text("layers,value\n1,2\n")
    with pytest.raises(Corrupt, match="parquet"):
        _ = read_record(path).rows


@pytest.mark.parametrize("name", RESULT_FIELDS)
def test_a_record_with_a_spoiled_field_is_corrupt(tmp_path, name):
    wrong = 7 if RESULT_FIELDS[name] is str else "text"
    with pytest.raises(Corrupt, match=name):
        read_record(_by_hand(tmp_path, **{name: wrong}))


def test_a_record_that_was_moved_is_corrupt(tmp_path):
    record = keep(tmp_path)
    record.path.rename(record.path.with_name("ffff"))
    with pytest.raises(Corrupt, match="moved"):
        read_record(record.path.with_name("ffff"))


def test_files_of_a_record_never_lead_out_of_it(tmp_path):
    (tmp_path / "secret").write_text("x")
    path = _by_hand(tmp_path, files={"../../secret": {}})
    with pytest.raises(BadSpec):
        read_record(path).file("../../secret")
    assert read_if_intact(path) is None


@pytest.mark.parametrize(
    ("described", "said"),
    [({"name": "a"}, "a"), ([{"name": "a"}, {"name": "b"}], "a, b"), ({}, "?"), (["a"], "a")],
)
def test_descriptions_are_known_by_their_names(described, said):
    assert join_names(described) == said


def test_an_empty_table_keeps_its_columns(tmp_path):
    record = keep(tmp_path, table=rows().head(0))
    assert record.rows.schema == rows().schema
