"""The Quad objective: a language-model loss whose minimiser is linear in the conditional mean.

L = mean( -f . phi_w + ||Phi f||^2 / 2 ), Saunshi, Malladi and Arora (2021), section 5. For a
context whose true next-word distribution is p* its minimiser satisfies Phi^T p* = Phi^T Phi f.
"""

from jaxtyping import Float, Int
from torch import Tensor


def quad_loss(
    f: Float[Tensor, "n e"], phi: Float[Tensor, "vocab e"], words: Int[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """The Quad loss of each context; a bias of the output layer is ignored."""
    return 0.5 * squared_logits(f, phi) - (f * phi[words]).sum(dim=1)


def squared_logits(f: Float[Tensor, "n e"], phi: Float[Tensor, "vocab e"]) -> Float[Tensor, " n"]:
    """||Phi f||^2 of each row, in the cheaper order of multiplication."""
    if len(f) < phi.shape[1]:
        return (f @ phi.T).square().sum(dim=1)
    return ((f @ (phi.T @ phi)) * f).sum(dim=1)
