"""Samples say the same as the rows: averaged, they are the rows."""

import re
from pathlib import Path

import polars as pl
import pytest

from cutaway.core.digest import digest_text
from cutaway.methods.shortcut import api as shortcut
from cutaway.methods.shortcut import predictions, samples
from cutaway.methods.shortcut.maths.exit_simulation import FINE_LAMBDAS
from cutaway.store.results import results
from tests.methods.shortcut.toy import OTHER, TEXTS


@pytest.fixture(scope="module")
def eval_request(options, fitted, maps_file, folder):
    """The request of `evaluated` with samples, in a folder of its own."""
    return {**options, "runs": str(folder / "sampled"), "text": TEXTS, "positions_per_text": 3,
            "schedules": True, "shortcut": maps_file}  # fmt: skip


@pytest.fixture(scope="module")
def with_samples(eval_request):
    return shortcut.eval(**eval_request, samples=True)


@pytest.fixture(scope="module")
def exits(options, fitted, maps_file, folder):
    runs = {**options, "runs": str(folder / "sampled")}
    return shortcut.exit(**runs, text=TEXTS, shortcut=maps_file, agreement=0.9, samples=True)


def test_samples_leave_the_rows_as_they_are(evaluated, with_samples) -> None:
    assert with_samples.rows.equals(evaluated.rows)
    assert with_samples.record.address != evaluated.record.address


def test_averages_of_the_samples_are_the_rows(with_samples) -> None:
    means = with_samples.samples.group_by("kind", "layer").agg(
        pl.col("agree").mean().alias("precision@1"),
        (pl.col("rank") < 5).mean().alias("precision@5"),
        pl.col("surprisal").mean(), pl.col("kl").mean(), pl.col("entropy").mean(),
        pl.col("loss").mean().exp().alias("perplexity"),
    )  # fmt: skip
    long = means.unpivot(index=["kind", "layer"], variable_name="metric", value_name="mean")
    joined = with_samples.rows.filter(~pl.col("metric").is_in(["r2", "precision@10"])).join(
        long, on=["kind", "layer", "metric"], how="left"
    )
    # Every kind: maps, replaced parts, schedules.
    assert {"id", "mat", "part:attn", "schedule:1"} <= set(joined["kind"])
    assert joined["mean"].null_count() == 0
    assert (joined["mean"] - joined["value"]).abs().max() < 1e-5


def test_a_sample_has_its_text_and_the_tokens_of_the_lens(with_samples, toy, maps_file) -> None:
    table = with_samples.samples
    assert set(table["set"]) == {"toy"}
    one = table.filter((pl.col("kind") == "mat") & (pl.col("layer") == 1)).row(5, named=True)
    text, position = one["text"], one["position"]
    assert one["text_digest"] == digest_text(text)[:16]
    lens = shortcut.lens(model=toy, text=text, shortcut=maps_file, kinds="mat", quiet=True)
    assert one["token"] == lens.tokens[position]
    assert one["tokens"] == lens.words["mat"][1][position]
    assert one["scores"] == pytest.approx(lens.probs["mat"][1][position], rel=1e-3)
    assert one["agree"] == lens.agree["mat"][1][position]
    ends = table.filter(pl.col("truth").is_null())
    followed = table.filter(pl.col("truth").is_not_null())
    assert len(ends) and ends["loss"].null_count() == len(ends)
    assert followed["loss"].null_count() == 0


def test_every_measured_text_is_there_once_per_position_kind_and_layer(with_samples) -> None:
    table, splits = with_samples.samples, with_samples.splits
    key = ["row", "position", "kind", "layer"]
    assert not table.select(key).is_duplicated().any()
    every = table.filter(pl.col("kind").is_in(["id", "mat"]) & (pl.col("layer") <= 3))
    counted = every.group_by("row", "position").len()["len"].unique().to_list()
    assert counted == [8]
    assert set(table.select("row", "position").rows()) == set(
        splits.select("row", "position").rows()
    )
    assert set(splits["part"]) == {"measured"}


def test_a_killed_evaluation_continues_without_losing_or_repeating_samples(
    with_samples, eval_request, monkeypatch, folder, toy
) -> None:
    request = {**eval_request, "runs": str(folder / "killed"), "samples": True,
               "schedules": False, "parts": False, "kinds": "id,mat"}  # fmt: skip
    monkeypatch.setattr(predictions, "MAX_LOGITS", 9 * toy.vocab)
    monkeypatch.setattr(predictions, "concat_predictions", None)
    with pytest.raises(TypeError):
        shortcut.eval(**request)
    assert len(list((folder / "killed").rglob("samples/*.parquet"))) > 3
    monkeypatch.undo()
    monkeypatch.setattr(predictions, "MAX_LOGITS", 9 * toy.vocab)
    again = shortcut.eval(**request).samples
    order = ["kind", "layer", "row", "position"]
    whole = with_samples.samples.filter(pl.col("kind").is_in(["id", "mat"])).sort(order)
    again = again.sort(order)
    for column in ("kind", "layer", "row", "position", "tokens", "agree", "rank"):
        assert again[column].equals(whole[column])


