import json
import os
import string
import subprocess
import sys
from pathlib import Path

import polars
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cutaway.core.errors import BadData, BadSpec, CutawayError, Missing, UnknownName
from cutaway.core.textset import TextSet
from cutaway.data.files import READERS
from cutaway.data.load import load_task, load_text_set
from cutaway.data.tasks import find_task, known_tasks
from cutaway.studies.reference_logs import parse_experiments

FUZZ = settings(
    max_examples=int(os.environ.get("CUTAWAY_FUZZ", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def put(folder: Path, name: str, content: str) -> Path:
    (folder / name).write_text(content)
    return folder / name


def test_a_path_may_be_a_string_and_the_columns_may_be_named(tmp_path) -> None:
    path = put(tmp_path, "emo.tsv", "id\tV\tA\ttext\n1\t3.25\t2\tgood\n2\t1.5\t3\tbad\n")
    assert load_text_set(str(path)).task == "text"
    loaded = load_text_set(str(path), label_column="V")
    assert (loaded.task, loaded.labels.tolist()) == ("regression", [3.25, 1.5])
    assert loaded.name == "emo"


def test_a_name_that_says_nothing_gets_its_folder(tmp_path) -> None:
    path = put(tmp_path, "train.tsv", "text\tlabel\na\t0\n")
    assert load_text_set(path).name == f"{tmp_path.name}/train"


def test_a_text_set_is_returned_as_it_is() -> None:
    mine = TextSet("mine", ("a",))
    assert load_text_set(mine) is mine


def test_a_data_frame_is_read_by_its_columns() -> None:
    frame = polars.DataFrame({"sentence": ["a", "b"], "label": [0, 1]})
    assert load_text_set(frame).texts == ("a", "b")


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("sst3", UnknownName, "Unknown data 'sst3'. Did you mean 'sst'"),
        ("sentimnt", UnknownName, "Did you mean 'gen:sentiment'"),
        ("gen:sentimnt", UnknownName, "Did you mean 'sentiment'"),
        ("no/such/file", Missing, "No file or folder at 'no/such/file'"),
        ("gone.tsv", Missing, "No file or folder at 'gone.tsv'"),
        ("gone.toml", Missing, "No task file at 'gone.toml'"),
        ("hf:a/b/c/d", BadSpec, "not a hub id"),
        (3, BadData, "not rows"),
    ],
)
def test_a_source_that_is_nothing_gets_a_hint(source, error, message: str) -> None:
    with pytest.raises(error, match=message):
        load_text_set(source)


@pytest.mark.parametrize("source", ["gen:sentiment?n=10", "docs", "sst2", TextSet("x", ("a",))])
def test_columns_cannot_be_named_for_data_that_has_its_own(source) -> None:
    with pytest.raises(BadSpec, match="text_column is 'a', but"):
        load_text_set(source, text_column="a")


def test_an_unknown_task_is_refused_before_anything_is_read() -> None:
    with pytest.raises(BadSpec, match="Did you mean 'regression'"):
        load_text_set("gone.tsv", as_task="regresion")


def test_a_task_without_network_says_which_columns_a_file_needs() -> None:
    with pytest.raises(Missing, match=r"'SetFit/sst2'.*columns 'sentence' or 'text'; 'label'"):
        load_text_set("sst2", offline=True)


def test_a_task_reads_a_file_of_the_same_columns(tmp_path) -> None:
    path = put(tmp_path, "mine.tsv", "sentence\tlabel\nfine\t1\nbad\t0\n")
    loaded = load_task("SST-2", data=path)
    assert (loaded.classes, loaded.labels.tolist()) == (("negative", "positive"), [1, 0])
    assert (loaded.name, loaded.meta["task"]) == ("sst2", "sst2")


@pytest.mark.parametrize("given", ["file", "dict"])
def test_the_name_inside_the_file_of_the_probing_reference_is_kept(given: str, tmp_path) -> None:
    rows = {"sentences": {"0": "fine", "1": "bad"}, "labels": {"0": 0.9, "1": 0.1}}
    value = {"data": rows, "name": "Stanford  Sentiment", "task": "Regression"}
    path = put(tmp_path, "sst.json", json.dumps(value))
    assert load_text_set(path if given == "file" else value).name == "Stanford Sentiment"
    assert load_text_set(put(tmp_path, "plain.json", json.dumps(rows))).name == "plain"


def test_a_task_takes_a_set_that_is_already_loaded() -> None:
    mine = TextSet("mine", ("a",))
    assert load_task("sst2", data=mine) is mine


def test_a_task_of_ones_own_is_a_toml_file(tmp_path) -> None:
    task = put(
        tmp_path,
        "mine.toml",
        'name = "mine"\ndescription = "x"\nkind = "binary"\nclasses = ["no", "yes"]\n'
        '[columns]\ntext = "body"\nlabel = "answer"\n',
    )
    rows = put(tmp_path, "rows.csv", "body,answer\nfirst,yes\nsecond,no\n")
    assert load_task(task, data=rows).labels.tolist() == [1, 0]
    with pytest.raises(Missing, match="'mine' names no source"):
        load_text_set(task)


def test_headerless_files_of_a_folder_are_read_whole(tmp_path) -> None:
    put(tmp_path, "train.csv", "1,good film\n0,bad film\n")
    put(tmp_path, "test.csv", "0,worse film\n")
    loaded = load_task("mr", data=tmp_path)
    assert loaded.texts == ("good film", "bad film", "worse film")
    assert loaded.parts.tolist() == ["train", "train", "test"]


def test_loading_needs_no_torch_and_no_transformers() -> None:
    code = (
        "import sys; from cutaway.data.load import load_text_set; load_text_set('gen:topic?n=8');"
        "bad = {'torch', 'transformers', 'datasets', 'sklearn'} & set(sys.modules);"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@given(content=st.binary(max_size=200), suffix=st.sampled_from(sorted(READERS)))
@FUZZ
def test_any_bytes_end_in_a_text_set_or_in_one_of_our_errors(content, suffix, tmp_path) -> None:
    path = tmp_path / f"fuzz{suffix}"
    path.write_bytes(content)
    _load_or_refuse(path)


FIELDS = st.text(st.sampled_from(string.printable + "é🎬\u2028\0"), max_size=12)


@given(rows=st.lists(st.lists(FIELDS, max_size=4), max_size=6), tab=st.booleans())
@FUZZ
def test_any_table_ends_in_a_text_set_or_in_one_of_our_errors(rows, tab, tmp_path) -> None:
    delimiter, name = ("\t", "fuzz.tsv") if tab else (",", "fuzz.csv")
    lines = [delimiter.join(["text", "label"]), *(delimiter.join(row) for row in rows)]
    _load_or_refuse(_utf8(tmp_path / name, "\n".join(lines)))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["text", "label", "data", "train", "0"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["text", "label", "data", "sentences", "labels", "size", "0", "1"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(value=VALUES, lines=st.booleans())
@FUZZ
def test_any_json_ends_in_a_text_set_or_in_one_of_our_errors(value, lines, tmp_path) -> None:
    text = json.dumps(value)
    _load_or_refuse(_utf8(tmp_path / ("fuzz.jsonl" if lines else "fuzz.json"), text))
    _load_or_refuse(value)


@given(
    value=VALUES,
    rows=st.dictionaries(st.sampled_from(["e", "metadata", "expdata", "data"]), VALUES),
)
@FUZZ
def test_any_log_ends_in_experiments_or_in_one_of_our_errors(value, rows) -> None:
    for log in (value, {"experiment_0": value}, {"experiment_0": rows}):
        try:
            assert parse_experiments("log", log)
        except CutawayError as error:
            assert str(error)


TEXTS = st.lists(st.text(max_size=9) | VALUES, min_size=2, max_size=3)
RAW = st.floats() | st.integers() | st.text(max_size=5) | VALUES


@given(st.sampled_from(sorted(known_tasks())), TEXTS, RAW)
@FUZZ
def test_any_rows_of_a_task_end_in_a_text_set_or_in_one_of_our_errors(name, texts, label) -> None:
    columns = find_task(name).columns
    named = [names[0].split("+")[0] for names in (columns.text, columns.pair) if names]
    rows = dict.fromkeys(named, texts) | {columns.label[0]: [label] * len(texts)}
    try:
        assert load_task(name, data=rows).texts
    except CutawayError as error:
        assert str(error)


LABELS = st.none() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers())


@given(labels=st.lists(LABELS, min_size=1, max_size=8), as_task=st.none() | st.text(max_size=3))
@FUZZ
def test_any_labels_end_in_a_text_set_or_in_one_of_our_errors(labels, as_task) -> None:
    _load_or_refuse({"text": ["t"] * len(labels), "label": labels}, as_task=as_task or None)
    for known in ("regression", "classification", "multilabel", "binary"):
        _load_or_refuse({"text": ["t"] * len(labels), "label": labels}, as_task=known)


@given(source=st.text(max_size=20) | st.text(max_size=12).map("gen:sentiment?n=".__add__))
@FUZZ
def test_any_name_ends_in_a_text_set_or_in_one_of_our_errors(source: str) -> None:
    _load_or_refuse(source, limit=2)


def _utf8(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def _load_or_refuse(source, **options) -> None:
    try:
        loaded = load_text_set(source, **options)
    except CutawayError as error:
        assert str(error)
    else:
        assert isinstance(loaded, TextSet)
        assert len(loaded.digest) == 64
