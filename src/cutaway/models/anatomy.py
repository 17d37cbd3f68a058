"""Where each model family has its modules: one row per family, dotted names, no code.

A new family is a new row, and the tests run every consistency check on every row. How to write
one: docs/howto/add-a-model-family.md.

**Layers.** Layer 0 is the input of the first block (after position embeddings, scaling, norm,
projection: whatever the family does first), layer l the output of block l, and layer L the output
of the last block, *before* the final norm. Layer 0 is read at the first block's input, so the row
doesn't have to describe the embeddings.

**Parts of a block** are named as `models/block_layout.py` explains.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

from cutaway.models.block_layout import BlockLayout

ModelKind = Literal["causal", "masked"]


@dataclass(frozen=True)
class Anatomy:
    """Where a family has its modules, as dotted names. A name ending in `?` may be absent."""

    kind: ModelKind
    embeddings: str
    """The token embedding."""
    blocks: str
    """The list of blocks; names of parts are relative to one block."""
    norm1: str | None
    attn: str | None
    norm2: str | None
    mlp: str | None
    final: tuple[str, ...]
    """The modules between the last block and the head, in order: `final_norm`."""
    head: tuple[str, ...]
    """The modules from there to the logits, in order; the masked-LM head of masked models."""
    decoder: str
    """The linear map of the head whose weight is the output embedding."""
    layout: BlockLayout = "pre"
    logit_operations: tuple[tuple[str, str], ...] = ()
    """What happens to the logits after the decoder: (operation, field of the config)."""
    positions: Literal["count", "own"] = "count"
    """count: padded batches need position ids that count the real tokens; own: the family counts
    real tokens itself, from the mask or from the padding id."""
    first_position: int = 0
    """Rows of the position table that no token uses (2 for roberta: padding id + 1)."""
    needs_output_attentions: bool = False
    """The model returns attention weights only when called with `output_attentions`."""
    proposed: bool = False
    """Proposed by inspecting the modules, not written by hand."""
    padding: Literal["either", "right"] = "either"
    """Sides on which batches may be padded. Cutaway pads on the right."""
    resumable: bool = True
    """Whether states and token ids are all that the blocks need, so that a pass can start at any
    layer; not where blocks pass other things on to later ones."""
    first_hidden_state: int = 0
    """The layer of the first state in transformers' `output_hidden_states`: 1 where the input of
    the first block isn't among them (mamba)."""
    decoder_bias: str | None = None
    """The bias of the logits where it isn't the decoder's own."""
    decoder_rest: str | None = None
    """A matrix whose rows are the last columns of the output embedding (mobilebert)."""
    features: str | None = None
    """The module that returns the input of the output embedding, where the decoder isn't called."""
    fused_qkv: Literal["concatenated", "interleaved", "codegen"] = "concatenated"
    """The order of the rows in one matrix for queries, keys and values: all queries, then all
    keys, then all values; or head by head; or in codegen's blocks."""


LLAMA = Anatomy(
    kind="causal",
    embeddings="model.embed_tokens",
    blocks="model.layers",
    norm1="input_layernorm",
    attn="self_attn",
    norm2="post_attention_layernorm",
    mlp="mlp",
    final=("model.norm",),
    head=("lm_head",),
    decoder="lm_head",
)
GEMMA2 = replace(
    LLAMA,
    attn="self_attn:post_attention_layernorm",
    norm2="pre_feedforward_layernorm",
    mlp="mlp:post_feedforward_layernorm",
    logit_operations=(("softcap", "final_logit_softcapping"),),
)
OLMO2 = replace(
    LLAMA, norm1="post_attention_layernorm", norm2="post_feedforward_layernorm", layout="inner"
)
GPT2 = Anatomy(
    kind="causal",
    embeddings="transformer.wte",
    blocks="transformer.h",
    norm1="ln_1",
    attn="attn",
    norm2="ln_2",
    mlp="mlp",
    final=("transformer.ln_f",),
    head=("lm_head",),
    decoder="lm_head",
)
GPTJ = replace(GPT2, norm2=None, layout="parallel")
OPT = replace(
    LLAMA,
    embeddings="model.decoder.embed_tokens",
    blocks="model.decoder.layers",
    norm1="self_attn_layer_norm",
    norm2="final_layer_norm",
    mlp="fc1:fc2",
    final=("model.decoder.final_layer_norm?", "model.decoder.project_out?"),
    positions="own",
)
BLOOM = Anatomy(
    kind="causal",
    embeddings="transformer.word_embeddings",
    blocks="transformer.h",
    norm1="input_layernorm",
    attn="self_attention:self_attention.dense",
    norm2="post_attention_layernorm",
    mlp="mlp:mlp.dense_4h_to_h",
    final=("transformer.ln_f",),
    head=("lm_head",),
    decoder="lm_head",
    positions="own",
    fused_qkv="interleaved",
)
FALCON = replace(
    BLOOM, attn="self_attention", mlp="mlp", norm2=None, layout="parallel", positions="count"
)
BERT = Anatomy(
    kind="masked",
    embeddings="bert.embeddings.word_embeddings",
    blocks="bert.encoder.layer",
    norm1="attention.output.LayerNorm",
    attn="attention:attention.output.dense",
    norm2="output.LayerNorm",
    mlp="intermediate:output.dense",
    final=(),
    head=("cls",),
    decoder="cls.predictions.decoder",
    layout="post",
)
ROBERTA = replace(
    BERT,
    embeddings="roberta.embeddings.word_embeddings",
    blocks="roberta.encoder.layer",
    head=("lm_head",),
    decoder="lm_head.decoder",
    positions="own",
    first_position=2,
)

