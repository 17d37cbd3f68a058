"""The recipes of graft on toy models, causal and masked: files, numbers, refusals."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from cutaway.core.errors import BadData, BadSpec, Corrupt, Mismatch
from cutaway.core.spec import build_spec
from cutaway.methods.graft import api as graft
from cutaway.methods.graft import learn as recipe
from cutaway.methods.graft.atlas import head_layout, module_location, weights_by_head
from cutaway.methods.graft.maths.select import intersection_size
from cutaway.methods.graft.skill import load_skill, model_weights
from cutaway.methods.graft.spec import BASELINES, LearnSpec
from cutaway.models.digests import checksum
from cutaway.models.load import open_model
from tests.tiny import FAMILIES, tiny, toy_model, toy_sentiment

TASK = """
name = "toyfeel"
description = "Is it happy?"
kind = "binary"
classes = ["neg", "pos"]
template = "{text} and {mask} ."
label_words = ["dog", "cat"]
[columns]
text = "text"
label = "label"
[labels]
names = { "0" = "neg", "1" = "pos" }
[autoregressive]
template = " {text} , and the"
words = ["dog", "cat"]
"""
KINDS = {"llama": "autoregressive", "bert": "prompt"}


def table_of(path: Path, n: int, seed: int = 0) -> Path:
    texts, labels = toy_sentiment(n, seed=seed)
    lines = [f"{t.split(' , so')[0].strip()}\t{y}" for t, y in zip(texts, labels, strict=True)]
    path.write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return path


class Room:
    """A folder with a task, its rows, a base, and a tuned model for each kind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = str(table_of(folder / "toy.tsv", 240))
        self.other = str(table_of(folder / "other.tsv", 60, seed=5))
        (folder / "toyfeel.toml").write_text(TASK)
        self.task = str(folder / "toyfeel.toml")
        self.runs = str(folder / "runs")

    def pair(self, family: str) -> tuple[str, str]:
        base, tuned = self.folder / family, self.folder / f"{family}-tuned"
        if not tuned.exists():
            toy_model(base, family)
            graft.finetune(
                model=str(base), task=self.task, data=self.data, steps=40, lr=0.05, every=20,
                out=str(tuned), runs=self.runs, quiet=True,
            )  # fmt: skip
        return str(base), str(tuned)

    def learn(self, family: str = "bert", **options):
        base, tuned = self.pair(family)
        given = {
            "base": base, "tuned": tuned, "task": self.task, "data": self.data, "steps": 10,
            "sparsity": 0.02, "runs": self.runs, "text_limit": 6, "slope_examples": 8,
        }  # fmt: skip
        return graft.learn(quiet=True, **(given | options))

    def skill(self) -> str:
        """The file of a skill that was quickly learned."""
        result = self.learn(sparsity=0.2, steps=2, baselines="none", text="none")
        return str(result.path / "skill.safetensors")


@pytest.fixture(scope="module")
def room(tmp_path_factory) -> Room:
    return Room(tmp_path_factory.mktemp("graft"))


@pytest.fixture(scope="module", params=list(KINDS))
def learned(room, request):
    """A skill with every baseline, two seeds and two sizes, per kind of model."""
    out = room.folder / f"{request.param}.safetensors"
    result = room.learn(request.param, sparsity=(0.02, 0.2), seeds=(0, 1), out=str(out))
    return request.param, result, out


def value(rows: pl.DataFrame, kind: str, metric: str, **where) -> list[float]:
    chosen = rows.filter((pl.col("kind") == kind) & (pl.col("metric") == metric))
    for name, wanted in where.items():
        chosen = chosen.filter(pl.col(name) == wanted)
    return chosen["value"].to_list()


def test_a_run_has_every_kind_of_mask_at_its_exact_size(learned) -> None:
    family, result, out = learned
    kinds = set(result.rows["kind"].to_list())
    expected = {"base", "tuned", "learned", "removed", *BASELINES}
    assert kinds == (expected - {"biases"} if family == "llama" else expected)
    sizes = result.summary["sizes"]
    for share, size in zip(result.summary["sparsity"], sizes, strict=True):
        for kind in kinds - {"base", "tuned", "removed", "biases"}:
            assert set(value(result.rows, kind, "size", sparsity=share)) == {size}
    assert load_skill(out).size == sizes[0]


