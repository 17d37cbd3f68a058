"""The checks detect what they are for: each test breaks one thing and sees its check fail."""

from dataclasses import replace

import pytest
import torch

from cutaway.models import consistency
from cutaway.models.anatomy import ANATOMIES
from cutaway.models.check import run_checks
from tests.tiny import SENTENCES


def broken(lm) -> set[str]:
    return {one.name for one in run_checks(lm) if not one.passed}


@pytest.mark.parametrize(
    ("family", "wrong", "check"),
    [
        ("gpt2", {"final": ()}, "hooks = plain hidden states"),
        ("gpt2", {"final": ()}, "unembed(final_norm(h[L])) = logits"),
        ("gpt2", {"positions": "own"}, "padding on the left changes nothing"),
        ("bert", {"positions": "own"}, "padding on the left changes nothing"),
        ("gemma2", {"logit_operations": ()}, "unembed(final_norm(h[L])) = logits"),
        ("cohere", {"logit_operations": ()}, "unembed(final_norm(h[L])) = logits"),
        ("gpt_neox", {"layout": "pre"}, "parts add up to the block"),
        ("llama", {"layout": "parallel"}, "parts add up to the block"),
        ("bert", {"attn": "attention"}, "parts add up to the block"),
        ("gemma2", {"mlp": "mlp"}, "parts add up to the block"),
        ("distilbert", {"head": ("vocab_layer_norm", "vocab_projector")},
         "unembed(final_norm(h[L])) = logits"),
        ("roberta", {"positions": "count"}, "padding on the right changes nothing"),
    ],
)  # fmt: skip
def test_a_wrong_row_fails_its_check(family, wrong, check, lm_of) -> None:
    right = lm_of(family)
    assert check in broken(replace(right, anatomy=replace(right.anatomy, **wrong)))


def test_dropout_left_on_breaks_determinism(folder_of) -> None:
    from cutaway.models.load import open_model

    lm = open_model(folder_of("gpt2"), check=False)
    lm.module.train()
    assert "determinism" in broken(lm)


def test_a_lost_bias_breaks_the_logits(folder_of) -> None:
    from cutaway.models.load import open_model

    lm = open_model(folder_of("bert"), check=False)
    drawn = consistency.check_sample(lm, SENTENCES[:1])
    with torch.no_grad():
        assert consistency.check_logits(lm, drawn).passed
        original = lm.module.forward
        lm.module.forward = lambda **given: Shifted(original(**given).logits + 0.01)
        assert not consistency.check_logits(lm, drawn).passed


class Shifted:
    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits


def test_distance_is_relative_per_vector() -> None:
    plain = torch.tensor([[1000.0, 0.0], [1.0, 0.0]])
    ours = torch.tensor([[1000.0, 0.0], [1.0, 0.1]])
    assert consistency.max_relative_error(ours, plain) == pytest.approx(0.1)


def test_distance_of_other_shapes_or_nan_is_infinite() -> None:
    plain = torch.ones(2, 3)
    assert consistency.max_relative_error(torch.ones(2, 4), plain) == float("inf")
    assert consistency.max_relative_error(plain * float("nan"), plain) == float("inf")


def test_a_stream_is_measured_against_its_largest_norm_so_far() -> None:
    plain = {0: torch.ones(1, 1), 1: torch.full((1, 1), 100.0), 2: torch.ones(1, 1)}
    ours = plain | {2: torch.full((1, 1), 1.1)}
    assert consistency.stream_error(ours, plain) == pytest.approx(0.001, rel=1e-3)
    early = plain | {0: torch.full((1, 1), 1.1)}
    assert consistency.stream_error(early, plain) == pytest.approx(0.1, rel=1e-3)


def test_one_wrong_token_among_a_hundred_stands_out() -> None:
    plain = {0: torch.ones(100, 4)}
    ours = {0: plain[0].clone()}
    ours[0][37] *= 1.1
    assert consistency.stream_error(ours, plain) == pytest.approx(0.01, rel=1e-3)
    ours[0][37] = float("nan")
    assert consistency.stream_error(ours, plain) == float("inf")


def test_every_layout_has_equations_that_determine_every_part() -> None:
    sides = {f"{part}.in" for part in ("norm1", "attn", "norm2", "mlp")} | {"block.out"}
    for layout, equations in consistency.BLOCK_EQUATIONS.items():
        assert {equation.partition(" = ")[0] for equation in equations} == sides, layout
    used = {row.layout for row in ANATOMIES.values()}
    assert used == set(consistency.BLOCK_EQUATIONS)


@pytest.mark.parametrize("family", ["gpt2", "bert", "phi"])
def test_limits_grow_as_precision_falls(family, lm_of) -> None:
    limits = [consistency.LIMITS[name] for name in ("float64", "float32", "float16", "bfloat16")]
    assert limits == sorted(limits)
    assert all(one.limit == consistency.LIMITS["float32"] for one in run_checks(lm_of(family)))
