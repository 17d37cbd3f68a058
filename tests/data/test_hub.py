from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from datasets.exceptions import (
    DatasetGenerationError,
    NonMatchingChecksumError,
    NonMatchingSplitsSizesError,
)

from cutaway.core.errors import BadSpec, Missing
from cutaway.data.build_text_set import make_text_set
from cutaway.data.columns import choose_columns
from cutaway.data.hub import PARQUET_BRANCH, HubId, parse_hub_id, read_hub
from cutaway.data.task_rows import apply_task
from cutaway.data.tasks import find_task


@dataclass
class Split:
    """What `datasets` gives for one split, as far as it is used."""

    columns: dict[str, list[Any]]
    names: list[str] | None = None
    label: str = "label"
    features: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.features = {name: SimpleNamespace() for name in self.columns}
        if self.names:
            self.features[self.label] = SimpleNamespace(names=self.names)

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]


def split(*labels: int) -> Split:
    texts = [f"text {i}" for i in range(len(labels))]
    return Split({"sentence": texts, "label": list(labels)}, ["neg", "pos"])


def opener(result: Any, seen: list[dict[str, Any]] | None = None):
    def open_set(**what: Any) -> Any:
        if seen is not None:
            seen.append(what)
        if isinstance(result, Exception):
            raise result
        return result

    return open_set


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("hf:imdb", HubId("imdb")),
        ("hf:stanfordnlp/imdb", HubId("stanfordnlp/imdb")),
        ("hf:nyu-mll/glue/sst2", HubId("nyu-mll/glue", "sst2")),
        ("hf:nyu-mll/glue/sst2:train", HubId("nyu-mll/glue", "sst2", "train")),
        ("hf:a/b:train[:10%]", HubId("a/b", None, "train[:10%]")),
    ],
)
def test_an_address_is_taken_apart(source: str, expected: HubId) -> None:
    assert parse_hub_id(source) == expected


@pytest.mark.parametrize("source", ["hf:", "hf:a//b", "hf:a/b/c/d", "hf:/a"])
def test_a_wrong_address_shows_the_form(source: str) -> None:
    with pytest.raises(BadSpec, match="hf:NAMESPACE/NAME"):
        parse_hub_id(source)


def test_splits_become_parts_and_hidden_labels_are_missing() -> None:
    found = {"train": split(0, 1), "validation": split(1), "test": split(-1)}
    table, parts = read_hub(HubId("a/b"), open_set=opener(found))
    assert parts.tolist() == ["train", "train", "dev", "test"]
    assert table.columns["label"] == [0, 1, 1, None]
    assert table.class_names == {"label": ("neg", "pos")}


def test_class_names_are_kept_in_their_order() -> None:
    table, parts = read_hub(HubId("a/b"), open_set=opener({"train": split(1, 0)}))
    loaded = make_text_set(table, choose_columns(table), name="x", parts=parts)
    assert (loaded.classes, loaded.labels.tolist()) == (("neg", "pos"), [1, 0])


def test_a_split_that_is_no_part_is_left_out_and_noted() -> None:
    found = {"train": split(0), "test": split(1), "unsupervised": split(-1)}
    table, _ = read_hub(HubId("imdb"), open_set=opener(found))
    assert len(table) == 2
    assert "unsupervised" in table.notes[-1]


def test_one_named_split_has_no_parts() -> None:
    seen: list[dict[str, Any]] = []
    table, parts = read_hub(HubId("a", None, "train"), open_set=opener(split(0, 1), seen))
    assert (len(table), parts, seen[0]["split"]) == (2, None, "train")


def test_a_task_says_which_splits_make_its_parts() -> None:
    found = {"train": split(0, 1), "validation_matched": split(1), "test": split(-1)}
    parts = {"train": ("train",), "test": ("validation_matched",)}
    _, got = read_hub(HubId("a"), parts=parts, open_set=opener(found))
    assert got.tolist() == ["train", "train", "test"]
    with pytest.raises(Missing, match="no split 'gone'"):
        read_hub(HubId("a"), parts={"train": ("gone",)}, open_set=opener(found))


