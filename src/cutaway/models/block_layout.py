"""How the parts of a block are connected: one layout per way, with the equations that hold.

**Parts of a block** are `norm1`, `attn`, `norm2`, `mlp`. A part is one module (`"attn"`) or a
range `"fc1:fc2"`, from the input of the first module to the output of the second. The layout
says how they are connected, with x the block's input and y its output:

    pre       r = x + attn(norm1(x))       y = r + mlp(norm2(r))
    parallel  y = x + attn(norm1(x)) + mlp(norm2(x))      norm2 None: the mlp reads norm1(x)
    post      r = norm1(x + attn(x))       y = norm2(r + mlp(r))
    inner     r = x + norm1(attn(x))       y = r + norm2(mlp(r))

In families with a second norm after attention and mlp (gemma2, glm4), which are `pre`, the parts
include that norm: attn and mlp always end with what is added to the residual stream.
"""

from typing import Literal

BlockLayout = Literal["pre", "parallel", "post", "inner"]
BlockPart = Literal["block", "norm1", "attn", "norm2", "mlp"]
BLOCK_PARTS: tuple[BlockPart, ...] = ("block", "norm1", "attn", "norm2", "mlp")


BLOCK_EQUATIONS: dict[BlockLayout, tuple[str, ...]] = {
    "pre": (
        "norm1.in = block.in",
        "attn.in = norm1.out",
        "norm2.in = block.in + attn.out",
        "mlp.in = norm2.out",
        "block.out = block.in + attn.out + mlp.out",
    ),
    "parallel": (
        "norm1.in = block.in",
        "attn.in = norm1.out",
        "norm2.in = block.in",
        "mlp.in = norm2.out",
        "block.out = block.in + attn.out + mlp.out",
    ),
    "post": (
        "attn.in = block.in",
        "norm1.in = block.in + attn.out",
        "mlp.in = norm1.out",
        "norm2.in = norm1.out + mlp.out",
        "block.out = norm2.out",
    ),
    "inner": (
        "attn.in = block.in",
        "norm1.in = attn.out",
        "mlp.in = block.in + norm1.out",
        "norm2.in = mlp.out",
        "block.out = block.in + norm1.out + norm2.out",
    ),
}
"""What holds in a block of each layout; without a norm2 the mlp shares norm1."""
