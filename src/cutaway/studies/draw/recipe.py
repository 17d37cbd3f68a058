"""`cutaway draw`: open a model, measure what is missing, and draw it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutaway.core.errors import BadData
from cutaway.data.load import load_text_set
from cutaway.models.lm import LM
from cutaway.recipe.life_cycle import Context
from cutaway.recipe.open_for_spec import open_spec_model
from cutaway.report.drawing.files import check_suffix, write_drawing
from cutaway.report.drawing.values import Drawing
from cutaway.store.remote import is_url
from cutaway.studies.draw.plan import ProbeSet
from cutaway.studies.draw.progress import DrawingProgress
from cutaway.studies.draw.saved import drawing_path, save_values
from cutaway.studies.draw.spec import DrawSpec
from cutaway.studies.draw.words import sentence_of

QUICK_FORMATS = (".html", ".svg")
"""Formats that are written after every step; the others need a browser."""


@dataclass(frozen=True)
class DrawRequest:
    """The open model, the sentence, and the file to write."""

    spec: DrawSpec
    lm: LM
    sentence: str
    sets: tuple[ProbeSet, ...]
    out: Path | None


@dataclass(frozen=True)
class DrawingResult:
    """A drawing, and the file it was written to."""

    drawing: Drawing
    path: str | None = None

    def plain(self) -> dict[str, Any]:
        """JSON-ready values."""
        return self.drawing.plain() | {"path": self.path}

    def show(self) -> None:
        """Print the drawing on stdout."""
        from cutaway.report.drawing.terminal import print_drawing

        print_drawing(self.drawing)

    def _repr_html_(self) -> str:
        from cutaway.report.drawing.page import html_fragment

        return html_fragment(self.drawing)


def resolve(spec: DrawSpec, context: Context) -> DrawRequest:
    """The model, open and checked; data and file names that can't be used are refused."""
    out = Path(spec.out) if spec.out else None
    if out is not None:
        check_suffix(out)
    lm = open_spec_model(spec, context.objects)
    sentence = sentence_of(lm, spec.sentence)
    sets = tuple(_probe_set(data, spec) for data in spec.data if "property" in spec.tracks)
    if out is None and not is_url(spec.runs):
        out = drawing_path(spec.runs, lm.name, ".html")
    return DrawRequest(spec, lm, sentence, sets, out)


def _probe_set(data: str, spec: DrawSpec) -> ProbeSet:
    """The set's name and how to split it; BadData if it has no labels."""
    texts = load_text_set(data, seed=spec.seed, offline=spec.offline)
    if texts.labels is None:
        raise BadData(f"{data!r} has no labels, which --data needs: each set is a probe's task.")
    has_test = texts.parts is not None and {"train", "test"} <= set(texts.parts.tolist())
    return ProbeSet(data, texts.name, "fixed" if has_test else "repeats")


def perform(request: DrawRequest, context: Context) -> DrawingResult:
    """The drawing; its file is written as soon as there is something to see."""
    work = DrawingProgress(request.spec, request.lm, context, request.sentence)
    work.begin(request.sets)
    early = request.out if request.out and request.out.suffix.lower() in QUICK_FORMATS else None
    for name in work.missing:
        if early:
            write_drawing(work.drawing(), early)
        work.measure(name)
    drawing = work.drawing()
    save_values(drawing, request.spec.runs, request.lm.name)
    if request.out is None:
        return DrawingResult(drawing)
    write_drawing(drawing, request.out)
    context.console.print(f"Written: {request.out}")
    return DrawingResult(drawing, str(request.out))
