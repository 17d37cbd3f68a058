"""Generated texts: the result of `shortcut generate`, and the table that is kept of it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cutaway.console import print_result
from cutaway.methods.shortcut.draft_choice import DraftSetting
from cutaway.methods.shortcut.rows import ShortcutCoordinates
from cutaway.recipe.result import Result, Row


@dataclass(frozen=True)
class Generation:
    """The text generated for one prompt; with --compare also plain `generate`'s."""

    prompt: str
    text: str
    tokens: list[int]
    layers_mean: float
    """Mean number of layers after which tokens exited."""
    accepted: float
    """Share of the drafted tokens that the full model accepted; 0 without drafts."""
    seconds: float
    processor_seconds: float
    """Processor time of this process: other programs on the machine don't change it."""
    plain_tokens: list[int] | None = None
    plain_seconds: float | None = None
    plain_processor_seconds: float | None = None
    identical: bool | None = None
    """Whether the tokens are plain `generate`'s; None without a comparison."""


@dataclass(frozen=True)
class Generations(Result):
    """A finished run of `shortcut generate`: all texts, the draft setting, and the verdict."""

    @property
    def texts(self) -> tuple[Generation, ...]:
        """One per prompt."""
        return tuple(Generation(**text) for text in self.summary["texts"])

    @property
    def setting(self) -> DraftSetting | None:
        """How tokens were drafted; None when drafting would not pay, or in mode exit."""
        setting = self.summary["setting"]
        return None if setting is None else DraftSetting(**setting)

    def plain(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """JSON-ready values, one per prompt."""
        return list(self.summary["texts"])

    def show(self) -> None:
        """Print the texts and the verdict on stdout."""
        for one in self.texts:
            text = one.text if one.text.startswith(one.prompt) else f"{one.prompt}{one.text}"
            print_result(text)
        print_result("\n".join(self.verdict))


def generation_rows(
    model: str,
    fitted_on: str,
    texts: Sequence[Generation],
    kind: str,
    setting: DraftSetting | None,
) -> list[Row]:
    """The numbers of each text; the column `text` is the prompt."""
    layer = {} if setting is None else {"layer": setting.layer, "source": setting.layer}
    rows: list[Row] = []
    for one in texts:
        coordinates = ShortcutCoordinates(model, one.prompt, fitted_on)
        values = asdict(one) | {"tokens": len(one.tokens), "layers": one.layers_mean}
        for metric in (
            "tokens", "layers", "accepted", "seconds", "processor_seconds",
            "plain_seconds", "plain_processor_seconds", "identical",
        ):  # fmt: skip
            if values[metric] is not None:
                rows.append(coordinates.row(kind, metric, float(values[metric]), **layer))
    return rows
