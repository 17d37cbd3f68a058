"""The file of maps: what is written is read again, and only for the model it was fitted on."""

from dataclasses import replace

import pytest
import torch

from cutaway.core.errors import BadData, BadSpec, Mismatch, Missing, UnknownName
from cutaway.methods.shortcut.maps import load_maps, save_maps, text_fingerprints
from cutaway.methods.shortcut.maths.fit import IDENTITY, Shortcut
from cutaway.store.artefacts import save_artefact
from tests.methods.shortcut.toy import KINDS

META = {
    "model": {"name": "m", "layers": 3, "digest": "d"}, "text": {"name": "t"}, "pairs": "all",
    "parts": True,
}  # fmt: skip


@pytest.fixture
def written(tmp_path):
    """A small file with one map of each form."""
    rng = torch.Generator().manual_seed(0)

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng)

    fitted = {
        ("mat", 0, 1): Shortcut((matrix(4, 4),)),
        ("mat", 0, 3): Shortcut((matrix(4, 4),)),
        ("affine", 0, 3): Shortcut((matrix(4, 4),), matrix(4)),
        ("lowrank", 1, 3): Shortcut((matrix(4, 2), matrix(2, 4))),
    }
    parts = {"2.attn": Shortcut((matrix(4, 4),))}
    path = save_maps(tmp_path / "maps.safetensors", fitted, parts, META)
    return fitted, parts, load_maps(path)


def test_every_form_of_map_survives_a_round_trip(written) -> None:
    fitted, parts, maps = written
    hidden = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    for (kind, source, target), jump in fitted.items():
        torch.testing.assert_close(maps.jump(source, target, kind)(hidden), jump(hidden))
    torch.testing.assert_close(maps.part(2, "attn")(hidden), parts["2.attn"](hidden))
    assert maps.part(1, "attn") is None
    assert maps.kinds == ("id", "mat", "affine", "lowrank")
    assert maps.pairs("mat") == [(0, 1), (0, 3)]
    assert maps.pairs("tuned") == []


def test_the_identity_needs_no_matrix(written) -> None:
    _, _, maps = written
    assert maps.jump(0, 2, "id") is IDENTITY
    assert maps.jump(2, 2) is IDENTITY


def test_without_frequent_tokens_a_draft_chooses_from_all(written) -> None:
    assert written[2].draft_tokens(7).tolist() == list(range(7))
    assert written[2].fitted_texts == frozenset()


def test_all_selects_the_kinds_of_the_file(written) -> None:
    _, _, maps = written
    assert maps.select_kinds(("all",)) == maps.kinds
    assert maps.select_kinds(["mat", "id"]) == ("mat", "id")
    with pytest.raises(UnknownName, match="Unknown map kind"):
        maps.select_kinds(["tuned"])


@pytest.mark.parametrize(("source", "target"), [(2, 1), (-1, 2), (0, 4)])
def test_a_map_goes_forward_within_the_model(written, source, target) -> None:
    with pytest.raises(BadSpec, match=r"forward within layers 0\.\.3"):
        written[2].jump(source, target)


def test_a_map_that_was_not_fitted_is_refused(written) -> None:
    with pytest.raises(BadSpec, match="no mat map from layer 1 to 2"):
        written[2].jump(1, 2)


def test_maps_of_another_model_are_refused(maps, maps_file, tiny_lm) -> None:
    with pytest.raises(Mismatch, match="was fitted on"):
        load_maps(maps_file, tiny_lm("llama"))


def test_maps_fitted_in_another_precision_are_refused(maps, toy, maps_file) -> None:
    with pytest.raises(Mismatch, match="--quantise none"):
        load_maps(maps_file, replace(toy, quantise="int8"))


def test_other_files_are_refused(tmp_path) -> None:
    path = save_artefact(tmp_path / "x.safetensors", {"a": torch.ones(1)}, {"method": "graft"})
    with pytest.raises(BadData, match="not a shortcut file: its method is 'graft'"):
        load_maps(path)
    with pytest.raises(Missing, match="shortcut fit --model MODEL"):
        load_maps(tmp_path / "none.safetensors")


def test_a_fitted_file_describes_itself(maps, toy) -> None:
    assert maps.kinds == KINDS
    assert maps.fitted_on == "toy"
    assert maps.layers == toy.layers
    assert len(maps.fitted_texts) <= maps.meta["text"]["fitted_rows"]
    assert set(maps.meta["r2_to_final"]) == set(KINDS)


def test_fingerprints_tell_texts_apart() -> None:
    one, other, same = text_fingerprints(["a b", "a c", "a b"])
    assert one == same != other
    assert -(2**63) <= one < 2**63
