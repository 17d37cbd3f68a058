"""Verify that activations read from a model match the model's own forward pass."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadModel, CheckFailed
from cutaway.home import read_memo, write_memo
from cutaway.models import consistency
from cutaway.models.consistency import ConsistencyCheck
from cutaway.models.lm import LM
from cutaway.models.start_token import tokens_in_front


@dataclass(frozen=True)
class CheckReport:
    """What a model is, which consistency checks it passes, and how much space it takes."""

    name: str
    family: str
    anatomy: str
    """`known family`, or `proposed by inspection, verified`."""
    kind: str
    layers: int
    width: int
    vocab: int
    parameters: int
    context: int
    tied: bool
    dtype: str
    attention: str
    device: str
    digest: str
    tokenizer: dict[str, Any]
    checks: tuple[ConsistencyCheck, ...]
    estimates: dict[str, int]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(one.passed for one in self.checks)

    def plain(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {**asdict(self), "passed": self.passed}

    def need_passed(self) -> None:
        """CheckFailed with the first failed check."""
        need_checks_passed(self.name, self.checks)


def check(lm: LM, *, thorough: bool = True) -> CheckReport:
    """Run the consistency checks on the model's own weights and report its facts."""
    names = ("name", "family", "kind", "layers", "width", "vocab", "parameters", "context", "tied",
             "dtype", "attention", "device", "digest", "notes")  # fmt: skip
    return CheckReport(
        **{name: getattr(lm, name) for name in names},
        anatomy="proposed by inspection, verified" if lm.anatomy.proposed else "known family",
        tokenizer=tokenizer_facts(lm),
        checks=run_checks(lm, thorough=thorough),
        estimates=size_estimates(lm),
    )


def quick_check(lm: LM) -> None:
    """CheckFailed or BadModel unless the model passes the most important checks.

    A pass is remembered for these weights, versions, precision, kernel and device. A proposed
    anatomy has to pass every check.
    """
    key = _memo_key(lm)
    if read_memo("checks", key):
        return
    checks = run_checks(lm, thorough=lm.anatomy.proposed)
    failed = next((one for one in checks if not one.passed), None)
    if lm.anatomy.proposed and failed is not None:
        raise BadModel(
            f"Family {lm.family!r} has no row, and the anatomy proposed for {lm.name!r} fails the "
            f"check {failed.name!r} (measured {failed.measured:.2g}, allowed {failed.limit:.2g}). "
            "Write a row for it: docs/howto/add-a-model-family.md"
        )
    need_checks_passed(lm.name, checks)
    write_memo("checks", key, [one.name for one in checks])


def run_checks(lm: LM, *, thorough: bool = True) -> tuple[ConsistencyCheck, ...]:
    """Every check that applies to the model; only the most important ones unless thorough."""
    with torch.no_grad():
        sentences = consistency.SENTENCES if thorough else consistency.SENTENCES[::2]
        sample = consistency.check_sample(lm, sentences)
        checks = [consistency.check_hidden_states(lm, sample)]
        if lm.has_head:
            checks.append(consistency.check_logits(lm, sample))
        # Left padding shifts every position, so it also shows what goes wrong on the right.
        checks.append(consistency.check_padding(lm, sample, "left"))
        if thorough:
            checks.append(consistency.check_padding(lm, sample, "right"))
            checks += [one(lm, sample) for one in consistency.THOROUGH_CHECKS]
            if lm.kind == "masked":
                checks.append(consistency.check_text_pairs(lm))
            if lm.anatomy.mlp is not None:
                checks.append(consistency.check_block_parts(lm, sample))
            if lm.anatomy.attn is not None:
                checks.append(consistency.check_attention_sums(lm, sample))
        return tuple(checks)


def need_checks_passed(name: str, checks: Iterable[ConsistencyCheck]) -> None:
    """CheckFailed with the first failed check, what was measured and what is allowed."""
    for one in checks:
        if not one.passed:
            detail = f" ({one.detail})" if one.detail else ""
            raise CheckFailed(
                f"{name!r} fails the check {one.name!r}: measured {one.measured:.2g}, allowed "
                f"{one.limit:.2g}{detail}. Its activations can't be trusted. See: "
                f"cutaway check {name}"
            )


def tokenizer_facts(lm: LM) -> dict[str, Any]:
    """The special tokens, what the tokenizer adds to a text, and its limits."""
    tokenizer = lm.tokenizer
    encoded = tokenizer("a", return_special_tokens_mask=True)
    special = encoded["special_tokens_mask"]
    names = tokenizer.convert_ids_to_tokens(encoded["input_ids"])
    end = len(special) - special[::-1].index(0) if 0 in special else len(special)
    tokens = ("bos_token", "eos_token", "mask_token", "pad_token", "padding_side")
    return {
        "class": type(tokenizer).__name__,
        "size": len(tokenizer),
        "adds_in_front": tokens_in_front(tokenizer),
        "adds_behind": names[end:],
        **{name: getattr(tokenizer, name) for name in tokens},
        "model_max_length": min(int(tokenizer.model_max_length), 10**9),
        "digest": lm.tokenizer_digest,
    }


def size_estimates(lm: LM) -> dict[str, int]:
    """Bytes of the weights, of pooled rows, and of the logits of one token."""
    size = torch.finfo(getattr(torch, lm.dtype)).bits // 8
    row = lm.width * size
    return {
        "weights": lm.parameters * size,
        "row_per_layer": row,
        "row_all_layers": row * (lm.layers + 1),
        "rows_1000_all_layers": 1000 * row * (lm.layers + 1),
        "logits_per_token": lm.vocab * 4,
    }


def _memo_key(lm: LM) -> str:
    import transformers

    names = ("digest", "tokenizer_digest", "dtype", "attention", "device")
    versions = (torch.__version__, transformers.__version__)
    return digest_json([*(getattr(lm, n) for n in names), *versions, asdict(lm.anatomy)])