ANATOMIES: dict[str, Anatomy] = {
    "albert": replace(
        BERT,
        embeddings="albert.embeddings.word_embeddings",
        # One group of weights is called several times: blocks are counted by their calls.
        blocks="albert.encoder.albert_layer_groups",
        norm1="albert_layers.0.attention.LayerNorm",
        attn="albert_layers.0.attention:albert_layers.0.attention.dense",
        norm2="albert_layers.0.full_layer_layer_norm",
        mlp="albert_layers.0.ffn:albert_layers.0.ffn_output",
        head=("predictions",),
        decoder="predictions.decoder",
    ),
    "bert": BERT,
    "bloom": BLOOM,
    "camembert": ROBERTA,
    "codegen": replace(GPTJ, fused_qkv="codegen"),
    "cohere": replace(
        LLAMA, norm2=None, layout="parallel", logit_operations=(("multiply", "logit_scale"),)
    ),
    "data2vec-text": replace(
        ROBERTA,
        embeddings="data2vec_text.embeddings.word_embeddings",
        blocks="data2vec_text.encoder.layer",
    ),
    "deberta-v2": replace(
        BERT,
        embeddings="deberta.embeddings.word_embeddings",
        blocks="deberta.encoder.layer",
        needs_output_attentions=True,
    ),
    "distilbert": replace(
        BERT,
        embeddings="distilbert.embeddings.word_embeddings",
        blocks="distilbert.transformer.layer",
        norm1="sa_layer_norm",
        attn="attention",
        norm2="output_layer_norm",
        mlp="ffn",
        head=("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
        decoder="vocab_projector",
    ),
    "electra": replace(
        BERT,
        embeddings="electra.embeddings.word_embeddings",
        blocks="electra.encoder.layer",
        head=("generator_predictions", "generator_lm_head"),
        decoder="generator_lm_head",
    ),
    "ernie": replace(
        BERT, embeddings="ernie.embeddings.word_embeddings", blocks="ernie.encoder.layer"
    ),
    "esm": replace(
        ROBERTA,
        embeddings="esm.embeddings.word_embeddings",
        blocks="esm.encoder.layer",
        norm1="attention.LayerNorm",
        attn="attention.self:attention.output.dense",
        norm2="LayerNorm",
        final=("esm.encoder.emb_layer_norm_after",),
        decoder_bias="lm_head.bias",
        layout="pre",
    ),
    "falcon": FALCON,
    "gemma": LLAMA,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA2,
    "glm4": replace(LLAMA, attn="self_attn:post_self_attn_layernorm", mlp="mlp:post_mlp_layernorm"),
    "gpt2": GPT2,
    "gpt_bigcode": replace(GPT2, fused_qkv="interleaved"),
    "gpt_neo": GPT2,
    "gpt_neox": replace(
        LLAMA,
        embeddings="gpt_neox.embed_in",
        blocks="gpt_neox.layers",
        attn="attention",
        final=("gpt_neox.final_layer_norm",),
        layout="parallel",
        fused_qkv="interleaved",
    ),
    "gptj": GPTJ,
    "llama": LLAMA,
    "mistral": LLAMA,
    "mixtral": LLAMA,
    "modernbert": Anatomy(
        kind="masked",
        embeddings="model.embeddings.tok_embeddings",
        blocks="model.layers",
        norm1="attn_norm",
        attn="attn",
        norm2="mlp_norm",
        mlp="mlp",
        final=("model.final_norm",),
        head=("head", "decoder"),
        decoder="decoder",
    ),
    "mpnet": replace(
        ROBERTA,
        embeddings="mpnet.embeddings.word_embeddings",
        blocks="mpnet.encoder.layer",
        norm1="attention.LayerNorm",
        attn="attention.attn",
        needs_output_attentions=True,
    ),
    "olmo": LLAMA,
    "olmo2": OLMO2,
    "olmo3": OLMO2,
    "opt": OPT,
    "phi": replace(LLAMA, norm2=None, layout="parallel", final=("model.final_layernorm",)),
    "phi3": LLAMA,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
    "qwen3_moe": LLAMA,
    "roberta": ROBERTA,
    "smollm3": LLAMA,
    "stablelm": LLAMA,
    "starcoder2": LLAMA,
    "xlm-roberta": ROBERTA,
}


@dataclass(frozen=True)
class AnatomyVariant:
    """Changes of a row for checkpoints whose config has a certain value in a field."""

    field: str
    value: Any
    changes: dict[str, Any]


VARIANTS: dict[str, tuple[AnatomyVariant, ...]] = {
    "falcon": (
        AnatomyVariant(
            "parallel_attn", False, {"layout": "pre", "norm2": "post_attention_layernorm"}
        ),
        AnatomyVariant(
            "new_decoder_architecture",
            True,
            {"layout": "parallel", "norm1": "ln_attn", "norm2": "ln_mlp"},
        ),
        AnatomyVariant("num_ln_in_parallel_attn", 1, {"norm1": "input_layernorm", "norm2": None}),
        AnatomyVariant("alibi", True, {"positions": "own"}),
    ),
    "gpt_neox": (AnatomyVariant("use_parallel_residual", False, {"layout": "pre"}),),
    # opt-350m has its norms after the sums.
    "opt": (AnatomyVariant("do_layer_norm_before", False, {"layout": "post"}),),
    "stablelm": (
        AnatomyVariant("use_parallel_residual", True, {"layout": "parallel", "norm2": None}),
    ),
}


def anatomy_of(family: str, config: Any) -> Anatomy | None:
    """The row of a family, adjusted to this checkpoint's config; None for an unknown family."""
    row = ANATOMIES.get(family)
    for variant in VARIANTS.get(family, ()) if row else ():
        if getattr(config, variant.field, None) == variant.value and row is not None:
            row = replace(row, **variant.changes)
    return row
