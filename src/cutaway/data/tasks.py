"""Task files: one TOML file per task, bundled in `tasks/` or given by path.

A task file defines the source of the rows, their columns and labels, how to prompt a language
model (prompt, templates, label words, word lists), and the split protocol.
"""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from cutaway.core.errors import BadSpec, Missing, UnknownName
from cutaway.core.lookup import lookup, suggestion
from cutaway.core.spec import Spec, build_spec, parse_toml
from cutaway.core.textset import PARTS, Task
from cutaway.data.templates import TEXT_EDITS, check_template
from cutaway.home import expand_path

Words = tuple[str, ...]


class HubSource(Spec):
    """The dataset on the hub."""

    hub: str
    """The dataset's id on the hub."""
    config: str | None = None
    """Its configuration, if it has several."""
    revision: str | None = None
    """A commit or branch; the newest by default."""


class TaskColumns(Spec):
    """Column names; of several alternatives the first that exists is used."""

    text: Words
    """The text; `title+description` joins two."""
    pair: Words = ()
    """The second text of a pair."""
    label: Words = ()
    """The label."""
    headerless: Words = ()
    """Column names for files without a header line."""

    @field_validator("text", "pair", "label", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class LabelScale(Spec):
    """(value + add - subtract) * multiply / divide."""

    add: float = 0.0
    """Added to the value."""
    subtract: float = 0.0
    """Subtracted from the value."""
    multiply: float = 1.0
    """Factor."""
    divide: float = 1.0
    """Divisor."""

    @field_validator("divide")
    @classmethod
    def _not_zero(cls, value: float) -> float:
        if value == 0:
            raise ValueError("scale.divide is 0, expected any other number.")
        return value

    def __call__(self, value: float) -> float:
        """The scaled value."""
        return (value + self.add - self.subtract) * self.multiply / self.divide


class LabelRule(Spec):
    """How raw labels are mapped to classes or numbers."""

    names: dict[str, str] = Field(default_factory=dict)
    """Raw label -> class; class names and class indices need no entry."""
    keep: Words = ()
    """Only rows with these raw labels are kept; the others are counted in a note."""
    drop: Words = ()
    """Rows with these raw labels are left out and counted in a note."""
    order: Words = ()
    """Ordinal raw labels from lowest to highest: they become 0, 1, 2, ... for regression."""
    scale: LabelScale = LabelScale()
    """Scaling of regression labels."""
    bounds: tuple[float, float] | None = None
    """Lowest and highest possible regression label, after scaling."""

    @field_validator("scale", mode="before")
    @classmethod
    def _scale(cls, value: Any) -> Any:
        return build_spec(LabelScale, value) if isinstance(value, dict) else value

    @field_validator("keep", "drop", "order", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return tuple(map(str, value)) if isinstance(value, list | tuple) else value


class AutoregressivePrompt(Spec):
    """Prompt for a causal model, and the words it may answer."""

    template: str
    """The prompt before the answer, with {text} and {pair}."""
    words: Words
    """The answer for each class, in class order."""
    edits: dict[Literal["text", "pair"], str] | None = None
    """Edits of a text here. Default: those of the task's `template`."""

    @model_serializer(mode="wrap")
    def _only_given_edits(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without the default of `edits`, so that addresses of earlier runs stay the same."""
        return {k: v for k, v in dump(self).items() if k != "edits" or v is not None}


class SplitProtocol(Spec):
    """How rows are split for an experiment."""

    kind: Literal["fixed", "repeats", "kfold"] = "fixed"
    """`fixed` uses the task's parts, `repeats` random splits, `kfold` cross-validation."""
    repeats: Annotated[int, Field(ge=1)] = 1
    """Number of random splits."""
    folds: Annotated[int, Field(ge=2)] = 5
    """Number of folds (also for tuning a classifier's regularisation)."""
    dev_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of dev rows in a random split."""
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of test rows in a random split."""


class TaskFile(Spec):
    """The contents of a task file."""

    name: str
    """The task's name."""
    description: str
    """One sentence."""
    aliases: Words = ()
    """Other names of the task."""
    kind: Task
    """binary, multiclass, multilabel, regression or text."""
    columns: TaskColumns
    """Column names."""
    source: HubSource | None = None
    """The dataset on the hub."""
    parts: dict[str, Words] = Field(default_factory=dict)
    """The hub's splits that make up each part."""
    classes: Words = ()
    """Class names, in the order of their indices."""
    labels: LabelRule = LabelRule()
    """How raw labels are mapped to classes or numbers."""
    where: dict[str, str | bool | int | float] = Field(default_factory=dict)
    """Only rows with these values in these columns are kept."""
    replace_marked: str | None = None
    """Column with the word that replaces the marked word `<word/>` of the text."""
    drop_empty: bool = False
    """Drop rows with an empty text or no label, instead of refusing the data."""
    prompt: str = ""
    """Appended to the text before a model predicts the next word."""
    template: str = ""
    """Prompt for a masked model, with {text}, {pair} and {mask}."""
    edits: dict[Literal["text", "pair"], str] = Field(default_factory=dict)
    """Edits of a text: `bare` (no final punctuation), `small` (lower-case first letter)."""
    label_words: Words = ()
    """The word for each class at the mask, in class order."""
    autoregressive: AutoregressivePrompt | None = None
    """Prompt for a causal model."""
    class_words: Words = ()
    """Class names as next words, in class order if there is one per class."""
    subset_words: Words = ()
    """Words whose next-word scores are the `subset` features."""
    posneg: Words = ()
    """The words for negative and positive, in this order."""
    protocol: SplitProtocol = SplitProtocol()
    """How rows are split for an experiment."""
    metric: str = "accuracy"
    """The task's usual metric."""

    @field_validator("source", "columns", "labels", "autoregressive", "protocol", mode="before")
    @classmethod
    def _tables(cls, value: Any, info: Any) -> Any:
        return (
            build_spec(NESTED_SPECS[info.field_name], value) if isinstance(value, dict) else value
        )

    @field_validator("parts", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f'parts is {value!r}, expected a table such as train = "train".')
        for part in value:
            lookup(dict.fromkeys(PARTS), part, kind="part")
        return {part: (s,) if isinstance(s, str) else s for part, s in value.items()}

    @model_validator(mode="after")
    def _fits_together(self) -> "TaskFile":
        count = len(self.classes)
        if self.kind in ("binary", "multiclass") and count < 2:
            raise ValueError(f"classes has {count} names, expected at least 2 for {self.kind!r}.")
        answers = self.autoregressive.words if self.autoregressive else ()
        expected = count if self.kind in ("binary", "multiclass") else 2
        for field, given in (("label_words", self.label_words), ("autoregressive.words", answers)):
            if given and len(given) != expected:
                raise ValueError(
                    f"{field} has {len(given)} words, expected {expected}: one per class."
                )
        unknown = set(self.labels.names.values()) - set(self.labels.order or self.classes)
        if unknown:
            raise ValueError(f"labels.names leads to {sorted(unknown)[0]!r}, which is not a class.")
        self._check_templates()
        return self

    def _check_templates(self) -> None:
        causal, pair = self.autoregressive, bool(self.columns.pair)
        if self.template:
            check_template(self.template, pair=pair, mask=True)
        if causal:
            check_template(causal.template, pair=pair, mask=False, name="autoregressive.template")
        for edit in {**self.edits, **((causal and causal.edits) or {})}.values():
            lookup(TEXT_EDITS, edit, kind="edit")


NESTED_SPECS: dict[str, type[Spec]] = {
    "source": HubSource,
    "columns": TaskColumns,
    "labels": LabelRule,
    "autoregressive": AutoregressivePrompt,
    "protocol": SplitProtocol,
}


@cache
def known_tasks() -> dict[str, TaskFile]:
    """The bundled tasks by name."""
    folder = files("cutaway.data").joinpath("tasks")
    toml = [path for path in folder.iterdir() if path.name.endswith(".toml")]
    found = [read_task(path.read_text("utf-8"), path.name) for path in toml]
    return {task.name: task for task in sorted(found, key=lambda task: task.name)}


def find_task(name: str | Path | TaskFile) -> TaskFile:
    """The task of this name or alias, or in this .toml file."""
    if isinstance(name, TaskFile):
        return name
    text = str(name)
    task = tasks_by_alias().get(text.lower())
    if task is not None:
        return task
    if text.endswith(".toml"):
        return _from_file(expand_path(text))
    known = ", ".join(known_tasks())
    raise UnknownName(
        f"Unknown task {text!r}. {suggestion(text, tasks_by_alias())}Known: {known}; "
        "or the path of a .toml file."
    )


@cache
def tasks_by_alias() -> dict[str, TaskFile]:
    """The bundled tasks by name and alias, in lower case."""
    return {
        spelling.lower(): task
        for task in known_tasks().values()
        for spelling in (task.name, *task.aliases)
    }


def read_task(text: str, where: str) -> TaskFile:
    """Parse a task from TOML; errors name the file."""
    try:
        return build_spec(TaskFile, parse_toml(text))
    except (BadSpec, UnknownName) as error:
        raise BadSpec(f"{where}: {error}") from None


def _from_file(path: Path) -> TaskFile:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise Missing(
            f"No task file at {str(path)!r} ({error.strerror}). Check the path."
        ) from None
    except UnicodeDecodeError as error:
        raise BadSpec(f"{path.name} is not valid UTF-8 at byte {error.start}.") from None
    return read_task(text, path.name)
