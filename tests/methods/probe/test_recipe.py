import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import cutaway
from cutaway.cli.main import run as command
from cutaway.core.errors import BadData, BadSpec, UnknownName
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.methods.probe import inputs
from cutaway.methods.probe.recipe import ProbeGrid, shared_words_notes
from cutaway.methods.probe.rows import SCHEMA
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.store.results import results
from cutaway.store.samples import text_digests
from tests.tiny import SENTENCES, tiny


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> str:
    return str(tiny("gpt2", tmp_path_factory.mktemp("probe") / "gpt2"))


def labelled(n: int = 60, *, task: str = "binary", seed: int = 0) -> TextSet:
    """Sentences whose label can be read off their last word."""
    rng = np.random.default_rng(seed)
    ends = ("good.", "bad.") if task == "binary" else ("red.", "green.", "blue.")
    labels = np.arange(n) % len(ends)
    texts = [f"{SENTENCES[rng.integers(7)][:20]} {i} is {ends[labels[i]]}" for i in range(n)]
    names = tuple(end.rstrip(".") for end in ends)
    return TextSet("ends", tuple(texts), labels=labels, task=task, classes=names)


def quick(model, tmp_path, **options):
    settings = {
        "model": model, "data": labelled(), "layers": "0,2", "pool": ["last", "mean"],
        "classifier": ["logistic", "lda"], "repeats": 3, "runs": str(tmp_path / "runs"),
        "quiet": True,
    }  # fmt: skip
    return cutaway.probe(**{**settings, **options})


def test_the_grid_measures_every_cell_on_every_split(model, tmp_path):
    rows = quick(model, tmp_path).rows
    assert rows.columns == list(SCHEMA)
    cells = rows.filter((pl.col("kind") == "probe") & (pl.col("metric") == "accuracy"))
    assert cells.height == 2 * 2 * 2 * 3
    assert cells.select("n_train", "n_val", "n_test").row(0) == (42, 6, 12)
    assert set(rows["status"]) == {"done"}


def test_the_main_metric_follows_the_classes_and_the_option(model, tmp_path):
    given = {"layers": "0,2", "classifier": "lda", "pool": "mean", "baselines": "majority"}
    assert quick(model, tmp_path, **given).summary["metric"] == "accuracy"
    few = labelled(90).take([i for i in range(90) if i % 2 == 0 or i % 6 == 1])
    found = quick(model, tmp_path, data=few, **given)
    assert found.summary["metric"] == found.summary["headline"]["metric"] == "balanced_accuracy"
    assert list(found.record.baselines.values()) == [{"majority": 0.5}]
    # Lower is better: the best cell has the smallest error.
    numbers = replace(labelled(), labels=np.linspace(0.5, 3, 60), task="regression", classes=())
    given |= {"data": numbers, "classifier": "ridge"}
    error = quick(model, tmp_path, metric="mse", **given)
    cells = error.rows.filter((pl.col("kind") == "probe") & (pl.col("metric") == "mse"))
    best = cells.group_by("layers").agg(pl.col("value").mean()).sort("value").row(0)
    (result,) = error.summary["results"]
    assert (result["best_on_test"]["layers"], result["best_on_test"]["value"]) == pytest.approx(
        best
    )
    detail = json.loads((error.path / "details.json").read_text())
    assert {one["layers"] for one in detail} == {error.summary["headline"]["layers"]}


def test_a_metric_that_does_not_fit_the_task_is_refused(model, tmp_path, capsys):
    file = tmp_path / "rows.csv"
    file.write_text("text,label\n" + "".join(f"word {i},{i % 2}\n" for i in range(40)))
    asked = ["probe", "--model", model, "--data", str(file), "--metric", "r2"]
    assert command([*asked, "--runs", str(tmp_path / "runs")]) == 2
    message = capsys.readouterr().err
    assert "'r2' doesn't fit 'rows', a binary set" in message and "balanced_accuracy" in message


