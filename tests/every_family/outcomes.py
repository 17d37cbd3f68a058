"""What happens to each family of transformers, where it isn't `opens and passes every check`."""

from tests.every_family.build import EVERY_FAMILY

NOT_TEXT = "makes audio codes from a text that another model encodes"
REFUSED: dict[tuple[str, str], str] = {
    ("cpmant", "causal"): "learned prompt tokens are put before every text",
    ("deepseek_v4", "causal"): "states of shape (2, 7, 4, 32)",
    ("emu3", "causal"): "Unrecognized configuration class",
    ("gemma3n_text", "causal"): "states of shape (4, 2, 7, 32)",
    ("gemma4_unified_assistant", "causal"): "doesn't run in transformers on a row of token ids",
    ("hrm_text", "causal"): "were called 24 times in one pass",
    ("hy_v4", "causal"): "states of shape (2, 7, 4, 32)",
    ("mllama", "causal"): "Unrecognized configuration class",
    ("prophetnet", "causal"): "several streams of tokens at once",
    ("qwen4_exp", "causal"): "states of shape (2, 7, 128)",
    ("qwen4_exp_text", "causal"): "states of shape (2, 7, 128)",
    ("reformer", "causal"): "reversible, with two residual streams",
    ("xlm", "causal"): "no module is a block",
    ("xlnet", "causal"): "states of shape (7, 2, 32)",
    ("bart", "masked"): "is an encoder-decoder",
    ("convbert", "masked"): "lets padding change the states of a text",
    ("flaubert", "masked"): "no module is a block",
    ("fnet", "masked"): "lets padding change the states of a text",
    ("funnel", "masked"): "were called 0 times in one pass",
    ("mbart", "masked"): "is an encoder-decoder",
    ("mobilebert", "masked"): "lets padding change the states of a text",
    ("mvp", "masked"): "is an encoder-decoder",
    ("neomme", "masked"): "a short sentence ends in RuntimeError",
    ("nystromformer", "masked"): "lets padding change the states of a text",
    ("reformer", "masked"): "reversible, with two residual streams",
    ("squeezebert", "masked"): "its blocks are not called as modules",
    ("xlm", "masked"): "no module is a block",
    ("yoso", "masked"): "lets padding change the states of a text",
}
"""Part of the message with which each is refused."""
NOT_BUILT: dict[tuple[str, str], str] = {
    ("blt", "causal"): "several models in one (bytes, patches); not made small",
    ("gemma3n", "causal"): "needs the package timm; its text model is refused",
    ("gemma4_assistant", "causal"): "drafts tokens for another model",
    ("musicgen", "causal"): NOT_TEXT,
    ("musicgen_melody", "causal"): NOT_TEXT,
    ("perceiver", "masked"): "latent vectors instead of one state per token",
}
"""Families that are not tried, and why."""
OPEN = [one for one in EVERY_FAMILY if one not in REFUSED and one not in NOT_BUILT]
