"""`--bos`: what every text starts with, for every way in which texts become tokens."""

import shutil
from dataclasses import replace

import pytest

import cutaway
from cutaway.core.errors import BadSpec, Mismatch
from cutaway.core.textset import TextSet
from cutaway.data.tasks import find_task
from cutaway.extract.model_handle import make_model_handle
from cutaway.extract.request import ExtractionRequest
from cutaway.methods.inject.answers import AnswerFormat, question_ids
from cutaway.methods.inject.fisher_file import load_fisher
from cutaway.methods.shortcut.maps import load_maps
from cutaway.models.load import open_model
from cutaway.models.start_token import start_token_id, tokens_in_front, with_bos
from cutaway.models.tokens import tokenize
from cutaway.recipe.options import RunOptions
from cutaway.training.prompting import make_prompted_examples
from tests.tiny import SENTENCES, tiny

STYLES = ["gpt2", "llama", "qwen2"]


@pytest.fixture
def folder(tmp_path):
    """A model whose tokenizer names a start token and doesn't add it."""
    return tiny("gpt2", tmp_path / "gpt2")


def opened(folder, bos="auto", **options):
    return open_model(str(folder), bos=bos, check=False, **options)


@pytest.mark.parametrize("family", STYLES)
def test_add_puts_exactly_one_start_token_before_what_the_tokenizer_gives(family, tmp_path) -> None:
    place = tiny(family, tmp_path / family)
    plain, added = opened(place), opened(place, "add")
    start = start_token_id(added.tokenizer, added.module.config)
    texts = [*SENTENCES, "Yes."]
    for before, after in zip(tokenize(plain, texts).rows, tokenize(added, texts).rows, strict=True):
        assert after == (before if before[0] == start else [start, *before])
        assert after.count(start) == 1
    assert tokens_in_front(added.tokenizer) == [added.tokenizer.convert_ids_to_tokens(start)]
    assert opened(place, "keep").identity == plain.identity


def test_a_text_that_spells_out_the_start_token_gets_it_once(folder) -> None:
    lm = opened(folder, "add")
    spelled, bare = tokenize(lm, [f"{lm.tokenizer.bos_token}Yes.", "Yes."]).rows
    assert spelled == bare


def test_a_truncated_text_keeps_its_start_token(folder) -> None:
    lm = opened(folder, "add")
    start = lm.tokenizer.bos_token_id
    for side in ("left", "right"):
        row = tokenize(lm, [SENTENCES[0]], limit=6, truncation=side).rows[0]
        assert (len(row), row[0]) == (6, start)
    row = tokenize(lm, [SENTENCES[0]], prompt=" It was", limit=9).rows[0]
    assert (len(row), row[0]) == (9, start)


def test_every_way_to_tokens_has_it(folder) -> None:
    lm = opened(folder, "add")
    start = lm.tokenizer.bos_token_id
    texts = TextSet("t", SENTENCES[:2], labels=[0, 1], classes=("bad", "good"), task="binary")
    made = make_prompted_examples(
        lm, find_task("sst2"), texts, template="{text} It was", words=["bad", "good"]
    )
    assert [row[0] for row in made.rows] == [start] * 2
    paired = tokenize(lm, ["One."], pairs=["Two."]).rows[0]
    assert (paired[0], paired.count(start)) == (start, 1)
    assert question_ids(lm, "1 + 2 =", AnswerFormat(0, 0, 4))[0][0] == start


def test_it_is_part_of_the_model_and_of_every_key(folder) -> None:
    plain, added = opened(folder), opened(folder, "add")
    assert plain.digest == added.digest
    assert plain.identity != added.identity
    texts = TextSet("t", SENTENCES[:2])
    keys = [ExtractionRequest((0,)).key(lm, texts) for lm in (plain, added)]
    assert keys[0] != keys[1]
    # A worker opens the model in the same way.
    assert make_model_handle(added, RunOptions()).open().identity == added.identity


def test_a_run_with_it_is_another_run_and_says_so(folder, tmp_path) -> None:
    options = {
        "model": str(folder), "data": "gen:tense?n=60", "layers": "1", "classifier": "lda",
        "repeats": 1, "baselines": "none", "runs": str(tmp_path / "runs"), "quiet": True,
    }  # fmt: skip
    runs = {bos: cutaway.probe(bos=bos, **options).record for bos in ("auto", "keep", "add")}
    assert runs["auto"].address == runs["keep"].address != runs["add"].address
    assert runs["auto"].model["start_tokens"] == []
    assert runs["add"].model["start_tokens"] == ["<|endoftext|>"]
    assert "--bos=add" in runs["add"].command
    assert not runs["auto"].rows["value"].equals(runs["add"].rows["value"])


