"""Whether transformers loads the tokenizer that the folder's tokenizer.json describes.

transformers may replace the tokenizer class by the model type's own, which keeps the vocabulary of
the file but splits texts otherwise: a word-level tokenizer saved with a Qwen2 model is loaded as
Qwen2Tokenizer. The weights were trained on the ids of the file, so the file's own tokenizer is
used then, with a warning.
"""

from importlib.metadata import version
from pathlib import Path
from typing import Any

from cutaway.console import quiet_transformers
from cutaway.core.digest import digest_json
from cutaway.home import read_memo, write_memo
from cutaway.models.digests import file_digest
from cutaway.models.model_warnings import ModelWarning

TEXTS = (
    "The old clock struck nine.",
    "She didn't pay $12.50 in 2023, or 650841823!",
    "  Two  spaces,\ta tab\n\nand lines",
    "Crème brûlée, Straße, naïve: 你好, мир",
    "def f(x): return x_1+2  # code",
)
LARGE_FILE = 2_000_000
"""Bytes. The comparison of a larger file is remembered, since reading it takes a second."""
SHOWN_IDS = 8


def use_file_tokenizer(tokenizer: Any, folder: Path) -> tuple[Any, tuple[ModelWarning, ...]]:
    """The loaded tokenizer, or the file's own if it gives other ids, with a warning."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        return tokenizer, ()
    if not (found := _difference(tokenizer, file)):
        return tokenizer, ()
    loaded = type(tokenizer).__name__
    own = _file_tokenizer(folder) if found["inside"] else None
    if own is not None and _first_difference(own, _read(file), inside=True) is None:
        tokenizer, used = own, "The file's own tokenizer is used."
    else:
        what = "That" if found["inside"] else "The special tokens"
        used = f"{what} of {loaded} {'is' if found['inside'] else 'are'} used."
    message = (
        f"transformers loads the tokenizer as {loaded}, and it differs from the folder's "
        f"tokenizer.json: {found['text']!r} gives {_ids(found['loaded'])}, in the file "
        f"{_ids(found['file'])}. {used}"
    )
    return tokenizer, (ModelWarning("tokenizer_differs", message),)


def _difference(tokenizer: Any, file: Path) -> dict[str, Any] | None:
    """The first text with other ids; found once for a large file."""
    large = file.stat().st_size > LARGE_FILE
    key = ""
    if large:
        settings = str(sorted(tokenizer.init_kwargs.items(), key=lambda pair: pair[0]))
        key = digest_json(
            [file_digest(file), type(tokenizer).__name__, settings, TEXTS, version("transformers")]
        )
        known = read_memo("tokenizers", key)
        if isinstance(known, dict):
            return known or None
    raw = _read(file)
    found = _first_difference(tokenizer, raw, inside=True)
    found = found or _first_difference(tokenizer, raw, inside=False)
    if large:
        write_memo("tokenizers", key, found or {})
    return found


def _first_difference(tokenizer: Any, raw: Any, *, inside: bool) -> dict[str, Any] | None:
    """The first text that gets other ids; inside the text, or with the special tokens around it."""
    for text in TEXTS:
        ours = tokenizer(text, add_special_tokens=not inside, verbose=False)["input_ids"]
        theirs = raw.encode(text, add_special_tokens=not inside).ids
        if ours != theirs:
            return {"text": text, "loaded": ours, "file": theirs, "inside": inside}
    return None


def _read(file: Path) -> Any:
    from tokenizers import Tokenizer

    raw = Tokenizer.from_file(str(file))
    raw.no_truncation()
    raw.no_padding()
    return raw


def _file_tokenizer(folder: Path) -> Any:
    """The tokenizer of the file with the folder's settings; None if it can't be loaded."""
    from transformers import PreTrainedTokenizerFast

    auto: Any = PreTrainedTokenizerFast
    try:
        with quiet_transformers():
            return auto.from_pretrained(folder, local_files_only=True)
    except Exception:  # the tokenizers library raises bare Exceptions for bad files
        return None


def _ids(ids: list[int]) -> str:
    """The first ids."""
    more = ", ..." if len(ids) > SHOWN_IDS else ""
    return f"[{', '.join(map(str, ids[:SHOWN_IDS]))}{more}]"
