"""Tiny checkpoints made on the spot: random weights in every family, and toys that learned a bit.

    folder = tiny("llama", tmp_path / "llama")            # open_model(folder) works as for a user
    folder = toy_model(tmp_path / "toy")                   # trained in seconds on `toy_language`
    texts, labels = toy_sentiment(200)                     # what the toy knows something about

Every weight is random and far from its initial value (biases are not 0, norms are not 1), so a
forgotten bias or norm shows. No model here has a million parameters; `tiny` asserts it.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer, WordPieceTrainer
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    PreTrainedTokenizerFast,
)

SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "A cutaway drawing shows the engine inside the machine.",
    "It rained all day, and the river rose above the old bridge!",
    "Nobody knows why the small town kept its clock five minutes slow.",
    "She said that the results were good; he said they were bad.",
    "Numbers such as 12, 345 and 6789 are words too.",
    "Is this a question? Yes, this is a question.",
)


@dataclass(frozen=True)
class Family:
    """A tiny configuration, the tokenizer style that goes with it, and which head it has."""

    config: dict
    style: str = "llama"
    kind: str = "causal"


SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
ENCODER = SHAPE | {"max_position_embeddings": 64}
DECODER = ENCODER | {"num_key_value_heads": 2}
HEADED = DECODER | {"head_dim": 8}
# Families that number positions from the padding id on need two rows more.
SHIFTED = SHAPE | {"max_position_embeddings": 66}
SMALL_TABLE = ENCODER | {"embedding_size": 16}
GPT2 = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
ROTARY = GPT2 | {"rotary_dim": 4}
NEO = {
    "hidden_size": 32,
    "num_layers": 4,
    "num_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "attention_types": [[["global", "local"], 2]],
    "window_size": 4,
}
OPT = ENCODER | {"ffn_dim": 48, "word_embed_proj_dim": 32}
DISTILBERT = {
    "dim": 32,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 48,
    "max_position_embeddings": 64,
}
# Windows shorter than the test sentences, so that local attention shows.
LOCAL = HEADED | {"sliding_window": 4}
EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
}
DEBERTA = ENCODER | {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_buckets": 16,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
}

FAMILIES: dict[str, Family] = {
    "albert": Family(SMALL_TABLE, "bert", "masked"),
    "bert": Family(ENCODER, "bert", "masked"),
    "bloom": Family({"hidden_size": 32, "n_layer": 3, "n_head": 4}),
    "camembert": Family(SHIFTED, "roberta", "masked"),
    "codegen": Family(ROTARY, "gpt2"),
    "cohere": Family(DECODER),
    "data2vec-text": Family(SHIFTED, "roberta", "masked"),
    "deberta-v2": Family(DEBERTA, "bert", "masked"),
    "distilbert": Family(DISTILBERT, "bert", "masked"),
    "electra": Family(SMALL_TABLE, "bert", "masked"),
    "ernie": Family(ENCODER, "bert", "masked"),
    "esm": Family(SHIFTED | {"mask_token_id": 4, "token_dropout": True}, "roberta", "masked"),
    "falcon": Family(SHAPE, "gpt2"),
    "gemma": Family(HEADED),
    "gemma2": Family(LOCAL),
    "gemma3_text": Family(LOCAL),
    "glm4": Family(HEADED),
    "gpt2": Family(GPT2, "gpt2"),
    "gpt_bigcode": Family(GPT2, "gpt2"),
    "gpt_neo": Family(NEO, "gpt2"),
    "gpt_neox": Family(ENCODER, "gpt2"),
    "gptj": Family(ROTARY, "gpt2"),
    "llama": Family(DECODER),
    "mistral": Family(LOCAL),
    "mixtral": Family(HEADED | EXPERTS),
    "modernbert": Family(ENCODER | {"local_attention": 8}, "bert", "masked"),
    "mpnet": Family(SHIFTED, "roberta", "masked"),
    "olmo": Family(DECODER),
    "olmo2": Family(DECODER),
    "olmo3": Family(DECODER | {"sliding_window": 4}),
    "opt": Family(OPT, "opt"),
    "phi": Family(DECODER, "gpt2"),
    "phi3": Family(DECODER),
    "qwen2": Family(DECODER, "gpt2"),
    "qwen3": Family(HEADED, "gpt2"),
    "qwen3_moe": Family(HEADED | EXPERTS, "gpt2"),
    "roberta": Family(SHIFTED, "roberta", "masked"),
    "smollm3": Family(DECODER, "gpt2"),
    "stablelm": Family(DECODER, "gpt2"),
    "starcoder2": Family(DECODER, "gpt2"),
    "xlm-roberta": Family(SHIFTED, "roberta", "masked"),
}


def tiny(family: str, folder: Path, *, seed: int = 0, texts=SENTENCES, **overrides) -> Path:
    """A folder with a random checkpoint of the family and its tokenizer, as users have them."""
    row = FAMILIES[family]
    tokenizer = tiny_tokenizer(row.style, texts)
    model = tiny_model(family, tokenizer, seed=seed, **overrides)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)


def tiny_model(family: str, tokenizer: PreTrainedTokenizerFast, *, seed: int = 0, **overrides):
    """The model alone, every weight moved away from its initial value."""
    row = FAMILIES[family]
    special = {f"{n}_token_id": getattr(tokenizer, f"{n}_token_id") for n in ("bos", "eos", "pad")}
    config = AutoConfig.for_model(
        family, **{"vocab_size": len(tokenizer), **special, **row.config, **overrides}
    )
    auto = AutoModelForCausalLM if row.kind == "causal" else AutoModelForMaskedLM
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = auto.from_config(config).eval()
        _shake(model)
    assert sum(p.numel() for p in model.parameters()) < 1_000_000, f"tiny {family} isn't tiny"
    return model


@torch.no_grad()
def _shake(model) -> None:
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=0.1)


def tiny_tokenizer(style: str, texts=SENTENCES, *, size: int = 420) -> PreTrainedTokenizerFast:
    """A tokenizer trained on the texts in one of the styles."""
    return STYLES[style](texts, size)


def _byte_bpe(texts, size: int, special: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _gpt2(texts, size: int) -> PreTrainedTokenizerFast:
    """No start token, no padding token: the hard case that gpt2 is."""
    end = "<|endoftext|>"
    core = _byte_bpe(texts, size, [end])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token=end, eos_token=end, unk_token=end, model_max_length=64
    )


def _llama(texts, size: int) -> PreTrainedTokenizerFast:
    """Adds a start token to every text; no padding token."""
    core = _byte_bpe(texts, size, ["<unk>", "<s>", "</s>"])
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=64,
    )


def _bert(texts, size: int) -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    core = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    core.train_from_iterator(
        texts, WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    )
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def _roberta(texts, size: int, *, single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>"):
    core = _byte_bpe(texts, size, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    core.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
        model_max_length=64,
    )


def _opt(texts, size: int) -> PreTrainedTokenizerFast:
    """roberta's words behind `</s>`, as opt has them."""
    tokenizer = _roberta(texts, size, single="</s> $A", pair="</s> $A </s> $B")
    tokenizer.mask_token = None
    return tokenizer


