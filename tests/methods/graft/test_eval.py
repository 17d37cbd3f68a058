"""`graft eval`: skills on several sets, with and without the tuned model."""

from pathlib import Path

import polars as pl
import pytest

from cutaway.core.digest import digest_text
from cutaway.core.errors import BadSpec
from cutaway.methods.graft import api as graft
from cutaway.methods.graft import eval as evaluation
from tests.methods.graft.toy import TASK, value


def test_eval_measures_skills_on_several_sets(toy, learned) -> None:
    family, _, out = learned
    base, tuned = toy.pair(family)
    result = graft.eval(
        skill=[str(out)], base=base, tuned=tuned, data=[toy.data, toy.other], quiet=True,
        runs=toy.runs, text_limit=4,
    )  # fmt: skip
    assert set(result.rows["data"].drop_nulls()) == {"toy", "other"}
    assert set(result.rows["kind"]) == {"base", "tuned", "learned", "removed"}
    assert set(result.summary["matrix"]["learned"]["toyfeel"]) == {"toy", "other"}
    language = result.rows.filter(pl.col("metric") == "lm_loss")
    assert len(language) == 4


def test_a_killed_evaluation_goes_on_with_the_next_set(toy, learned, monkeypatch) -> None:
    family, _, out = learned
    given = {"skill": [str(out)], "base": toy.pair(family)[0], "data": [toy.data, toy.other]}
    given |= {"runs": toy.runs, "quiet": True, "text": "none", "test_limit": 9}
    evaluate, sets = evaluation.skill_outputs, []

    def killed(request, skill, examples):
        sets.append(len(examples))
        if len(sets) == 2:
            raise KeyboardInterrupt
        return evaluate(request, skill, examples)

    monkeypatch.setattr(evaluation, "skill_outputs", killed)
    with pytest.raises(KeyboardInterrupt):
        graft.eval(**given)
    result = graft.eval(**given)
    assert len(sets) == 3, "the first set is not evaluated again"
    assert result.rows["data"].unique(maintain_order=True).to_list() == ["toy", "other"]


def test_a_skill_of_all_weights_is_the_tuned_model_and_without_it_the_base_is_left(toy) -> None:
    base, tuned = toy.pair("bert")
    whole = toy.learn(sparsity=1.0, start="movement", steps=0, baselines="none", text="none")
    given = {"base": base, "tuned": tuned, "data": [toy.other], "text_limit": 4}
    result = graft.eval(
        skill=[str(whole.path / "skill.safetensors")], **given, runs=toy.runs, quiet=True
    )
    for metric in ("accuracy", "ece", "lm_loss"):
        found = {kind: value(result.rows, kind, metric) for kind in ("base", "tuned")}
        assert found["base"] != found["tuned"]
        assert value(result.rows, "learned", metric) == found["tuned"]
        assert value(result.rows, "removed", metric) == found["base"]
    assert value(result.rows, "removed", "relative_gain") == [0.0]


def test_a_stacked_skill_is_evaluated_with_the_prompts_of_each_task(toy, learned, tmp_path) -> None:
    family, _, out = learned
    base, _ = toy.pair(family)
    mirrored = TASK.replace("toyfeel", "dull").replace('["dog", "cat"]', '["cat", "dog"]')
    (tmp_path / "dull.toml").write_text(mirrored)
    both = str(tmp_path / "both.safetensors")
    graft.stack(skill=[str(out), str(out)], rule="mean", out=both)
    given = {"base": base, "runs": toy.runs, "quiet": True, "text": "none"}
    data = [toy.data, toy.other]
    with pytest.raises(BadSpec, match=r"it is stacked\. Give --task"):
        graft.eval(skill=[both], data=data, **given)
    with pytest.raises(BadSpec, match="1 entries for 2 sets"):
        graft.eval(skill=[both], data=data, task=[toy.task], **given)
    alone = graft.eval(skill=[str(out)], data=data, **given).rows
    asked = graft.eval(skill=[both], data=data, task=[toy.task, str(tmp_path / "dull.toml")],
                       **given).rows  # fmt: skip
    for kind in ("base", "learned"):
        own = {name: value(alone, kind, "accuracy", data=name)[0] for name in ("toy", "other")}
        assert value(asked, kind, "accuracy", data="toyfeel") == [own["toy"]]
        # The same answers by the other word: what was right is wrong.
        assert value(asked, kind, "accuracy", data="dull") == [pytest.approx(1 - own["other"])]


def test_predictions_give_the_reported_accuracy_of_every_model(toy, learned) -> None:
    family, _, out = learned
    base, tuned = toy.pair(family)
    result = graft.eval(
        str(out), base=base, tuned=tuned, data=[toy.data, toy.other], samples=True, text="none",
        test_limit=20, runs=toy.runs, quiet=True,
    )  # fmt: skip
    right = pl.col("truth") == pl.col("answer")
    found = result.samples.group_by("kind", "data").agg(right.mean().alias("found"))
    reported = result.rows.filter(pl.col("metric") == "accuracy")
    both = reported.join(found, on=["kind", "data"])
    assert len(both) == 8 and both["value"].to_list() == both["found"].to_list()
    splits = pl.read_parquet(result.path / "splits.parquet")
    assert splits["row"].to_list() == [
        row for name in ("toy", "other")
        for row in result.samples.filter(data=name, kind="base")["row"]
    ]  # fmt: skip
    texts = [line.split("\t")[0] for line in Path(toy.other).read_text().splitlines()[1:]]
    digests = result.samples.filter(data="other", kind="base")
    expected = [digest_text(texts[i])[:16] for i in digests["row"]]
    assert digests["text_digest"].to_list() == expected
