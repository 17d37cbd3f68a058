"""Options of trainings: label words, limits, defaults."""

import pytest
from pydantic import BaseModel, ValidationError

from cutaway.training.options import LabelWords, TrainingSpec


class Words(BaseModel):
    words: LabelWords = ()


@pytest.mark.parametrize(
    "given", ["terrible,great", " terrible , great ", ["terrible", "great"], ["terrible,great"]]
)
def test_label_words_are_split_at_commas_in_class_order(given) -> None:
    assert Words(words=given).words == ("terrible", "great")


@pytest.mark.parametrize(
    "wrong",
    [{"shots": 0}, {"lr": 0}, {"momentum": 1.0}, {"clip": -1}, {"l1": -1}, {"every": 0},
     {"optimizer": "adam"}, {"schedule": "step"}, {"max_tokens": 3}],
)  # fmt: skip
def test_values_out_of_range_are_refused(wrong) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        TrainingSpec(**wrong)
