"""The order in which workers may measure the pieces."""

from cutaway.methods.nextword.piece import NextwordPiece, dependency_rounds


def test_one_piece_per_prompt_computes_the_columns_that_others_need() -> None:
    kinds = ("f", "subset", "phi_p", "diagnose")
    todo = [NextwordPiece(kind, prompt) for prompt in ("", "?") for kind in kinds]
    first, then = dependency_rounds([NextwordPiece("bow", ""), *todo])
    assert {p.key for p in first} == {"bow|", "f|", "f|?", "phi_p|", "phi_p|?"}
    assert {p.key for p in then} == {"subset|", "diagnose|", "subset|?", "diagnose|?"}
    subset, posneg = NextwordPiece("subset", ""), NextwordPiece("posneg", "")
    assert dependency_rounds([subset, posneg]) == [[subset], [posneg]]