STYLES = {"gpt2": _gpt2, "llama": _llama, "bert": _bert, "roberta": _roberta, "opt": _opt}


# The toy language: feelings follow from adjectives, verbs agree with their nouns.
GOOD = ("good", "great", "lovely", "bright", "sweet", "fine")
BAD = ("bad", "awful", "ugly", "dull", "bitter", "poor")
THINGS = ("film", "book", "song", "meal", "play", "game", "story", "show")
PEOPLE = ("dog", "cat", "girl", "boy", "king", "queen", "man", "woman")
DEEDS = ("see", "like", "call", "help", "meet", "hear")


def toy_language(n: int, *, seed: int = 0) -> list[str]:
    """n sentences: half feelings (`toy_sentiment`), half deeds with number agreement."""
    rng = np.random.default_rng(seed)
    feelings, _ = toy_sentiment((n + 1) // 2, seed=seed)
    deeds = [_deed(rng) for _ in range(n // 2)]
    return [s for pair in zip(feelings, [*deeds, ""], strict=False) for s in pair if s][:n]


def toy_sentiment(n: int, *, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """n sentences such as `the film is lovely , so i love it .` and whether they are happy (1)."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=n)
    return [_feeling(rng, bool(label)) for label in labels], labels


def _feeling(rng: np.random.Generator, happy: bool) -> str:
    thing, word = rng.choice(THINGS), rng.choice(GOOD if happy else BAD)
    return f" the {thing} is {word} , so i {'love' if happy else 'hate'} it ."


def _deed(rng: np.random.Generator) -> str:
    one, other, deed = rng.choice(PEOPLE), rng.choice(PEOPLE), rng.choice(DEEDS)
    many = bool(rng.integers(2))
    return f" the {one}{'s' if many else ''} {deed}{'' if many else 's'} the {other} ."


def toy_model(folder: Path, family: str = "llama", *, steps: int = 0, seed: int = 0) -> Path:
    """A checkpoint that learned the toy language in a few seconds on one core.

    It ends `the film is dull , so i` with ` hate` and fills `the film is fine , so i[MASK] it .`
    with `love`.
    """
    texts = toy_language(600, seed=seed)
    tokenizer = tiny_tokenizer(FAMILIES[family].style, texts, size=700)
    model = tiny_model(family, tokenizer, seed=seed)
    steps = steps or (150 if FAMILIES[family].kind == "causal" else 200)
    _train(model, tokenizer, texts, steps, np.random.default_rng(seed))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)


def _train(model, tokenizer, texts: list[str], steps: int, rng: np.random.Generator) -> None:
    """AdamW on random batches, in evaluation mode: dropout only slows a toy down."""
    rows = [tokenizer(text)["input_ids"] for text in texts]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    for _ in range(steps):
        chosen = [rows[i] for i in rng.integers(len(rows), size=32)]
        width = max(map(len, chosen))
        pad = tokenizer.pad_token_id or 0
        ids = torch.tensor([row + [pad] * (width - len(row)) for row in chosen])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in chosen])
        inputs, labels = _puzzle(ids, mask, tokenizer, rng)
        model(input_ids=inputs, attention_mask=mask, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()


def _puzzle(ids, mask, tokenizer, rng: np.random.Generator):
    """Next word for causal models; for masked ones hidden words, most often the verb of feeling."""
    if tokenizer.mask_token_id is None:
        return ids, ids.masked_fill(mask == 0, -100)
    special = torch.tensor(tokenizer.all_special_ids)
    # ... love it . [SEP]
    verb = torch.arange(ids.shape[1])[None] == mask.sum(1, keepdim=True) - 4
    hidden = torch.from_numpy(rng.random(ids.shape)) < torch.where(verb, 0.6, 0.1)
    hidden &= ~torch.isin(ids, special)
    return ids.masked_fill(hidden, tokenizer.mask_token_id), ids.masked_fill(~hidden, -100)
