"""Tasks as data: one TOML file each, ours in `tasks/`, yours anywhere.

A task file says where the rows come from, which columns they have, what the labels mean, and
what to ask a language model: prompt, templates, label words, word lists, split protocol.
"""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from cutaway.core.errors import BadSpec, Missing, UnknownName
from cutaway.core.lookup import lookup, suggestion
from cutaway.core.spec import Spec, build_spec, parse_toml
from cutaway.core.textset import PARTS, Task
from cutaway.data.templates import TEXT_EDITS, check_template
from cutaway.home import expand_path

Words = tuple[str, ...]


class HubSource(Spec):
    """Where the hub keeps the rows."""

    hub: str
    """The set's id on the hub."""
    config: str | None = None
    """Its configuration, where it has several."""
    revision: str | None = None
    """A commit or branch; the newest unless given."""


class TaskColumns(Spec):
    """The columns, each as a list of names of which the first that is there counts."""

    text: Words
    """The text; `title+description` joins two."""
    pair: Words = ()
    """The second text of a pair."""
    label: Words = ()
    """The label."""
    headerless: Words = ()
    """The names of a file's columns when its first line is no header."""

    @field_validator("text", "pair", "label", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class LabelScale(Spec):
    """(value + add - subtract) * multiply / divide."""

    add: float = 0.0
    """Added first."""
    subtract: float = 0.0
    """Subtracted then."""
    multiply: float = 1.0
    """Multiplied by."""
    divide: float = 1.0
    """Divided by at last."""

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
    """What the raw labels mean."""

    names: dict[str, str] = Field(default_factory=dict)
    """Raw label -> class; class names and class numbers need no entry."""
    keep: Words = ()
    """Only rows with these raw labels are kept; the others are counted in a note."""
    drop: Words = ()
    """Rows with these raw labels are left out and counted in a note."""
    order: Words = ()
    """Raw labels from least to most: they become the numbers 0, 1, 2, ... of a regression."""
    scale: LabelScale = LabelScale()
    """How the numbers of a regression are scaled."""
    bounds: tuple[float, float] | None = None
    """The lowest and the highest number a regression label can have, after scaling."""

    @field_validator("scale", mode="before")
    @classmethod
    def _scale(cls, value: Any) -> Any:
        return build_spec(LabelScale, value) if isinstance(value, dict) else value

    @field_validator("keep", "drop", "order", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return tuple(map(str, value)) if isinstance(value, list | tuple) else value


class AutoregressivePrompt(Spec):
    """How a causal model is asked, and the words it may answer."""

    template: str
    """The text in front of the answer, with {text} and {pair}."""
    words: Words
    """The answers, in class order."""


class SplitProtocol(Spec):
    """How rows are split for an experiment."""

    kind: Literal["fixed", "repeats", "kfold"] = "fixed"
    """The task's own parts, repeated random splits, or folds."""
    repeats: Annotated[int, Field(ge=1)] = 1
    """How many random splits."""
    folds: Annotated[int, Field(ge=2)] = 5
    """How many folds, where there are folds (also to choose a classifier's strength)."""
    dev_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """The share of rows for dev in a random split."""
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The share of rows for test in a random split."""


class TaskFile(Spec):
    """One task, as its file says it."""

    name: str
    """What it is called."""
    description: str
    """One sentence."""
    aliases: Words = ()
    """Other names it answers to."""
    kind: Task
    """binary, multiclass, multilabel, regression or text."""
    columns: TaskColumns
    """Which columns the rows have."""
    source: HubSource | None = None
    """Where the hub keeps the rows."""
    parts: dict[str, Words] = Field(default_factory=dict)
    """For each part the splits it is made of, by the hub's names."""
    classes: Words = ()
    """The classes, in the order of their numbers."""
    labels: LabelRule = LabelRule()
    """What the raw labels mean."""
    where: dict[str, str | bool | int | float] = Field(default_factory=dict)
    """Only rows with these values in these columns are kept."""
    replace_marked: str | None = None
    """A column whose word replaces the marked one, `<word/>`, in the text."""
    drop_empty: bool = False
    """Whether rows with an empty text or no label are left out and counted, or refused."""
    prompt: str = ""
    """Appended to the text before a model predicts the next word."""
    template: str = ""
    """How a masked model is asked, with {text}, {pair} and {mask}."""
    edits: dict[Literal["text", "pair"], str] = Field(default_factory=dict)
    """Small changes to make a text fit the template: `bare`, `small`."""
    label_words: Words = ()
    """The word for each class at the mask, in class order."""
    autoregressive: AutoregressivePrompt | None = None
    """How a causal model is asked."""
    class_words: Words = ()
    """The class names as next words; in class order where there is one for each."""
    subset_words: Words = ()
    """Words whose next-word scores make the features of `subset`."""
    posneg: Words = ()
    """The pair of words for negative and positive, in this order."""
    protocol: SplitProtocol = SplitProtocol()
    """How rows are split for an experiment."""
    metric: str = "accuracy"
    """The figure this task is usually measured by."""

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
        many = len(self.classes)
        if self.kind in ("binary", "multiclass") and many < 2:
            raise ValueError(f"classes has {many} names, expected at least 2 for {self.kind!r}.")
        answers = self.autoregressive.words if self.autoregressive else ()
        expected = many if self.kind in ("binary", "multiclass") else 2
        for field, given in (("label_words", self.label_words), ("autoregressive.words", answers)):
            if given and len(given) != expected:
                raise ValueError(
                    f"{field} has {len(given)} words, expected {expected}: one a class."
                )
        strange = set(self.labels.names.values()) - set(self.labels.order or self.classes)
        if strange:
            raise ValueError(f"labels.names leads to {sorted(strange)[0]!r}, which is no class.")
        if self.template:
            check_template(self.template, pair=bool(self.columns.pair), mask=True)
        if self.autoregressive:
            check_template(self.autoregressive.template, pair=bool(self.columns.pair), mask=False)
        for edit in self.edits.values():
            lookup(TEXT_EDITS, edit, kind="edit")
        return self


NESTED_SPECS: dict[str, type[Spec]] = {
    "source": HubSource,
    "columns": TaskColumns,
    "labels": LabelRule,
    "autoregressive": AutoregressivePrompt,
    "protocol": SplitProtocol,
}


@cache
def known_tasks() -> dict[str, TaskFile]:
    """Every task that ships, by its name."""
    folder = files("cutaway.data").joinpath("tasks")
    toml = [path for path in folder.iterdir() if path.name.endswith(".toml")]
    found = [read_task(path.read_text("utf-8"), path.name) for path in toml]
    return {task.name: task for task in sorted(found, key=lambda task: task.name)}


def find_task(name: str | Path | TaskFile) -> TaskFile:
    """The task of this name or alias, or in this .toml file; an error with a hint otherwise."""
    if isinstance(name, TaskFile):
        return name
    said = str(name)
    task = tasks_by_alias().get(said.lower())
    if task is not None:
        return task
    if said.endswith(".toml"):
        return _from_file(expand_path(said))
    known = ", ".join(known_tasks())
    raise UnknownName(
        f"Unknown task {said!r}. {suggestion(said, tasks_by_alias())}Known: {known}; "
        "or the path of a .toml file."
    )


@cache
def tasks_by_alias() -> dict[str, TaskFile]:
    """Every name and alias, in small letters."""
    return {
        spelling.lower(): task
        for task in known_tasks().values()
        for spelling in (task.name, *task.aliases)
    }


def read_task(text: str, where: str) -> TaskFile:
    """The task in a TOML text; BadSpec names the file and what is wrong."""
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
