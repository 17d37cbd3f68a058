"""Verbs that run a recipe: one row each, everything else comes from the spec.

What a recipe imports (torch above all), and its spec (pydantic), is loaded only when its verb is
used: help lists every verb from this table alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

from cyclopts import App, Parameter

from cutaway.cli.talk import OutputOptions, SpecOverrides, print_json, print_result
from cutaway.core.errors import BadSpec, CutawayError, Missing
from cutaway.core.lookup import lookup

if TYPE_CHECKING:
    from cutaway.core.spec import Spec


EmitJson = Callable[[Any], None]
"""Where the JSON of one run goes."""


@dataclass(frozen=True)
class Verb:
    """A recipe's words on the command line, the module that carries it out, how it is shown."""

    words: str
    module: str
    help: str
    show: str = "record"
    """A row of the SHOWS table."""

    @property
    def spec(self) -> "type[Spec]":
        """The spec of the same name."""
        from cutaway.methods.specs import SPECS

        return SPECS[self.words]

    @property
    def command(self) -> str:
        """Where its command function is found when the verb is used."""
        return f"cutaway.cli.commands:{self.words.replace(' ', '_')}"


VERBS: dict[str, Verb] = {
    verb.words: verb
    for verb in (
        Verb("probe", "cutaway.methods.probe.recipe", "What can be read off the hidden layers?"),
        Verb("fisher", "cutaway.methods.inject.fisher", "Which weights matter for these texts?"),
        Verb(
            "inject",
            "cutaway.methods.inject.recipe",
            "Teach a skill; what does it cost the others?",
        ),
        Verb(
            "finetune",
            "cutaway.methods.finetune.recipe",
            "Teach a model a task, keep the best checkpoint.",
        ),
        Verb(
            "nextword",
            "cutaway.methods.nextword.recipe",
            "Does predicting the next word already solve my task, and through which words?",
        ),
        Verb(
            "quad",
            "cutaway.methods.nextword.quad",
            "Train a small language model with the Quad objective or with cross-entropy.",
        ),
        Verb(
            "graft learn", "cutaway.methods.graft.learn", "Find the few weights that hold a skill."
        ),
        Verb(
            "graft attach",
            "cutaway.methods.graft.attach",
            "Give a base a skill.",
            show="told",
        ),
        Verb(
            "graft detach",
            "cutaway.methods.graft.detach",
            "Take a skill out again.",
            show="told",
        ),
        Verb("graft eval", "cutaway.methods.graft.eval", "What do skills do here and elsewhere?"),
        Verb("graft stack", "cutaway.methods.graft.stack", "Put skills together.", show="told"),
        Verb("graft overlap", "cutaway.methods.graft.overlap", "Which weights do skills share?"),
        Verb(
            "graft export",
            "cutaway.methods.graft.export",
            "A skill as plain tensors, for other programs.",
            show="told",
        ),
        Verb(
            "graft continual",
            "cutaway.methods.graft.continual",
            "Learn tasks one after the other without forgetting.",
        ),
        Verb("shortcut fit", "cutaway.methods.shortcut.fit", "Fit every layer-to-layer map."),
        Verb(
            "shortcut eval", "cutaway.methods.shortcut.eval", "How good is a jump from each layer?"
        ),
        Verb("shortcut exit", "cutaway.methods.shortcut.exit", "What does an early exit save?"),
        Verb(
            "shortcut generate",
            "cutaway.methods.shortcut.generate",
            "Text with early exit or with lossless self-speculation.",
            show="texts",
        ),
        Verb(
            "shortcut lens",
            "cutaway.methods.shortcut.lens",
            "What would each layer say at each token?",
            show="lens",
        ),
    )
}
GROUPS = {
    "graft": "Find, move, combine and remove the few weights that hold a skill.",
    "shortcut": "Jump over layers with one matrix: how linear is the way, what if we stop?",
}
# Verbs whose first word may be given without its flag.
POSITIONAL_FLAGS = {
    "shortcut lens": "--text",
    **{
        f"graft {verb}": "--skill"
        for verb in ("attach", "detach", "eval", "stack", "overlap", "export")
    },
}


def register(app: App) -> None:
    """Add every recipe, and `run`, which starts any of them from a file."""
    groups = {name: App(name=name, help=text) for name, text in GROUPS.items()}
    for made in groups.values():
        app.command(made)
    for verb in VERBS.values():
        group, _, name = verb.words.rpartition(" ")
        (groups[group] if group else app).command(verb.command, name=name, help=verb.help)
    app.command(run_file, name="run")


def add_positional_flag(words: Sequence[str]) -> list[str]:
    """The words with the flag of a first value that was given without it."""
    for verb, flag in POSITIONAL_FLAGS.items():
        head = verb.split()
        rest = list(words[len(head) :])
        if list(words[: len(head)]) == head and rest and not rest[0].startswith("-"):
            return [*head, flag, *rest]
    return list(words)


def run_verb(verb: Verb, spec: "Spec", talk: OutputOptions, tell: EmitJson = print_json) -> None:
    """Run a recipe, or only show its spec or its estimate; JSON goes to `tell`."""
    if talk.print_spec:
        from cutaway.core.spec import spec_to_dict

        tell(spec_to_dict(spec))
        return
    from cutaway.console import Console
    from cutaway.recipe.engine_support import warn_if_not_parallel
    from cutaway.training.distributed import need_single_process, process_group

    engine = getattr(spec, "engine", "local")
    need_single_process(verb.words, engine)
    first = process_group(getattr(spec, "device", "auto")).first
    recipe, console = import_module(verb.module), Console(quiet=talk.quiet or not first)
    if talk.dry_run:
        if not hasattr(recipe, "estimate"):
            raise BadSpec(f"'cutaway {verb.words}' has no --dry-run: nothing estimates it.")
        _print_estimates(recipe.estimate(spec, console=console), talk, tell)
        return
    warn_if_not_parallel(verb.words, engine, console)
    result = recipe.run(spec, console=console)
    if first:
        PRINTERS[verb.show](result, talk, tell)


