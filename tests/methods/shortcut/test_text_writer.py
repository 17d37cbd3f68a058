"""The writer of texts: the choice of a draft, its check, and the fallback."""

import pytest

from cutaway.methods.shortcut import draft_choice, generate, text_writer
from cutaway.methods.shortcut.draft_choice import DraftSetting
from cutaway.methods.shortcut.spec import GenerateSpec
from cutaway.methods.shortcut.step_timing import TimeSpent
from cutaway.methods.shortcut.text_writer import TextWriter
from cutaway.methods.shortcut.verdict import PLAIN_FALLBACK, generate_verdict
from cutaway.recipe.life_cycle import Context

SETTING = DraftSetting("mat", 2, 2, 0.0, 1.5)


@pytest.fixture
def writer_of(toy, fitted, maps_file):
    def make(prompts: int = 1, **more) -> tuple[TextWriter, list]:
        spec = GenerateSpec(
            model="toy", shortcut=maps_file, prompt=[f" the film {i}" for i in range(prompts)],
            **{"max_new_tokens": 12} | more,
        )  # fmt: skip
        request = generate.resolve(spec, Context(objects={"toy": toy}))
        return TextWriter(request), request.prompts

    return make


def test_where_no_draft_pays_the_full_model_writes(writer_of, monkeypatch) -> None:
    monkeypatch.setattr(draft_choice, "MIN_SPEEDUP", float("inf"))
    writer, [prompt] = writer_of()
    result, _ = writer.write(prompt)
    assert writer.setting is None and result.drafted == 0 and len(result.tokens) == 12
    said = generate_verdict([], None, TimeSpent(), layers=3, mode="speculative", sample=False)[1:]
    assert said[0] == PLAIN_FALLBACK


def test_the_pilot_is_part_of_the_text(writer_of, monkeypatch) -> None:
    monkeypatch.setattr(text_writer, "PILOT_TOKENS", 5)
    monkeypatch.setattr(TextWriter, "_choose", lambda *_: SETTING)
    writer, [prompt] = writer_of()
    result, watch = writer.write(prompt)
    plain, _ = writer_of(exit_layers=2, draft=2)[0].write(prompt)
    assert result.tokens == plain.tokens and result.drafted > 0
    assert result.layers == [3] * 12
    assert watch.seconds > 0 and writer.setup.seconds > 0


@pytest.mark.parametrize(("drafted", "stays"), [(0.5, True), (2.0, False)])
def test_with_many_prompts_the_choice_is_checked_in_turn(
    writer_of, monkeypatch, drafted, stays
) -> None:
    monkeypatch.setattr(TextWriter, "_choose", lambda *_: SETTING)
    used: list[bool] = []
    decode = TextWriter._decode

    def note(self, prompt, limit, picker, setting):
        used.append(setting is not None)
        return decode(self, prompt, limit, picker, setting)

    monkeypatch.setattr(TextWriter, "_decode", note)
    # A drafted token costs this many times as much as one of the full model.
    monkeypatch.setattr(TimeSpent, "cost", lambda *_: drafted if used[-1] else 1.0)
    writer, prompts = writer_of(16, max_new_tokens=3)
    for prompt in prompts[:8]:
        writer.write(prompt)
    # The first text is the pilot; four texts in turn; then what was cheaper.
    assert used == [False, True, False, True, False, *[stays] * 3]
    assert (writer.setting is not None) == stays