def test_exits_averaged_are_the_curve_and_every_lambda_is_there(exits) -> None:
    curve = exits.samples.filter(pl.col("lambda").is_not_null())
    assert set(FINE_LAMBDAS) <= set(curve["lambda"])
    key = ["kind", "confidence", "lambda"]
    means = curve.group_by(key).agg(
        pl.col("layer").mean().alias("layers"), pl.col("agree").mean().alias("precision@1")
    )
    long = means.unpivot(index=key, variable_name="metric", value_name="mean")
    points = exits.rows.filter(pl.col("lambda").is_not_null())
    joined = points.join(long, on=[*key, "metric"], how="left")
    assert (joined["mean"] - joined["value"]).abs().max() < 1e-9
    [best, *_] = exits.summary["calibrated"]
    chosen = means.filter(
        (pl.col("kind") == best["kind"]) & (pl.col("confidence") == best["confidence"])
        & (pl.col("lambda") == best["setting"])
    )  # fmt: skip
    assert chosen["layers"].item() == pytest.approx(best["layers"])


def test_the_tokens_at_an_exit_are_found_by_its_layer(exits) -> None:
    table = exits.samples
    key = ["row", "position", "kind", "layer"]
    out = table.filter(pl.col("lambda").is_not_null()).select(*key, "agree")
    cells = table.filter(pl.col("lambda").is_null()).select(*key, "tokens", "agree")
    joined = out.join(cells, on=key, how="left", suffix="_there")
    assert joined["tokens"].null_count() == 0
    assert (joined["agree"] == joined["agree_there"]).all()


def test_exits_are_written_in_pieces_of_bounded_size(
    exits, options, maps_file, folder, monkeypatch
):
    monkeypatch.setattr(samples, "PIECE_ROWS", 100)
    runs = {**options, "runs": str(folder / "small")}
    small = shortcut.exit(**runs, text=TEXTS, shortcut=maps_file, agreement=0.9, samples=True)
    order = ["kind", "confidence", "lambda", "row", "position", "layer"]
    assert small.samples.select(order).sort(order).equals(exits.samples.select(order).sort(order))


def test_a_masked_model_is_asked_for_the_masked_token(folder, tiny_lm) -> None:
    options = {"model": tiny_lm("bert"), "runs": str(folder / "runs"), "quiet": True}
    file = str(folder / "masked_samples.safetensors")
    shortcut.fit(**options, text=TEXTS, layers="to-final", out=file)
    table = shortcut.eval(**options, text=OTHER, shortcut=file, samples=True).samples
    assert (table["token"] == table["truth"]).all()


def test_the_queries_of_the_docs_answer(with_samples, exits, folder) -> None:
    page = Path("docs/methods/shortcut.md").read_text("utf-8").partition("## Samples")[2]
    queries = re.findall(r'cutaway query "((?:[^"\\]|\\.)*)"', page.partition("## generate")[0])
    runs = results(folder / "sampled")
    lens, curve, tokens = [runs.query(one.replace('\\"', '"')) for one in queries]
    # The toy has no layer 15.
    assert lens.columns == ["text", "token", "mat", "id"] and lens.is_empty()
    point = exits.rows.filter(
        (pl.col("lambda") == 0.5) & (pl.col("kind") == "mat") & (pl.col("confidence") == "gap")
    ).sort("metric")
    found = curve.filter((pl.col("lambda") == 0.5) & (pl.col("kind") == "mat"))
    assert [found["layers"].item(), found["agreement"].item()] == pytest.approx(point["value"])
    assert tokens["tokens"].null_count() == 0
    assert len(tokens) == 2 * exits.splits.height


def test_splits_of_a_fit_are_the_texts_of_the_two_parts(fitted) -> None:
    counts = dict(fitted.splits.group_by("part").agg(pl.col("row").n_unique()).rows())
    assert counts == {
        "fit": fitted.summary["fitted_rows"], "held_out": fitted.summary["held_out_rows"],
    }  # fmt: skip
    by_row = fitted.splits.group_by("row").agg(pl.col("text_digest").first())
    for row, digest in by_row.head(20).rows():
        assert digest == digest_text(TEXTS.texts[row])[:16]


def test_the_size_is_close_to_what_is_written(
    eval_request, with_samples, options, maps_file, exits
):
    from cutaway.catalog import VERBS
    from cutaway.recipe import life_cycle
    from cutaway.recipe.objects import name_objects

    def estimate(words, request):
        named, objects = name_objects(
            {k: v for k, v in request.items() if k != "quiet"}, ("model", "text"),
            single=["model", "text"],
        )  # fmt: skip
        spec = VERBS[words].spec_class(**named, samples=True)
        [cost] = life_cycle.estimate(VERBS[words], spec, life_cycle.Context(objects=objects))
        return cost.plain()["samples_rows"]

    assert estimate("shortcut eval", eval_request) == pytest.approx(
        len(with_samples.samples), rel=0.3
    )
    request = {**options, "text": TEXTS, "shortcut": maps_file}
    assert estimate("shortcut exit", request) == pytest.approx(len(exits.samples), rel=0.1)


def test_text_that_tables_cannot_hold_is_shown_with_question_marks() -> None:
    assert samples._valid("a\ud800b") == "a?b"