@pytest.mark.parametrize("baselines", ["majority", "none"])
def test_accuracy_at_or_below_the_majority_is_reported_with_the_auc(model, tmp_path, baselines):
    rng = np.random.default_rng(0)
    texts = tuple(f"{SENTENCES[rng.integers(7)][:20]} {i}." for i in range(120))
    data = TextSet("noise", texts, (rng.random(120) < 0.15).astype(int), "binary", ("no", "yes"))
    given = {"layers": "1", "pool": "mean", "classifier": "lda", "baselines": baselines}
    found = quick(model, tmp_path, data=data, **given)
    assert found.summary["metric"] == "balanced_accuracy"
    line = found.summary["verdict"][1]
    assert (
        line.startswith("Its accuracy is 0.") and "always answering the most frequent class" in line
    )
    assert "; ROC AUC is 0." in line and "chance (0.5)" in line
    fine = quick(model, tmp_path, **given)
    assert not any("most frequent class" in one for one in fine.summary["verdict"])


def test_a_regression_speaks_of_the_mean(model, tmp_path):
    base = labelled(60)
    data = replace(base, labels=np.linspace(0.5, 3, 60), task="regression", classes=())
    given = {"layers": "1", "pool": "mean", "classifier": "ridge", "baselines": "majority,bow"}
    text = " ".join(quick(model, tmp_path, data=data, **given).summary["verdict"])
    assert "the mean baseline reaches" in text
    assert "majority" not in text and "-0.000" not in text


def written(tmp_path, labels) -> str:
    file = tmp_path / "rows.csv"
    lines = [f"word {i} is {label},{label}" for i, label in enumerate(labels)]
    file.write_text("text,label\n" + "\n".join(lines) + "\n")
    return str(file)


@pytest.mark.parametrize(
    ("labels", "options", "words"),
    [
        (["a"] * 30, [], "All 30 rows of 'rows' have the label 'a'"),
        (["a"] * 30 + ["b"], [], "Class 'b' has 1 row, and a class needs 2"),
        (["a", "a", "b", "b"], [], "4 rows are too few"),
        (["a"] * 30 + ["b"] * 5, ["--protocol", "kshot", "--shots", "4"], "Class 'b' has 5 rows"),
        (["a", "b", "c"] * 20, ["--limit", "8"], "--limit 8 is too small: 3 rows of each"),
        (["a", "b", "c"] * 20, ["--metric", "f1"], "'f1' doesn't fit 'rows', a multiclass set"),
    ],
    ids=["one class", "one member", "four rows", "shots", "limit", "metric"],
)
def test_bad_input_is_one_clear_message(labels, options, words, model, tmp_path, capsys):
    asked = ["probe", "--model", model, "--data", written(tmp_path, labels), "--layers", "1"]
    assert command([*asked, *options, "--runs", str(tmp_path / "runs")]) == 2
    message = capsys.readouterr().err
    assert words in message and "Traceback" not in message


def test_ten_rows_are_measured_without_a_code_that_needs_sixteen(model, tmp_path):
    given = {"layers": "1", "pool": "mean", "classifier": "lda"}
    kinds = "majority,bow,twin,mdl"
    found = quick(model, tmp_path, data=labelled(10), baselines=kinds, **given)
    assert found.summary["failed"] == 0 and found.summary["headline"]["value"] is not None
    assert "mdl_bits" not in found.rows["metric"].to_list()


def test_labels_that_are_all_equal_in_validation_are_refused(model, tmp_path):
    base = labelled(60)
    parts = np.array(["train", "train", "test"] * 20)
    parts[[i for i in range(60) if base.labels[i] == 1 and i % 5 == 0]] = "dev"
    given = {"layers": "1", "pool": "mean", "classifier": "lda,logistic", "protocol": "fixed"}
    with pytest.raises(BadData, match=r"All \d+ rows of the part 'dev' have the label"):
        quick(model, tmp_path, data=replace(base, parts=parts), **given)


class GivesNaN(LinearDiscriminantAnalysis):
    def decision_function(self, x):
        return np.full(len(x), np.nan)


