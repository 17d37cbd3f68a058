"""`reproduce`: a paper's findings, expected against measured."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from cutaway.cli.recipes import VERBS
from cutaway.cli.talk import put, put_json

if TYPE_CHECKING:
    from cutaway.core.spec import Spec


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
    seed: int = 0,
    out: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    quiet: bool = False,
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
    seed
        Decides every split, start and sample.
    out
        Write the table as Markdown to this file.
    json
        The findings as JSON on stdout, nothing else there.
    quiet
        No progress and no messages.
    """
    from cutaway.report.study import markdown, terminal
    from cutaway.run.reproduce import reproduce as carry_out
    from cutaway.run.screen import Screen
    from cutaway.run.studies import find_study
    from cutaway.store.files import write_atomic

    screen = Screen(quiet=quiet)

    def carry(verb: str, spec: "Spec") -> Any:
        return import_module(VERBS[verb].module).run(spec, screen=screen)

    given = {
        "model": model, "data": data, "task": task, "text": text, "prompt": prompt,
        "template": template,
    }  # fmt: skip
    found = carry_out(find_study(name), given, carry, runs=runs, screen=screen, seed=seed).plain()
    if out is not None:
        write_atomic(out, [markdown(found).encode()])
    if json:
        put_json(found)
    else:
        put(terminal(found))
