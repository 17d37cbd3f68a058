"""Words to tokens: every spacing of a word that is exactly one token counts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cutaway.core.errors import BadSpec

Encode = Callable[[str], Sequence[int]]
"""Text to token ids, without special tokens; unknown text gives no ids."""

SPACINGS: tuple[Callable[[str], str], ...] = (
    lambda word: f" {word}",
    lambda word: word,
    lambda word: f"{word} ",
)


@dataclass(frozen=True)
class WordTokens:
    """The tokens of each word, and the words that have none."""

    tokens: Mapping[str, tuple[int, ...]]
    missing: tuple[str, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """Every token once, in the order of the words."""
        return tuple(dict.fromkeys(i for ids in self.tokens.values() for i in ids))


def find_word_tokens(words: Iterable[str], encode: Encode) -> WordTokens:
    """The single tokens among the three spacings of each word."""
    tokens: dict[str, tuple[int, ...]] = {}
    missing = []
    for word in dict.fromkeys(words):
        spelled = [tuple(encode(spacing(word))) for spacing in SPACINGS]
        single = tuple(dict.fromkeys(ids[0] for ids in spelled if len(ids) == 1))
        if single:
            tokens[word] = single
        else:
            missing.append(word)
    return WordTokens(tokens, tuple(missing))


def check_distinct_tokens(words: Sequence[str], word_tokens: WordTokens) -> None:
    """BadSpec when two class words share a token."""
    owner: dict[int, str] = {}
    for word in words:
        if list(words).count(word) > 1:
            raise BadSpec(
                f"Class word {word!r} is given for two classes: give each class another word."
            )
        for token in word_tokens.tokens.get(word, ()):
            if token in owner:
                raise BadSpec(
                    f"Class words {owner[token]!r} and {word!r} are the same token ({token}) of "
                    "this model: choose words with different tokens."
                )
            owner[token] = word


def class_token_ids(
    words: Sequence[str], word_tokens: WordTokens, classes: Sequence[str]
) -> list[list[int]]:
    """The tokens of each class's word; BadSpec when a class has none."""
    if len(words) != len(classes):
        raise BadSpec(
            f"{len(words)} words for {len(classes)} classes ({', '.join(classes)}): zero-shot "
            "needs one word for each, in the order of the classes."
        )
    check_distinct_tokens(words, word_tokens)
    lacking = [word for word in words if word not in word_tokens.tokens]
    if lacking:
        raise BadSpec(
            f"The class word {lacking[0]!r} is not a single token of this model in any spacing: "
            "choose another word for this class (on the command line: --class-words)."
        )
    return [list(word_tokens.tokens[word]) for word in words]
