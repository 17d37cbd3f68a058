"""The output layer of a model, its tokens as text, and the position of the answer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cutaway.core.errors import BadSpec
from cutaway.core.textset import TextSet
from cutaway.data.templates import check_template, fill_template
from cutaway.methods.nextword.maths.readout import OutputHead
from cutaway.methods.nextword.maths.words import Encode
from cutaway.models.lm import LM


def make_output_head(lm: LM) -> OutputHead:
    """The model's output layer in float32, with its family's operations on logits."""
    phi, bias = lm.output_embedding
    return OutputHead(
        phi.detach().float().cpu(),
        None if bias is None else bias.detach().float().cpu(),
        lm.transform_logits if lm.anatomy.logit_operations else None,
    )


def make_encoder(lm: LM) -> Encode:
    """A function from text to token ids, without special tokens; [] for unknown tokens."""

    def encode(text: str) -> Sequence[int]:
        ids: list[int] = lm.tokenizer(text, add_special_tokens=False)["input_ids"]
        return [] if lm.tokenizer.unk_token_id in ids else ids

    return encode


def token_text(lm: LM, token: int) -> str:
    """A token as text, with its leading space."""
    piece: str = lm.tokenizer.convert_ids_to_tokens(token) or ""
    plain: str = lm.tokenizer.decode([token])
    # Sentencepiece tokenizers drop the space when a token is decoded alone.
    return f" {plain}" if piece[:1] in ("▁", "Ġ") and not plain.startswith(" ") else plain


def answer_position(lm: LM, position: str) -> str:
    """The token whose state is f: last, cls or mask; BadSpec if the model doesn't have it."""
    if position == "auto":
        return "last" if lm.kind == "causal" else "cls"
    if lm.kind == "causal" and position in ("cls", "mask"):
        raise BadSpec(
            f"position {position!r} is for masked models, and {lm.name!r} is causal: leave it out, "
            "or use --position last."
        )
    return position


def fill_task_template(texts: TextSet, template: str, mask: str, edits: Any) -> tuple[TextSet, str]:
    """The texts in the template, and the end of the template if it holds the mask.

    The end is returned separately because it must survive truncation.
    """
    paired = texts.pairs is not None
    try:
        check_template(template, pair=paired, mask=True)
    except ValueError as error:
        raise BadSpec(f"{error} Give --template.") from None
    last = max(template.rfind("{text}") + 6, template.rfind("{pair}") + 6 if paired else 0)
    tail = template[last:].replace("{mask}", mask) if "{mask}" in template[last:] else ""
    front = template[:last] if tail else template
    pairs = texts.pairs or (None,) * len(texts)
    filled = tuple(
        fill_template(front, text, pair=pair, mask=mask, edits=edits)
        for text, pair in zip(texts.texts, pairs, strict=True)
    )
    return replace(texts, texts=filled, pairs=None), tail