def test_columns_and_coordinates_are_those_of_the_contract(learned) -> None:
    _, result, _ = learned
    first = ["base", "tuned", "task", "kind", "sparsity", "seed"]
    assert result.rows.columns[:6] == first
    assert result.rows.columns[-4:] == ["metric", "value", "low", "high"]
    seeds = result.rows.filter((pl.col("kind") == "learned") & (pl.col("metric") == "accuracy"))
    assert sorted(seeds["seed"].unique().to_list()) == [0, 1]


def test_base_and_tuned_gain_nothing_and_everything(learned) -> None:
    _, result, _ = learned
    assert value(result.rows, "base", "relative_gain") == [0.0]
    assert value(result.rows, "tuned", "relative_gain") == [1.0]
    assert value(result.rows, "tuned", "agreement") == [1.0]


def test_more_weights_keep_more_and_random_ones_keep_less(learned) -> None:
    _, result, _ = learned
    few, many = result.summary["sparsity"]
    large = np.mean(value(result.rows, "learned", "relative_gain", sparsity=many))
    assert large > 0.8
    assert large >= np.mean(value(result.rows, "random", "relative_gain", sparsity=many))
    judged = [value(result.rows, "learned", "judge", sparsity=s) for s in (few, many)]
    assert np.mean(judged[1]) >= np.mean(judged[0]) - 0.02


def test_a_mask_is_never_judged_worse_than_its_start(learned) -> None:
    _, result, _ = learned
    for seed in (0, 1):
        curve = result.rows.filter((pl.col("metric") == "mask_score") & (pl.col("seed") == seed))
        for (_,), steps in curve.group_by(["sparsity"]):
            start = steps.filter(pl.col("step") == 0)["value"][0]
            assert steps["value"].max() >= start


def test_the_atlas_counts_every_weight_once(learned) -> None:
    _, result, out = learned
    assert sum(value(result.rows, "learned", "weights")) == load_skill(out).size


def test_attached_it_answers_as_the_run_measured_and_detached_it_is_the_base(learned, room) -> None:
    family, result, out = learned
    base, tuned = room.pair(family)
    lm, skill = open_model(base), graft.load(out)
    before = {n: p.clone() for n, p in model_weights(lm).items()}
    goal = model_weights(open_model(tuned))
    skill.attach(lm)
    for name, places in skill.patch.mask.places.items():
        assert torch.equal(model_weights(lm)[name].take(places), goal[name].take(places))
    changed = sum(int((model_weights(lm)[n] != before[n]).sum()) for n in before)
    assert 0 < changed <= skill.size
    skill.detach(lm)
    assert all(torch.equal(model_weights(lm)[n], before[n]) for n in before)
    metrics = skill.meta["metrics"]["learned"]["accuracy"]["value"]
    share = result.summary["sparsity"][0]
    means = np.mean(value(result.rows, "learned", "accuracy", sparsity=share))
    assert metrics == pytest.approx(means)


def test_saved_loaded_and_attached_gives_the_same_logits(learned, room, tmp_path) -> None:
    family, _, out = learned
    base, _ = room.pair(family)
    lm, skill = open_model(base), load_skill(out)
    again = load_skill(skill.save(tmp_path / "again.safetensors"))
    ids = torch.tensor([[5, 6, 7, 8]])
    found = []
    for one in (skill, again):
        one.attach(lm)
        found.append(lm.module(input_ids=ids).logits)
        one.detach(lm)
    assert torch.equal(*found)
    assert not torch.equal(found[0], lm.module(input_ids=ids).logits)


def test_plain_checkpoints_with_and_without_load_in_transformers(learned, room, tmp_path) -> None:
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    family, _, out = learned
    base, _ = room.pair(family)
    auto = AutoModelForCausalLM if family == "llama" else AutoModelForMaskedLM
    graft.attach(skill=str(out), base=base, out=str(tmp_path / "with"))
    graft.detach(skill=str(out), model=str(tmp_path / "with"), out=str(tmp_path / "without"))
    own, changed, restored = (
        dict(auto.from_pretrained(p).named_parameters())
        for p in (base, tmp_path / "with", tmp_path / "without")
    )
    assert all(torch.equal(own[n], restored[n]) for n in own)
    skill = load_skill(out)
    for name, places in skill.patch.mask.places.items():
        assert torch.equal(changed[name].take(places), skill.patch.after[name])
    bare = auto.from_pretrained(base)
    skill.attach(bare)
    assert all(torch.equal(p, changed[n]) for n, p in bare.named_parameters())


