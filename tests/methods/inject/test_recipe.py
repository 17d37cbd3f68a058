"""`cutaway inject` from end to end on toys that can spell numbers."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

import cutaway
from cutaway.catalog import VERBS
from cutaway.core.errors import BadData, BadSpec, Mismatch, UnknownName
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.methods.inject.arithmetic import (
    answer_examples,
    answer_ids,
    generate_answers,
    make_answer_format,
    parse_number,
    parse_numbers,
)
from cutaway.methods.inject.cells import InjectCell, sweep_cells
from cutaway.methods.inject.maths.score import exact_matches
from cutaway.methods.inject.pareto import mark_pareto_front, pareto_points
from cutaway.methods.inject.skill import drop_known_problems, problem_keys, split_problems
from cutaway.methods.inject.spec import REGULARISERS, InjectSpec
from cutaway.methods.inject.trainable import lora_weights, merged_adapters
from cutaway.models.load import open_model
from cutaway.recipe import life_cycle
from tests import tiny

SUMS = "gen:arithmetic?n=60,ops=+-,digits=1,dev=10,test=20"
RETAIN = TextSet("toy", tuple(tiny.toy_language(60, seed=5)))
SHORT = {"steps": 4, "every": 2, "batch": 8, "retain_batch": 4, "clash": False, "lr": 1e-3}


def spelling_toy(folder, family: str):
    """A toy whose tokenizer knows digits."""
    lines = [f"{a} + {b} = {a + b}" for a in range(10) for b in range(10)]
    # Long numbers too, so that every digit can begin a word and go on with one.
    texts = tiny.toy_language(300) + lines + [str(n) for n in range(1000, 9999, 37)]
    tokenizer = tiny.tiny_tokenizer(tiny.FAMILIES[family].style, texts, size=700)
    model = tiny.tiny_model(family, tokenizer)
    tiny._train(model, tokenizer, tiny.toy_language(300), 40, np.random.default_rng(0))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    """{kind: folder}."""
    root = tmp_path_factory.mktemp("toys")
    return {"causal": spelling_toy(root / "c", "llama"), "masked": spelling_toy(root / "m", "bert")}


def teach(toys, tmp_path, kind="causal", **options):
    given = {"model": toys[kind], "data": SUMS, "retain": [RETAIN], "runs": str(tmp_path / "runs")}
    return cutaway.inject(**{**given, **SHORT, **options})


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_every_regulariser_trains_both_kinds(kind, toys, tmp_path) -> None:
    result = teach(toys, tmp_path, kind, regulariser=list(REGULARISERS), strength=[0.1])
    rows = result.rows
    assert rows.columns[:6] == ["model", "skill", "regulariser", "strength", "stage", "probe"]
    assert rows.columns[-4:] == ["metric", "value", "low", "high"]
    assert set(rows["regulariser"]) == {"-", *REGULARISERS}
    assert {point["regulariser"] for point in result.summary["pareto"]} == set(REGULARISERS)
    for name in result.summary["cells"]:
        assert open_model(str(result.path / "checkpoints" / name), check=False).kind == kind


def weights_of(result, cell: str) -> dict[str, torch.Tensor]:
    return open_model(str(result.path / "checkpoints" / cell), check=False).params()


def same(one, two) -> bool:
    return all(torch.equal(value, two[name]) for name, value in one.items())


def test_strength_0_is_plain_training_step_for_step(toys, tmp_path) -> None:
    result = teach(toys, tmp_path, regulariser="none,ewc,l2sp,kl,replay", strength=[0])
    plain = weights_of(result, "none-0-seed0")
    for name in ("ewc", "l2sp", "kl", "replay"):
        assert same(plain, weights_of(result, f"{name}-0-seed0")), name


def test_a_stronger_pull_leaves_the_weights_nearer(toys, tmp_path) -> None:
    result = teach(
        toys, tmp_path, regulariser="none,ewc,l2sp", strength=[0.01, 100], steps=20, every=20
    )
    start = open_model(toys["causal"], check=False).params()

    def far(cell: str) -> float:
        found = weights_of(result, cell)
        return sum(float((found[n] - w).square().sum()) for n, w in start.items())

    for name in ("ewc", "l2sp"):
        assert far(f"{name}-100-seed0") < far(f"{name}-0.01-seed0") <= 1.1 * far("none-0-seed0")


def test_the_model_that_was_given_stays_as_it_was(toys, tmp_path) -> None:
    lm = open_model(toys["causal"], check=False)
    before = {name: value.clone() for name, value in lm.params().items()}
    teach(toys, tmp_path, model=lm, regulariser="none")
    teach(toys, tmp_path, model=lm, regulariser="ewc", lora=2)
    assert same(before, lm.params())
    assert list(before) == list(lm.params())


def test_a_killed_sweep_ends_in_the_same_weights(toys, tmp_path, monkeypatch) -> None:
    given = {"regulariser": "none,ewc", "steps": 6}
    whole = teach(toys, tmp_path / "whole", **given)
    import cutaway.training.loop as loop

    real, calls = loop.training_step, []

    def killed(*args, **kwargs):
        calls.append(1)
        if len(calls) > 9:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(loop, "training_step", killed)
    with pytest.raises(KeyboardInterrupt):
        teach(toys, tmp_path / "killed", **given)
    monkeypatch.setattr(loop, "training_step", real)
    resumed = teach(toys, tmp_path / "killed", **given)
    for cell in whole.summary["cells"]:
        assert same(weights_of(whole, cell), weights_of(resumed, cell))
    assert whole.rows.equals(resumed.rows)


def test_the_same_spec_gives_the_same_run(toys, tmp_path) -> None:
    one = teach(toys, tmp_path, regulariser="none")
    assert teach(toys, tmp_path, regulariser="none").record.address == one.record.address


def test_adapters_are_merged_into_plain_weights(toys, tmp_path) -> None:
    lm = open_model(toys["causal"], check=False)
    ids, chance = torch.tensor([[1, 5, 9, 7]]), torch.Generator().manual_seed(0)
    with lora_weights(lm, 2, seed=0) as trainable:
        with torch.no_grad():
            for name, value in trainable.params.items():
                drawn = torch.randn(value.shape, generator=chance)
                value.copy_(drawn if "lora_B" in name else value)
        adapted = lm.module(input_ids=ids).logits
        with merged_adapters(lm, trainable):
            # (W + BA) x and W x + B (A x) round differently.
            gap = (lm.module(input_ids=ids).logits - adapted).abs().max()
            assert gap <= 1e-4 * adapted.abs().max()
            assert not any("lora" in name for name in lm.params())
    assert not torch.allclose(lm.module(input_ids=ids).logits, adapted)
    result = teach(toys, tmp_path, regulariser="ewc,kl", lora=2, strength=[1])
    assert set(result.rows["regulariser"]) >= {"ewc+lora2", "kl+lora2"}


def test_a_retained_set_with_classes_is_probed(toys, tmp_path) -> None:
    texts, labels = tiny.toy_sentiment(60)
    feelings = TextSet("feelings", tuple(texts), labels, "binary", ("bad", "good"))
    result = teach(toys, tmp_path, retain=[RETAIN, feelings], regulariser="none")
    found = result.rows.filter(result.rows["probe"] == "feelings")
    assert {"probe_accuracy", "probe_forgetting", "forgetting", "lm_loss"} <= set(found["metric"])


def test_training_stops_when_too_much_is_forgotten(toys, tmp_path) -> None:
    result = teach(toys, tmp_path, regulariser="none", steps=40, lr=0.05, stop_loss=0.01)
    ends = result.rows.filter(result.rows["metric"] == "steps")
    assert ends["probe"].to_list() == ["retained loss rose too far"]
    assert ends["value"][0] < 40


def test_the_clash_of_fishers_and_the_maps_of_weights_are_kept(toys, tmp_path) -> None:
    more = TextSet("more", tuple(tiny.toy_language(30, seed=6)))
    given = {"regulariser": "none,ewc", "clash": True, "fisher_examples": 8}
    result = teach(toys, tmp_path, retain=[RETAIN, more], **given)
    found = json.loads((result.path / "inject.json").read_text())
    assert found["tops"][0]["where"] == "all layers"
    for panel in found["tops"]:
        skill, *others = (curve["values"] for curve in panel["curves"].values())
        assert list(panel["curves"]) == ["skill", "toy", "more"]
        assert skill == sorted(skill, reverse=True)
        assert {len(curve) for curve in others} == {len(skill)} == {800}
    assert {one["way"] for one in found["maps"]} == {"pca", "tsne"}
    assert "rank_correlation" in set(result.rows["metric"])


def test_a_fisher_file_is_used_and_one_of_another_model_refused(toys, tmp_path) -> None:
    out, other = str(tmp_path / "f.safetensors"), str(tmp_path / "g.safetensors")
    cutaway.fisher(model=toys["causal"], text=RETAIN, out=out, runs=str(tmp_path))
    cutaway.fisher(model=toys["masked"], text=RETAIN, out=other, runs=str(tmp_path))
    teach(toys, tmp_path, regulariser="ewc", fisher=out)
    with pytest.raises(Mismatch, match="is the Fisher of"):
        teach(toys, tmp_path, regulariser="ewc", fisher=other)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"strength": [-1]}, BadSpec, "0 or more"),
        ({"strength": "much"}, BadSpec, "numbers such as"),
        ({"regulariser": "ewcc"}, UnknownName, "ewc"),
        ({"data": "gen:sentiment"}, BadData, "no arithmetic"),
        ({"data": "gen:arithmetic?ops=%"}, UnknownName, "operator"),
        ({"retain": []}, BadData, "--retain"),
        ({"retain": [TextSet("two", ("one", "two"))]}, BadData, "at least 10"),
        ({"beyond": "many"}, BadSpec, "such as 3,4"),
        ({"regression": 1.0, "data": SUMS + ",format=scratch"}, BadSpec, "scratch"),
        ({"masks": 3}, BadSpec, "--masks 3 is for masked models"),
    ],
)
def test_what_cannot_be_is_refused(options, error, said, toys, tmp_path) -> None:
    with pytest.raises(error, match=said):
        teach(toys, tmp_path, **options)


def test_an_empty_retention_file_is_refused(toys, tmp_path) -> None:
    (tmp_path / "none.txt").write_text("\n\n")
    with pytest.raises(BadData):
        teach(toys, tmp_path, retain=[str(tmp_path / "none.txt")])


def test_answers_longer_than_the_masks_are_refused(toys, tmp_path) -> None:
    with pytest.raises(BadSpec, match="--masks 1 is too few"):
        teach(toys, tmp_path, "masked", data="gen:arithmetic?n=20,digits=3-4", masks=1)


def test_a_division_by_zero_in_a_file_is_refused(toys, tmp_path) -> None:
    (tmp_path / "d.txt").write_text("\n".join(["4 / 2 = 2"] * 12 + ["3 / 0 = 0"]))
    with pytest.raises(BadData, match="by zero"):
        teach(toys, tmp_path, data=str(tmp_path / "d.txt"))


def test_a_file_of_lines_is_taught(toys, tmp_path) -> None:
    lines = [f"{a} + {b} = {a + b}" for a in range(8) for b in range(a, 8)]
    (tmp_path / "sums.txt").write_text("\n".join(lines))
    result = teach(toys, tmp_path, data=str(tmp_path / "sums.txt"), regulariser="none", beyond=[2])
    assert any("beyond 2 digits" in probe for probe in result.rows["probe"])


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_right_answers_are_read_as_the_right_numbers(kind, toys, monkeypatch) -> None:
    lm = open_model(toys[kind], check=False)
    texts = load_text_set("gen:arithmetic?n=30,digits=1-2")
    spelling = make_answer_format(lm, [texts])
    examples = answer_examples(lm, texts, spelling)
    said = []
    for target in examples.targets:
        tokens = target[: target.index(spelling.end)] if spelling.end in target else target
        said.append(lm.tokenizer.decode(tokens))
    np.testing.assert_array_equal(parse_numbers(said, texts), texts.meta["result"])


def test_the_length_of_an_answer_is_not_given_away(toys) -> None:
    lm = open_model(toys["masked"], check=False)
    texts = load_text_set("gen:arithmetic?n=30,digits=1-3")
    spelling = make_answer_format(lm, [texts])
    rows = answer_examples(lm, texts, spelling).rows
    masks = {row.count(lm.tokenizer.mask_token_id) for row in rows}
    assert masks == {spelling.masks}
    assert len({len(answer_ids(lm, str(a))) for a in texts.meta["answers"]}) > 1


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_what_is_said_does_not_depend_on_company(kind, toys) -> None:
    lm = open_model(toys[kind], check=False)
    texts = load_text_set("gen:arithmetic?n=12,digits=1-2")
    spelling = make_answer_format(lm, [texts])
    alone = [generate_answers(lm, texts.take([i]), spelling)[0] for i in range(len(texts))]
    assert generate_answers(lm, texts, spelling) == alone


@pytest.mark.parametrize(
    ("text", "form", "number"),
    [
        (" 46", "plain", 46),
        ("4 6", "digit-spaced", 46),
        ("-7", "plain", -7),
        ("1 + 2 + 0 = 3; 3", "scratch", 3),
    ],
)
def test_numbers_are_read(text, form, number) -> None:
    assert parse_number(text, form) == number


def test_an_answer_of_18_digits_that_is_off_by_one_is_wrong() -> None:
    texts = load_text_set("gen:arithmetic?n=12,ops=x,digits=9,dev=1,test=1")
    right = texts.meta["result"]
    assert exact_matches(right, parse_numbers([str(n) for n in right.tolist()], texts)).all()
    for step in (-1, 1):
        said = [str(n + step) for n in right.tolist()]
        assert not exact_matches(right, parse_numbers(said, texts)).any()


@pytest.mark.parametrize("text", [None, "", "the", "4.5", "12a", "1 + 2 = 3"])
def test_what_is_no_number_is_counted_as_none(text) -> None:
    assert np.isnan(parse_number(text, "plain"))


def test_train_and_test_share_no_question() -> None:
    for source in (SUMS, "gen:arithmetic?n=500,ops=+-x/,digits=1-3"):
        train, dev, test = split_problems(load_text_set(source), 0)
        assert not set(problem_keys(train)) & set(problem_keys(test))
        assert not set(problem_keys(train)) & set(problem_keys(dev))
    train = load_text_set(SUMS).part("train")
    with pytest.raises(BadData, match="is in train"):
        drop_known_problems(train, set(problem_keys(train)))


def test_plain_training_comes_once_for_all_strengths() -> None:
    spec = InjectSpec(model="m", regulariser="none,ewc", strength="0.1,1", repeats=2)
    assert sweep_cells(spec) == [
        InjectCell("none", 0.0, 0),
        InjectCell("none", 0.0, 1),
        InjectCell("ewc", 0.1, 0),
        InjectCell("ewc", 0.1, 1),
        InjectCell("ewc", 1.0, 0),
        InjectCell("ewc", 1.0, 1),
    ]


def test_a_regulariser_may_have_strengths_of_its_own() -> None:
    spec = InjectSpec(model="m", regulariser="none,ewc=0.1:1,kl,ewc=1:5", strength="2,3")
    assert spec.strengths_by_regulariser == {
        "none": (0.0,),
        "ewc": (0.1, 1.0, 5.0),
        "kl": (2.0, 3.0),
    }
    assert [cell.name for cell in sweep_cells(spec)][:2] == ["none-0-seed0", "ewc-0.1-seed0"]


@pytest.mark.parametrize(
    ("given", "said"),
    [("ewc=-1", "0 or more"), ("ewc=", "must be numbers"), ("none=1", "none has no strength")],
)
def test_a_strength_that_cannot_be_is_refused_with_its_regulariser(given, said) -> None:
    with pytest.raises(ValueError, match=said):
        InjectSpec(model="m", regulariser=given)


def test_low_and_high_of_a_point_are_a_95_percent_interval(toys, tmp_path) -> None:
    one = teach(toys, tmp_path, regulariser="none")
    rows = one.rows.filter((one.rows["stage"] == "after") & (one.rows["metric"] == "forgetting"))
    (point,) = one.summary["pareto"]
    assert (point["forgetting_low"], point["forgetting_high"]) == (rows["low"][0], rows["high"][0])
    assert point["forgetting_low"] < point["forgetting"] < point["forgetting_high"]

    def row(seed: int, metric: str, value: float, probe: str) -> dict[str, object]:
        where = {"regulariser": "none", "strength": 0.0, "seed": seed, "stage": "after"}
        return {**where, "probe": probe, "metric": metric, "value": value}

    said = [row(seed, "exact_match", 0.4 + 0.02 * seed, "arithmetic test") for seed in (0, 1)]
    lost = [row(0, "forgetting", 1.0, "docs"), row(1, "forgetting", 1.0, "docs")]
    (two,) = pareto_points(said + lost)
    # 12.7062 is Student's t of two seeds.
    reach = 12.7062 * 0.01
    assert two["exact_match_low"] == pytest.approx(0.41 - reach, abs=1e-5)
    assert two["exact_match_high"] == pytest.approx(0.41 + reach, abs=1e-5)
    (bare,) = pareto_points(said[:1] + lost[:1])
    assert bare["forgetting_low"] is None


def test_an_estimate_counts_the_adapters_where_they_are_trained(toys, tmp_path) -> None:
    (tmp_path / "t.txt").write_text("\n".join(tiny.toy_language(30, seed=5)))
    given = {"model": toys["causal"], "data": SUMS, "retain": str(tmp_path / "t.txt"), **SHORT}
    costs = {
        ranks: life_cycle.estimate(
            VERBS["inject"], InjectSpec(**given, regulariser="none", lora=ranks)
        )[0]
        for ranks in ("0", "2", "0,2")
    }
    lm = open_model(toys["causal"], check=False)
    with lora_weights(lm, 2, seed=0) as trainable:
        adapters = sum(p.numel() for p in trainable.params.values())
    assert costs["2"].counts["weights"] == adapters
    assert costs["0"].counts["weights"] == costs["0,2"].counts["weights"] == lm.parameters
    assert costs["2"].memory_mb < costs["0"].memory_mb == costs["0,2"].memory_mb
    assert costs["0,2"].counts["steps"] == 2 * costs["2"].counts["steps"]


def test_a_point_is_on_the_front_unless_another_beats_it() -> None:
    points = [
        {"exact_match": 0.9, "forgetting": 1.0},
        {"exact_match": 0.9, "forgetting": 0.5},
        {"exact_match": 0.2, "forgetting": 0.1},
        {"exact_match": 0.1, "forgetting": 0.2},
    ]
    assert [point["front"] for point in mark_pareto_front(points)] == [False, True, True, False]


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        ids = torch.tensor([1, 5 + i, 9, 7])
        return {"input_ids": ids, "labels": ids}


def trainer(toys, tmp_path, *callbacks, lora: bool = False, rate: float = 0.1):
    model = AutoModelForCausalLM.from_pretrained(toys["causal"])
    if lora:
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(0)
        model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    arguments = TrainingArguments(
        str(tmp_path), max_steps=5, learning_rate=rate, optim="sgd", report_to=[],
        lr_scheduler_type="constant", save_strategy="no", disable_tqdm=True, use_cpu=True,
        logging_steps=5,
    )  # fmt: skip
    made = Trainer(model, arguments, train_dataset=Rows(), callbacks=list(callbacks))
    made.train()
    return made


@pytest.fixture
def ones(toys) -> dict[str, torch.Tensor]:
    return {n: torch.ones_like(p) for n, p in open_model(toys["causal"]).params().items()}


def test_the_callback_holds_weights_of_the_trainer(toys, tmp_path, ones) -> None:
    start = open_model(toys["causal"], check=False).params()
    nothing = trainer(toys, tmp_path)
    zero = trainer(toys, tmp_path, cutaway.EWCCallback(ones, 0.0))
    holder = cutaway.EWCCallback(ones, 8.0)
    held = trainer(toys, tmp_path, holder)

    def far(run) -> float:
        found = dict(run.model.named_parameters())
        return sum(float((found[n].detach() - w).square().sum()) for n, w in start.items())

    for name, value in nothing.model.named_parameters():
        assert torch.equal(value, dict(zero.model.named_parameters())[name])
    assert 0 < far(held) < 0.7 * far(nothing)
    assert holder.penalty > 0


def test_the_callback_holds_adapters_too(toys, tmp_path, ones) -> None:
    def far(run) -> float:
        return sum(
            float(part.get_delta_weight("default").detach().square().sum())
            for part in run.model.modules()
            if hasattr(part, "get_delta_weight")
        )

    plain = trainer(toys, tmp_path, lora=True, rate=0.05)
    held = trainer(toys, tmp_path, cutaway.EWCCallback(ones, 0.5), lora=True, rate=0.05)
    assert 0 < far(held) < far(plain)


def test_the_callback_refuses_another_models_fisher(toys, tmp_path) -> None:
    with pytest.raises(Mismatch, match="another model's"):
        trainer(toys, tmp_path, cutaway.EWCCallback({"x": torch.ones(1)}, 1.0))
    with pytest.raises(BadSpec, match="0 or more"):
        cutaway.EWCCallback({}, -1.0)


def test_a_killed_sweep_makes_its_fishers_only_once(toys, tmp_path, monkeypatch) -> None:
    import cutaway.methods.inject.fisher_overlap as clashes
    import cutaway.training.loop as loop

    real, made = clashes.mean_squared_gradients, []
    monkeypatch.setattr(
        clashes, "mean_squared_gradients", lambda *a, **k: made.append(1) or real(*a, **k)
    )
    given = {"regulariser": "ewc", "clash": True, "fisher_examples": 8}
    with monkeypatch.context() as killed:
        killed.setattr(loop, "training_step", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            teach(toys, tmp_path / "killed", **given)
    resumed = teach(toys, tmp_path / "killed", **given)
    assert len(made) == 2
    assert resumed.rows.equals(teach(toys, tmp_path / "whole", **given).rows)
