"""`reproduce`: a paper's findings, expected against measured."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from cutaway.catalog import VERBS
from cutaway.cli.recipes import print_step_estimates
from cutaway.cli.talk import OutputOptions, StudyOptions, print_json, print_result

if TYPE_CHECKING:
    pass


def register(app: App) -> None:
    """Add this command."""
    app.command(reproduce, name="reproduce")


def reproduce(
    name: str,
    /,
    *,
    model: str | None = None,
    data: str | None = None,
    task: str | None = None,
    text: str | None = None,
    prompt: str | None = None,
    template: str | None = None,
    runs: str = "runs",
    out: Path | None = None,
    where: Annotated[StudyOptions | None, Parameter(name="*")] = None,
    talk: Annotated[OutputOptions | None, Parameter(name="*")] = None,
) -> None:
    """A paper's findings on a model at hand: expected against measured, with tolerances.

    Parameters
    ----------
    name
        probe, nextword, shortcut, graft, inject; or a TOML file of yours.
    model
        The model; the bundled one unless given.
    data
        Labelled texts (or problems), where the study reads some.
    task
        The task they belong to.
    text
        Plain texts, where the study reads some.
    prompt
        The words behind each text (nextword).
    template
        The text around {text} (graft).
    runs
        Folder that keeps the results; what is there already is not run again.
    out
        Write the table as Markdown to this file.
    """
    from cutaway.console import Console
    from cutaway.recipe import life_cycle
    from cutaway.store.files import write_atomic
    from cutaway.studies.findings import find_study
    from cutaway.studies.report import study_markdown, study_text
    from cutaway.studies.reproduce import reproduce as carry_out
    from cutaway.studies.reproduce import study_specs

    talk, shared = talk or OutputOptions(), (where or StudyOptions()).plain()
    console = Console(quiet=talk.quiet)

    def carry(verb: str, spec: Any) -> Any:
        return life_cycle.run(VERBS[verb], spec, life_cycle.Context(console))

    given = {
        "model": model, "data": data, "task": task, "text": text, "prompt": prompt,
        "template": template,
    }  # fmt: skip
    study = find_study(name)
    if talk.print_spec or talk.dry_run:
        steps = study_specs(study, given, runs=runs, shared=shared).values()
        print_step_estimates([(VERBS[step.verb], spec) for step, spec in steps], talk)
        return
    found = carry_out(study, given, carry, runs=runs, console=console, shared=shared).plain()
    if out is not None:
        write_atomic(out, [study_markdown(found).encode()])
    if talk.json:
        print_json(found)
    else:
        print_result(study_text(found))
