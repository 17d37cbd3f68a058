"""A run is reused only if it is about the same model, read in the same way."""

from types import SimpleNamespace

import pytest

from cutaway.core.errors import Corrupt
from cutaway.studies.draw.found_runs import find_track, has_options, is_of_model

FACTS = {"digest": "d", "start_tokens": [1]}


def record(**given):
    return SimpleNamespace(**{"method": "probe", "model": dict(FACTS), "spec": {}} | given)


def step(read):
    return SimpleNamespace(verb=SimpleNamespace(method="probe"), options={}, read=read)


@pytest.mark.parametrize(
    ("model", "same"),
    [
        (FACTS, True),
        ([FACTS], True),
        ([FACTS, FACTS], False),
        ({**FACTS, "digest": "e"}, False),
        ({**FACTS, "start_tokens": []}, False),
        ({**FACTS, "chat": "template"}, False),
    ],
)
def test_the_model_must_be_the_same(model, same) -> None:
    assert is_of_model(record(model=model), FACTS) is same


@pytest.mark.parametrize(
    ("spec", "same"),
    [({}, True), ({"dtype": "auto"}, True), ({"dtype": "bfloat16"}, False),
     ({"quantise": "int8"}, False), ({"chat": True}, False)],
)  # fmt: skip
def test_precision_and_chat_must_be_the_same(spec, same) -> None:
    assert has_options(record(spec=spec), {"dtype": "auto"}) is same


def test_the_first_usable_run_is_taken_and_damaged_ones_are_passed_over() -> None:
    def read(one):
        if one.method == "probe" and one.spec.get("seed") == 1:
            raise Corrupt("damaged")
        return one.spec.get("track")

    runs = [
        record(method="graft"), record(spec={"seed": 1}), record(), record(spec={"track": "t"}),
    ]  # fmt: skip
    found = find_track(runs, step(read))
    assert found == (runs[3], "t")
    assert find_track(runs[:3], step(read)) is None
