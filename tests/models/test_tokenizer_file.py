"""The ids that texts get are those of the folder's tokenizer.json, whatever class is loaded."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from cutaway.models import tokenizer_file
from cutaway.models.load import open_model
from cutaway.models.tokenizer_file import TEXTS, use_file_tokenizer
from cutaway.models.tokens import tokenize
from tests.tiny import FAMILIES, SENTENCES, tiny_model

WORDS = ("<unk>", "<s>", "</s>", *sorted({word for text in TEXTS for word in text.split()}))


@pytest.fixture
def swapped(tmp_path):
    """A word-level tokenizer saved with a qwen2 model."""
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", bos_token="<s>", eos_token="</s>",
        model_max_length=64, pad_token="</s>",
    )  # fmt: skip
    tiny_model("qwen2", tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def file_ids(folder, texts) -> list[list[int]]:
    raw = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return [raw.encode(text).ids for text in texts]


def test_another_class_with_other_ids_is_replaced_by_the_file_with_a_warning(swapped) -> None:
    plain = AutoTokenizer.from_pretrained(swapped)
    assert [plain(text)["input_ids"] for text in TEXTS] != file_ids(swapped, TEXTS)
    lm = open_model(swapped, check=False)
    assert tokenize(lm, TEXTS).rows == file_ids(swapped, TEXTS)
    assert [one.name for one in lm.warnings] == ["tokenizer_differs"]
    message = lm.warnings[0].message
    first = file_ids(swapped, TEXTS[:1])[0]
    for ids in (first, plain(TEXTS[0])["input_ids"]):
        assert str(ids[:8])[:-1] in message
    assert "Qwen2Tokenizer" in message
    assert "The file's own tokenizer is used" in message
    # Its special tokens and settings are the folder's.
    assert (lm.tokenizer.eos_token, lm.tokenizer.model_max_length) == ("</s>", 64)


def test_a_checkpoint_saved_from_it_keeps_the_ids(swapped, tmp_path) -> None:
    lm, copy = open_model(swapped, check=False), tmp_path / "copy"
    lm.module.save_pretrained(copy)
    lm.tokenizer.save_pretrained(copy)
    again = open_model(copy, check=False)
    assert tokenize(again, TEXTS).rows == tokenize(lm, TEXTS).rows


@pytest.mark.parametrize(
    "family", sorted({row.style: name for name, row in FAMILIES.items()}.values())
)
def test_ids_are_those_of_the_file_in_every_style(family, folder_of) -> None:
    lm = open_model(folder_of(family), check=False)
    assert tokenize(lm, SENTENCES, limit=999).rows == file_ids(folder_of(family), SENTENCES)


def test_other_special_tokens_are_kept_and_told(folder_of) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder_of("gpt2"))
    tokenizer.add_bos_token = True
    kept, warnings = use_file_tokenizer(tokenizer, folder_of("gpt2"))
    assert kept is tokenizer
    assert [one.name for one in warnings] == ["tokenizer_differs"]
    assert "The special tokens of" in warnings[0].message


def test_a_large_file_is_compared_once(swapped, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tokenizer_file, "LARGE_FILE", 0)
    plain, found = AutoTokenizer.from_pretrained(swapped), []
    real = tokenizer_file._first_difference
    monkeypatch.setattr(
        tokenizer_file,
        "_first_difference",
        lambda tokenizer, *a, **k: found.append(tokenizer is plain) or real(tokenizer, *a, **k),
    )
    warnings = [use_file_tokenizer(plain, swapped)[1] for _ in range(2)]
    assert warnings[0] == warnings[1] != ()
    assert found.count(True) == 1


def test_a_folder_without_the_file_or_with_one_that_cannot_be_used_keeps_what_was_loaded(
    swapped, tmp_path, monkeypatch
) -> None:
    plain = AutoTokenizer.from_pretrained(swapped)
    assert use_file_tokenizer(plain, tmp_path / "empty") == (plain, ())
    monkeypatch.setattr(PreTrainedTokenizerFast, "from_pretrained", None)
    kept, warnings = use_file_tokenizer(plain, swapped)
    assert kept is plain
    assert "That of Qwen2Tokenizer is used" in warnings[0].message
