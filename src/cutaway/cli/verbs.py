"""The verbs of the catalog as commands, and `run`, which runs them from a file.

A verb's spec (pydantic) and recipe (torch) are imported only when the verb is used; `--help` lists
all verbs from the catalog alone.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

from cyclopts import App, Parameter

from cutaway.catalog import GROUPS, VERBS, Verb
from cutaway.cli.output import OutputOptions, SpecOverrides
from cutaway.console import print_json, print_result
from cutaway.core.errors import BadSpec, CutawayError, Missing
from cutaway.core.lookup import lookup

if TYPE_CHECKING:
    from cutaway.core.spec import Spec


# Stands before a value such as `[1, 2]`, which is text; no argument of a process can hold it.
TEXT_MARK = "\0"
JSON_VALUE = re.compile(r"^((?:--[^=]*=)?)(\s*[\[{])")
EmitJson = Callable[[Any], None]
"""Receives the JSON of one run."""


def register(app: App) -> None:
    """Add all verbs, and `run`, which runs them from a file."""
    groups = {name: App(name=name, help=text) for name, text in GROUPS.items()}
    for group_app in groups.values():
        app.command(group_app)
    for verb in VERBS.values():
        group, _, name = verb.words.rpartition(" ")
        (groups[group] if group else app).command(command_path(verb), name=name, help=verb.help)
    app.command(run_file, name="run")


def command_path(verb: Verb) -> str:
    """Where cyclopts finds the verb's command, which is created when the verb is used."""
    return f"cutaway.cli.commands:{verb.words.replace(' ', '_')}"


def add_positional_flag(words: Sequence[str]) -> list[str]:
    """The arguments with a flag before a first value that was given without one."""
    for verb in VERBS.values():
        head = verb.words.split()
        rest = list(words[len(head) :])
        has_value = list(words[: len(head)]) == head and rest and not rest[0].startswith("-")
        if verb.first and has_value:
            return [*head, f"--{verb.first}", *rest]
    return list(words)


def mark_text(words: Sequence[str]) -> list[str]:
    """A verb's arguments with a mark in each value that the parser would read as JSON."""
    if not any(list(words[: len(head)]) == head for head in (v.split() for v in VERBS)):
        return list(words)
    return [JSON_VALUE.sub(rf"\1{TEXT_MARK}\2", word) for word in words]


def run_verb(verb: Verb, spec: Any, output: OutputOptions, emit: EmitJson = print_json) -> None:
    """Run a verb, or only print its spec or its estimate; JSON goes to `emit`."""
    _check_digest(spec)
    if output.print_spec:
        from cutaway.core.spec import spec_to_dict

        emit(spec_to_dict(spec))
        return
    from cutaway.console import Console
    from cutaway.engine.process_group import process_group
    from cutaway.recipe import life_cycle

    life_cycle.check_launcher(verb, spec.engine)
    first = process_group(spec.device).first
    context = life_cycle.Context(Console(quiet=output.quiet or not first))
    if output.dry_run:
        _print_estimates(life_cycle.estimate(verb, spec, context), output, emit)
        return
    result = life_cycle.run(verb, spec, context)
    if first and output.json:
        emit(result.plain())
    elif first:
        result.show()


def _check_digest(spec: Any) -> None:
    """BadSpec if the app started this command for another spec than its words give."""
    from cutaway.app.job_runner import SPEC_DIGEST_VARIABLE
    from cutaway.core.spec import spec_digest

    expected = os.environ.pop(SPEC_DIGEST_VARIABLE, None)
    if expected is not None and expected != spec_digest(spec):
        raise BadSpec(
            "This command does not give the options that were filled in, so nothing was run. "
            "Please report it with the command; on the command line it can be run as it is."
        )


def _print_estimates(estimates: list[Any], output: OutputOptions, emit: EmitJson) -> None:
    if output.json:
        emit([estimate.plain() for estimate in estimates])
    else:
        print_result("\n".join(estimate.sentence() for estimate in estimates))


def print_step_estimates(steps: "Sequence[tuple[Verb, Spec]]", output: OutputOptions) -> None:
    """Print the specs of several verbs, or their estimated costs."""
    from cutaway.core.spec import spec_to_dict

    if output.print_spec:
        print_json([spec_to_dict(spec) for _, spec in steps])
        return
    estimates = [_estimate_step(verb, spec) for verb, spec in steps]
    if output.json:
        print_json(estimates)
    else:
        for number, step in enumerate(estimates, start=1):
            print_result(f"{number}. {step['step']}: {step['said']}")


def _estimate_step(verb: Verb, spec: Any) -> dict[str, Any]:
    """The estimated cost of one step, or why it can't be estimated yet."""
    from cutaway.recipe import life_cycle

    try:
        estimates = life_cycle.estimate(verb, spec) if hasattr(verb.load(), "estimate") else []
        text = " ".join(one.sentence() for one in estimates) or "short."
    except CutawayError as error:
        # Usually it needs the output of an earlier step.
        estimates, text = [], f"can't be estimated yet. {error}"
    return {"step": verb.words, "said": text, "estimates": [one.plain() for one in estimates]}


def run_file(
    spec: Path,
    /,
    *,
    overrides: Annotated[SpecOverrides | None, Parameter(name="*")] = None,
    output: Annotated[OutputOptions | None, Parameter(name="*")] = None,
) -> None:
    """Run a TOML file: `verb = "probe"` and its options; a list makes a grid of runs.

    With `--json` or `--print-spec`, a grid of several runs prints one list, a single run its entry.

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
    values |= {k: v for k, v in asdict(overrides or SpecOverrides()).items() if v is not None}
    specs, results = list(spec_grid(verb.spec_class, values)), list[Any]()
    emit = results.append if len(specs) > 1 else print_json
    try:
        for one in specs:
            run_verb(verb, one, output or OutputOptions(), emit)
    finally:
        # One JSON document, also when a run fails: it has the finished runs.
        if results:
            print_json(results)


def spec_grid(cls: "type[Spec]", values: Mapping[str, Any]) -> "Iterator[Spec]":
    """One spec per combination of the lists given for fields that hold a single value."""
    from cutaway.core.spec import build_spec

    lists = {k: v for k, v in values.items() if isinstance(v, list) and not _is_list_field(cls, k)}
    empty = next((key for key, choices in lists.items() if not choices), None)
    if empty is not None:
        raise BadSpec(
            f"{empty} is an empty list, which makes no run. Give it at least one value, or omit it."
        )
    for choice in product(*lists.values()):
        yield build_spec(cls, {**values, **dict(zip(lists, choice, strict=True))})


def _is_list_field(cls: "type[Spec]", name: str) -> bool:
    info = cls.model_fields.get(name)
    return info is not None and get_origin(info.annotation) is tuple
