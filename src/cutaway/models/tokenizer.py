"""The tokenizer of a checkpoint, with a padding token and an unchanged vocabulary."""

from pathlib import Path
from typing import Any

from torch import nn

from cutaway.core.errors import BadModel
from cutaway.models.quiet import quiet


def load_tokenizer(folder: Path, trust: bool = False) -> tuple[Any, tuple[str, ...]]:
    """The fast tokenizer with a padding token, and notes for the user."""
    from transformers import AutoTokenizer

    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=trust
            )
    except Exception as error:  # the tokenizers library raises bare Exceptions for bad files
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise BadModel(f"The tokenizer in {folder} can't be loaded: {reason[:300]}") from None
    if not getattr(tokenizer, "is_fast", False):
        raise BadModel(
            f"The tokenizer in {folder} is not a fast tokenizer "
            f"({type(tokenizer).__name__}): save it as tokenizer.json with transformers first."
        )
    return tokenizer, _set_pad_token(tokenizer, folder)


def _set_pad_token(tokenizer: Any, folder: Path) -> tuple[str, ...]:
    """Use an existing token for padding, which is always masked."""
    if tokenizer.pad_token_id is not None:
        return ()
    for name in ("eos_token", "unk_token", "bos_token"):
        if getattr(tokenizer, f"{name}_id") is not None:
            tokenizer.pad_token = getattr(tokenizer, name)
            return (f"The tokenizer has no padding token; its {name} {tokenizer.pad_token!r} is "
                    "used, the vocabulary stays.",)  # fmt: skip
    if len(tokenizer) == 0:
        raise BadModel(f"The tokenizer in {folder} has an empty vocabulary.")
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(0)
    return (f"The tokenizer has no special tokens; {tokenizer.pad_token!r} is used for padding.",)


def uses_token_types(tokenizer: Any, module: nn.Module) -> bool:
    """Whether the tokenizer gives the texts of a pair types 0 and 1, split at the first separator,
    and the model has embeddings for both types."""
    if getattr(module.config, "type_vocab_size", 0) < 2 or tokenizer.sep_token_id is None:
        return False
    pair = tokenizer("a", "b")
    if tokenizer.sep_token_id not in pair["input_ids"]:
        return False
    border = pair["input_ids"].index(tokenizer.sep_token_id) + 1
    ours = [0] * border + [1] * (len(pair["input_ids"]) - border)
    return bool(pair.get("token_type_ids") == ours)


def need_embedding_rows(name: str, tokenizer: Any, rows: int) -> tuple[str, ...]:
    """BadModel if words, padding or the special tokens of a text have no row in the embedding.

    A note if only added tokens have none, which some families share with related models.
    """
    used = [tokenizer.pad_token_id, *tokenizer("a", return_attention_mask=False)["input_ids"]]
    # Tokenizers written in Python have no backend; their ids are checked with each text.
    if len(tokenizer) > rows and hasattr(tokenizer, "backend_tokenizer"):
        used += tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False).values()
    if max(used) >= rows:
        raise BadModel(
            f"{name!r}: its tokenizer gives ids up to {max(used):,}, its embedding has {rows:,} "
            "rows. The tokenizer belongs to another model: save the right one with the weights."
        )
    if len(tokenizer) <= rows:
        return ()
    return (f"The tokenizer knows {len(tokenizer):,} tokens, the embedding has {rows:,} rows: a "
            "text with one of the added tokens beyond them is refused.",)  # fmt: skip