def test_two_splits_for_one_part_must_be_named() -> None:
    found = {"train": split(0), "validation_matched": split(1), "validation_mismatched": split(1)}
    with pytest.raises(BadSpec, match="several splits for one part"):
        read_hub(HubId("a"), open_set=opener(found))


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("no route"),
        ValueError("no config"),
        FileNotFoundError("gone"),
        DatasetGenerationError("it broke"),
        NonMatchingChecksumError("other bytes"),
        NonMatchingSplitsSizesError("other rows"),
    ],
)
def test_what_cannot_be_fetched_names_the_alternative(error: Exception) -> None:
    with pytest.raises(Missing, match=f"{error}.*a file or folder with the same columns"):
        read_hub(HubId("a/b"), open_set=opener(error))


def test_what_hides_behind_an_error_of_the_library_is_said_too() -> None:
    error = DatasetGenerationError("An error occurred.")
    error.__cause__ = ValueError("column 3 is odd")
    with pytest.raises(Missing, match=r"An error occurred: column 3 is odd\. Without"):
        read_hub(HubId("a/b"), open_set=opener(error))


def test_a_script_is_never_run_its_parquet_copy_is_read() -> None:
    seen: list[Any] = []

    def open_set(**what: Any) -> Any:
        seen.append(what["revision"])
        if what["revision"] is None:
            raise RuntimeError("Dataset scripts are no longer supported")
        return {"train": split(0, 1)}

    read_hub(HubId("a/b"), open_set=open_set)
    assert seen == [None, PARQUET_BRANCH]


def test_offline_reaches_the_library() -> None:
    seen: list[dict[str, Any]] = []
    read_hub(HubId("a"), offline=True, revision="v1", open_set=opener({"train": split(0)}, seen))
    assert (seen[0]["offline"], seen[0]["revision"]) == (True, "v1")


def test_offline_mode_is_told_back() -> None:
    import datasets.config

    before = datasets.config.HF_HUB_OFFLINE
    with pytest.raises(Missing):
        read_hub(HubId("no/such-set"), offline=True)
    assert before == datasets.config.HF_HUB_OFFLINE


def test_hub_labels_are_read_by_name_whatever_their_numbers() -> None:
    rows = Split(
        {"premise": ["p"] * 3, "hypothesis": ["h"] * 3, "label": [0, 1, 2]},
        ["entailment", "neutral", "contradiction"],
    )
    table, parts = read_hub(HubId("x"), open_set=opener({"train": rows}))
    loaded = apply_task(find_task("mnli"), table, parts)
    assert [loaded.classes[i] for i in loaded.labels] == ["entailment", "neutral", "contradiction"]


@pytest.mark.parametrize(
    "source",
    ["hf:../secret", "hf:..", "hf:.", "hf:a/../b", "hf:~/x", "hf:/etc", "hf:a/b/c/d", "hf:-a",
     "hf:a--b", "hf:a\x00", "hf:a b", "hf:a.", "hf:"],
)  # fmt: skip
def test_only_ids_of_the_hub_are_taken(source, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSpec, match="is not a hub id"):
        parse_hub_id(source)


@pytest.mark.parametrize("name", ["mine", "some/set"])
def test_a_hub_id_is_never_read_from_the_disk(name, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / name / "train.csv").write_text("text,label\nsecret,1\n")
    with pytest.raises(BadSpec, match=rf"file or folder here.*give \./{name}"):
        read_hub(parse_hub_id(f"hf:{name}"), offline=True)


def test_a_file_type_is_no_hub_id() -> None:
    with pytest.raises(BadSpec, match="the name of a file type"):
        read_hub(HubId("csv"), offline=True)
