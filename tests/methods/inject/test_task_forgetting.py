"""Fine-tunes before and after an injection: what the model can still be taught."""

import numpy as np
import pytest
import torch

import cutaway
from cutaway.console import Console
from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.methods.inject import task_forgetting
from cutaway.methods.inject.cells import InjectCell, sweep_cells
from cutaway.methods.inject.figures import FIGURES
from cutaway.methods.inject.figures_ledger import ledger_table
from cutaway.methods.inject.spec import InjectSpec
from cutaway.methods.inject.table import inject_table
from cutaway.methods.inject.task_forgetting import finetune_on_tasks, read_retained_tasks
from cutaway.models.load import open_model
from tests import tiny
from tests.methods.inject.toys import RETAIN, SHORT, SUMS, spelling_toy

QUIET = Console(quiet=True)
TASK = {"task_steps": 6, "task_batch": 8, "task_lr": 1e-3}


def feelings(name: str = "feelings", seed: int = 0) -> TextSet:
    texts, labels = tiny.toy_sentiment(60, seed=seed)
    return TextSet(name, tuple(texts), labels, "binary", ("bad", "good"))


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    root = tmp_path_factory.mktemp("toys")
    return {"causal": spelling_toy(root / "c", "llama"), "masked": spelling_toy(root / "m", "bert")}


def teach(toys, tmp_path, kind="causal", **options):
    given = {"model": toys[kind], "data": SUMS, "retain": [RETAIN], "runs": str(tmp_path / "runs"),
             "retain_tasks": [feelings()], "regulariser": "none", "checkpoints": False}  # fmt: skip
    return cutaway.inject(**{**given, **SHORT, **TASK, **options})


def of(rows, metric: str, stage: str = "after"):
    return rows.filter((rows["metric"] == metric) & (rows["stage"] == stage))


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_the_ledger_holds_scores_before_and_after_with_intervals(kind, toys, tmp_path) -> None:
    result = teach(toys, tmp_path, kind, regulariser="none,ewc", repeats=2, fisher_examples=4)
    before, after = (of(result.rows, "finetune_accuracy", s) for s in ("before", "after"))
    lost = of(result.rows, "finetune_forgetting")
    assert before["seed"].to_list() == [0, 1]
    assert after["seed"].to_list() == lost["seed"].to_list() == [0, 1, 0, 1]
    for frame in (before, after, lost):
        assert (frame["low"] <= frame["value"]).all()
        assert (frame["value"] <= frame["high"]).all()
    start = dict(before.select("seed", "value").iter_rows())
    for end, gone, seed in zip(after["value"], lost["value"], after["seed"], strict=True):
        assert gone == pytest.approx(start[seed] - end)
    told = result.record.baselines["fine-tuned"]["feelings"]
    assert told["base"] == pytest.approx(np.mean(list(start.values())))
    assert 0.4 < told["one answer for all"] < 0.7


def test_the_ledger_is_drawn_and_tabled(toys, tmp_path) -> None:
    result = teach(toys, tmp_path)
    assert "fine-tune" in set(ledger_table(result.rows)["kind"])
    shown = " ".join(str(trace.x) for trace in FIGURES["ledger"](result.rows, result.record).data)
    assert "feelings<br>fine-tune" in shown
    assert "finetune_forgetting" in inject_table(result.rows).columns
    assert "fine-tuning score" in result.summary["verdict"][0]
    assert result.summary["pareto"][0]["finetune_forgetting"] == pytest.approx(
        of(result.rows, "finetune_forgetting")["value"][0]
    )


def tasks_of(toys, kind="causal", **options):
    lm = open_model(toys[kind], check=False)
    given = {"model": "m", "retain_tasks": ["t"], **TASK, **options}
    return lm, read_retained_tasks(lm, InjectSpec(**given), {"t": feelings()})


def test_an_unchanged_model_forgets_nothing_and_stays_as_it_is(toys, tmp_path) -> None:
    lm, tasks = tasks_of(toys)
    start = {name: value.clone() for name, value in lm.params().items()}
    one, two = (finetune_on_tasks(lm, tasks, n, 0, tmp_path, QUIET)[0] for n in ("one", "two"))
    np.testing.assert_array_equal(one["feelings"], two["feelings"])
    lost = tasks[0].forgetting(one["feelings"], two["feelings"])
    assert lost.mean == 0
    assert -0.2 < lost.low < 0 < lost.high < 0.2
    assert all(torch.equal(value, start[name]) for name, value in lm.params().items())


