"""The tokenizer of a checkpoint folder, with a padding token.

A folder whose only vocabulary is `vocab.txt` has a WordPiece tokenizer, whatever its family: other
families' classes (ALBERT's) would load it as an empty vocabulary, so that every word is unknown.
"""

import json
from pathlib import Path
from typing import Any

from cutaway.console import quiet_transformers
from cutaway.core.errors import BadModel
from cutaway.models.flat_tokenizer import as_fast_tokenizer
from cutaway.models.model_warnings import ModelWarning
from cutaway.models.tokenizer_file import use_file_tokenizer

OTHER_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model",
                      "sentencepiece.bpe.model", "bpe.codes", "merges.txt")  # fmt: skip


def load_tokenizer(
    folder: Path, trust: bool = False
) -> tuple[Any, tuple[str, ...], tuple[ModelWarning, ...]]:
    """The fast tokenizer with a padding token, and notes and warnings for the user."""
    from transformers import AutoTokenizer, BertTokenizer

    auto: Any = BertTokenizer if is_wordpiece_folder(folder) else AutoTokenizer
    try:
        with quiet_transformers():
            tokenizer = auto.from_pretrained(
                folder, local_files_only=True, trust_remote_code=trust, **letter_case(folder)
            )
    except Exception as error:  # the tokenizers library raises bare Exceptions for bad files
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise BadModel(f"The tokenizer in {folder} can't be loaded: {reason[:300]}") from None
    tokenizer = as_fast_tokenizer(tokenizer)
    subject = f"The tokenizer in {folder}"
    need_fast_tokenizer(tokenizer, subject)
    tokenizer, warnings = use_file_tokenizer(tokenizer, folder)
    return tokenizer, set_pad_token(tokenizer, subject), warnings


def need_fast_tokenizer(tokenizer: Any, subject: str) -> None:
    """BadModel unless the tokenizer is one of the tokenizers library."""
    if not getattr(tokenizer, "is_fast", False):
        raise BadModel(
            f"{subject} is not a fast tokenizer ({type(tokenizer).__name__}), so it gives no "
            "offsets. A folder with tokenizer.json is needed."
        )


def set_pad_token(tokenizer: Any, subject: str) -> tuple[str, ...]:
    """Use an existing token for padding, which is always masked."""
    if tokenizer.pad_token_id is not None:
        return ()
    for name in ("eos_token", "unk_token", "bos_token"):
        if getattr(tokenizer, f"{name}_id") is not None:
            tokenizer.pad_token = getattr(tokenizer, name)
            return (f"The tokenizer has no padding token; its {name} {tokenizer.pad_token!r} is "
                    "used, the vocabulary stays.",)  # fmt: skip
    if len(tokenizer) == 0:
        raise BadModel(f"{subject} has an empty vocabulary.")
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(0)
    return (f"The tokenizer has no special tokens; {tokenizer.pad_token!r} is used for padding.",)


def is_wordpiece_folder(folder: Path) -> bool:
    """Whether `vocab.txt` is the only vocabulary and has the special tokens of WordPiece."""
    if any((folder / name).is_file() for name in OTHER_VOCABULARIES):
        return False
    return {"[CLS]", "[SEP]", "[UNK]"} <= set(_vocabulary(folder))


def letter_case(folder: Path) -> dict[str, bool]:
    """`do_lower_case=False` for a WordPiece vocabulary with capital letters, unless a setting of
    the tokenizer says otherwise: lower-cased, its words would all be unknown."""
    if not is_wordpiece_folder(folder):
        return {}
    try:
        stated = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        stated = {}
    words = (word for word in _vocabulary(folder) if not word.startswith("["))
    capitals = any(word != word.lower() for word in words)
    return {"do_lower_case": False} if capitals and "do_lower_case" not in stated else {}


def _vocabulary(folder: Path) -> list[str]:
    try:
        return (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return []
