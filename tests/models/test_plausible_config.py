"""A config that describes more than its weights is refused before anything is built."""

import pytest
from transformers import AutoConfig

from cutaway.core.errors import BadModel
from cutaway.models.plausible_config import need_plausible_config, reason_of

SHAPES = [[100, 32]] * 30


def config(**values):
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "vocab_size": 100}
    return AutoConfig.for_model("llama", **(sizes | values))


def test_a_config_of_the_size_of_its_weights_passes() -> None:
    small = {"intermediate_size": 48, "num_attention_heads": 4, "max_position_embeddings": 64}
    need_plausible_config("m", config(**small), "causal", SHAPES)


@pytest.mark.parametrize(
    ("values", "word"),
    [({"num_hidden_layers": 1000}, "1,000 layers"), ({"vocab_size": 1 << 30}, "describes")],
)
def test_a_config_of_a_larger_model_is_refused(values, word) -> None:
    with pytest.raises(BadModel, match=f"'m'.*{word}"):
        need_plausible_config("m", config(**values), "causal", SHAPES)


def test_the_reason_is_one_line() -> None:
    assert reason_of(ValueError("wrong:\nthis\nand that")) == "wrong: this"
    assert reason_of(KeyError("x")).startswith("KeyError")
    assert reason_of(ValueError()) == "ValueError"


def test_a_negative_number_of_layers_is_refused() -> None:
    with pytest.raises(BadModel, match="num_hidden_layers -1"):
        need_plausible_config("m", config(num_hidden_layers=-1), "causal", SHAPES)
