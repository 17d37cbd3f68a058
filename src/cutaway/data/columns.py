"""Choose the text, pair and label columns of a table by their usual names."""

from dataclasses import dataclass

from cutaway.core.errors import BadData
from cutaway.data.table import Table

# The first pair that is complete is used: the text, then its partner.
PAIR_NAMES = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("s1", "s2"),
    ("#1 string", "#2 string"),
    ("question", "sentence"),
    ("question", "context"),
    ("question", "passage"),
    ("text", "pair"),
)

TEXT_NAMES = (
    "text", "sentence", "sentences", "texts", "content", "review", "document", "tweet",
    "statement", "utterance", "comment", "input", "question", "sentence1", "premise", "body",
    "full_text",
)  # fmt: skip

# If none of these is there: two columns that are joined to one text, then single columns.
JOINED_NAMES = (("title", "description"), ("title", "abstract"), ("headline", "summary"))
FALLBACK_TEXT_NAMES = ("title", "description", "headline", "summary")

# These are preferred to the other label names.
FIRST_LABEL_NAMES = ("label", "labels")
LABEL_NAMES = (
    "score", "target", "class", "gold_label", "category", "sentiment", "rating", "stars", "star",
    "y", "is_duplicate", "quality", "coarse_label",
)  # fmt: skip

PART_NAMES = ("split", "part", "partition", "fold")

USUAL_NAMES = frozenset(
    [*TEXT_NAMES, *FALLBACK_TEXT_NAMES, *FIRST_LABEL_NAMES, *LABEL_NAMES, *PART_NAMES]
    + [name for names in PAIR_NAMES for name in names]
)


@dataclass(frozen=True)
class ColumnChoice:
    """The names of the chosen columns; several text columns are joined with a space."""

    text: tuple[str, ...]
    pair: str | None = None
    label: str | None = None
    guessed: bool = True

    def describe(self) -> str:
        """As text: `text from 'title' + 'description', label from 'label'`."""
        parts = ["text from " + " + ".join(map(repr, self.text))]
        parts += [f"pair from {self.pair!r}"] if self.pair else []
        parts += [f"label from {self.label!r}" if self.label else "no label column found"]
        return ", ".join(parts)


def choose_columns(
    table: Table,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    *,
    labelled: bool = True,
) -> ColumnChoice:
    """The requested columns, and guesses for the others; BadData if a guess is ambiguous."""
    folded = {name.strip().lower(): name for name in table.columns}
    if text is None and pair is None:
        names = next((f for f in PAIR_NAMES if f[0] in folded and f[1] in folded), None)
        if names:
            text, pair = folded[names[0]], folded[names[1]]
    if text is None:
        texts = _guess_text(table, folded, pair)
    else:
        texts = (text,) if text in table.columns else tuple(map(str.strip, text.split("+")))
    for name in (*texts, *filter(None, (pair, label))):
        table.column(name)
    if label is None and labelled:
        label = _guess_label(table, folded, texts)
    return ColumnChoice(texts, pair, label, guessed=len(table.columns) > 1)


def usual_text_column(table: Table) -> str | None:
    """The first column with a usual name of a text; None without one."""
    folded = {name.strip().lower(): name for name in table.columns}
    return next((folded[n] for n in (*TEXT_NAMES, *FALLBACK_TEXT_NAMES) if n in folded), None)


def part_column(table: Table) -> str | None:
    """The column that holds each row's part, by its usual name; None without one."""
    return next((name for name in table.columns if name.strip().lower() in PART_NAMES), None)


def _guess_text(table: Table, folded: dict[str, str], pair: str | None) -> tuple[str, ...]:
    candidates = [folded[name] for name in TEXT_NAMES if name in folded and folded[name] != pair]
    if len(candidates) > 1:
        raise BadData(
            f"{table.origin}: {candidates[0]!r} or {candidates[1]!r} could be the text. "
            f"Choose one with text_column (--text-column). {table.list_columns()}"
        )
    if candidates:
        return (candidates[0],)
    for names in (*JOINED_NAMES, *((name,) for name in FALLBACK_TEXT_NAMES)):
        if all(name in folded for name in names):
            return tuple(folded[name] for name in names)
    raise BadData(
        f"{table.origin} has no column with a usual text name ({', '.join(TEXT_NAMES[:5])}, ...). "
        f"Name it with text_column (--text-column). {table.list_columns()}"
    )


def _guess_label(table: Table, folded: dict[str, str], texts: tuple[str, ...]) -> str | None:
    for name in FIRST_LABEL_NAMES:
        if name in folded and folded[name] not in texts:
            return folded[name]
    candidates = [folded[n] for n in LABEL_NAMES if n in folded and folded[n] not in texts]
    if len(candidates) > 1:
        raise BadData(
            f"{table.origin}: {candidates[0]!r} or {candidates[1]!r} could be the label. "
            f"Choose one with label_column (--label-column). {table.list_columns()}"
        )
    return candidates[0] if candidates else None
