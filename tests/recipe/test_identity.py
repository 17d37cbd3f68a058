"""Who a model is when it comes as an object, and what of it stands in a run's address."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import cutaway
from cutaway.core.textset import TextSet
from cutaway.methods.graft.maths.patch import Patch
from cutaway.methods.graft.maths.select import Mask
from cutaway.methods.graft.skill import Skill
from cutaway.models import digests as prints
from cutaway.models import lm as lm_room
from cutaway.models.digests import checksum
from cutaway.models.load import open_model
from cutaway.recipe.objects import name_objects
from tests.tiny import FAMILIES, SENTENCES, tiny

LABELS = np.arange(40) % 2
TEXTS = TextSet(
    "ends",
    tuple(f"{SENTENCES[i % 7][:20]} {i} is {'bad' if i % 2 else 'good'}." for i in range(40)),
    labels=LABELS, task="binary", classes=("good", "bad"),
)  # fmt: skip
WEIGHT = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(tiny("llama", tmp_path / "llama"))


def skill_for(lm, places: list[int], name: str = WEIGHT) -> Skill:
    """A skill that adds 3 at a few places of one weight."""
    weight = lm.params()[name].detach()
    before = weight.view(-1)[places].clone()
    meta = {"base": {"name": lm.name, "checksum": checksum(lm.params())}, "task": {"name": "t"}}
    patch = Patch(Mask({name: torch.tensor(places)}), {name: before}, {name: before + 3})
    return Skill(patch, {name: tuple(weight.shape)}, meta)


def probed(model, tmp_path, **options):
    given = {"layers": "2", "classifier": "lda", "repeats": 1, "baselines": "none"}
    runs = str(tmp_path / "runs")
    return cutaway.probe(model=model, data=TEXTS, runs=runs, quiet=True, **(given | options))


def test_a_model_with_a_skill_on_it_is_another_model(folder, tmp_path) -> None:
    lm = cutaway.open(str(folder))
    skill, own = skill_for(lm, list(range(64))), lm.digest
    base = probed(lm, tmp_path)
    assert skill.attach(lm) is lm
    assert lm.digest != own
    other = probed(lm, tmp_path)
    assert other.record.address != base.record.address
    assert other.record.model["digest"] == lm.digest
    assert skill.detach(lm).digest == own
    assert probed(lm, tmp_path).record.address == base.record.address


def test_the_base_never_gets_the_states_of_the_model_with_the_skill(folder, tmp_path) -> None:
    lm = cutaway.open(str(folder))
    skill = skill_for(lm, list(range(64)))
    first = probed(skill.attach(lm), tmp_path)
    fresh = probed(cutaway.open(str(folder)), tmp_path)
    assert first.record.address != fresh.record.address
    alone = cutaway.open(str(folder)).read([TEXTS.texts[0]], layers="2", pool="last")
    changed = lm.read([TEXTS.texts[0]], layers="2", pool="last")
    assert not torch.equal(alone[2], changed[2])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_skills_come_off_in_any_order_and_leave_the_name_they_found(folder, order) -> None:
    lm = open_model(str(folder))
    skills, own = [skill_for(lm, [0, 1]), skill_for(lm, [5, 9])], lm.digest
    seen = [own]
    for skill in skills:
        seen.append(skill.attach(lm, check="places").digest)
    for number in order:
        skills[number].detach(lm, check="places")
        seen.append(lm.digest)
    assert seen[-1] == own
    assert len(set(seen[:3])) == 3
    assert (seen[3] == seen[1]) == (order == (1, 0))


def test_weights_that_a_user_changed_make_another_model(folder, tmp_path) -> None:
    lm = cutaway.open(str(folder))
    own, before = lm.digest, probed(lm, tmp_path)
    weight = lm.params()[WEIGHT]
    kept = weight.data.clone()
    # Neither a new tensor nor a new version: only the bits tell.
    weight.data += 1
    after = probed(lm, tmp_path)
    assert lm.digest != own
    assert after.record.address != before.record.address
    weight.data.copy_(kept)
    assert probed(lm, tmp_path).record.address == before.record.address
    assert lm.digest == own


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_model_as_it_was_opened_is_known_by_its_files(family, tmp_path) -> None:
    place = str(tiny(family, tmp_path / family))
    first, second = (open_model(place, check=False) for _ in range(2))
    for lm in (first, second):
        own = lm.identity
        assert lm.refresh_digest().identity == own
    assert open_model(place, check=False, track_changes=False).digest == first.digest


def test_a_print_is_made_once_and_only_where_a_user_gets_the_model(
    folder, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "home"))
    made: list[str] = []
    real = prints.module_checksum
    monkeypatch.setattr(
        prints, "module_checksum", lambda module: made.append("one") or real(module)
    )
    open_model(str(folder), track_changes=False)
    assert not made
    for _ in range(3):
        open_model(str(folder))
    assert len(made) == 1


def test_a_model_whose_beginning_nobody_saw_is_known_by_its_bits(folder) -> None:
    lm = open_model(str(folder), track_changes=False)
    own = lm.digest
    first = lm.refresh_digest().digest
    assert first != own
    assert lm.refresh_digest().digest == first
    twin = replace(lm, name="twin")
    assert twin.refresh_digest().digest == first


def test_a_run_by_name_never_sums_up_weights(folder, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(prints, "module_checksum", lambda _: pytest.fail("summed up"))
    monkeypatch.setattr(lm_room.LM, "refresh_digest", lambda _: pytest.fail("looked at"))
    probed(str(folder), tmp_path)


def test_an_object_and_its_name_share_their_states(folder, tmp_path) -> None:
    by_name, given = probed(str(folder), tmp_path), probed(cutaway.open(str(folder)), tmp_path)
    assert by_name.record.model["digest"] == given.record.model["digest"]


def test_an_edited_tokenizer_is_another_run(folder, tmp_path) -> None:
    before = probed(str(folder), tmp_path)
    words = cutaway.nextword(**_asked(folder, tmp_path))
    path = folder / "tokenizer.json"
    rules = json.loads(path.read_text())
    rules["normalizer"] = {"type": "Lowercase"}
    path.write_text(json.dumps(rules))
    assert probed(str(folder), tmp_path).record.address != before.record.address
    assert cutaway.nextword(**_asked(folder, tmp_path)).record.address != words.record.address


def _asked(folder, tmp_path):
    return {
        "model": str(folder), "data": TEXTS, "class_words": ["good", "bad"], "features": "f",
        "prompt_text": " It was", "runs": str(tmp_path / "runs"), "quiet": True,
    }  # fmt: skip


def test_a_tokenizer_changed_in_place_is_seen(folder) -> None:
    lm = open_model(str(folder))
    own = lm.short_id
    lm.tokenizer.add_tokens(["zyzzyva"])
    assert lm.refresh_digest().short_id != own


def test_precision_and_kernel_of_an_object_stand_in_its_name_and_in_the_address(
    folder, tmp_path
) -> None:
    ways = ({}, {"dtype": "bfloat16"}, {"attention": "eager"})
    models = [open_model(str(folder), check=False, **way) for way in ways]
    named, objects = name_objects({"model": models}, ("model",))
    assert len(set(named["model"])) == len(objects) == 3
    assert len({probed(lm, tmp_path).record.address for lm in models}) == 3


def test_models_that_differ_only_in_precision_each_have_their_pieces(folder, tmp_path) -> None:
    models = [open_model(str(folder), check=False, dtype=d) for d in ("float32", "bfloat16")]
    both = probed(models, tmp_path).rows
    alone = [probed(lm, tmp_path).rows for lm in models]
    assert both.height == sum(one.height for one in alone)


def test_a_copied_folder_is_the_same_model(folder, tmp_path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    one, two = (open_model(str(place)) for place in (folder, tmp_path / "copy"))
    assert one.identity == two.identity
