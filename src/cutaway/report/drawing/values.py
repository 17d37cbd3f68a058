"""The cutaway drawing as values: a row per layer, a track per question."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from cutaway.core.errors import BadData

Series = tuple[float | None, ...]
"""One value per layer 0..L (0 is the embeddings); None where nothing was measured."""

TrackKind = Literal["property", "agreement", "linearity", "skill", "movement", "fisher"]

SERIES: dict[TrackKind, tuple[str, ...]] = {
    "property": ("value", "low", "high", "control"),
    "agreement": ("map", "low", "high", "lens"),
    "linearity": ("last", "next"),
    "skill": ("mlp", "attention", "norm", "other"),
    "movement": ("change",),
    "fisher": ("text", "skill"),
}
"""The series of each kind of track, the main one first; all but the main one are optional.

property: a probe's score with its 95 % interval, and the control task's score. agreement: the share
of tokens where the prediction through a fitted map is the full model's, with its interval, and that
of the logit lens. linearity: r2 of a linear map to the last layer and to the next. skill: shares
of a skill's weights; they add up to 1 over all layers and parts. movement: |w - w0| / |w0| of a
tuned checkpoint. fisher: shares of the Fisher information of plain text and of a skill.
"""


@dataclass(frozen=True)
class LayerWord:
    """The word that a layer predicts."""

    text: str
    probability: float
    final: bool
    """Whether it is the last layer's word."""


@dataclass(frozen=True)
class Track:
    """One question, answered for every layer; without series it has not been measured yet."""

    kind: TrackKind
    name: str
    """As in the JSON: "tense", "agreement"."""
    method: str
    """The method that measures it, whose page it leads to."""
    question: str
    """The header: "What each layer knows"."""
    label: str
    """What was measured, on what: "tense, accuracy above words alone (0.53)"."""
    series: Mapping[str, Series] = field(default_factory=dict)
    sentence: str = ""
    """A few short lines, made by rule from the numbers; or why it could not be measured."""
    baseline: float | None = None
    """Where the bars of a probe begin: the score of the best text baseline."""
    chosen: int | None = None
    """The layer that validation rows chose (probe)."""
    top: float | None = None
    """The largest value that a probe's metric can have."""
    trained: tuple[bool, ...] | None = None
    """Per layer, whether its weights were trained; None: all, or not about training."""
    run: str = ""
    """The address of the run it was read from."""
    command: str = ""
    """The command that measures it."""

    @property
    def main(self) -> Series:
        """The main series; empty if nothing was measured."""
        return self.series.get(SERIES[self.kind][0], ())

    @property
    def measured(self) -> bool:
        """Whether any layer has a value."""
        return any(value is not None for values in self.series.values() for value in values)


@dataclass(frozen=True)
class Observation:
    """Neighbouring layers at which several tracks jump."""

    first: int
    last: int
    sentence: str


@dataclass(frozen=True)
class Drawing:
    """Everything that the picture shows."""

    model: str
    blocks: int
    facts: Mapping[str, Any]
    """family, kind (causal or masked), width, parameters."""
    title: str
    """The finding in one sentence, without the model's name; empty if there is none."""
    sentence: str
    """The text whose next (or masked) word the layers predict."""
    words: tuple[LayerWord | None, ...]
    tracks: tuple[Track, ...]
    observations: tuple[Observation, ...] = ()
    verdict: tuple[str, ...] = ()
    """All sentences, for the terminal and JSON."""
    footer: str = ""
    """How many runs it is made from, and when."""

    def plain(self) -> dict[str, Any]:
        """JSON-ready values: one entry per layer in `words` and in each of `tracks`."""
        return {
            "model": self.model,
            "layers": self.blocks,
            "sentence": self.sentence,
            "words": [None if word is None else word.text for word in self.words],
            "tracks": {name: list(values) for name, values in self.flat_series().items()},
            "runs": {track.name: track.run for track in self.tracks if track.run},
            "missing": {t.name: t.command for t in self.tracks if not t.measured and t.command},
            "observations": [vars(one) for one in self.observations],
            "verdict": list(self.verdict),
        }

    def saved(self) -> dict[str, Any]:
        """All values as JSON; `drawing_from` reads them back."""
        return asdict(self)

    def flat_series(self) -> dict[str, Series]:
        """Every series by name: the main one of a track has the track's name."""
        return {
            track.name if name == SERIES[track.kind][0] else f"{track.name}/{name}": values
            for track in self.tracks
            for name, values in track.series.items()
        }


def drawing_from(saved: Any) -> Drawing:
    """The drawing of `Drawing.saved`; BadData if the values are something else."""
    try:
        words = (None if word is None else LayerWord(**word) for word in saved["words"])
        return Drawing(
            **{
                **saved,
                "words": tuple(words),
                "tracks": tuple(_track_from(track) for track in saved["tracks"]),
                "observations": tuple(Observation(**one) for one in saved["observations"]),
                "verdict": tuple(map(str, saved["verdict"])),
            }
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadData(f"This is no saved drawing: {type(error).__name__}: {error}.") from error


def _track_from(saved: Any) -> Track:
    series = {str(name): tuple(values) for name, values in saved["series"].items()}
    trained = saved["trained"]
    if saved["kind"] not in SERIES or not set(series) <= set(SERIES[saved["kind"]]):
        raise ValueError(f"unknown track {saved['kind']!r}")
    return Track(
        **{**saved, "series": series, "trained": None if trained is None else tuple(trained)}
    )
