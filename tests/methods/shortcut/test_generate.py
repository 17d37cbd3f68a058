"""`shortcut generate`: lossless drafts, early exits, fallbacks and refusals."""

import json

import pytest

from cutaway.core.errors import BadData, BadSpec, UnknownName
from cutaway.methods.shortcut import api as shortcut
from cutaway.methods.shortcut import generate
from tests.methods.shortcut.toy import OTHER, TEXTS

PROMPTS = [" the film", " the king"]


@pytest.mark.parametrize("more", [{}, {"exit_layers": [2], "draft": 2}, {"sample": True}])
def test_speculative_text_is_the_models_own(options, fitted, maps_file, more) -> None:
    more |= {"prompt": PROMPTS, "max_new_tokens": 8, "compare": True}
    out = shortcut.generate(**options, shortcut=maps_file, **more)
    assert json.loads(json.dumps(out.plain()))[0]["prompt"] == " the film"
    assert all(len(text.tokens) <= 8 for text in out.texts)
    if "sample" not in more:
        assert all(text.identical and text.tokens == text.plain_tokens for text in out.texts)
    if "draft" in more:
        assert out.setting is not None
        assert out.setting.layer == 2


def test_nothing_is_generated_twice_unless_a_comparison_is_asked_for(
    options, fitted, maps_file, monkeypatch
) -> None:
    monkeypatch.setattr(generate, "plain_generate", None)
    out = shortcut.generate(**options, shortcut=maps_file, prompt=PROMPTS, max_new_tokens=5)
    [first, _] = out.plain()
    assert [first[key] for key in ("plain_tokens", "plain_seconds", "identical")] == [None] * 3
    assert first["seconds"] > 0 and first["processor_seconds"] > 0
    assert "5 tokens" in out.verdict[0] or "10 tokens" in out.verdict[0]
    assert not any("plain generate" in sentence for sentence in out.verdict)


def test_the_run_is_kept_and_found_again(options, fitted, maps_file, monkeypatch) -> None:
    request = {**options, "shortcut": maps_file, "prompt": PROMPTS, "max_new_tokens": 6}
    out = shortcut.generate(**request)
    assert (out.path / "result.json").is_file()
    metrics = set(out.rows["metric"])
    assert {"tokens", "layers", "seconds", "processor_seconds"} <= metrics
    assert not metrics & {"plain_seconds", "identical"}
    assert out.rows["text"].unique(maintain_order=True).to_list() == PROMPTS
    monkeypatch.setattr(generate, "TextWriter", None)
    again = shortcut.generate(**request)
    assert again.texts == out.texts and again.path == out.path


def test_a_killed_run_goes_on_with_the_next_prompt(options, fitted, maps_file, monkeypatch) -> None:
    more = {"prompt": [" the film", " the king", " i"], "max_new_tokens": 7}
    request, write = {**options, "shortcut": maps_file, **more}, generate.TextWriter.write
    calls = []

    def killed(*given):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return write(*given)

    monkeypatch.setattr(generate.TextWriter, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        shortcut.generate(**request)
    out = shortcut.generate(**request)
    assert len(calls) == 4, "only the last text is written again"
    assert [text.prompt for text in out.texts] == more["prompt"]
    alone = shortcut.generate(**{**request, "seed": 5})
    assert [text.tokens for text in out.texts] == [text.tokens for text in alone.texts]


def test_plain_and_own_texts_are_written_in_turn(options, fitted, maps_file, monkeypatch) -> None:
    order: list[str] = []
    plain, write = generate.plain_generate, generate.TextWriter.write
    monkeypatch.setattr(
        generate, "plain_generate", lambda *a, **k: [order.append("plain"), plain(*a, **k)][1]
    )
    monkeypatch.setattr(
        generate.TextWriter, "write", lambda *a: [order.append("own"), write(*a)][1]
    )
    shortcut.generate(
        **options, shortcut=maps_file, prompt=[*PROMPTS, " the food"], max_new_tokens=3,
        compare=True, seed=5,
    )  # fmt: skip
    assert order == ["plain", "own", "own", "plain", "plain", "own"]


def test_an_exit_reports_its_layers(options, fitted, maps_file) -> None:
    out = shortcut.generate(
        **options, shortcut=maps_file, prompt=" the film", mode="exit", exit_layers="1,2",
        max_new_tokens=6, lambda_value=-1.112,
    )  # fmt: skip
    assert out.texts[0].layers_mean == pytest.approx((3 + 5 * 1) / 6)
    assert out.verdict[1] == "Tokens exit after 1.3 of 3 layers on average."


def test_a_result_prints_its_texts_and_verdict(options, fitted, maps_file, capsys) -> None:
    out = shortcut.generate(
        **options, shortcut=maps_file, prompt=" the film", max_new_tokens=4, exit_layers=1, draft=1
    )
    capsys.readouterr()
    out.show()
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].strip().startswith("the film")
    assert printed[-len(out.verdict) :] == list(out.verdict)


def test_new_tokens_are_decoded_as_they_read_after_the_prompt(toy) -> None:
    row = toy.tokenizer(" the film is good")["input_ids"]
    complete = toy.tokenizer.decode(row)
    for cut in range(1, len(row)):
        first = toy.tokenizer.decode(row[:cut])
        assert first + generate.decode_continuation(toy, row[:cut], row[cut:]) == complete


def test_draft_maps_draft_what_the_model_generates(options, folder) -> None:
    file = str(folder / "drafts.safetensors")
    shortcut.fit(**options, text=TEXTS, out=file, drafts=40)
    out = shortcut.generate(
        **options, shortcut=file, prompt=["the film is", "the food was", "so i"], draft=3,
        max_new_tokens=12, kind="ahead", exit_layers=0, compare=True,
    )  # fmt: skip
    assert out.setting.kind == "ahead"
    assert all(text.identical for text in out.texts)
    assert sum(text.accepted for text in out.texts) > 0.5
    with pytest.raises(BadSpec, match="No maps of kind ahead from layer 2"):
        shortcut.generate(
            **options, shortcut=file, prompt="so i", kind="ahead", exit_layers=2, max_new_tokens=4
        )


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        (r"Exit layer 3 is out of range.*0\.\.2", {"exit_layers": 3, "draft": 1}),
        (r"Exit layer 9 is out of range", {"exit_layers": 9, "mode": "exit"}),
        ("Unknown map kind", {"kind": "matt"}),
        ("has no maps of kind ahead: fit it with --drafts", {"kind": "ahead"}),
        ("more than the context", {"max_new_tokens": 9999}),
    ],
)
def test_impossible_requests_are_refused_before_anything_is_generated(
    options, fitted, maps_file, message, wrong, monkeypatch
) -> None:
    monkeypatch.setattr("cutaway.methods.shortcut.generate.plain_generate", None)
    with pytest.raises((BadData, BadSpec, UnknownName), match=message):
        shortcut.generate(
            **options, shortcut=maps_file, prompt="so i", **{"max_new_tokens": 4} | wrong
        )


def test_masked_models_generate_no_text(folder, tiny_lm) -> None:
    options = {"model": tiny_lm("bert"), "runs": str(folder / "runs"), "quiet": True}
    fit = shortcut.fit(**options, text=OTHER)
    with pytest.raises(BadSpec, match="only causal models"):
        shortcut.generate(**options, shortcut=str(fit.path / "shortcut.safetensors"), prompt="the")
