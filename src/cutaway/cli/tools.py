"""`check`, `models`, `tasks`, `app`, `tour`."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from cutaway.catalog import method_module, methods
from cutaway.cli.output import Bos, Device, Dtype, OutputOptions, Quantise, StudyOptions
from cutaway.cli.verbs import print_step_estimates
from cutaway.console import print_json, print_result


def register(app: App) -> None:
    """Add these commands."""
    for command in (check, models, tasks, launch_app, tour):
        app.command(command, name=COMMAND_NAMES[command.__name__])


COMMAND_NAMES = {
    "check": "check",
    "models": "models",
    "tasks": "tasks",
    "launch_app": "app",
    "tour": "tour",
}


def check(
    model: str,
    /,
    *,
    revision: str | None = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    quantise: Quantise = "none",
    attention: Literal["sdpa", "eager"] = "sdpa",
    bos: Bos = "auto",
    offline: bool = False,
    trust_remote_code: bool = False,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Verify that extracted activations match the model's own forward pass.

    Parameters
    ----------
    model
        A bundled name, a hub id, a folder, a GGUF file, or base+adapter.
    revision
        Branch, tag or commit of a hub model.
    device
        Where the model runs: auto, cpu, cuda, cuda:N, mps, or map (all devices and the disk).
    dtype
        Precision of the weights; auto: the checkpoint's own on a GPU, float32 on a CPU.
    quantise
        Precision of the linear layers' weights, with bitsandbytes.
    attention
        Attention kernel.
    bos
        Start token: auto (as the tokenizer does it), add, or keep (auto without a warning).
    offline
        Use only what is on this machine.
    trust_remote_code
        Run code that comes with the checkpoint.
    json
        The report as JSON on stdout.
    quiet
        Print nothing; the exit status tells whether all checks passed.
    """
    from cutaway.core.model_size import ModelSize
    from cutaway.models.check import check as check_model
    from cutaway.models.load import open_model
    from cutaway.models.placement import Placement, refuse_undistributable
    from cutaway.recipe.cost import memory_by_method

    lm = open_model(
        model, revision=revision, device=device, dtype=dtype, quantise=quantise,
        attention=attention, bos=bos, offline=offline, trust_remote_code=trust_remote_code,
        check=False, track_changes=False,
    )  # fmt: skip
    with refuse_undistributable(lm):
        report = check_model(lm)
    supports = {name: method_module(name, "page").supports(lm) for name in methods()}
    size = ModelSize(lm.parameters, lm.vocab * lm.width, lm.width, lm.layers, lm.vocab)
    memory = memory_by_method(size, Placement(device, lm.dtype, lm.quantise))
    facts = report.plain() | {"supports": supports, "memory": memory}
    if json:
        print_json(facts)
    elif not quiet:
        from cutaway.report.terminal import print_check

        print_check(facts)
    report.need_passed()


def models(*, json: bool = False) -> None:
    """List bundled models and known model families.

    Parameters
    ----------
    json
        As JSON on stdout.
    """
    from cutaway.models.anatomy import ANATOMIES
    from cutaway.models.bundled import BUNDLED

    bundled = {name: row.description for name, row in BUNDLED.items()}
    families = {name: row.kind for name, row in ANATOMIES.items()}
    if json:
        print_json({"bundled": bundled, "families": families})
        return
    print_result("Bundled:\n" + "\n".join(f"  {name:16} {text}" for name, text in bundled.items()))
    for kind in ("causal", "masked"):
        print_result(f"{kind} families: " + ", ".join(n for n, k in families.items() if k == kind))
    print_result("Any other hub id or folder: cutaway check MODEL")


def tasks(*, json: bool = False) -> None:
    """List tasks with prompts, templates and word lists, and generated data sets.

    Parameters
    ----------
    json
        As JSON on stdout.
    """
    from cutaway.data.generate import GENERATORS
    from cutaway.data.tasks import known_tasks

    known = {name: task.description for name, task in sorted(known_tasks().items())}
    generated = {f"gen:{name}": row.description for name, row in GENERATORS.items()}
    if json:
        print_json({"tasks": known, "generated": generated, "text": ["docs"]})
        return
    for title, rows in (("Tasks", known), ("Generated", generated)):
        print_result(
            f"{title}:\n" + "\n".join(f"  {name:30} {text}" for name, text in rows.items())
        )
    print_result(
        "Text:\n  docs                           English prose from Python's own documentation"
    )


def launch_app(
    *,
    runs: str = "runs",
    port: int = 8501,
    open_browser: Annotated[bool, Parameter(name="--open")] = True,
    token: bool = True,
) -> None:
    """Open the web app on this machine (127.0.0.1 only).

    Parameters
    ----------
    runs
        Folder (or URL) with the results to show.
    port
        Port to listen on.
    open_browser
        Open a browser window.
    token
        Let in only browsers that open the printed URL; without it, every user of this machine.
    """
    from cutaway.app.launch import launch

    launch(runs, port=port, open_browser=open_browser, token=token)


def tour(
    *,
    out: Path = Path("tour"),
    model: str = "smollm2-135m",
    quick: bool = False,
    options: Annotated[StudyOptions | None, Parameter(name="*")] = None,
    output: Annotated[OutputOptions | None, Parameter(name="*")] = None,
) -> None:
    """Run all five methods on the bundled model; writes OUT/report.html.

    Parameters
    ----------
    out
        Folder for the report and its runs.
    model
        The model.
    quick
        Use less data, for a slow machine.
    """
    from cutaway.console import Console
    from cutaway.studies import tour as study

    output, shared = output or OutputOptions(), (options or StudyOptions()).plain()
    if output.print_spec or output.dry_run:
        stops = study.tour_specs(study.open_tour_model(model, shared), out, model, quick, shared)
        print_step_estimates([(stop.verb, spec) for stop, spec in stops], output)
        return
    result = study.tour(
        out, model=model, quick=quick, shared=shared, console=Console(quiet=output.quiet)
    )
    print_json(result.plain()) if output.json else print_result(result.story)