def test_a_fine_tune_learns(toys, tmp_path) -> None:
    lm, tasks = tasks_of(toys, task_steps=60, task_lr=3e-3)
    found = finetune_on_tasks(lm, tasks, "base", 0, tmp_path, QUIET)[0]["feelings"]
    assert tasks[0].score(found) > tasks[0].majority_score()


def test_a_fine_tune_that_is_done_is_read_back(toys, tmp_path, monkeypatch) -> None:
    lm, tasks = tasks_of(toys)
    first = finetune_on_tasks(lm, tasks, "base", 0, tmp_path, QUIET)[0]["feelings"]
    monkeypatch.setattr(
        task_forgetting, "run_finetuning", lambda *_, **__: pytest.fail("taught again")
    )
    np.testing.assert_array_equal(
        finetune_on_tasks(lm, tasks, "base", 0, tmp_path, QUIET)[0]["feelings"], first
    )


@pytest.mark.parametrize("after", [5, 13, 21])
def test_a_run_killed_in_a_fine_tune_ends_the_same(after, toys, tmp_path, monkeypatch) -> None:
    import cutaway.training.loop as loop

    real, calls = loop.training_step, []

    def killed(*args, **kwargs):
        calls.append(1)
        if len(calls) > after:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    whole = teach(toys, tmp_path / "whole", regulariser="none,l2sp")
    monkeypatch.setattr(loop, "training_step", killed)
    with pytest.raises(KeyboardInterrupt):
        teach(toys, tmp_path / "killed", regulariser="none,l2sp")
    monkeypatch.setattr(loop, "training_step", real)
    assert teach(toys, tmp_path / "killed", regulariser="none,l2sp").rows.equals(whole.rows)


def test_a_known_tasks_metric_is_taken_with_rows_from_a_file(toys, tmp_path) -> None:
    lines = [f"{text}\t{label}" for text, label in zip(*tiny.toy_sentiment(40), strict=True)]
    (tmp_path / "rows.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    lm = open_model(toys["causal"], check=False)
    spec = InjectSpec(model="m", retain_tasks=[f"cola={tmp_path / 'rows.tsv'}"])
    (course,) = read_retained_tasks(lm, spec)
    assert (course.name, course.metric) == ("cola", "mcc")


def test_named_columns_are_read_in_files_and_left_to_sets_with_their_own(toys, tmp_path) -> None:
    lines = [f"{text}\t{label}" for text, label in zip(*tiny.toy_sentiment(40), strict=True)]
    (tmp_path / "rows.tsv").write_text("\n".join(["line\tkind", *lines]) + "\n")
    lm, tasks = open_model(toys["causal"], check=False), [str(tmp_path / "rows.tsv"), "gen:tense"]
    columns = {"text_column": "line", "label_column": "kind"}
    spec = InjectSpec(model="m", retain_tasks=tasks, **columns)
    assert [task.name for task in read_retained_tasks(lm, spec)] == ["rows", "gen:tense"]


def test_sets_that_teach_nothing_are_refused(toys, tmp_path) -> None:
    (tmp_path / "none.tsv").write_text("text\tlabel\n")
    with pytest.raises(BadSpec, match="twice"):
        teach(toys, tmp_path, retain_tasks=[feelings(), feelings()])
    with pytest.raises(BadData, match="kind 'text'"):
        teach(toys, tmp_path, retain_tasks=[RETAIN])
    with pytest.raises(BadData):
        teach(toys, tmp_path, retain_tasks=[str(tmp_path / "none.tsv")])


def test_weights_and_adapters_are_compared_in_one_sweep(toys, tmp_path) -> None:
    spec = InjectSpec(model="m", regulariser="none", lora="0,2")
    assert sweep_cells(spec) == [InjectCell("none", 0.0, 0), InjectCell("none", 0.0, 0, 2)]
    result = teach(toys, tmp_path, lora=[0, 2])
    assert [p["regulariser"] for p in result.summary["pareto"]] == ["none", "none+lora2"]
    assert len(of(result.rows, "finetune_forgetting")) == 2
