"""Models and sets of one name stand apart; the same one given twice is refused."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pytest

import cutaway
from cutaway import nextword
from cutaway.core.errors import BadSpec
from cutaway.core.textset import TextSet
from cutaway.methods.inject.retain import read_retained_sets
from cutaway.methods.inject.spec import InjectSpec
from cutaway.models.load import open_model
from cutaway.recipe.objects import name_objects, shown_names, with_unique_names
from tests.tiny import SENTENCES, tiny


@dataclass(frozen=True)
class Thing:
    name: str
    who: str


def told(*names):
    many = [Thing(name, str(i)) for i, name in enumerate(names)]
    return [one.name for one in with_unique_names(many, lambda one: one.who, option="--things")]


def test_names_are_numbered_in_the_order_they_are_given():
    assert told("a", "b", "a", "a") == ["a", "b", "a (2)", "a (3)"]
    assert told("a", "a (2)", "a") == ["a", "a (2)", "a (3)"]
    assert told("a", "a", "a (2)") == ["a", "a (2)", "a (2) (2)"]


def test_the_same_one_twice_is_refused_by_both_its_names():
    with pytest.raises(BadSpec, match=r"--things has 'b' twice, first as 'a'\. Give each once"):
        list(
            with_unique_names(
                [Thing("a", "x"), Thing("b", "x")], lambda one: one.who, option="--things"
            )
        )


def test_results_show_objects_by_the_name_of_their_author():
    given = {"classifier": [Thing("Fast, small LDA", "x"), Thing("Fast, small LDA", "y"), "lda"]}
    named, objects = name_objects(given, ["classifier"])
    shown = shown_names(named["classifier"], objects)
    assert list(shown.values()) == ["Fast, small LDA", "Fast, small LDA (2)", "lda"]
    assert len(set(named["classifier"])) == 3
    assert not any("," in name for name in named["classifier"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("apart")


@pytest.fixture(scope="module")
def model(folder):
    return str(tiny("gpt2", folder / "gpt2", texts=(*SENTENCES, *["All is good, bad."] * 9)))


def reviews(folder, *shares):
    """Files of one name in folders of their own; the share of rows whose end says the label."""
    files = []
    for number, share in enumerate(shares):
        ends = [("good.", "bad.")[i % 2 if i % 10 < 10 * share else 0] for i in range(60)]
        lines = [f"{SENTENCES[i % 7][:20]} {i} is {ends[i]}\t{i % 2}" for i in range(60)]
        path = folder / f"from{number}" / "reviews.tsv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
        files.append(str(path))
    return files


QUICK = {"quiet": True, "baselines": "majority", "repeats": 2}


def test_probe_measures_sets_of_one_name_apart(folder, model):
    settings = {"model": model, "layers": "2", "classifier": "lda_shrink", **QUICK}
    clear, dim = reviews(folder, 1.0, 0.2)
    both = cutaway.probe(data=[clear, dim], runs=str(folder / "both"), **settings)
    alone = cutaway.probe(data=dim, runs=str(folder / "alone"), **settings)
    assert [f["data"] for f in both.summary["results"]] == ["reviews", "reviews (2)"]
    second = both.summary["results"][1]["headline"]["value"]
    assert second == pytest.approx(alone.summary["headline"]["value"])
    assert len(both.record.baselines) == 2
    rows = both.rows.filter((pl.col("metric") == "accuracy") & (pl.col("kind") == "probe"))
    assert rows.group_by("data").len()["len"].to_list() == [2, 2]
    with pytest.raises(BadSpec, match="--data has 'reviews' twice"):
        cutaway.probe(data=[clear, clear], runs=str(folder / "twice"), **settings)


def test_probe_measures_models_of_one_name_apart_and_refuses_one_twice(folder, model):
    one = open_model(model)
    other = replace(open_model(str(tiny("gpt2", folder / "other", seed=5))), name=one.name)
    settings = {"data": reviews(folder, 1.0), "layers": "2", "classifier": "lda_shrink", **QUICK}
    found = cutaway.probe(model=[one, other], runs=str(folder / "models"), **settings)
    names = [f["model"] for f in found.summary["results"]]
    assert names == [one.name, f"{one.name} (2)"]
    with pytest.raises(BadSpec, match=r"--model has .* twice"):
        cutaway.probe(model=[model, model], runs=str(folder / "twice"), **settings)


def test_nextword_asks_about_sets_of_one_name_apart(folder, model):
    settings = {"model": model, "features": "f", "diagnostics": False, **QUICK}
    found = nextword(data=reviews(folder, 1.0, 0.2), runs=str(folder / "words"), **settings)
    assert [f["task"] for f in found.summary["results"]] == ["reviews", "reviews (2)"]
    assert set(found.rows["task"]) == {"reviews", "reviews (2)"}
    with pytest.raises(BadSpec, match="--data has 'reviews' twice"):
        nextword(data=reviews(folder, 1.0) * 2, runs=str(folder / "words"), **settings)


def test_retained_sets_of_one_name_are_kept_apart(folder, model):
    lm = open_model(model)
    spec = InjectSpec(model=model, retain=reviews(folder, 1.0, 0.2))
    kept = read_retained_sets(lm, spec)
    assert [one.name for one in kept] == ["reviews", "reviews (2)"]
    assert kept[0].digest != kept[1].digest
    with pytest.raises(BadSpec, match="--retain has 'reviews' twice"):
        read_retained_sets(lm, InjectSpec(model=model, retain=reviews(folder, 1.0) * 2))


def test_a_sets_number_is_no_part_of_what_it_is():
    texts = TextSet("a", ("x", "y"), labels=np.array([0, 1]), task="binary", classes=("p", "q"))
    assert replace(texts, name="a (2)").digest == texts.digest


def in_memory(where):
    """A model and a tokenizer of transformers."""
    lm = open_model(where)
    return lm.module, lm.tokenizer


def test_models_in_memory_are_one_model_each_in_every_shape(folder) -> None:
    one, two = (in_memory(tiny("gpt2", folder / f"memory{seed}", seed=seed)) for seed in (1, 2))
    for given in (one, [one], {"model": one[0], "tokenizer": one[1]}):
        named, objects = name_objects({"model": given}, ["model"])
        assert len(named["model"]) == 1
        assert objects[named["model"][0]].module is not one[0]
    both, _ = name_objects({"model": [one, {"model": two[0], "tokenizer": two[1]}]}, ["model"])
    assert len(set(both["model"])) == 2
    assert all(len(name) < 100 for name in both["model"])
    named, _ = name_objects(
        {"base": one, "tuned": two}, ["base", "tuned"], single=["base", "tuned"]
    )
    assert named["base"] != named["tuned"]
    with pytest.raises(BadSpec, match="needs its tokenizer"):
        name_objects({"model": [one[0], two[0]]}, ["model"])


def test_a_probe_of_models_in_memory_is_a_probe_of_their_checkpoints(folder) -> None:
    where = [tiny("gpt2", folder / f"probed{seed}", seed=seed) for seed in (1, 2)]
    data = {"text": list(SENTENCES) * 4, "label": [0, 1] * 14}
    common = {"data": data, "layers": "all", "repeats": 2, "runs": folder / "runs"}
    common |= {"classifier": "centroid", "baselines": "none", "quiet": True}
    plain = cutaway.probe(model=[str(path) for path in where], **common)
    given = cutaway.probe(model=[in_memory(path) for path in where], **common)
    assert given.rows["value"].to_list() == plain.rows["value"].to_list()
    again = cutaway.probe(model=[in_memory(path) for path in where], **common)
    assert again.path == given.path