def test_the_wrong_base_is_refused_with_both_checksums(learned, room, tmp_path) -> None:
    family, _, out = learned
    base, tuned = room.pair(family)
    skill, other = load_skill(out), open_model(tuned)
    mine, found = skill.meta["base"]["checksum"][:12], checksum(model_weights(other))[:12]
    before = {n: p.clone() for n, p in model_weights(other).items()}
    with pytest.raises(Mismatch, match=rf"{mine}.*{found}"):
        skill.attach(other)
    assert all(torch.equal(p, before[n]) for n, p in model_weights(other).items())
    with pytest.raises(Mismatch, match="isn't attached"):
        skill.detach(open_model(base))
    with pytest.raises(Mismatch, match="not as"):
        graft.detach(skill=str(out), model=base, out=str(tmp_path / "x"))


def test_attaching_twice_is_refused_and_places_alone_can_be_checked(learned, room) -> None:
    family, _, out = learned
    lm, skill = open_model(room.pair(family)[0]), load_skill(out)
    skill.attach(lm)
    with pytest.raises(Mismatch, match="belongs to"):
        skill.attach(lm)
    with pytest.raises(Mismatch, match="attached already"):
        skill.attach(lm, check="places")
    name = next(n for n in model_weights(lm) if n not in skill.patch.mask.places)
    model_weights(lm)[name].data.add_(1.0)
    with pytest.raises(Mismatch, match="belongs to"):
        skill.detach(lm)
    assert skill.detach(lm, check="places") is lm


def test_a_model_of_another_precision_is_refused(learned, room) -> None:
    family, _, out = learned
    lm = open_model(room.pair(family)[0], dtype="bfloat16")
    with pytest.raises(Mismatch, match="belongs to"):
        load_skill(out).attach(lm)
    with pytest.raises(Mismatch, match="dtype float32"):
        load_skill(out).attach(lm, check="places")


def test_a_second_run_is_found_and_a_killed_one_goes_on(room, monkeypatch) -> None:
    options = {"sparsity": 0.05, "seeds": (3, 4), "baselines": ("random",), "text": "none"}
    calls = []
    real = recipe.MaskSearch.learned

    def once(self, size, seed, start=None):
        if calls:
            raise KeyboardInterrupt
        calls.append(seed)
        return real(self, size, seed, start)

    monkeypatch.setattr(recipe.MaskSearch, "learned", once)
    with pytest.raises(KeyboardInterrupt):
        room.learn(**options)
    calls.clear()
    result = room.learn(**options)
    assert calls == [4]
    calls.append(0)
    assert room.learn(**options).record.address == result.record.address
    monkeypatch.undo()
    whole = room.learn(**options, runs=str(room.folder / "elsewhere"))
    assert whole.rows.equals(result.rows)


def test_the_smallest_mask_that_keeps_the_gain_is_searched(room) -> None:
    result = room.learn(sparsity=0.2, keep_gain=0.9, baselines=("movement",), text="none")
    size = result.summary["sizes"][0]
    assert 1 <= size < 0.2 * result.summary["trained_weights"]
    assert value(result.rows, "learned", "size") == [size]
    assert value(result.rows, "movement", "size") == [size]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_papers_steps_and_adam_learn_too(room, optimizer) -> None:
    result = room.learn(optimizer=optimizer, baselines="none", text="none", steps=5)
    assert len(value(result.rows, "learned", "mask_score")) == 2


def test_the_default_rate_leads_away_from_a_start_drawn_by_chance(room) -> None:
    given = {"start": "random", "baselines": "none", "text": "none", "seeds": 0}
    result = room.learn(**given, steps=6, every=2)
    begun = room.learn(**given, steps=0)
    skills = [load_skill(r.path / "skill.safetensors").patch.mask for r in (result, begun)]
    assert intersection_size(*skills) < 0.6 * skills[1].size
    judged = [value(r.rows, "learned", "judge")[0] for r in (result, begun)]
    assert judged[0] > judged[1]


