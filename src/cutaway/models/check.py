"""Verify that activations read from a model match the model's own forward pass."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadModel, CheckFailed, CutawayError
from cutaway.home import read_memo, write_memo
from cutaway.models import consistency, hooks, plain_pass, rounding, sites
from cutaway.models.chat import template_facts
from cutaway.models.consistency import ConsistencyCheck
from cutaway.models.english_loss import with_loss_warnings
from cutaway.models.find_blocks import HOWTO
from cutaway.models.lm import LM
from cutaway.models.model_warnings import ModelWarning
from cutaway.models.plausible_config import reason_of
from cutaway.models.propose import FAILURES
from cutaway.models.rounding import FINE, wider_precision
from cutaway.models.start_token import tokens_in_front

PROPOSAL_ADVICE = {
    "padding on the right changes nothing": "The family lets padding change the states of a text, "
    "so they would depend on the other texts of its batch."
}
"""What a failed check of a proposed anatomy means, where a row wouldn't change it."""
THREAD_BYTES = 600_000_000
"""Weights for which one thread is as fast as two on a sentence."""


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
    warnings: tuple[ModelWarning, ...]
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
    checks = run_checks(lm, thorough=thorough)
    warnings = [*with_loss_warnings(lm).warnings, *noise_warnings(checks)]
    return CheckReport(
        **{name: getattr(lm, name) for name in names},
        anatomy="proposed by inspection, verified" if lm.anatomy.proposed else "known family",
        tokenizer=tokenizer_facts(lm),
        checks=checks,
        warnings=tuple(warnings),
        estimates=size_estimates(lm),
    )


def quick_check(lm: LM, *, remember: bool = True) -> LM:
    """The model with a warning if rounding is strong; CheckFailed or BadModel if it is wrong.

    The same checks with the same limits as in `check`, but fewer. The result is remembered for
    everything that can change it, unless it is a failure; not for a model in memory, whose code
    may have been changed (`remember`). A proposed anatomy has to pass every check.
    """
    key = _memo_key(lm)
    messages = read_memo("checks", key) if remember else None
    if messages is None:
        checks = run_checks(lm, thorough=lm.anatomy.proposed)
        failed = next((one for one in checks if not one.passed), None)
        if lm.anatomy.proposed and failed is not None:
            raise BadModel(
                f"Family {lm.family!r} has no row, and the anatomy proposed for {lm.name!r} fails "
                f"the check {_figures(failed)}. {PROPOSAL_ADVICE.get(failed.name, HOWTO)}"
            )
        need_checks_passed(lm.name, checks)
        messages = [one.message for one in noise_warnings(checks)]
        if remember:
            write_memo("checks", key, messages)
    found = [ModelWarning("rounding", message) for message in messages]
    return replace(lm, warnings=(*lm.warnings, *found)) if found else lm


def run_checks(lm: LM, *, thorough: bool = True) -> tuple[ConsistencyCheck, ...]:
    """Every check that applies to the model; only the most important ones unless thorough.

    What is above the rounding noise is measured again in a wider precision, if that is possible.
    Rounding disappears there; a difference that stays is wrong.
    """
    with torch.no_grad(), few_threads(lm), _refuse_failing(lm):
        sample = consistency.check_sample(lm)
        functions = consistency.applicable_checks(lm, thorough=thorough)
        checks = {measure: measure(lm, sample) for measure in functions}
        above = [
            measure
            for measure, one in checks.items()
            if one.measured > FINE * one.noise and math.isfinite(one.measured)
        ]
        for measure, again in _measure_wider(lm, above, sample.noise).items():
            checks[measure] = _second_verdict(checks[measure], again)
        return tuple(checks.values())


@contextmanager
def _refuse_failing(lm: LM) -> Iterator[None]:
    """BadModel when a pass over a short sentence ends in an error of the model's own code."""
    try:
        yield
    except (NotImplementedError, torch.OutOfMemoryError, CutawayError):
        raise
    except FAILURES as error:
        if lm.device_map or lm.quantise != "none":
            raise  # says what to do about it: refuse_undistributable
        raise BadModel(
            f"{lm.name!r} ({lm.family}) can't be read: a short sentence ends in "
            f"{type(error).__name__}: {reason_of(error)}"
        ) from error


@contextmanager
def few_threads(lm: LM) -> Iterator[None]:
    """Within it, one thread per 600 MB of weights at most.

    Reading the weights takes most of the time of a pass over a sentence, so more threads would
    only wait.
    """
    threads = torch.get_num_threads()
    size = lm.parameters * getattr(torch, lm.dtype).itemsize
    torch.set_num_threads(min(threads, 1 + size // THREAD_BYTES))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _measure_wider(
    lm: LM, functions: Sequence[consistency.Check], noise: dict[str, float]
) -> dict[consistency.Check, ConsistencyCheck]:
    """The checks in a wider precision; none where that is impossible."""
    if not functions:
        return {}
    try:
        with wider_precision(lm) as possible:
            sample = consistency.check_sample(lm, noise=noise) if possible else None
            return {one: one(lm, sample) for one in functions} if sample else {}
    except (RuntimeError, TypeError):
        # A kernel without float64.
        return {}


def _second_verdict(first: ConsistencyCheck, again: ConsistencyCheck) -> ConsistencyCheck:
    """The check with the verdict from the wider precision, against the same noise.

    What isn't finite there says nothing: the masks of eager attention overflow in float64, where
    transformers computes the softmax in float32, and padding that sees no token becomes NaN.
    """
    if not math.isfinite(again.measured):
        return first
    stays = not again.measured <= FINE * again.noise
    how = "stays" if stays else "disappears"
    detail = f"{first.detail}; {how} in wider precision".lstrip("; ")
    return replace(first, verdict="wrong" if stays else "noisy", detail=detail)


def need_checks_passed(name: str, checks: Iterable[ConsistencyCheck]) -> None:
    """CheckFailed with the first failed check, what was measured and how large rounding is."""
    for one in checks:
        if not one.passed:
            raise CheckFailed(
                f"{name!r} fails the check {_figures(one)}. Its activations can't be trusted. See: "
                f"cutaway check {name}"
            )


def noise_warnings(checks: Iterable[ConsistencyCheck]) -> list[ModelWarning]:
    """A warning with the noisiest check, if one is noisy."""
    noisy = [one for one in checks if one.verdict == "noisy"]
    if not noisy:
        return []
    worst = max(noisy, key=lambda one: max(one.measured, one.noise))
    message = (
        f"rounding is strong in this model and precision: check {_figures(worst)}. States may "
        "differ by this much with the batch; a wider dtype makes it smaller."
    )
    return [ModelWarning("rounding", message)]


def _figures(one: ConsistencyCheck) -> str:
    detail = f", {one.detail}" if one.detail else ""
    return (
        f"{one.name!r} (measured {one.measured:.2g}, rounding noise {one.noise:.2g}, "
        f"{one.verdict}{detail})"
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
        "chat_template": template_facts(lm),
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
    """Everything that can change the result: model, software, machine, and the checks' code."""
    import transformers

    machine = torch.cuda.get_device_name(lm.device) if lm.device.startswith("cuda") else ""
    versions = (torch.__version__, transformers.__version__)
    modules = (consistency, hooks, plain_pass, rounding, sites)
    code = [Path(module.__file__ or "").read_text("utf-8") for module in modules]
    return digest_json(
        [
            lm.identity,
            lm.device,
            dict(lm.device_map),
            machine,
            lm.has_head,
            versions,
            code,
            asdict(lm.anatomy),
        ]
    )
