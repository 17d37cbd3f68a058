"""Faults that transformers shares: known bad versions, embeddings that are tied or not."""

import json

import pytest
from packaging.version import Version

from cutaway.models import model_warnings
from cutaway.models.load import open_model
from cutaway.models.model_warnings import KNOWN_BAD, version_warnings
from tests.tiny import tiny


def names(lm) -> list[str]:
    return [one.name for one in lm.warnings]


@pytest.mark.parametrize(
    ("family", "installed", "bad"),
    [
        ("olmo3", "4.57.1", False),
        ("olmo3", "5.0.0", True),
        ("olmo3", "5.12.1", True),
        ("olmo3", "5.13.0", False),
        ("deepseek_v2", "5.14.1", True),
        ("deepseek_v2", "5.15.0", False),
        ("mistral4", "5.14.0", True),
        ("llama", "5.11.0", False),
    ],
)
def test_a_family_is_warned_about_in_the_versions_that_compute_it_wrongly(
    family, installed, bad
) -> None:
    found = version_warnings(family, installed)
    assert [one.name for one in found] == ["known_bad_version"] * bad
    for one in found:
        assert installed in one.message
        assert "pip install 'transformers>=" in one.message


def test_every_row_names_the_upstream_fix_and_a_range() -> None:
    for row in KNOWN_BAD:
        assert row.fix.startswith("https://github.com/huggingface/transformers/pull/")
        assert Version(row.first) < Version(row.fixed)


def test_it_is_said_when_the_model_is_opened(folder_of, monkeypatch) -> None:
    folder = folder_of("olmo3")
    assert names(open_model(folder, check=False)) == []
    monkeypatch.setattr(model_warnings, "version", lambda package: "5.11.0")
    assert names(open_model(folder, check=False)) == ["known_bad_version"]


def rewrite_config(folder, **fields) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "gpt_neox"])
def test_embeddings_that_are_as_the_config_says_give_no_warning(family, folder_of) -> None:
    for tied in (True, False):
        lm = open_model(folder_of(family, tie_word_embeddings=tied), check=False)
        assert "tied_weights" not in names(lm)
        assert lm.tied == tied


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_tied_config_with_two_different_tensors_is_told(family, tmp_path) -> None:
    folder = tiny(family, tmp_path / family, tie_word_embeddings=False)
    before = open_model(folder, check=False)
    rewrite_config(folder, tie_word_embeddings=True)
    lm = open_model(folder, check=False)
    assert names(lm) == ["tied_weights"]
    assert "two different tensors; each is used as it is" in lm.warnings[0].message
    assert lm.decoder.weight.equal(before.decoder.weight)


def test_two_equal_tensors_are_no_fault(tmp_path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tiny("llama", tmp_path / "llama", tie_word_embeddings=True)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert names(open_model(folder, check=False)) == []
    # One changed row among hundreds of equal ones is a fault that the comparison of rows finds.
    weights["lm_head.weight"][::5] += 1
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert names(open_model(folder, check=False)) == ["tied_weights"]


def test_an_untied_config_without_a_head_in_the_file_is_told(tmp_path) -> None:
    folder = tiny("llama", tmp_path / "llama", tie_word_embeddings=True)
    rewrite_config(folder, tie_word_embeddings=False)
    lm = open_model(folder, check=False)
    assert not lm.has_head
    assert names(lm) == ["tied_weights"]
    assert '"tie_word_embeddings": true' in lm.warnings[0].message
