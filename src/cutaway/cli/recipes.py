"""Verbs that run a recipe: one row each, everything else comes from the spec.

What a recipe imports (torch above all), and its spec (pydantic), is loaded only when its verb is
used: help lists every verb from this table alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

from cyclopts import App, Parameter

from cutaway.catalog import GROUPS, VERBS, Verb
from cutaway.cli.talk import OutputOptions, SpecOverrides, print_json, print_result
from cutaway.core.errors import BadSpec, CutawayError, Missing
from cutaway.core.lookup import lookup

if TYPE_CHECKING:
    from cutaway.core.spec import Spec


EmitJson = Callable[[Any], None]
"""Where the JSON of one run goes."""


def register(app: App) -> None:
    """Add every recipe, and `run`, which starts any of them from a file."""
    groups = {name: App(name=name, help=text) for name, text in GROUPS.items()}
    for made in groups.values():
        app.command(made)
    for verb in VERBS.values():
        group, _, name = verb.words.rpartition(" ")
        (groups[group] if group else app).command(command_path(verb), name=name, help=verb.help)
    app.command(run_file, name="run")


def command_path(verb: Verb) -> str:
    """Where cyclopts finds the verb's command function, which is made when the verb is used."""
    return f"cutaway.cli.commands:{verb.words.replace(' ', '_')}"


def add_positional_flag(words: Sequence[str]) -> list[str]:
    """The words with the flag of a first value that was given without it."""
    for verb in VERBS.values():
        head = verb.words.split()
        rest = list(words[len(head) :])
        given = list(words[: len(head)]) == head and rest and not rest[0].startswith("-")
        if verb.first and given:
            return [*head, f"--{verb.first}", *rest]
    return list(words)


def run_verb(verb: Verb, spec: Any, talk: OutputOptions, tell: EmitJson = print_json) -> None:
    """Run a recipe, or only show its spec or its estimate; JSON goes to `tell`."""
    if talk.print_spec:
        from cutaway.core.spec import spec_to_dict

        tell(spec_to_dict(spec))
        return
    from cutaway.console import Console
    from cutaway.engine.process_group import process_group
    from cutaway.recipe import life_cycle

    life_cycle.check_launcher(verb, spec.engine)
    first = process_group(spec.device).first
    context = life_cycle.Context(Console(quiet=talk.quiet or not first))
    if talk.dry_run:
        _print_estimates(life_cycle.estimate(verb, spec, context), talk, tell)
        return
    result = life_cycle.run(verb, spec, context)
    if first and talk.json:
        tell(result.plain())
    elif first:
        result.show()


def _print_estimates(estimates: list[Any], talk: OutputOptions, tell: EmitJson) -> None:
    if talk.json:
        tell([estimate.plain() for estimate in estimates])
    else:
        print_result("\n".join(estimate.sentence() for estimate in estimates))


def print_step_estimates(steps: "Sequence[tuple[Verb, Spec]]", talk: OutputOptions) -> None:
    """The specs of several verbs in turn, or what each will cost."""
    from cutaway.core.spec import spec_to_dict

    if talk.print_spec:
        print_json([spec_to_dict(spec) for _, spec in steps])
        return
    estimates = [_estimate_step(verb, spec) for verb, spec in steps]
    if talk.json:
        print_json(estimates)
    else:
        for number, step in enumerate(estimates, start=1):
            print_result(f"{number}. {step['step']}: {step['said']}")


def _estimate_step(verb: Verb, spec: Any) -> dict[str, Any]:
    """What one of several steps will cost; the reason where it can't be estimated yet."""
    from cutaway.recipe import life_cycle

    try:
        found = life_cycle.estimate(verb, spec) if hasattr(verb.load(), "estimate") else []
        said = " ".join(one.sentence() for one in found) or "short."
    except CutawayError as error:
        # Most often it reads what an earlier step will have written.
        found, said = [], f"can't be estimated yet. {error}"
    return {"step": verb.words, "said": said, "estimates": [one.plain() for one in found]}


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
    specs, told = list(spec_grid(verb.spec_class, values)), list[Any]()
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
