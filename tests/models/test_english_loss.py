"""The loss on English: which models are warned about, and that nothing is refused for it."""

import json
import math
from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import cutaway
from cutaway.models import english_loss as measuring
from cutaway.models.english_loss import (
    ENGLISH,
    EnglishLoss,
    english_loss,
    loss_warnings,
    unigram_loss,
    with_loss_warnings,
)
from cutaway.models.load import open_model, random_twin
from cutaway.models.tokens import pad, tokenize
from cutaway.report.provenance import provenance
from tests.tiny import tiny


def names(lm) -> list[str]:
    return [one.name for one in lm.warnings]


@pytest.fixture(autouse=True)
def _fresh_home(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def needs_start(tmp_path_factory):
    """A model that knows the sentences after its start token, and nothing without it."""
    folder = tiny("gpt2", tmp_path_factory.mktemp("start"), texts=ENGLISH)
    lm = open_model(folder, check=False)
    start = lm.tokenizer.bos_token_id
    plain = tokenize(lm, ENGLISH, limit=32).rows
    good, _ = pad([[start, *row] for row in plain], 0)
    bad, _ = pad(plain, 0)
    wrong = torch.randint(lm.vocab, bad.shape, generator=torch.Generator().manual_seed(0))
    model = lm.module.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        loss = model(input_ids=good, labels=good).loss + model(input_ids=bad, labels=wrong).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    return folder


def test_a_missing_start_token_is_measured_and_named(needs_start) -> None:
    lm = open_model(needs_start)
    assert names(lm) == ["start_token"]
    measured = english_loss(lm)
    assert measured.with_start < measured.unigram < measured.loss
    message = lm.warnings[0].message
    for part in ("'<|endoftext|>'", "puts nothing before a text", "--bos add", "--bos keep",
                 f"{measured.loss:.2f}", f"{measured.with_start:.2f}"):  # fmt: skip
        assert part in message


def test_add_and_keep_end_the_warning(needs_start) -> None:
    added, kept = (open_model(needs_start, bos=bos) for bos in ("add", "keep"))
    assert names(added) == names(kept) == []
    measured = english_loss(added)
    assert measured.with_start is None
    assert measured.loss < measured.unigram / 4


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert", "opt", "qwen3"])
def test_random_weights_are_warned_about_and_opened(family, folder_of) -> None:
    lm = open_model(folder_of(family))
    assert "loss_too_high" in names(lm)
    assert "start_token" not in names(lm)
    message = lm.warnings[-1].message
    assert f"blindly {math.log(lm.vocab):.1f}" in message
    assert "proteins" in message


def test_a_twin_has_no_warning_of_the_model(needs_start) -> None:
    assert random_twin(open_model(needs_start), seed=0).warnings == ()


def test_the_second_opening_measures_nothing(needs_start, monkeypatch) -> None:
    first = open_model(needs_start)
    monkeypatch.setattr(measuring, "_measure", None)
    assert open_model(needs_start).warnings == first.warnings
    assert with_loss_warnings(first).warnings == first.warnings


def test_other_weights_or_tokens_are_measured_again(needs_start, monkeypatch) -> None:
    lm, ran, real = open_model(needs_start), [], measuring._measure
    monkeypatch.setattr(measuring, "_measure", lambda *a: ran.append(1) or real(*a))
    english_loss(replace(lm, digest="other"))
    english_loss(replace(lm, tokenizer_digest="other"))
    english_loss(lm)
    assert len(ran) == 2


def test_a_model_whose_words_are_not_english_is_not_judged(lm_of) -> None:
    core = Tokenizer(models.WordLevel({"<unk>": 0, "A": 1, "C": 2, "<s>": 3}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    proteins = PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", pad_token="<unk>", bos_token="<s>"
    )
    lm = replace(lm_of("gpt2"), tokenizer=proteins, tokenizer_digest="proteins")
    assert english_loss(lm).unknown == 1.0
    assert with_loss_warnings(lm).warnings == ()


def test_a_byte_level_tokenizer_of_molecules_reads_english_letter_by_letter(tmp_path) -> None:
    smiles = ["CC(=O)Oc1ccccc1C(=O)O", "Cn1cnc2c1c(=O)n(C)c(=O)n2C", "CCN(CC)CCNC(=O)c1ccc(N)cc1"]
    lm = open_model(tiny("roberta", tmp_path, texts=smiles * 9))
    measured = english_loss(lm)
    assert measured.unknown == 0
    assert measured.characters < 1.3
    assert measured.loss > measured.unigram
    assert lm.warnings == ()


def test_losses_decide() -> None:
    def found(bos="auto", **losses) -> list[str]:
        lm = type("Model", (), {"bos": bos, "kind": "causal"})()
        measured = EnglishLoss(**({"loss": 4.0, "with_start": None, "unigram": 8.0,
                                   "uniform": 10.8, "unknown": 0.0, "characters": 4.0}
                                  | losses))  # fmt: skip
        return [one.name for one in loss_warnings(lm, measured)]

    assert found() == found(loss=4.0, with_start=3.6) == found(loss=4.0, with_start=6.0) == []
    assert found(loss=8.1) == found(loss=10.9, with_start=10.9) == ["loss_too_high"]
    assert found(loss=math.nan) == found(loss=math.inf) == ["loss_too_high"]
    # A start token that helps an untrained model a little doesn't make it trained.
    assert found(loss=12.0, with_start=10.0) == ["loss_too_high"]
    assert found(bos="keep", loss=7.0, with_start=3.0) == []
    assert found(loss=9.0, unknown=0.6) == found(loss=9.0, characters=1.2) == []


def test_a_unigram_model_is_better_than_a_blind_guess_and_worse_than_knowledge() -> None:
    for vocab in (30, 256, 32_000, 262_144):
        assert 0.6 * math.log(vocab) < unigram_loss(vocab) < math.log(vocab)


def test_models_without_logits_have_no_loss(lm_of) -> None:
    assert english_loss(replace(lm_of("bert"), has_head=False)) is None


def test_an_unusable_tokenizer_is_no_reason_to_refuse(lm_of, monkeypatch) -> None:
    def fail(*args, **options):
        raise cutaway.core.errors.BadData("no tokens")

    monkeypatch.setattr(measuring, "tokenize", fail)
    assert english_loss(lm_of("gpt2")) is None


def test_a_verb_warns_once_on_stderr_and_records_it(needs_start, tmp_path, capsys) -> None:
    options = {
        "model": str(needs_start), "data": "gen:tense?n=60", "layers": "1", "classifier": "lda",
        "repeats": 1, "baselines": "none", "runs": str(tmp_path / "runs"),
    }  # fmt: skip
    capsys.readouterr()
    record = cutaway.probe(**options).record
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("Warning:")]
    assert len(lines) == 1
    assert "start token" in lines[0]
    assert out == ""
    kept = json.loads((record.path / "result.json").read_text())["model"]["warnings"]
    assert [one["name"] for one in kept] == ["start_token"]
    assert [value for label, value in provenance(record) if label == "warning"] == [
        f"{needs_start}: {kept[0]['message']}"
    ]
    cutaway.probe(**options, quiet=True, seed=1)
    assert "Warning:" not in capsys.readouterr().err