def test_a_warm_start_begins_with_the_other_skill(room, learned) -> None:
    family, _, out = learned
    result = room.learn(family, start=str(out), steps=0, baselines="none", text="none")
    again = load_skill(result.path / "skill.safetensors")
    assert again.patch.mask.same(load_skill(out).patch.mask)


def test_only_weights_that_fit_a_pattern_are_chosen(room) -> None:
    result = room.learn(params="*attention*", baselines="none", text="none", steps=2)
    skill = load_skill(result.path / "skill.safetensors")
    assert all("attention" in name for name in skill.patch.mask.places)
    assert set(skill.patch.mask.places) <= set(skill.shapes)


def test_eval_measures_skills_on_several_sets(room, learned) -> None:
    family, _, out = learned
    base, tuned = room.pair(family)
    result = graft.eval(
        skill=[str(out)], base=base, tuned=tuned, data=[room.data, room.other], quiet=True,
        runs=room.runs, text_limit=4,
    )  # fmt: skip
    assert set(result.rows["data"].drop_nulls()) == {"toy", "other"}
    assert set(result.rows["kind"]) == {"base", "tuned", "learned", "removed"}
    assert set(result.summary["matrix"]["learned"]["toyfeel"]) == {"toy", "other"}
    language = result.rows.filter(pl.col("metric") == "lm_loss")
    assert len(language) == 4


def test_a_skill_of_all_weights_is_the_tuned_model_and_without_it_the_base_is_left(room) -> None:
    base, tuned = room.pair("bert")
    whole = room.learn(sparsity=1.0, start="movement", steps=0, baselines="none", text="none")
    given = {"base": base, "tuned": tuned, "data": [room.other], "text_limit": 4}
    result = graft.eval(
        skill=[str(whole.path / "skill.safetensors")], **given, runs=room.runs, quiet=True
    )
    for metric in ("accuracy", "ece", "lm_loss"):
        found = {kind: value(result.rows, kind, metric) for kind in ("base", "tuned")}
        assert found["base"] != found["tuned"]
        assert value(result.rows, "learned", metric) == found["tuned"]
        assert value(result.rows, "removed", metric) == found["base"]
    assert value(result.rows, "removed", "relative_gain") == [0.0]


def test_a_stacked_skill_is_measured_in_the_words_of_each_task(room, learned, tmp_path) -> None:
    family, _, out = learned
    base, _ = room.pair(family)
    mirrored = TASK.replace("toyfeel", "dull").replace('["dog", "cat"]', '["cat", "dog"]')
    (tmp_path / "dull.toml").write_text(mirrored)
    both = str(tmp_path / "both.safetensors")
    graft.stack(skill=[str(out), str(out)], rule="mean", out=both)
    given = {"base": base, "runs": room.runs, "quiet": True, "text": "none"}
    data = [room.data, room.other]
    with pytest.raises(BadSpec, match="Say with --task"):
        graft.eval(skill=[both], data=data, **given)
    with pytest.raises(BadSpec, match="1 entries for 2 sets"):
        graft.eval(skill=[both], data=data, task=[room.task], **given)
    alone = graft.eval(skill=[str(out)], data=data, **given).rows
    asked = graft.eval(skill=[both], data=data, task=[room.task, str(tmp_path / "dull.toml")],
                       **given).rows  # fmt: skip
    for kind in ("base", "learned"):
        own = {name: value(alone, kind, "accuracy", data=name)[0] for name in ("toy", "other")}
        assert value(asked, kind, "accuracy", data="toyfeel") == [own["toy"]]
        # The same answers by the other word: what was right is wrong.
        assert value(asked, kind, "accuracy", data="dull") == [pytest.approx(1 - own["other"])]