def _print_record(result: Any, talk: OutputOptions, tell: EmitJson) -> None:
    if talk.json:
        tell({**result.summary, "address": result.record.address, "path": str(result.path)})
    else:
        from cutaway.report.terminal import print_record

        print_record(result.record)


def _print_texts(result: Any, talk: OutputOptions, tell: EmitJson) -> None:
    if talk.json:
        tell(result.plain())
        return
    for one in result.texts:
        print_result(f"{one.prompt}{one.text}" if not one.text.startswith(one.prompt) else one.text)
    print_result("\n".join(result.verdict))


def _print_lens(result: Any, talk: OutputOptions, tell: EmitJson) -> None:
    if talk.json:
        tell(result.plain())
    else:
        from cutaway.methods.shortcut.lens_terminal import print_lens

        print_lens(result.plain())


def _print_verdict(result: Any, talk: OutputOptions, tell: EmitJson) -> None:
    if talk.json:
        tell(result.plain())
    else:
        print_result("\n".join(result.verdict))


PRINTERS: dict[str, Callable[[Any, OutputOptions, EmitJson], None]] = {
    "record": _print_record,
    "told": _print_verdict,
    "texts": _print_texts,
    "lens": _print_lens,
}


def _print_estimates(estimates: list[Any], talk: OutputOptions, tell: EmitJson) -> None:
    if talk.json:
        tell([estimate.plain() for estimate in estimates])
    else:
        print_result("\n".join(estimate.sentence() for estimate in estimates))


def print_step_estimates(steps: "Sequence[tuple[str, Spec]]", talk: OutputOptions) -> None:
    """The specs of several recipes in turn (their modules, their specs), or what each will cost."""
    from cutaway.console import Console
    from cutaway.core.spec import spec_to_dict

    if talk.print_spec:
        print_json([spec_to_dict(spec) for _, spec in steps])
        return
    console = Console(quiet=talk.quiet)
    told = [_estimate_step(module, spec, console) for module, spec in steps]
    if talk.json:
        print_json(told)
    else:
        for number, step in enumerate(told, start=1):
            print_result(f"{number}. {step['step']}: {step['said']}")


def _estimate_step(module: str, spec: "Spec", console: Any) -> dict[str, Any]:
    """What one of several steps will cost; the reason where it can't be told yet."""
    recipe, name = import_module(module), type(spec).__name__.removesuffix("Spec").lower()
    try:
        found = recipe.estimate(spec, console=console) if hasattr(recipe, "estimate") else []
        said = " ".join(one.sentence() for one in found) or "short."
    except CutawayError as error:
        # Most often it reads what an earlier step will have written.
        found, said = [], f"can't be told yet. {error}"
    return {"step": name, "said": said, "estimates": [one.plain() for one in found]}


def run_file(
    spec: Path,
    /,
    *,
    instead: Annotated[SpecOverrides | None, Parameter(name="*")] = None,
    talk: Annotated[OutputOptions | None, Parameter(name="*")] = None,
) -> None:
    """Run what a TOML file says: `verb = "probe"` and its fields; a list in a field makes a grid.

    With `--json` (or `--print-spec`) a grid of several runs is one list with an entry for each, a
    single run is its entry alone.

    Parameters
    ----------
    spec
        The TOML file.
    """
    if not spec.is_file():
        raise Missing(f"No spec file {str(spec)!r}. examples/ has one for each method.")
    from cutaway.core.spec import parse_toml

    values = parse_toml(spec.read_text(encoding="utf-8", errors="replace"))
    if "verb" not in values:
        raise BadSpec(
            f'{str(spec)!r} needs a line such as verb = "probe". Known: {", ".join(VERBS)}.'
        )
    verb = lookup(VERBS, str(values.pop("verb")), kind="verb")
    values |= {k: v for k, v in asdict(instead or SpecOverrides()).items() if v is not None}
    specs, told = list(spec_grid(verb.spec, values)), list[Any]()
    tell = told.append if len(specs) > 1 else print_json
    try:
        for one in specs:
            run_verb(verb, one, talk or OutputOptions(), tell)
    finally:
        # One document also when a run fails: what was finished is told.
        if told:
            print_json(told)


def spec_grid(cls: "type[Spec]", values: Mapping[str, Any]) -> "Iterator[Spec]":
    """One spec per combination: a list in a field that takes one value makes a grid."""
    from cutaway.core.spec import build_spec

    lists = {k: v for k, v in values.items() if isinstance(v, list) and not _is_list_field(cls, k)}
    empty = next((key for key, choices in lists.items() if not choices), None)
    if empty is not None:
        raise BadSpec(
            f"{empty} is an empty list: no run would be made. Give it at least one value, or leave "
            "the line out."
        )
    for choice in product(*lists.values()):
        yield build_spec(cls, {**values, **dict(zip(lists, choice, strict=True))})


def _is_list_field(cls: "type[Spec]", name: str) -> bool:
    info = cls.model_fields.get(name)
    return info is not None and get_origin(info.annotation) is tuple