def test_nan_scores_are_a_failed_cell_with_its_reason(model, tmp_path):
    given = {"layers": "1", "pool": "mean", "baselines": "none"}
    found = quick(model, tmp_path, classifier=["lda", GivesNaN()], **given)
    (failed,) = found.rows.filter(pl.col("status") == "failed").iter_rows(named=True)
    assert "GivesNaN gave scores that are no numbers" in failed["reason"]
    assert found.summary["headline"]["classifier"] == "lda"
    assert any(
        "GivesNaN gave scores that are no numbers" in line for line in found.summary["verdict"]
    )


CELL = ["model", "data", "kind", "layers", "pool", "classifier", "repeat", "n_train"]


@pytest.mark.parametrize(
    "options",
    [{"baselines": "majority,bow,twin,control"}, {"data": labelled(task="multiclass")},
     {"protocol": "curve", "train_sizes": [12, 0.5], "repeats": 2}, {"protocol": "kfold"}],
    ids=["baselines", "multiclass", "curve", "kfold"],
)  # fmt: skip
def test_predictions_give_the_accuracy_of_every_cell_and_splits_their_rows(
    options, model, tmp_path
):
    given = {"layers": "1", "pool": "last", "samples": True, **options}
    result = quick(model, tmp_path, **given)
    samples, splits = result.samples, result.record.splits
    rows = result.rows.filter(pl.col("metric") == "accuracy").sort(CELL)
    correct = (pl.col("truth") == pl.col("answer")).mean().alias("value")
    again = samples.group_by(CELL).agg(correct, pl.len().alias("n_test")).sort(CELL)
    assert again["value"].to_list() == pytest.approx(rows["value"].to_list(), abs=1e-12)
    assert again.select(CELL).equals(rows.select(CELL))
    assert again["n_test"].to_list() == rows["n_test"].to_list()
    probability = samples.filter(pl.col("classifier") == "logistic")["score"]
    assert probability.is_between(0, 1).all()
    texts = given.get("data", labelled())
    digests = text_digests(texts)
    for (repeat, n_train), one in splits.group_by("repeat", "n_train"):
        parts = {name: set(part["row"]) for (name,), part in one.group_by("part")}
        assert len(parts["train"]) == n_train
        assert not parts["train"] & parts["test"]
        assert not (parts["train"] | parts["test"]) & parts["val"]
        here = samples.filter((pl.col("repeat") == repeat) & (pl.col("n_train") == n_train))
        assert set(here["row"]) == parts["test"]
    for table in (samples, splits):
        found = table.select("row", "text_digest").unique().iter_rows()
        assert all(digests[row] == digest for row, digest in found)
    truths = dict(samples.filter(pl.col("kind") == "probe").select("row", "truth").iter_rows())
    assert all(texts.classes[texts.labels[row]] == truth for row, truth in truths.items())


def test_the_size_of_the_samples_is_stated_first(model, tmp_path, capsys):
    result = quick(model, tmp_path, samples=True, quiet=False)
    assert f"samples: about {result.samples.height:,} rows" in capsys.readouterr().err


