"""`cutaway.shortcut`: jump over layers with one matrix.

    cutaway.shortcut.fit(model="smollm2-135m", out="maps.safetensors")
    cutaway.shortcut.exit(model="smollm2-135m", shortcut="maps.safetensors").figure("exits")
    cutaway.shortcut.load("maps.safetensors").jump(9, 30)(hidden)

Keyword arguments are the flags of the command line; `model` and `text` may be given as objects.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cutaway.console import Console
from cutaway.core.spec import build_spec
from cutaway.methods.shortcut.spec import (
    EvalSpec,
    ExitSpec,
    FitSpec,
    GenerateSpec,
    LensSpec,
    ShortcutSpec,
)
from cutaway.recipe.engine_support import warn_if_not_parallel
from cutaway.recipe.objects import name_objects

if TYPE_CHECKING:
    from cutaway.methods.shortcut.generate import Generations
    from cutaway.methods.shortcut.lens import LensGrid
    from cutaway.methods.shortcut.maps import ShortcutMaps
    from cutaway.models.lm import LM
    from cutaway.recipe.result import Result

__all__ = ["eval", "exit", "fit", "generate", "import_maps", "lens", "load"]


def fit(*, quiet: bool = False, **options: Any) -> "Result":
    """All layer-to-layer maps of a model, written to `out` or into the run's folder."""
    return cast("Result", _run_verb("fit", FitSpec, options, quiet))


def eval(*, quiet: bool = False, **options: Any) -> "Result":  # safe: a verb, not the builtin
    """r2, precision@k, surprisal, KL, entropy and perplexity by layer and kind of map."""
    return cast("Result", _run_verb("eval", EvalSpec, options, quiet))


def exit(*, quiet: bool = False, **options: Any) -> "Result":
    """The early-exit curve, and with `agreement` a threshold that comes with a promise."""
    return cast("Result", _run_verb("exit", ExitSpec, options, quiet))


def generate(*, quiet: bool = False, **options: Any) -> "Generations":
    """Text with early exit or lossless self-speculation, plain `generate` beside it."""
    return cast("Generations", _run_verb("generate", GenerateSpec, options, quiet))


def lens(text: str, *, quiet: bool = False, **options: Any) -> "LensGrid":
    """What every layer would say at every token of the text."""
    return cast("LensGrid", _run_verb("lens", LensSpec, {"text": text, **options}, quiet))


def load(path: Path | str, model: "LM | None" = None) -> "ShortcutMaps":
    """The maps in a file, read one at a time; with a model, only if they are its own."""
    from cutaway.methods.shortcut.maps import load_maps

    return load_maps(path, model and model.recognise())


def import_maps(folder: Path | str, *, model: "LM", out: Path | str) -> "ShortcutMaps":
    """The reference's matrices (one tensor file `i_j` per pair) as a file of ours."""
    from cutaway.methods.shortcut.import_reference import import_reference_maps as bring_in

    return bring_in(Path(folder), model.recognise(), Path(out))


def _run_verb(verb: str, spec: type[ShortcutSpec], options: Mapping[str, Any], quiet: bool) -> Any:
    """Run a verb's recipe; the science is loaded only now."""
    fields = ("model",) if verb == "lens" else ("model", "text")
    named, objects = name_objects(options, fields, single=fields)
    recipe = import_module(f"cutaway.methods.shortcut.{verb}")
    built, console = build_spec(spec, named), Console(quiet=quiet)
    warn_if_not_parallel(f"shortcut {verb}", built.engine, console)
    return recipe.run(built, console=console, objects=objects)
