"""Every fault is refused in every family that can have it, and rounding in none."""

from contextlib import contextmanager

import pytest
import torch

from cutaway.core.errors import CheckFailed
from cutaway.models import check as checking
from cutaway.models.check import need_checks_passed, run_checks
from cutaway.models.load import open_model
from tests.every_family.build import tiny_of
from tests.models.faults import FAULTS
from tests.tiny import FAMILIES

# Families that can't have a fault, by the fault's rule; all others must be refused.
ABSENT = {
    "final norm skipped": 11,
    "wrong final norm": 2,
    "logit soft cap or scale missing": 39,
    "token types lost": 37,
    "embedding scale, norm or positions missing in layer 0": 20,
    "position ids not passed": 25,
    "all positions zero in padded batches": 1,
    "dropout left on": 28,
}


@contextmanager
def impossible(lm):
    yield False


def refused(lm, name: str) -> None:
    with FAULTS[name].inject(lm) as broken, pytest.raises(CheckFailed, match="wrong"):
        need_checks_passed(lm.name, run_checks(broken, thorough=not FAULTS[name].at_opening))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_fault_is_refused(family, lm_of, monkeypatch) -> None:
    # Widening takes time and confirms what is far above the noise; tested below.
    monkeypatch.setattr(checking, "wider_precision", impossible)
    lm = lm_of(family, attention="sdpa")
    can_have = [name for name, fault in FAULTS.items() if not fault.absent(lm)]
    assert len(can_have) >= 12
    for name in can_have:
        refused(lm, name)


# Families without a row, and the faults that each can have.
PROPOSED = {
    ("mamba", "causal"): 11,
    ("gemma4_text", "causal"): 13,
    ("gemma3", "causal"): 13,
    ("openai-gpt", "causal"): 17,
    ("longformer", "masked"): 13,
}


@pytest.mark.parametrize(("family", "kind"), PROPOSED)
def test_every_fault_is_refused_with_a_proposed_anatomy(
    family, kind, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(checking, "wider_precision", impossible)
    lm = open_model(tiny_of(family, kind, tmp_path))
    assert lm.anatomy.proposed
    can_have = [name for name, fault in FAULTS.items() if not fault.absent(lm)]
    for name in can_have:
        refused(lm, name)
    assert len(can_have) == PROPOSED[family, kind]


@pytest.mark.parametrize("family", ["gpt2", "bert", "mixtral"])
def test_faults_stay_in_wider_precision(family, lm_of) -> None:
    lm = lm_of(family, attention="sdpa")
    for name, fault in FAULTS.items():
        if not fault.absent(lm):
            refused(lm, name)


def test_families_without_a_fault_are_counted(lm_of) -> None:
    lms = [lm_of(family, attention="sdpa") for family in FAMILIES]
    absent = {name: sum(bool(one.absent(lm)) for lm in lms) for name, one in FAULTS.items()}
    assert {name: count for name, count in absent.items() if count} == ABSENT


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_rounding_is_never_refused(family, dtype, lm_of) -> None:
    checks = run_checks(lm_of(family, attention="sdpa", dtype=dtype), thorough=False)
    assert {one.verdict for one in checks} == {"fine"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("seed", [1, 2])
def test_amplified_rounding_is_not_refused(dtype, seed, folder_of) -> None:
    """Large activations in a few dimensions, as in Gemma without its start token."""
    from cutaway.models.load import open_model

    lm = open_model(folder_of("llama", seed=seed), dtype=dtype, check=False)
    with torch.no_grad():
        for block in lm.blocks:
            block.self_attn.q_proj.weight *= 60
            block.mlp.down_proj.weight[:2] *= 100
    checks = run_checks(lm)
    assert all(one.passed for one in checks)
    unit = torch.finfo(getattr(torch, dtype)).eps
    assert max(one.noise for one in checks) > 20 * unit