def test_numbers_and_lists_of_labels_are_predictions_too(model, tmp_path):
    marks = np.array([[i % 2, i % 3 == 0] for i in range(60)]).astype(int)
    several = replace(labelled(), labels=marks, task="multilabel", classes=("odd", "third"))
    values = replace(labelled(), labels=np.linspace(0, 1, 60), task="regression", classes=())
    same = {"layers": "1", "pool": "last", "classifier": "ridge", "baselines": "none"}
    marked = quick(model, tmp_path, data=several, samples=True, **same).samples
    assert set(marked["truth"]) <= {"", "odd", "third", "odd, third"}
    numbers = quick(model, tmp_path, data=values, samples=True, **same)
    first = numbers.samples.filter(pl.col("repeat") == 0)
    truth, answer = (first[name].cast(pl.Float64).to_numpy() for name in ("truth", "answer"))
    r2 = 1 - ((truth - answer) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()
    row = numbers.rows.filter((pl.col("metric") == "r2") & (pl.col("repeat") == 0))
    assert r2 == pytest.approx(row["value"][0], abs=1e-9)


def test_every_score_has_its_baselines_beside_it(model, tmp_path):
    result = quick(model, tmp_path)
    kinds = result.rows.select("kind", "classifier").unique().rows()
    assert {("baseline", n) for n in ("majority", "bow", "tfidf")} <= set(kinds)
    assert {("twin", "logistic"), ("control", "logistic")} <= set(kinds)
    assert "mdl_bits" in result.rows["metric"].to_list()
    assert result.summary["verdict"]
    assert next(iter(result.record.baselines.values()))["majority"] == pytest.approx(0.5)


def test_the_same_request_is_not_computed_twice(model, tmp_path, monkeypatch):
    first = quick(model, tmp_path)
    monkeypatch.setattr(ProbeGrid, "measure", None)
    assert quick(model, tmp_path).rows.equals(first.rows)


def test_one_spec_gives_one_file_byte_for_byte(model, tmp_path):
    one, two = (quick(model, tmp_path / part) for part in ("a", "b"))
    assert (one.path / "rows.parquet").read_bytes() == (two.path / "rows.parquet").read_bytes()


def test_a_users_estimator_and_the_built_in_one_give_the_same_answer(model, tmp_path):
    mine = LinearDiscriminantAnalysis(solver="svd")
    mine.name = "LDA"
    result = quick(model, tmp_path, classifier=["lda", mine], baselines="none")
    table = result.rows.filter(pl.col("metric") == "accuracy")
    by_name = table.group_by("classifier").agg(pl.col("value").mean()).sort("classifier")
    assert by_name["classifier"].to_list() == ["LDA", "lda"]
    assert by_name["value"][0] == pytest.approx(by_name["value"][1], abs=0.05)
    assert not hasattr(mine, "coef_")


class Raises:
    """An estimator that can't."""

    def fit(self, x, y):
        raise ValueError("this estimator always fails")

    def predict(self, x):
        return x


def test_a_failing_cell_is_recorded_with_its_reason_and_the_grid_goes_on(model, tmp_path):
    result = quick(model, tmp_path, classifier=["lda", Raises()], baselines="none")
    failed = result.rows.filter(pl.col("status") == "failed")
    assert failed.height == 4
    assert "this estimator always fails" in failed["reason"][0]
    assert result.rows.filter(pl.col("status") == "done").height > 0
    assert result.summary["failed"] == 4


def test_a_torch_module_is_trained_and_its_losses_are_kept(model, tmp_path):
    class Small(torch.nn.Module):
        def __init__(self, size):
            super().__init__()
            self.linear = torch.nn.Linear(size, 1)

        def forward(self, x):
            return self.linear(x)

    result = quick(model, tmp_path, classifier=[Small], layers="1", pool="last", baselines="none")
    assert result.figure("losses").data
    assert result.rows.filter(pl.col("metric") == "accuracy").height == 3


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"classifier": "logstic"}, UnknownName, "Did you mean 'logistic'"),
        ({"pool": "maen"}, UnknownName, "Did you mean 'mean'"),
        ({"layers": "9"}, BadSpec, "out of range"),
        ({"protocol": "kfold", "folds": 100}, (BadSpec, BadData), "100"),
        ({"protocol": "fixed"}, BadData, "part"),
        ({"engine": "rya"}, BadSpec, "Did you mean 'ray'"),
        ({"data": labelled(1)}, BadData, "row"),
        ({"poool": "last"}, BadSpec, "Did you mean 'pool'"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_runs(model, tmp_path, options, error, words):
    with pytest.raises(error, match=words):
        quick(model, tmp_path, **options)
    assert not (tmp_path / "runs").exists()


def test_one_class_only_is_refused(model, tmp_path):
    texts = TextSet("one", ("a b", "c d", "e f"), labels=np.zeros(3, int), task="binary",
                    classes=("x", "y"))  # fmt: skip
    with pytest.raises(BadData, match="at least two different"):
        quick(model, tmp_path, data=texts)


@pytest.mark.parametrize("protocol", ["repeats", "kfold", "kshot", "curve"])
def test_every_protocol_runs(model, tmp_path, protocol):
    one = {"layers": "1", "pool": "last", "classifier": "lda_shrink", "baselines": "majority"}
    sizes = {"folds": 4, "shots": 5, "train_sizes": [12, 1.0]}
    result = quick(model, tmp_path, protocol=protocol, **sizes, **one)
    expected = {"repeats": 3, "kfold": 4, "kshot": 3, "curve": 6}[protocol]
    probes = result.rows.filter((pl.col("kind") == "probe") & (pl.col("metric") == "accuracy"))
    assert probes.height == expected


def test_the_fixed_protocol_learns_from_train_and_is_judged_on_test(model, tmp_path):
    texts = labelled()
    parts = np.array(["train"] * 40 + ["dev"] * 8 + ["test"] * 12)
    fixed = TextSet("fixed", texts.texts, labels=texts.labels, task="binary",
                    classes=texts.classes, parts=parts)  # fmt: skip
    row = quick(model, tmp_path, data=fixed, protocol="fixed", baselines="none").rows.row(
        0, named=True
    )
    assert (row["n_train"], row["n_val"], row["n_test"]) == (40, 8, 12)
    assert row["low"] is not None


@pytest.mark.parametrize("task", ["multiclass", "regression", "multilabel"])
def test_every_kind_of_target_can_be_probed(model, tmp_path, task):
    base = labelled(task="multiclass")
    labels = {
        "multiclass": base.labels,
        "regression": base.labels / 2.0 + np.linspace(0, 0.1, len(base)),
        "multilabel": np.stack([base.labels == 0, base.labels > 0], 1).astype(int),
    }[task]
    classes = {"multilabel": ("a", "b"), "regression": ()}.get(task, base.classes)
    texts = TextSet(task, base.texts, labels=labels, task=task, classes=classes)
    result = quick(model, tmp_path, data=texts, classifier="ridge", layers="1", pool="last")
    assert result.summary["headline"]["value"] is not None
    assert result.summary["failed"] == 0


def test_learned_and_attention_pooling_stand_in_the_grid(model, tmp_path):
    result = quick(model, tmp_path, pool=["attn", "learned"], layers="1", classifier="lda_shrink",
                   repeats=2, baselines="none")  # fmt: skip
    cells = result.rows.select("pool", "classifier").unique().rows()
    assert set(cells) == {("attn", "lda_shrink"), ("learned", "attention")}
    assert result.summary["failed"] == 0


def test_layer_mixes_stand_in_the_grid_and_a_mix_of_one_is_that_layer(model, tmp_path):
    result = quick(model, tmp_path, layers=["1", "concat:1", "mean:all", "max:0,2"], pool="last",
                   classifier="ridge", baselines="none")  # fmt: skip
    table = result.rows.filter(pl.col("metric") == "accuracy")
    values = {name: table.filter(pl.col("layers") == name)["value"].to_list()
              for name in ("1", "concat:1", "mean:all", "max:0,2")}  # fmt: skip
    assert values["1"] == values["concat:1"]
    assert all(len(v) == 3 for v in values.values())


def test_features_too_large_for_memory_are_read_in_blocks_with_the_same_result(
    model, tmp_path, monkeypatch
):
    plain = quick(model, tmp_path / "a", classifier=["logistic", "ridge", "lda"])
    monkeypatch.setattr(inputs, "MAX_MATRIX_BYTES", 0)
    monkeypatch.setattr(inputs, "BLOCK_ROWS", 7)
    blocks = quick(model, tmp_path / "b", classifier=["logistic", "ridge", "lda"])
    key = ["kind", "layers", "pool", "classifier", "repeat", "metric"]
    joined = plain.rows.join(blocks.rows, on=key, suffix="_blocks")
    # Layer 0 knows only the last word: rows that share it tie, and rounding may break the tie.
    gap = joined.filter((pl.col("metric") == "accuracy") & (pl.col("layers") != "0"))
    assert gap.height > 0
    assert (gap["value"] - gap["value_blocks"]).abs().max() < 0.05


def test_several_models_and_sets_make_one_grid(model, tmp_path):
    other = str(tiny("bert", tmp_path / "bert"))
    three = labelled(30, task="multiclass", seed=1)
    three = TextSet(
        "colours", three.texts, labels=three.labels, task="multiclass", classes=three.classes
    )
    result = quick([model, other], tmp_path, data=[labelled(), three],
                   classifier="ridge", baselines="majority")  # fmt: skip
    assert result.rows.select("model", "data").unique().height == 4
    assert len(result.summary["results"]) == 4
    assert len(result.record.model) == 2


def test_results_are_found_again_by_sql(model, tmp_path):
    result = quick(model, tmp_path, baselines="none")
    frame = cutaway.results(tmp_path / "runs").query(
        "select layers, avg(value) as score from rows where metric = 'accuracy' group by 1"
    )
    assert set(frame["layers"]) == {"0", "2"}
    assert results(tmp_path / "runs").get(result.record.address[:6]).method == "probe"


@pytest.mark.parametrize(
    "name", ["layers", "heatmap", "classifiers", "confusion", "roc", "scores", "projection"]
)
def test_the_figures_of_a_run_can_be_drawn(model, tmp_path, name):
    figure = quick(model, tmp_path).figure(name)
    assert figure.data
    assert figure.layout.title.text


@pytest.mark.parametrize(
    ("protocol", "data", "lost"),
    [
        ("repeats", "gen:tense?n=60", True),
        ("curve", "gen:tense?n=60", True),
        ("fixed", "gen:tense?n=60", False),
        ("kshot", "gen:tense?n=60", False),
        ("repeats", "gen:arithmetic?n=60", False),
    ],
)
def test_a_protocol_that_mixes_the_words_of_the_parts_says_so(protocol, data, lost):
    spec = ProbeSpec(model=("m",), data=(data,), protocol=protocol)
    notes = shared_words_notes(spec, [load_text_set(data)])
    assert bool(notes) == lost
    assert not lost or f"the protocol {protocol} draws its rows from all parts" in notes[0]


def write_tsv(path):
    texts = labelled()
    lines = [f"{t}\t{texts.classes[y]}" for t, y in zip(texts.texts, texts.labels, strict=True)]
    path.write_text("sentence\tlabel\n" + "\n".join(lines) + "\n")
    return path


def test_the_command_prints_json_and_nothing_else(model, tmp_path, capsys):
    file = write_tsv(tmp_path / "set.tsv")
    words = ["probe", "--model", model, "--data", str(file), "--layers", "1", "--repeats", "2",
             "--classifier", "lda_shrink", "--baselines", "none", "--runs", str(tmp_path / "r"),
             "--json"]  # fmt: skip
    assert command(words) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["headline"]["layers"] == "1"
    assert (tmp_path / "r" / "probe" / summary["address"] / "result.json").is_file()


def test_a_dry_run_only_estimates(model, tmp_path, capsys):
    file = write_tsv(tmp_path / "set.tsv")
    words = ["probe", "--model", model, "--data", str(file), "--runs", str(tmp_path / "r")]
    assert command([*words, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["rows"] == 60
    assert not (tmp_path / "r").exists()


@pytest.mark.slow
def test_killed_after_any_piece_the_same_command_gives_the_same_table(model, tmp_path):
    file = write_tsv(tmp_path / "set.tsv")

    def words(runs):
        return ["probe", "--model", model, "--data", str(file), "--layers", "all",
                "--pool", "last,mean", "--classifier", "logistic,lda", "--repeats", "3",
                "--baselines", "majority,bow", "--quiet",
                "--runs", str(tmp_path / runs)]  # fmt: skip

    assert command(words("whole")) == 0
    kept = []
    for pieces in (1, 5, 9):
        child = subprocess.Popen(
            [sys.executable, "-m", "cutaway", *words("killed")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while child.poll() is None and finished_pieces(tmp_path / "killed") < pieces:
            time.sleep(0.001)
        child.send_signal(signal.SIGKILL)
        child.wait()
        kept.append(finished_pieces(tmp_path / "killed"))
    assert 1 <= kept[0] < kept[-1], "nothing was killed between two pieces"
    assert command(words("killed")) == 0
    whole, killed = (next(iter(results(tmp_path / part))) for part in ("whole", "killed"))
    assert whole.rows.equals(killed.rows)


def finished_pieces(runs):
    """Pieces of an unfinished run; none once it is saved."""
    return sum(1 for _ in runs.glob("probe/*.partial/*.json"))


def test_texts_that_repeat_cost_no_numbers(model, tmp_path):
    texts = TextSet("same", ("All is good.", "All is bad.") * 30, labels=np.arange(60) % 2,
                    task="binary", classes=("good", "bad"))  # fmt: skip
    result = quick(model, tmp_path, data=texts, classifier="centroid", layers="1", pool="last")
    assert result.summary["headline"]["value"] == 1.0


def test_the_best_cell_has_its_twin_and_control_whatever_its_classifier(model, tmp_path):
    result = quick(model, tmp_path, classifier=["knn", "ridge"], layers="1", pool="last")
    top = result.summary["headline"]["classifier"]
    for kind in ("twin", "control"):
        assert top in result.rows.filter(pl.col("kind") == kind)["classifier"].to_list()


def test_of_equally_good_cells_the_summary_and_the_details_mean_the_same(model, tmp_path):
    texts = TextSet("same", ("All is good.", "All is bad.") * 30, labels=np.arange(60) % 2,
                    task="binary", classes=("good", "bad"))  # fmt: skip
    result = quick(model, tmp_path, data=texts, classifier=["ridge", "centroid"], layers="all")
    top = result.summary["headline"]
    twins = result.rows.filter((pl.col("kind") == "twin") & (pl.col("layers") == top["layers"]))
    assert top["value"] == 1.0
    assert (top["pool"], top["classifier"]) in twins.select("pool", "classifier").rows()


def test_the_headline_is_chosen_on_validation_rows_and_scored_on_test_rows(model, tmp_path):
    rng = np.random.default_rng(0)
    texts = replace(labelled(), labels=rng.permutation(np.arange(60) % 2))
    result = quick(model, tmp_path, data=texts, layers="all", classifier=["lda", "centroid"])
    rows = result.rows.filter((pl.col("kind") == "probe") & (pl.col("n_val") > 0))
    wide = rows.pivot("metric", index=["layers", "pool", "classifier", "repeat"], values="value")
    chosen = wide.sort("accuracy_val", "auc_val", descending=True, maintain_order=True).unique(
        "repeat", keep="first", maintain_order=True
    )
    (found,) = result.summary["results"]
    headline, best = found["headline"], found["best_on_test"]
    assert headline["value"] == pytest.approx(chosen["accuracy"].mean())
    assert (headline["chosen_on"], best["chosen_on"]) == ("validation", "test")
    means = wide.group_by("layers", "pool", "classifier").agg(pl.col("accuracy").mean())
    assert best["value"] == pytest.approx(means["accuracy"].max()) and best["cells"] == 16
    assert best["gained_by_chance"] > 0
    assert headline["chance"] == pytest.approx(0.5, abs=0.1)
    for kind in ("twin", "control"):
        at = result.rows.filter((pl.col("kind") == kind) & (pl.col("metric") == "accuracy"))
        cells = set(at.select("layers", "pool", "classifier", "repeat").rows())
        assert set(chosen.select("layers", "pool", "classifier", "repeat").rows()) <= cells
