"""Tokenizers at the door."""

import json

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from cutaway.core.errors import BadData, BadModel
from cutaway.models.load import open_model
from cutaway.models.load_tokenizer import letter_case, load_tokenizer
from cutaway.models.tokens import uses_token_types
from tests.models.breaking import refusal


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
    tokenizer, notes, _ = load_tokenizer(tmp_path)
    assert tokenizer.pad_token == chosen
    assert len(tokenizer) == len(vocab)
    assert len(notes) == 1


def test_a_padding_token_of_its_own_is_kept(tmp_path) -> None:
    bare(tmp_path, {"?": 0, "pad": 1}, pad_token="pad", unk_token="?")
    tokenizer, notes, _ = load_tokenizer(tmp_path)
    assert (tokenizer.pad_token, notes) == ("pad", ())


def test_a_slow_tokenizer_is_refused(tmp_path, monkeypatch) -> None:
    import transformers

    class Slow:
        is_fast = False

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *_, **__: Slow())
    with pytest.raises(BadModel, match="not a fast tokenizer"):
        load_tokenizer(tmp_path)


def test_a_broken_file_is_refused_in_one_line(tmp_path) -> None:
    bare(tmp_path, {"?": 0})
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": {"type": "?"}}))
    with pytest.raises(BadModel, match="can't be loaded") as caught:
        load_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)


def test_segments_are_read_where_the_model_has_types_for_them(lm_of) -> None:
    assert uses_token_types(lm_of("bert").tokenizer, lm_of("bert").module)
    assert not uses_token_types(lm_of("bert").tokenizer, lm_of("distilbert").module)
    assert not uses_token_types(lm_of("roberta").tokenizer, lm_of("bert").module)


def test_a_tokenizer_of_another_model_is_refused_with_both_numbers(copy, lm_of) -> None:
    folder, rows = copy(), lm_of("gpt2").vocab
    bare(folder, {"?": 0} | {f"word{i}": i for i in range(1, rows + 7)}, unk_token="?")
    said = refusal(folder)
    assert f"ids up to {rows + 6:,}" in said and f"has {rows:,} rows" in said


def test_added_tokens_without_a_row_are_noted_and_refused_where_a_text_has_one(copy) -> None:
    from transformers import AutoTokenizer

    folder = copy()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<picture>"])
    tokenizer.save_pretrained(folder)
    lm = open_model(folder)
    assert any("beyond them is refused" in note for note in lm.notes)
    with pytest.raises(BadData, match="'<picture>'"):
        lm.read(["Look: <picture> here."])


def test_a_tokenizer_that_never_writes_its_separator_reads_no_segments(copy) -> None:
    folder = copy("bert")
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"post_processor": None}))
    assert not open_model(folder, check=False).token_types


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.mark.parametrize("family", ["bert", "albert", "electra"])
@pytest.mark.parametrize(
    ("words", "text", "tokens"),
    [
        (["A", "V", "##V"], "A V VV", ["A", "V", "V", "##V"]),
        (["a", "word", "##v"], "AV word", ["a", "##v", "word"]),
    ],
)
def test_a_vocabulary_file_alone_is_wordpiece_in_every_family(
    tmp_path, family, words, text, tokens
) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join([*WORDS, *words]) + "\n")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    tokenizer, _, _ = load_tokenizer(tmp_path)
    found = tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])
    assert found == ["[CLS]", *tokens, "[SEP]"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    assert letter_case(tmp_path) == {}
