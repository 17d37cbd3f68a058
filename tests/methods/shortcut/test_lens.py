"""`shortcut lens`: the grid holds the predictions of every layer."""

import pytest
import torch

from cutaway.core.errors import BadData, BadSpec
from cutaway.methods.shortcut import api as shortcut

TEXT = " the film is good"


def test_the_last_layer_has_the_models_own_predictions(toy, fitted, maps_file) -> None:
    lens = shortcut.lens(TEXT, model=toy, shortcut=maps_file, quiet=True)
    assert lens.layers == (0, 1, 2, 3)
    assert all(lens.agree["mat"][-1])
    assert len(lens.words["id"][0][0]) == 10
    ids = toy.tokenizer(TEXT, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        probs, tokens = toy.module(ids).logits[0].softmax(-1).max(-1)
    assert [words[0] for words in lens.words["id"][-1]] == [
        toy.tokenizer.decode([token]) for token in tokens.tolist()
    ]
    assert [p[0] for p in lens.probs["mat"][-1]] == pytest.approx(probs.tolist(), abs=1e-4)


def test_without_a_file_there_is_only_the_logit_lens(toy) -> None:
    assert shortcut.lens(TEXT, model=toy, quiet=True).kinds == ("id",)
    with pytest.raises(BadSpec, match="'tuned' needs --shortcut FILE"):
        shortcut.lens(TEXT, model=toy, kinds="tuned", quiet=True)


def test_chosen_layers_and_fewer_tokens_per_cell(toy) -> None:
    lens = shortcut.lens(TEXT, model=toy, layers="0,2", top=2, quiet=True)
    assert lens.layers == (0, 2)
    assert {len(words) for row in lens.words["id"] for words in row} == {2}


def test_the_grid_is_written_as_a_page_and_printed(toy, tmp_path, capsys) -> None:
    page = tmp_path / "lens.html"
    lens = shortcut.lens(TEXT, model=toy, html=str(page), quiet=True)
    assert "<html" in page.read_text()
    capsys.readouterr()
    lens.show()
    assert "logit lens" in capsys.readouterr().out


def test_a_text_of_fewer_than_two_tokens_is_refused(toy) -> None:
    with pytest.raises(BadData, match="fewer than two tokens"):
        shortcut.lens("", model=toy, quiet=True)
