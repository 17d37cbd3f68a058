"""The tables "What it writes" of docs/coming-from.md: commands are run, outputs are found."""

import json
import os
import re
import shlex
from functools import cache
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from safetensors import safe_open

from cutaway.cli.main import run
from cutaway.report.figures import figure, figures_of
from cutaway.store.results import results
from tests.tiny import SENTENCES, tiny, toy_sentiment

PAGE = Path(__file__).parents[1] / "docs" / "coming-from.md"
TABLES = ("rows.parquet", "samples.parquet", "splits.parquet")
STATES = ("column", "value", "metric", "figure", "key", "tensor")
FILE = re.compile(r"\.(parquet|jsonl?|safetensors|txt)$")
# What the scripts of the originals write, by their own names.
WRITTEN = [
    "experiment_N.json",
    "metadata",
    "expdata",
    "Accuracy",
    "F1",
    "R2",
    "MSE",
    "quantile_method",
    "average",
    "visualisation_experiments.py",
    "train_loss",
    "validation_loss",
    "test_loss",
    "_f.pkl",
    "_fpartial.npy",
    "_Phipf.pkl",
    "_pf.pkl",
    "_Apf.pkl",
    "_A.pkl",
    "tr_f",
    "te_f",
    "f_config",
    "sentiment_subset.pkl",
    "agnews_subset.pkl",
    "_clf_results.pkl",
    "te_posnegpf",
    "te_Ap",
    "wikipedia_20K-sentences.pickle",
    "wikipedia_tokenized_train.pickle",
    "wikipedia_tokenized_val.pickle",
    "wikipedia_train.pickle",
    "wikipedia_val.pickle",
    "i_j.pickle",
    "pi_a_b.pickle",
    "wikipedia_r2_scores.pickle",
    "r2_scores_12.pdf",
    "wikipedia_results.pickle",
    "topk",
    "surprisal",
    "layers_processed",
    "pre_12.pdf",
    "surp_12.pdf",
    "parts_pre1_12.pdf",
    "parts_pre5_12.pdf",
    "parts_pre10_12.pdf",
    "parts_surp_12.pdf",
    "ee_pre1_12.pdf",
    "log_files",
    "ckpt_paths",
    "model_args.bin",
    "data_args.bin",
    "classifier",
    "eval_results_TASK.txt",
    "test_results_TASK.txt",
    "save_logit",
    "checkpoint_location",
    "mask_path",
    "gather_result.py",
    "fisher.pkl",
    "fisher_cola.pkl",
    "fisher_mrpc.pkl",
    "ssg_N.pkl",
    "Models/Arith",
    "Models/ArithEWC",
    "evaluate_arithmetic.py",
    "GlueOut/Base/CoLA",
    "train_results.json",
    "eval_results.json",
    "all_results.json",
    "trainer_state.json",
    "predict_results_TASK.txt",
    "combined_score",
    "Fisher_Plot.ipynb",
    "NN_Weights_tSNE.ipynb",
]
# Flags that make a command small, by its first words; everything else is as on the page.
LESS = {
    "data get": {"": "gen:sentiment?n=20"},
    "data sentences": {"--from": "docs", "--n": "60"},
    "probe": {"--layers": "0,2", "--repeats": "2", "--baselines": "none"},
    "nextword": {"--p-steps": "5", "--diagnostics": None, "--baselines": "none"},
    "finetune": {"--shots": "8", "--steps": "4", "--every": "2", "--batch": "4"},
    "graft learn": {
        "--shots": "8", "--steps": "3", "--sparsity": "1e-2", "--baselines": "random,movement",
    },
    "fisher": {"--limit": "8", "cola": "data/colbert.json"},
    "inject": {
        "--data": "gen:arithmetic?n=40,ops=+,digits=1,dev=10,test=20", "--retain-limit": "10",
        "--task-steps": "2", "--steps": "4", "--every": "2", "--batch": "4", "--beyond": "2",
        "--fisher-examples": "4",
    },
}  # fmt: skip


class Row(NamedTuple):
    """A row of the tables."""

    original: str
    command: str
    ours: str


class Need(NamedTuple):
    """Something that the command of a row must give."""

    state: str
    name: str
    file: str
    column: str


@cache
def rows() -> list[Row]:
    sections = PAGE.read_text().split("### What it writes\n")[1:]
    found = []
    for section in sections:
        lines = section.split("\n## ")[0].splitlines()
        cells = [[c.strip() for c in x.strip("|").split(" | ")] for x in lines if x[:2] == "| "]
        assert all(len(row) == 3 for row in cells), cells
        found += [Row(*row) for row in cells[1:]]
    assert len(sections) == 5
    return found


def needs(ours: str) -> list[Need]:
    """The code spans of a cell, each named by the last of the words column, metric, figure, ..."""
    state, file, column, found = "", "", "", []
    for span, word in re.findall(r"`([^`]+)`|([a-z]+)", ours):
        if word:
            state = word.removesuffix("s") if word.removesuffix("s") in STATES else state
        elif FILE.search(span):
            state, file = "", span
            found.append(Need("file", span, file, ""))
        else:
            column = span if state == "column" else column
            found.append(Need(state, span, file, column))
    return found


def written() -> list[Row]:
    return [row for row in rows() if row.command != "-"]


def verb_of(words: list[str]) -> str:
    return " ".join(words[:2]) if words[0] in ("data", "shortcut", "graft", "cache") else words[0]


