"""`reproduce`: compare a paper's findings with measurements."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from cutaway.catalog import VERBS
from cutaway.cli.output import OutputOptions, StudyOptions
from cutaway.cli.verbs import print_step_estimates
from cutaway.console import print_json, print_result


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
    options: Annotated[StudyOptions | None, Parameter(name="*")] = None,
    output: Annotated[OutputOptions | None, Parameter(name="*")] = None,
) -> None:
    """Reproduce a paper's findings on a model: expected against measured, with tolerances.

    Parameters
    ----------
    name
        A bundled study (an unknown name lists them), or a TOML file.
    model
        The model; default: the one in the study.
    data
        Labelled texts, if the study uses any.
    task
        The task of the labelled texts.
    text
        Plain texts, if the study uses any.
    prompt
        The prompt after each text, if the study uses one.
    template
        The template around {text}, if the study uses one.
    runs
        Folder with the results; finished runs are not repeated.
    out
        Write the table as Markdown to this file.
    """
    from cutaway.console import Console
    from cutaway.recipe import life_cycle
    from cutaway.store.files import write_atomic
    from cutaway.studies.findings import find_study
    from cutaway.studies.report import study_markdown, study_text
    from cutaway.studies.reproduce import reproduce as run_study
    from cutaway.studies.reproduce import study_specs

    output, shared = output or OutputOptions(), (options or StudyOptions()).plain()
    console = Console(quiet=output.quiet)

    def run_step(verb: str, spec: Any) -> Any:
        return life_cycle.run(VERBS[verb], spec, life_cycle.Context(console))

    given = {
        "model": model, "data": data, "task": task, "text": text, "prompt": prompt,
        "template": template,
    }  # fmt: skip
    study = find_study(name)
    if output.print_spec or output.dry_run:
        steps = study_specs(study, given, runs=runs, shared=shared).values()
        print_step_estimates([(VERBS[step.verb], spec) for step, spec in steps], output)
        return
    result = run_study(study, given, run_step, runs=runs, console=console, shared=shared).plain()
    if out is not None:
        write_atomic(out, [study_markdown(result).encode()])
    if output.json:
        print_json(result)
    else:
        print_result(study_text(result))
