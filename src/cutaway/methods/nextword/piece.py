"""The pieces of a nextword run, and the order in which workers may measure them."""

from dataclasses import dataclass

# These need log-partitions or Phi p, which are computed once and cached with f.
NEEDS_DISTRIBUTION = frozenset({"phi_p", "subset", "classwords", "posneg", "p", "diagnose"})


@dataclass(frozen=True)
class NextwordPiece:
    """A feature kind, a baseline or a diagnosis, under one prompt."""

    kind: str
    prompt: str

    @property
    def key(self) -> str:
        """The piece as one line of text."""
        return f"{self.kind}|{self.prompt}"


def dependency_rounds(todo: list[NextwordPiece]) -> list[list[NextwordPiece]]:
    """The pieces in two rounds, so that each prompt's log-partitions and Phi p are computed once.

    The first round has one piece per prompt that computes them, and all that don't need them.
    """
    first: dict[str, NextwordPiece] = {}
    for piece in todo:
        if piece.kind in NEEDS_DISTRIBUTION and (
            piece.kind == "phi_p" or piece.prompt not in first
        ):
            first[piece.prompt] = piece
    later = [p for p in todo if p.kind in NEEDS_DISTRIBUTION and p is not first[p.prompt]]
    return [[piece for piece in todo if piece not in later], later]