def test_a_checkpoint_saved_with_it_adds_it_by_itself(folder, tmp_path) -> None:
    added, copy = opened(folder, "add"), tmp_path / "copy"
    shutil.copytree(folder, copy)
    added.tokenizer.save_pretrained(copy)
    again = opened(copy)
    assert tokenize(again, SENTENCES).rows == tokenize(added, SENTENCES).rows
    assert again.tokenizer_digest == added.tokenizer_digest
    with pytest.raises(Mismatch, match="--bos add"):
        cutaway.graft.learn(
            base=str(folder), tuned=str(copy), task="sst2", data="gen:sentiment?n=40",
            template="{text} It was", words=["bad", "good"], shots=4, quiet=True,
            out=str(tmp_path / "s.safetensors"), runs=str(tmp_path / "runs"),
        )  # fmt: skip


def test_the_token_of_the_config_is_used_when_the_tokenizer_names_none(folder, tmp_path) -> None:
    lm = opened(folder)
    lm.tokenizer.bos_token = None
    lm.tokenizer.save_pretrained(folder)
    added = opened(folder, "add")
    assert tokenize(added, ["Yes."]).rows[0][0] == added.module.config.bos_token_id
    lm.module.config.bos_token_id = None
    lm.module.config.save_pretrained(folder)
    with pytest.raises(BadSpec, match="needs a start token"):
        opened(folder, "add")


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_masked_models_stay_as_they_are_with_a_reason(family, tmp_path) -> None:
    place = tiny(family, tmp_path / family)
    plain, added = opened(place), opened(place, "add")
    assert tokenize(added, SENTENCES).rows == tokenize(plain, SENTENCES).rows
    assert any("changes nothing: a masked model" in note for note in added.notes)


def test_an_open_model_is_never_changed_in_silence(folder) -> None:
    lm = opened(folder)
    assert open_model(lm, bos="keep") is lm
    with pytest.raises(BadSpec, match="opened with bos='auto'"):
        open_model(lm, bos="add")
    added = opened(folder, "add")
    assert open_model(added, bos="add") is added


def test_what_the_tokenizer_adds_elsewhere_stays(folder, tmp_path) -> None:
    lm = opened(folder)
    lm.tokenizer.add_eos_token = True
    lm.tokenizer.save_pretrained(folder)
    (before,), (after,) = (tokenize(opened(folder, bos), ["Yes."]).rows for bos in ("auto", "add"))
    assert before[-1] == lm.tokenizer.eos_token_id
    assert after == [lm.tokenizer.bos_token_id, *before]
    with pytest.raises(BadSpec, match="puts '</s>' before every text"):
        opened(tiny("opt", tmp_path / "opt"), "add")


def test_an_open_model_gets_its_own_tokenizer_with_the_token(folder) -> None:
    plain = opened(folder)
    added = with_bos(plain, "add")
    assert added.identity == opened(folder, "add").identity
    assert plain.identity == opened(folder).identity
    assert with_bos(plain, "auto") is plain
    assert with_bos(added, "add") is added


def test_unknown_values_and_unchangeable_tokenizers_are_refused(folder, monkeypatch) -> None:
    with pytest.raises(BadSpec, match="auto, add, keep"):
        opened(folder, "always")
    with pytest.raises(BadSpec, match="bos"):
        cutaway.probe(model="m", data="d", bos="always")
    backend = type(opened(folder).tokenizer)
    monkeypatch.setattr(backend, "update_post_processor", lambda self: None)
    with pytest.raises(BadSpec, match="can't be changed"):
        opened(folder, "add")


def test_a_renamed_copy_keeps_what_it_adds(folder) -> None:
    added = opened(folder, "add")
    assert replace(added, name="other").identity == added.identity


def test_artefacts_made_with_another_start_are_reported_when_they_are_used(
    folder, tmp_path, capsys
) -> None:
    given = {"runs": str(tmp_path / "runs"), "quiet": True, "text": "docs", "limit": 40}
    maps, fisher = (tmp_path / f"{name}.safetensors" for name in ("maps", "fisher"))
    cutaway.shortcut.fit(model=str(folder), bos="add", out=str(maps), **given)
    cutaway.fisher(model=str(folder), bos="add", out=str(fisher), **given)
    capsys.readouterr()
    plain, added = opened(folder), opened(folder, "add")
    for load, path in ((load_maps, maps), (load_fisher, fisher)):
        load(path, added)
        assert capsys.readouterr().err == ""
        load(path, plain)
        said = capsys.readouterr().err
        assert "<|endoftext|> before every text" in said
        assert "--bos add" in said
