"""`shortcut eval`: metrics by layer and kind, replaced parts, schedules, and which texts count."""

import polars as pl
import pytest
import torch

from cutaway.core.errors import BadData, BadSpec, Missing, UnknownName
from cutaway.core.textset import TextSet
from cutaway.extract.request import ExtractionRequest, build_token_rows
from cutaway.measure.splits import hold_out_split
from cutaway.methods.shortcut import api as shortcut
from cutaway.methods.shortcut.block_parts import PART_GROUPS
from tests.methods.shortcut.toy import KINDS, OTHER, TEXTS


def values(rows: pl.DataFrame, metric: str, kind: str) -> list[float]:
    chosen = rows.filter((pl.col("metric") == metric) & (pl.col("kind") == kind))
    return chosen.sort("layer")["value"].to_list()


def test_at_the_last_layer_every_kind_agrees_with_the_model(evaluated) -> None:
    for kind in KINDS:
        for metric in ("precision@1", "precision@5", "precision@10"):
            assert values(evaluated.rows, metric, kind)[-1] == 1.0
        assert values(evaluated.rows, "kl", kind)[-1] == 0


def test_precision_grows_with_k_and_the_tuned_map_has_the_lowest_kl(evaluated) -> None:
    for kind in ("id", "mat"):
        one, five = (values(evaluated.rows, f"precision@{k}", kind) for k in (1, 5))
        assert all(a <= b for a, b in zip(one, five, strict=True))
    kl = {kind: sum(values(evaluated.rows, "kl", kind)) for kind in ("id", "mat", "tuned")}
    assert kl["tuned"] <= kl["mat"] < kl["id"]


def test_intervals_contain_their_value(evaluated) -> None:
    rows = evaluated.rows.drop_nulls(["low", "high"])
    assert len(rows) > 50
    assert (rows["low"] <= rows["value"] + 1e-9).all()
    assert (rows["value"] <= rows["high"] + 1e-9).all()


def test_replaced_parts_are_measured_from_several_layers(evaluated) -> None:
    kinds = set(evaluated.rows["kind"].to_list())
    assert {f"part:{group}" for group in PART_GROUPS} <= kinds
    assert len(values(evaluated.rows, "precision@1", "part:mlp")) == 3


def test_schedules_are_measured_with_the_number_of_their_blocks(evaluated) -> None:
    rows = evaluated.rows.filter(pl.col("kind").str.starts_with("schedule"))
    blocks = rows.filter(pl.col("metric") == "precision@1")
    assert dict(zip(blocks["kind"], blocks["layer"], strict=True)) == {
        "schedule:1": 1, "schedule:2": 2,
    }  # fmt: skip
    assert "alternate:1+1" in set(evaluated.rows["kind"].to_list())


def test_schedules_need_maps_between_all_layers(options, folder) -> None:
    file = str(folder / "to_final.safetensors")
    shortcut.fit(**options, text=OTHER, layers="to-final", out=file)
    with pytest.raises(BadSpec, match="fit with --layers all"):
        shortcut.eval(**options, text=TEXTS, shortcut=file, schedules=True)


def test_other_texts_are_measured_completely_those_of_the_fit_where_held_out(
    evaluated, options, maps_file
) -> None:
    other = shortcut.eval(**options, text=OTHER, kinds="id,mat", parts=False, shortcut=maps_file)
    held_out, train = hold_out_split(len(TEXTS), 0.25, 0)
    known = {TEXTS.texts[i] for i in train}
    assert evaluated.summary["texts"] == sum(TEXTS.texts[i] not in known for i in held_out)
    assert other.summary["texts"] == len(OTHER) == 40
    for column, expected in (("kind", {"id", "mat"}), ("fitted_on", {"toy"}), ("text", {"other"})):
        assert set(other.rows[column].to_list()) == expected


def test_texts_of_the_fit_are_never_measured_on_in_whichever_set_they_are(
    options, fitted, maps_file
) -> None:
    request = {**options, "kinds": "mat", "shortcut": maps_file, "parts": False}
    _, train = hold_out_split(len(TEXTS), 0.25, 0)
    known = {TEXTS.texts[i] for i in train}
    some = TextSet("some", (*TEXTS.texts[:50], *OTHER.texts[:5]))
    expected = sum(text not in known for text in some.texts)
    assert shortcut.eval(text=some, **request).summary["texts"] == expected
    with pytest.raises(BadData, match="fitted on every text"):
        shortcut.eval(text=TextSet("seen", tuple(sorted(known))), **request)


def test_perplexity_is_that_of_the_true_next_token(options, toy, fitted, maps_file) -> None:
    result = shortcut.eval(**options, text=OTHER, shortcut=maps_file)
    request = {"layers": (0,), "pools": ("marks",), "input_mode": "cut", "positions": 1}
    plain = ExtractionRequest(layers=(0,), pools=("last",))
    rows = build_token_rows(toy, OTHER, plain).rows
    marks = build_token_rows(toy, OTHER, ExtractionRequest(**request)).marks
    losses = []
    with torch.inference_mode():
        for row, [position] in zip(rows, marks, strict=True):
            if position + 1 < len(row):
                logits = toy.module(torch.tensor([row[: position + 1]])).logits[0, -1].double()
                losses.append(-logits.log_softmax(-1)[row[position + 1]])
    perplexity = values(result.rows, "perplexity", "mat")[toy.layers]
    assert perplexity == pytest.approx(float(torch.stack(losses).mean().exp()), rel=1e-4)


@pytest.mark.parametrize(
    ("error", "message", "wrong"),
    [
        (UnknownName, "Unknown map kind", {"kinds": "matt"}),
        (Missing, "shortcut fit --model", {"shortcut": "nowhere.safetensors"}),
        (BadData, "two tokens or more", {"text": TextSet("short", ("a", "b"))}),
    ],
)
def test_wrong_requests_are_refused(options, fitted, maps_file, error, message, wrong) -> None:
    with pytest.raises(error, match=message):
        shortcut.eval(**options | {"text": TEXTS, "shortcut": maps_file} | wrong)
