import numpy as np
import pytest

from cutaway.methods.shortcut.lens import compute_lens, lens_request
from cutaway.methods.shortcut.maps import load_maps
from cutaway.methods.shortcut.maths.exit_simulation import exit_threshold
from cutaway.methods.shortcut.spec import LensSpec
from cutaway.studies.live.layers import LAMBDAS, MAX_GRID_TOKENS, read_sentence

TEXT = " the film is lovely , so i love it ."
ASK = {"prompt": " so i", "words": ("love", "hate")}


def test_the_grid_is_that_of_the_lens_command(toy, maps_file) -> None:
    maps = load_maps(maps_file, toy)
    mine = read_sentence(toy, maps, TEXT, 4).lens
    other = compute_lens(lens_request(toy, maps, LensSpec(text=TEXT, top=4)))
    assert mine.layers == other.layers and mine.kinds == other.kinds == ("id", "mat")
    assert mine.agree == other.agree
    for kind in mine.kinds:
        np.testing.assert_allclose(mine.probs[kind], other.probs[kind], atol=1e-4)


@pytest.mark.parametrize("kind", ["toy", "masked"])
def test_the_last_layer_always_agrees_with_the_model(kind, request) -> None:
    found = read_sentence(request.getfixturevalue(kind), None, TEXT, 3)
    assert all(found.lens.agree["id"][-1])
    told = found.plain_exit()["kinds"]["id"]
    assert all(all(kept) for lam, kept in told["kept"].items() if lam == "1.00")


def test_an_exit_stops_at_the_first_layer_above_the_threshold(toy) -> None:
    told = read_sentence(toy, None, TEXT, 1).plain_exit()
    gaps = np.array(told["kinds"]["id"]["gap"])
    for lam in LAMBDAS:
        enough = gaps > exit_threshold(lam, np.arange(gaps.shape[1]), float(gaps.shape[1]))
        enough[-1] = True
        # Gaps are rounded for the page: where one lies on the threshold either is right.
        same = enough.argmax(axis=0) + 1 == told["kinds"]["id"]["stops"][f"{lam:.2f}"]
        assert same.mean() > 0.9


def test_a_stricter_lambda_never_stops_earlier(toy) -> None:
    stops = read_sentence(toy, None, TEXT, 1).plain_exit()["kinds"]["id"]["stops"]
    rows = np.array([stops[f"{lam:.2f}"] for lam in LAMBDAS])
    assert (np.diff(rows, axis=0) >= 0).all()


def test_a_long_text_is_cut_and_its_true_length_told(toy) -> None:
    found = read_sentence(toy, None, "word " * 5000, 1).plain_lens()
    assert found["shown"] == MAX_GRID_TOKENS and found["total"] >= 5000
