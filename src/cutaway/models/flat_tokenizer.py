"""Tokenizers written in Python whose vocabulary is all there is to them, as fast ones.

ESM's tokenizer splits a text into the longest words of its vocabulary, and has no `tokenizer.json`.
The same rule in the tokenizers library gives the same ids, and offsets too. Both are compared on
some texts; if an id differs, the tokenizer isn't converted.
"""

from typing import Any

FLAT_CLASSES = ("EsmTokenizer",)
SPECIAL = ("unk", "cls", "pad", "mask", "eos")
TEXTS = (
    "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQ",
    "M K <mask> A",
    "MKXBZ.-OU j 12 lower Case",
    "The old clock struck nine, and <eos> ended it.",
    " <cls>AC  <pad>\tDE\n",
)


def as_fast_tokenizer(tokenizer: Any) -> Any:
    """The same tokenizer as a fast one where that is possible, else the given one."""
    if type(tokenizer).__name__ not in FLAT_CLASSES:
        return tokenizer
    fast = _convert(tokenizer)
    given = [*((text,) for text in TEXTS), TEXTS[:2]]
    same = all(tokenizer(*one)["input_ids"] == fast(*one)["input_ids"] for one in given)
    return fast if same else tokenizer


def _convert(tokenizer: Any) -> Any:
    """Words of the vocabulary wherever they are in the text; what is between them is unknown."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    fast: Any = PreTrainedTokenizerFast
    vocabulary = tokenizer.get_vocab()
    core = Tokenizer(models.WordLevel(vocabulary, unk_token=tokenizer.unk_token))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    core.add_tokens([AddedToken(word, normalized=False) for word in words if word.strip()])
    start, end = tokenizer.cls_token, tokenizer.eos_token
    core.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} $B {end}",
        special_tokens=[(word, vocabulary[word]) for word in (start, end)],
    )
    named = {f"{name}_token": getattr(tokenizer, f"{name}_token", None) for name in SPECIAL}
    return fast(
        tokenizer_object=core,
        model_max_length=tokenizer.model_max_length,
        model_input_names=tokenizer.model_input_names,
        **{name: word for name, word in named.items() if word is not None},
    )