def test_skills_stack_overlap_and_export(room, learned, tmp_path) -> None:
    from safetensors.torch import load_file

    family, _, out = learned
    one = load_skill(out)
    more = room.learn(family, sparsity=0.05, baselines="none", text="none", steps=2)
    two = more.path / "skill.safetensors"
    told = graft.stack(skill=[str(out), str(two)], rule="mean", out=str(tmp_path / "s.safetensors"))
    stacked = load_skill(tmp_path / "s.safetensors")
    assert told.facts["conflicts"] == 0
    assert stacked.size == told.facts["size"] >= max(one.size, load_skill(two).size)
    lm = open_model(room.pair(family)[0])
    stacked.detach(stacked.attach(lm))
    result = graft.overlap([out, two, tmp_path / "s.safetensors"], runs=room.runs, quiet=True)
    matrix = result.summary["overlap"]
    assert all(matrix[name][name] == 1.0 for name in matrix)
    assert matrix["toyfeel+toyfeel"]["toyfeel 1"] == 1.0
    graft.export(skill=str(out), out=str(tmp_path / "plain"))
    plain = load_file(tmp_path / "plain" / "skill.safetensors")
    assert sum(len(v) for k, v in plain.items() if k.endswith("/places")) == one.size
    assert "load_file" in (tmp_path / "plain" / "README.md").read_text()


def test_a_few_thousand_weights_fit_in_a_mail(room, learned) -> None:
    _, _, out = learned
    size = out.stat().st_size + out.with_suffix(".json").stat().st_size
    assert size < 12 * load_skill(out).size + 40_000


def test_head_mode_keeps_the_tuned_head_and_masks_the_trunk(room) -> None:
    base, _ = room.pair("bert")
    tuned = room.folder / "bert-head"
    shared = {"task": room.task, "data": room.data, "runs": room.runs, "quiet": True}
    graft.finetune(model=base, mode="head", steps=40, lr=0.05, every=20, out=str(tuned), **shared)
    result = room.learn(tuned=str(tuned), mode="head", text="none", baselines=("random",))
    skill = load_skill(result.path / "skill.safetensors")
    assert all(name in dict(open_model(base).params()) for name in skill.patch.mask.places)
    assert value(result.rows, "tuned", "accuracy")[0] >= value(result.rows, "base", "accuracy")[0]


def test_a_lora_adapter_is_a_tuned_model(room, tmp_path) -> None:
    import peft
    from transformers import AutoModelForCausalLM

    base, _ = room.pair("llama")
    wrapped = peft.get_peft_model(
        AutoModelForCausalLM.from_pretrained(base),
        peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False),
    )
    wrapped.save_pretrained(tmp_path / "adapter")
    result = room.learn(
        "llama", tuned=f"{base}+{tmp_path / 'adapter'}", steps=2, baselines="none", text="none"
    )
    skill = load_skill(result.path / "skill.safetensors")
    assert {n.rsplit(".", 2)[1] for n in skill.patch.mask.places} <= {"q_proj", "v_proj"}


BAD = [
    ({"sparsity": 1e-9}, BadSpec, "rounds to no weight"),
    ({"sparsity": 2.0}, BadSpec, "sparsity must lie"),
    ({"params": "*nothing*"}, BadSpec, "No weight that moved fits"),
    ({"shots": 4000}, BadData, "Ask for fewer shots"),
    ({"words": "unheard,cat"}, BadSpec, "unheard"),
    ({"baselines": "randon"}, BadSpec, "Unknown baseline"),
    ({"out": "skill.bin"}, BadSpec, "safetensors"),
    ({"start": "nowhere"}, Exception, "starting mask"),
]


@pytest.mark.parametrize(("wrong", "error", "said"), BAD, ids=lambda v: str(v)[:24])
def test_a_wrong_request_says_what_is_wrong(room, wrong, error, said) -> None:
    with pytest.raises(error, match=said):
        room.learn(**wrong)


def test_checkpoints_that_do_not_belong_together_are_refused(room, tmp_path) -> None:
    base, _ = room.pair("bert")
    with pytest.raises(Mismatch, match="tuned lacks"):
        room.learn(tuned=room.pair("llama")[0])
    with pytest.raises(BadData, match="nothing was tuned"):
        room.learn(tuned=base)
    wide = tiny("bert", tmp_path / "wide", hidden_size=16, intermediate_size=24)
    with pytest.raises(Mismatch, match="shape"):
        room.learn(tuned=str(wide))


def test_files_that_are_no_skill_are_refused(room, learned, tmp_path) -> None:
    _, _, out = learned
    whole, broken = out.read_bytes(), tmp_path / "broken.safetensors"
    broken.write_bytes(whole[:-4])
    broken.with_suffix(".json").write_text(out.with_suffix(".json").read_text())
    with pytest.raises(Corrupt):
        load_skill(broken)
    other = json.loads(out.with_suffix(".json").read_text())
    assert other["meta"]["base"]["checksum"]
    with pytest.raises(BadSpec, match="at least two"):
        graft.overlap([out], runs=room.runs)


