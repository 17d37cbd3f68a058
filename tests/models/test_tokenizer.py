"""Tokenizers at the door."""

import json

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from cutaway.core.errors import BadModel
from cutaway.models.tokenizer import load_tokenizer, reads_segments


def bare(folder, vocab: dict[str, int], **special) -> None:
    core = Tokenizer(models.WordLevel(vocab, unk_token="?"))
    PreTrainedTokenizerFast(tokenizer_object=core, **special).save_pretrained(folder)


@pytest.mark.parametrize(
    ("special", "chosen"),
    [
        ({"eos_token": "end", "unk_token": "?"}, "end"),
        ({"unk_token": "?"}, "?"),
        ({"bos_token": "start"}, "start"),
        ({}, "?"),
    ],
)
def test_padding_uses_a_token_that_is_there(special, chosen, tmp_path) -> None:
    vocab = {"?": 0, "word": 1, "start": 2, "end": 3}
    bare(tmp_path, vocab, **special)
    tokenizer, notes = load_tokenizer(tmp_path)
    assert tokenizer.pad_token == chosen
    assert len(tokenizer) == len(vocab)
    assert len(notes) == 1


def test_a_padding_token_of_its_own_is_kept(tmp_path) -> None:
    bare(tmp_path, {"?": 0, "pad": 1}, pad_token="pad", unk_token="?")
    tokenizer, notes = load_tokenizer(tmp_path)
    assert (tokenizer.pad_token, notes) == ("pad", ())


def test_a_slow_tokenizer_is_refused(tmp_path, monkeypatch) -> None:
    import transformers

    class Slow:
        is_fast = False

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *_, **__: Slow())
    with pytest.raises(BadModel, match="no fast form"):
        load_tokenizer(tmp_path)


def test_a_broken_file_is_refused_in_one_line(tmp_path) -> None:
    bare(tmp_path, {"?": 0})
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": {"type": "?"}}))
    with pytest.raises(BadModel, match="can't be loaded") as caught:
        load_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)


def test_segments_are_read_where_the_model_has_types_for_them(lm_of) -> None:
    assert reads_segments(lm_of("bert").tokenizer, lm_of("bert").module)
    assert not reads_segments(lm_of("bert").tokenizer, lm_of("distilbert").module)
    assert not reads_segments(lm_of("roberta").tokenizer, lm_of("bert").module)
