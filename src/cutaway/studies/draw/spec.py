"""The spec of `cutaway draw`."""

from pydantic import field_validator

from cutaway.core.lookup import suggestion
from cutaway.recipe.options import RunOptions, SomeNames

TRACKS = ("property", "agreement", "linearity", "skill", "movement", "fisher")
"""The tracks of the drawing, in the order of their columns."""
DATA = ("gen:sentiment", "gen:tense", "gen:number", "gen:topic")
"""The default data sets of the probes."""


class DrawSpec(RunOptions):
    """One picture of a model: runs what is missing, and reuses every run that is there."""

    model: str
    """The model: a bundled name, a hub id, a folder, a GGUF file, or base+adapter."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""
    data: SomeNames = DATA
    """Labelled data for the probes, a track each: task names, files, folders, hf:ID, gen:NAME."""
    sentence: str | None = None
    """Text whose next word every layer predicts; {mask} is the masked word of a masked model."""
    tracks: SomeNames = TRACKS
    """Tracks to draw: property (the probes) agreement linearity skill movement fisher."""
    quick: bool = False
    """Measure on fewer rows: a third of the time, wider intervals."""
    skill: str | None = None
    """A skill file of this model (graft learn), whose weights are shown."""
    tuned: str | None = None
    """A tuned checkpoint of this model; shows how far each layer's weights moved."""
    out: str | None = None
    """File for the picture (.html, .svg, .png or .pdf); default: drawings/MODEL.html in the results
    folder."""

    @field_validator("tracks")
    @classmethod
    def _known_tracks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name not in TRACKS:
                hint = suggestion(name, TRACKS)
                raise ValueError(f"Unknown track {name!r}. {hint}Known: {', '.join(TRACKS)}.")
        return tuple(name for name in TRACKS if name in value)
