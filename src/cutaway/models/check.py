"""Trust at the door: is what we read off this model what the model computes?"""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadModel, CheckFailed
from cutaway.models import laws
from cutaway.models.laws import CheckSample, ConsistencyCheck
from cutaway.models.lm import LM
from cutaway.models.memo import read_memo, write_memo

METHODS = ("probe", "nextword", "shortcut", "graft", "inject")


@dataclass(frozen=True)
class CheckReport:
    """What a model is, which laws it holds, what it can be used for, and what that takes."""

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
    laws: tuple[ConsistencyCheck, ...]
    supports: dict[str, str]
    estimates: dict[str, int]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Every law holds."""
        return all(law.passed for law in self.laws)

    def plain(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {**asdict(self), "passed": self.passed}

    def need_passed(self) -> None:
        """CheckFailed with the first broken law, what was measured and what is allowed."""
        need_checks_passed(self.name, self.laws)


def check(lm: LM, *, thorough: bool = True) -> CheckReport:
    """The trust report of an open model: all laws, on its own weights."""
    return CheckReport(
        name=lm.name,
        family=lm.family,
        anatomy="proposed by inspection, verified" if lm.anatomy.proposed else "known family",
        kind=lm.kind,
        layers=lm.layers,
        width=lm.width,
        vocab=lm.vocab,
        parameters=lm.parameters,
        context=lm.context,
        tied=lm.tied,
        dtype=lm.dtype,
        attention=lm.attention,
        device=lm.device,
        digest=lm.digest,
        tokenizer=tokenizer_facts(lm),
        laws=run_checks(lm, thorough=thorough),
        supports=supported_methods(lm),
        estimates=size_estimates(lm),
        notes=lm.notes,
    )


def quick_check(lm: LM) -> None:
    """CheckFailed or BadModel unless the model holds the laws that matter most.

    A pass is remembered for these weights, versions, precision, kernel and device. A proposed
    anatomy has to hold every law.
    """
    key = _memo_key(lm)
    if read_memo("checks", key):
        return
    found = run_checks(lm, thorough=lm.anatomy.proposed)
    if lm.anatomy.proposed and not all(law.passed for law in found):
        broken = next(law for law in found if not law.passed)
        raise BadModel(
            f"Family {lm.family!r} has no row, and the anatomy proposed for {lm.name!r} breaks the "
            f"law {broken.name!r} (measured {broken.measured:.2g}, allowed {broken.limit:.2g}). "
            "Write a row for it: docs/howto/add-a-model-family.md"
        )
    need_checks_passed(lm.name, found)
    write_memo("checks", key, [law.name for law in found])


def run_checks(lm: LM, *, thorough: bool = True) -> tuple[ConsistencyCheck, ...]:
    """Every law that applies to the model; the few most telling ones unless thorough."""
    with torch.no_grad():
        drawn = laws.check_sample(lm, laws.SENTENCES if thorough else laws.SENTENCES[::2])
        found = [laws.check_hidden_states(lm, drawn)]
        if lm.has_head:
            found.append(laws.check_logits(lm, drawn))
        # Padding on the left shifts every position: what goes wrong on the right does so here.
        found.append(laws.check_padding(lm, drawn, "left"))
        return tuple(found + (_thorough_checks(lm, drawn) if thorough else []))


def _thorough_checks(lm: LM, drawn: CheckSample) -> list[ConsistencyCheck]:
    found = [
        laws.check_padding(lm, drawn, "right"),
        laws.check_batching(lm, drawn),
        laws.check_determinism(lm, drawn),
        laws.check_early_stop(lm, drawn),
        laws.check_run_from(lm, drawn),
    ]
    if lm.kind == "masked":
        found.append(laws.check_text_pairs(lm))
    if lm.anatomy.mlp is not None:
        found.append(laws.check_block_parts(lm, drawn))
    if lm.anatomy.attn is not None:
        found.append(laws.check_attention_sums(lm, drawn))
    return found


def need_checks_passed(name: str, found: tuple[ConsistencyCheck, ...]) -> None:
    """CheckFailed with the first broken law."""
    for law in found:
        if not law.passed:
            detail = f" ({law.detail})" if law.detail else ""
            raise CheckFailed(
                f"{name!r} breaks the law {law.name!r}: measured {law.measured:.2g}, allowed "
                f"{law.limit:.2g}{detail}. What would be read off it can't be trusted; see: "
                f"cutaway check {name}"
            )


def tokenizer_facts(lm: LM) -> dict[str, Any]:
    """What the tokenizer adds, pads with and lacks."""
    tokenizer = lm.tokenizer
    one = tokenizer("a", return_special_tokens_mask=True)
    special = one["special_tokens_mask"]
    names = tokenizer.convert_ids_to_tokens(one["input_ids"])
    front = special.index(0) if 0 in special else len(special)
    back = len(special) - special[::-1].index(0) if 0 in special else len(special)
    return {
        "class": type(tokenizer).__name__,
        "size": len(tokenizer),
        "adds_in_front": names[:front],
        "adds_behind": names[back:],
        "bos_token": tokenizer.bos_token,
        "eos_token": tokenizer.eos_token,
        "mask_token": tokenizer.mask_token,
        "pad_token": tokenizer.pad_token,
        "padding_side": tokenizer.padding_side,
        "model_max_length": min(int(tokenizer.model_max_length), 10**9),
        "digest": lm.tokenizer_digest,
    }


def supported_methods(lm: LM) -> dict[str, str]:
    """What each method can do with this model: `yes`, or what is missing."""
    if not lm.has_head:
        lacking = "no: the checkpoint has no language-model head"
        return {
            "probe": "yes",
            "nextword": lacking,
            "shortcut": "layers only: the checkpoint has no language-model head",
            "graft": "head mode only: the checkpoint has no language-model head",
            "inject": lacking,
        }
    yes = dict.fromkeys(METHODS, "yes")
    if lm.anatomy.mlp is None:
        yes["shortcut"] = "yes, without sub-modules: the parts of its blocks aren't known"
    return yes


def size_estimates(lm: LM) -> dict[str, int]:
    """Bytes: of the weights, of a pooled row of one layer and of all, of a batch in flight."""
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

    return digest_json(
        [
            lm.digest,
            lm.tokenizer_digest,
            lm.dtype,
            lm.attention,
            lm.device,
            torch.__version__,
            transformers.__version__,
            asdict(lm.anatomy),
        ]
    )
