"""Which column is text, which is the pair, which is the label: tables of usual names."""

from dataclasses import dataclass

from cutaway.core.errors import BadData
from cutaway.data.table import Table

# The first family that is complete wins; within one, the first is the text.
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
    "text",
    "sentence",
    "sentences",
    "texts",
    "content",
    "review",
    "document",
    "tweet",
    "statement",
    "utterance",
    "comment",
    "input",
    "question",
    "sentence1",
    "premise",
    "body",
    "full_text",
)

# Where nothing above is there: two columns that make one text together.
JOINED_NAMES = (("title", "description"), ("title", "abstract"), ("headline", "summary"))

FALLBACK_TEXT_NAMES = ("title", "description", "headline", "summary")

# `label` beats the others wherever it stands beside them.
FIRST_LABEL_NAMES = ("label", "labels")

LABEL_NAMES = (
    "score",
    "target",
    "class",
    "gold_label",
    "category",
    "sentiment",
    "rating",
    "stars",
    "star",
    "y",
    "is_duplicate",
    "quality",
    "coarse_label",
)

PART_NAMES = ("split", "part", "partition", "fold")


@dataclass(frozen=True)
class ColumnChoice:
    """The chosen columns by name. Several text columns are joined by a space."""

    text: tuple[str, ...]
    pair: str | None = None
    label: str | None = None
    guessed: bool = True

    def said(self) -> str:
        """`text from 'title' + 'description', label from 'label'`."""
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
    """The columns asked for, and guesses for those that were not; BadData when it is unclear."""
    folded = {name.strip().lower(): name for name in table.columns}
    if text is None and pair is None:
        family = next((f for f in PAIR_NAMES if f[0] in folded and f[1] in folded), None)
        if family:
            text, pair = folded[family[0]], folded[family[1]]
    texts = (
        _requested_columns(table, text) if text is not None else _guess_text(table, folded, pair)
    )
    pair = _existing_column(table, pair) if pair is not None else None
    if label is not None:
        label = _existing_column(table, label)
    elif labelled:
        label = _guess_label(table, folded, texts)
    return ColumnChoice(texts, pair, label, guessed=len(table.columns) > 1)


def part_column(table: Table) -> str | None:
    """The column that says which part a row belongs to, by its usual name; None without one."""
    return next((name for name in table.columns if name.strip().lower() in PART_NAMES), None)


def _requested_columns(table: Table, text: str) -> tuple[str, ...]:
    """The columns named by `a` or by `a+b`."""
    names = (text,) if text in table.columns else tuple(part.strip() for part in text.split("+"))
    return tuple(_existing_column(table, name) for name in names)


def _existing_column(table: Table, name: str) -> str:
    table.column(name)
    return name


def _guess_text(table: Table, folded: dict[str, str], pair: str | None) -> tuple[str, ...]:
    found = [folded[name] for name in TEXT_NAMES if name in folded and folded[name] != pair]
    if len(found) > 1:
        raise BadData(
            f"{table.origin}: {found[0]!r} or {found[1]!r} could be the text. "
            f"Say which with text_column (--text-column). {table.listing()}"
        )
    if found:
        return (found[0],)
    for names in JOINED_NAMES:
        if all(name in folded for name in names):
            return tuple(folded[name] for name in names)
    last = [folded[name] for name in FALLBACK_TEXT_NAMES if name in folded]
    if last:
        return (last[0],)
    raise BadData(
        f"{table.origin} has no column with a usual text name ({', '.join(TEXT_NAMES[:5])}, ...). "
        f"Say which with text_column (--text-column). {table.listing()} "
        "The first line is read as the header: does the file have one?"
    )


def _guess_label(table: Table, folded: dict[str, str], texts: tuple[str, ...]) -> str | None:
    for name in FIRST_LABEL_NAMES:
        if name in folded and folded[name] not in texts:
            return folded[name]
    found = [folded[name] for name in LABEL_NAMES if name in folded and folded[name] not in texts]
    if len(found) > 1:
        raise BadData(
            f"{table.origin}: {found[0]!r} or {found[1]!r} could be the label. "
            f"Say which with label_column (--label-column). {table.listing()}"
        )
    return found[0] if found else None
