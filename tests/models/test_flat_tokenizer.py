"""Tokenizers written in Python with nothing but a vocabulary are read as fast ones."""

import pytest
from transformers import CTRLTokenizer, EsmConfig, EsmForMaskedLM, EsmTokenizer

from cutaway.models import flat_tokenizer
from cutaway.models.check import check
from cutaway.models.flat_tokenizer import as_fast_tokenizer
from cutaway.models.load import open_model

WORDS = (
    "<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C X B U Z O . - <null_1> <mask>"
)


@pytest.fixture
def esm(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS.split()))
    return EsmTokenizer(str(tmp_path / "vocab.txt"))


@pytest.mark.parametrize(
    "text", ["MKTAYIAKQRQ", "M K<mask>A", "zz M1K", "", "A<eos>B", "<null_1>x"]
)
def test_ids_are_the_same_with_and_without_special_tokens(text, esm) -> None:
    fast = as_fast_tokenizer(esm)
    assert fast.is_fast
    for special in (True, False):
        ours, theirs = (t(text, add_special_tokens=special)["input_ids"] for t in (fast, esm))
        assert ours == theirs
    assert fast(text, "MK")["input_ids"] == esm(text, "MK")["input_ids"]


def test_special_tokens_keep_their_roles_and_offsets_are_there(esm) -> None:
    fast = as_fast_tokenizer(esm)
    for name in ("pad_token_id", "mask_token_id", "cls_token_id", "eos_token_id", "unk_token_id"):
        assert getattr(fast, name) == getattr(esm, name)
    assert fast("MKT", return_offsets_mapping=True)["offset_mapping"][1:4] == [
        (0, 1),
        (1, 2),
        (2, 3),
    ]


def test_a_tokenizer_that_gives_other_ids_is_left_as_it_is(esm, monkeypatch) -> None:
    monkeypatch.setattr(flat_tokenizer, "TEXTS", ("MK", "KM"))
    monkeypatch.setattr(type(esm), "_tokenize", lambda self, text, **_: list(text))
    monkeypatch.setattr(flat_tokenizer, "TEXTS", ("xyz", "M"))
    assert as_fast_tokenizer(esm) is esm


def test_other_tokenizers_are_left_as_they_are(tmp_path) -> None:
    (tmp_path / "v.json").write_text('{"<unk>": 0}')
    (tmp_path / "m.txt").write_text("#version\na b\n")
    other = CTRLTokenizer(str(tmp_path / "v.json"), str(tmp_path / "m.txt"))
    assert as_fast_tokenizer(other) is other


def test_a_protein_model_with_its_own_tokenizer_opens_and_passes(esm, tmp_path) -> None:
    config = EsmConfig(
        vocab_size=33, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=66, position_embedding_type="rotary",
        token_dropout=True, mask_token_id=32, pad_token_id=1,
    )  # fmt: skip
    folder = tmp_path / "esm"
    for part in (EsmForMaskedLM(config), esm):
        part.save_pretrained(folder)
    assert not (folder / "tokenizer.json").exists()
    lm = open_model(folder)
    check(lm).need_passed()
    assert lm.tokenizer("MK")["input_ids"] == [0, 20, 15, 2]
    assert lm.context == 64