def test_a_spec_reads_lists_from_flags() -> None:
    spec = build_spec(LearnSpec, {"base": "b", "tuned": "t", "task": "k", "sparsity": "1e-4,1e-3",
                             "seeds": "1,2", "baselines": "none"})  # fmt: skip
    assert (spec.sparsity, spec.seeds, spec.baselines) == ((1e-4, 1e-3), (1, 2), ())


HEADED = [name for name in FAMILIES if name not in ("albert", "mixtral", "qwen3_moe")]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_weight_of_every_family_has_its_place_in_the_atlas(tiny_lm, family) -> None:
    lm = tiny_lm(family)
    places = {name: module_location(lm, name) for name in lm.params()}
    blocks = {place.layer for place in places.values() if place.layer is not None}
    assert blocks == set(range(1, len(lm.blocks) + 1))
    assert all(place.module for place in places.values())


class _All:
    """A skill that holds every weight of a model's attention, or of some of its modules."""

    def __init__(self, lm, words=("",)) -> None:
        from cutaway.methods.graft.maths.patch import Patch
        from cutaway.methods.graft.maths.select import Mask

        chosen = {n: p for n, p in lm.params().items()
                  if head_layout(module_location(lm, n).module, lm.anatomy)
                  and n.endswith(words)}  # fmt: skip
        self.patch = Patch(Mask({n: torch.arange(p.numel()) for n, p in chosen.items()}), {}, {})
        self.shapes = {n: tuple(p.shape) for n, p in chosen.items()}


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox", "bert", "roberta", "modernbert"])
def test_a_skill_of_all_attention_weights_is_spread_evenly_over_the_heads(tiny_lm, family) -> None:
    lm = tiny_lm(family)
    found = weights_by_head(lm, _All(lm))
    assert set(found) == {(layer, head) for layer in (1, 2, 3) for head in range(4)}
    assert len(set(found.values())) == 1


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("llama", "o_proj.weight"),
        ("gpt2", "attn.c_proj.weight"),
        ("gpt_neox", "attention.dense.weight"),
        ("bert", "attention.output.dense.weight"),
    ],
)
def test_the_map_out_of_attention_belongs_to_the_heads_it_reads(tiny_lm, family, name) -> None:
    lm = tiny_lm(family)
    found = weights_by_head(lm, _All(lm, (name,)))
    held = sum(p.numel() for n, p in lm.params().items() if n.endswith(name))
    assert held > 0
    assert sum(found.values()) == held
    assert len(set(found.values())) == 1


def test_a_dry_run_tells_sizes_time_and_memory_and_changes_nothing(room) -> None:
    base, tuned = room.pair("bert")
    spec = build_spec(LearnSpec, {"base": base, "tuned": tuned, "task": room.task, "data": room.data,
                             "sparsity": "0.01,0.1", "runs": str(room.folder / "dry")})  # fmt: skip
    (cost,) = recipe.estimate(spec)
    assert cost.sizes == (round(0.01 * cost.weights), round(0.1 * cost.weights))
    assert cost.seconds > 0
    assert f"{cost.weights:,}" in cost.sentence()
    assert json.dumps(cost.plain())
    assert not (room.folder / "dry").exists()


def test_bfloat16_models_have_skills_too(room) -> None:
    result = room.learn(dtype="bfloat16", steps=2, baselines="none", text="none")
    skill = load_skill(result.path / "skill.safetensors")
    lm = open_model(room.pair("bert")[0], dtype="bfloat16")
    before = checksum(model_weights(lm))
    skill.detach(skill.attach(lm))
    assert checksum(model_weights(lm)) == before


EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_file_is_a_valid_request() -> None:
    from cutaway.core.spec import parse_toml

    values = parse_toml((EXAMPLES / "graft.toml").read_text())
    assert values.pop("verb") == "graft learn"
    assert build_spec(LearnSpec, values).base == "smollm2-135m"


@pytest.mark.slow
def test_the_example_script_runs(room) -> None:
    base, _ = room.pair("llama")
    words = [sys.executable, str(EXAMPLES / "graft.py"), base, "dog,cat"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "as before: True" in done.stdout
