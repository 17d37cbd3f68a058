"""The check report: its facts, when a model is refused, what is remembered."""

import json
from dataclasses import replace

import pytest
import torch

from cutaway.core.errors import CheckFailed
from cutaway.models import check as checking
from cutaway.models.check import check, quick_check, run_checks
from cutaway.models.consistency import ConsistencyCheck
from cutaway.models.load import open_model


def spoiled(lm):
    """The same model with its final norm forgotten."""
    return replace(lm, anatomy=replace(lm.anatomy, final=()))


def test_the_report_is_plain_json_and_complete(lm) -> None:
    report = check(lm)
    plain = json.loads(json.dumps(report.plain()))
    assert plain["passed"] is True
    assert plain["layers"] == 3
    assert {"name", "measured", "noise", "verdict", "detail"} == set(plain["checks"][0])
    assert plain["estimates"]["row_all_layers"] == 4 * 32 * 4
    assert plain["estimates"]["weights"] == 4 * lm.parameters


def test_tokenizer_facts_say_what_is_added(lm_of) -> None:
    facts = {name: check(lm_of(name)).tokenizer for name in ("gpt2", "llama", "bert")}
    assert facts["gpt2"]["adds_in_front"] == facts["gpt2"]["adds_behind"] == []
    assert facts["llama"]["adds_in_front"] == ["<s>"]
    assert (facts["bert"]["adds_in_front"], facts["bert"]["adds_behind"]) == (["[CLS]"], ["[SEP]"])
    assert facts["gpt2"]["pad_token"] == "<|endoftext|>"


def test_a_failed_check_is_named_with_measured_noise_and_verdict(lm_of) -> None:
    report = check(spoiled(lm_of("gpt2")))
    assert not report.passed
    with pytest.raises(
        CheckFailed, match=r"'hooks = plain.*measured \d.*noise \d.*e-07, wrong, .*stays"
    ):
        report.need_passed()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_each_precision_has_its_own_noise(dtype, lm_of) -> None:
    report = check(lm_of("llama", dtype=dtype, attention="sdpa"))
    report.need_passed()
    unit = torch.finfo(getattr(torch, dtype)).eps if dtype != "float64" else 1e-7
    assert all(0.3 * unit < one.noise for one in report.checks)
    assert {one.verdict for one in report.checks} == {"fine"}


def test_opening_runs_the_quick_check(folder_of, monkeypatch) -> None:
    ran = []
    monkeypatch.setattr(checking, "quick_check", lambda lm: ran.append(lm.name) or lm)
    open_model(folder_of("gpt2"))
    open_model(folder_of("gpt2"), check=False)
    assert ran == [str(folder_of("gpt2"))]


def test_a_pass_is_remembered_for_what_it_was_measured_on(lm_of, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))
    lm, ran, real = lm_of("gpt2"), [], checking.run_checks
    monkeypatch.setattr(checking, "run_checks", lambda *a, **k: ran.append(1) or real(*a, **k))
    quick_check(lm)
    quick_check(lm)
    assert len(ran) == 1
    quick_check(replace(lm, digest="other weights"))
    quick_check(lm_of("gpt2", attention="sdpa"))
    assert len(ran) == 3


def test_a_noisy_model_is_opened_with_a_warning_each_time(folder_of, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))
    noisy = ConsistencyCheck("padding", 2e-2, 5e-3, "noisy", "disappears in wider precision")
    monkeypatch.setattr(checking, "run_checks", lambda *a, **k: (noisy,))
    for _ in range(2):
        found = [one for one in open_model(folder_of("gpt2")).warnings if one.name == "rounding"]
        assert len(found) == 1
        assert "measured 0.02, rounding noise 0.005, noisy" in found[0].message
        monkeypatch.setattr(checking, "run_checks", None)


def test_a_difference_that_disappears_is_noisy_and_one_that_stays_is_wrong(lm_of) -> None:
    first = ConsistencyCheck("padding", 4e-6, 1e-6, "noisy")
    wide = replace(first, measured=1e-9)
    assert checking._second_verdict(first, wide).verdict == "noisy"
    assert checking._second_verdict(first, first).verdict == "wrong"


def test_what_overflows_in_wider_precision_is_judged_by_the_first_measurement() -> None:
    overflow = ConsistencyCheck("padding", float("inf"), 1e-6, "wrong")
    for verdict, measured in (("noisy", 4e-6), ("wrong", 2e-5)):
        first = ConsistencyCheck("padding", measured, 1e-6, verdict)
        assert checking._second_verdict(first, overflow) == first


@pytest.mark.parametrize("family", ["gemma2", "mistral"])
def test_strong_rounding_with_eager_attention_is_not_refused(family, lm_of, monkeypatch) -> None:
    """Rows of padding that see no token have no finite states in float64."""
    monkeypatch.setattr(checking, "FINE", 0.0)
    checks = run_checks(lm_of(family))
    assert {one.verdict for one in checks} <= {"fine", "noisy"}


def test_a_failure_is_never_remembered(lm_of, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))
    for _ in range(2):
        with pytest.raises(CheckFailed):
            quick_check(spoiled(lm_of("gpt2")))


def test_a_model_without_a_head_is_not_checked_for_logits(lm_of) -> None:
    report = check(replace(lm_of("bert"), has_head=False))
    assert not any("logits" in one.name for one in report.checks)
    report.need_passed()
