"""The spec of finetune: label words from lists and commas, choices refused by name."""

import pytest

from cutaway.core.errors import BadSpec
from cutaway.core.spec import build_spec
from cutaway.methods.finetune.spec import FinetuneSpec


@pytest.mark.parametrize("words", ["terrible, great", ["terrible", "great"], ("terrible,great",)])
def test_label_words_come_from_commas_or_lists(words) -> None:
    assert build_spec(FinetuneSpec, {"model": "m", "words": words}).words == ("terrible", "great")


@pytest.mark.parametrize(
    ("field", "value"),
    [("mode", "heads"), ("at", "middle"), ("shots", 0), ("lr", 0), ("momentum", 1.0)],
)
def test_a_value_out_of_range_is_refused_with_the_field(field: str, value) -> None:
    with pytest.raises(BadSpec, match=field):
        build_spec(FinetuneSpec, {"model": "m", field: value})


def test_every_field_is_documented() -> None:
    assert all(info.description for info in FinetuneSpec.model_fields.values())