def smaller(command: str) -> list[str]:
    """The words of a command with the flags of LESS."""
    words = shlex.split(command)[1:]
    verb = verb_of(words)
    for flag, value in LESS.get(verb, {}).items():
        if flag == "":
            words[len(verb.split())] = value
        elif flag[0] != "-":
            words = [value if word == flag else word for word in words]
        elif flag in words:
            words[words.index(flag) + 1] = value
        elif value is None:
            words += [flag.replace("--", "--no-")]
        else:
            words += [flag, value]
    return words


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with the models and data that the commands name, and what they wrote."""
    at, before = tmp_path_factory.mktemp("coming"), Path.cwd()
    words = (
        " good bad great :) :( positive negative correct incorrect 1 2 3 11 12 13 14 15 16 17 18"
    )
    texts = (*SENTENCES, *[f"It was{words}. A 0 4 5 6 7 8 9 10 + - = ."] * 9)
    for name, family in (("gpt2", "gpt2"), ("distilbert/distilbert-base-uncased", "distilbert")):
        tiny(family, at / name, texts=texts)
    write_data(at)
    os.chdir(at)
    yield at
    os.chdir(before)


def write_data(at: Path) -> None:
    sentences, labels = toy_sentiment(120)
    labels = labels.tolist()
    for name, task, values in (
        ("colbert", "Classification", labels),
        ("sst", "Regression", [0.2 + 0.5 * y + 0.001 * i for i, y in enumerate(labels)]),
    ):
        data = {"data": {"sentences": sentences, "labels": values}, "name": name, "task": task}
        write(at / "data" / f"{name}.json", json.dumps(data))
    for part, few in (("train", slice(0, 60)), ("dev", slice(60, 90)), ("test", slice(90, 120))):
        pairs = list(zip(sentences[few], labels[few], strict=True))
        tsv = ["sentence\tlabel", *(f"{text.strip()}\t{y}" for text, y in pairs)]
        write(at / "data" / "sst2" / f"{part}.tsv", "\n".join(tsv) + "\n")
        cola = [f"gj04\t{y}\t\t{text.strip()}" for text, y in pairs]
        if part != "test":
            write(at / "Glue" / "CoLA" / f"{part}.tsv", "\n".join(cola) + "\n")
    settings = {"model": "gpt2", "classifier": "LDA", "layer": 8, "quantile": 1.0}
    scores = {"Accuracy": [0.8, 0.9], "F1": [0.7, 0.6], "train loss": [0]}
    log = {"metadata": {"name": "sst", "size": 50}, "expdata": settings, "data": scores}
    write(at / "experiment_logs" / "experiment_0.json", json.dumps(log))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture(scope="module")
def outcome(folder):
    """Run a command of the page once; the run that it saved, if any."""
    done = {}

    def get(command: str):
        if command not in done:
            # What earlier rows write is needed by later ones: the order of the page.
            order = list(dict.fromkeys(row.command for row in written()))
            os.environ["CUTAWAY_HOME"] = str(folder / "home")
            for one in order[: order.index(command) + 1]:
                if one not in done:
                    done[one] = start(one.strip("`"))
        return done[command]

    return get


def start(command: str):
    words = smaller(command)
    saves = words[0] in ("probe", "nextword", "shortcut", "finetune", "graft", "fisher", "inject")
    before = {record.path for record in results("runs")}
    assert run([*words, "--quiet"] if saves else words) == 0, words
    return next((record for record in results("runs") if record.path not in before), None)


def find_file(name: str, record, folder: Path) -> Path:
    places = [] if record is None else [*Path(record.path).glob(name)]
    places += [*folder.glob(name), *folder.glob(f"data/{name}"), *folder.glob(f"home/**/{name}")]
    assert places, f"no {name}"
    return places[0]


def find(need: Need, record, folder: Path) -> None:
    """AssertionError unless the output is there and not empty."""
    path = find_file(need.file, record, folder) if need.file else None
    if need.state == "file":
        assert path.stat().st_size
    elif need.state == "figure":
        known = [name for method in METHODS for name in figures_of(method)]
        assert need.name in known
        assert record is None or figure(record, need.name).data
    elif need.state == "metric":
        table = record.rows.filter(pl.col("metric") == need.name)
        assert table["value"].is_not_null().any(), record.rows["metric"].unique().to_list()
    elif need.state == "key":
        value = json.loads(path.read_text())
        for part in need.name.split("."):
            value = value[int(part) if part.isdigit() else part]
        assert value is not None
    elif need.state == "tensor":
        with safe_open(path, "pt") as tensors:
            assert need.name in tensors.keys()  # noqa: SIM118
    else:
        assert need.state in ("column", "value"), f"what is {need.name!r}?"
        frame = pl.read_ndjson(path) if path.suffix == ".jsonl" else pl.read_parquet(path)
        assert frame[need.column].is_not_null().any()
        assert need.state == "column" or need.name in frame[need.column].to_list()


METHODS = ("probe", "nextword", "shortcut", "finetune", "graft", "inject")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("row", written(), ids=lambda row: row.original[:60])
def test_the_command_of_a_row_gives_what_the_row_names(row: Row, outcome, folder) -> None:
    record = outcome(row.command)
    named = needs(row.ours)
    assert named or "stdout" in row.ours
    for need in named:
        find(need, record, folder)


def test_what_has_no_counterpart_says_why() -> None:
    lacking = [row for row in rows() if row.command == "-"]
    assert lacking and all(row.ours.startswith("not written: ") for row in lacking)
    assert all(row.command.startswith("`cutaway ") for row in written())


@pytest.mark.parametrize("name", WRITTEN)
def test_every_output_of_the_originals_is_in_a_table(name: str) -> None:
    assert any(name.replace("_loss", " loss") in row.original for row in rows())
