"""`ls`, `show`, `query`, `report`, `import`: commands about finished runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from cutaway.console import print_json, print_json_list, print_message, print_result
from cutaway.core.errors import BadSpec

RunsFlag = Annotated[str, Parameter(help="Folder (or URL) with the results.")]
MAX_DRAWN = 40
"""Runs of a report for which none are named."""
JsonFlag = Annotated[bool, Parameter(help="As JSON on stdout.")]


def register(app: App) -> None:
    """Add these commands."""
    for command, name in ((ls, "ls"), (show, "show"), (query, "query"), (report, "report")):
        app.command(command, name=name)
    app.command(import_logs, name="import")


def ls(*, runs: RunsFlag = "runs", method: str | None = None, json: JsonFlag = False) -> None:
    """List the runs, newest first.

    Parameters
    ----------
    method
        Only this method's runs.
    """
    from cutaway.store.results import results

    all_runs = results(runs)
    if json:
        _print_broken(all_runs.broken)
        print_json_list(all_runs.brief_texts(method))
    else:
        from cutaway.report.overview import read_overview
        from cutaway.report.terminal import print_runs

        found = read_overview(all_runs.folder)
        _print_broken(found.broken)
        listed = found.listed
        print_runs(listed if method is None else listed.filter(listed["method"] == method))


def _print_broken(broken: Sequence[tuple[Path, str]]) -> None:
    for path, reason in broken:
        print_message(f"cutaway: {path} can't be read: {reason}")


def show(address: str, /, *, runs: RunsFlag = "runs", json: JsonFlag = False) -> None:
    """Print one run: verdict, table, provenance, the command that repeats it.

    Parameters
    ----------
    address
        The run's address, or its first characters.
    """
    from cutaway.report.terminal import print_record
    from cutaway.store.results import results

    record = results(runs).get(address)
    if json:
        print_json(record.plain())
    else:
        print_record(record)


def query(
    sql: str, /, *, runs: RunsFlag = "runs", json: JsonFlag = False, strict: bool = False,
    format: Literal["table", "csv", "markdown", "latex"] = "table",
) -> None:  # fmt: skip
    """Query all runs with SQL; the tables are `runs`, `scores`, `rows`, `samples` and `splits`.

    Parameters
    ----------
    sql
        One SELECT, e.g. "select layers, pool, value from scores where method = 'probe'".
    strict
        A damaged table is an error; by default it is left out with a message.
    format
        Output format.
    """
    from cutaway.report.tables import TABLE_FORMATS
    from cutaway.store.results import results

    frame = results(runs).query(sql, strict=strict)
    if json:
        print_json(frame.to_dicts())
    else:
        print_result(TABLE_FORMATS[format](frame))


def report(
    address: Annotated[list[str] | None, Parameter(negative=())] = None,
    /,
    *,
    runs: RunsFlag = "runs",
    html: Path | None = None,
    table: Literal["markdown", "csv", "latex"] | None = None,
    figures: Literal["png", "svg", "pdf"] | None = None,
    out: Path | None = None,
    title: str = "Cutaway report",
    strict: bool = False,
    method: str | None = None,
    newest: int | None = None,
) -> None:
    """Write runs as one self-contained HTML page, as tables, or as picture files.

    Parameters
    ----------
    address
        Addresses of runs (first characters are enough); default: all, or the newest of very many.
    html
        Write one HTML file here.
    table
        Print the results as a table in this format.
    figures
        Write every figure as a file of this format.
    out
        Where to write: the folder of --figures, else the file of --table or of the page.
    title
        Title of the page.
    strict
        A damaged table is an error; by default it is left out with a message.
    method
        Only this method's runs.
    newest
        Without addresses: at most this many runs, the newest ones; default: 40 if they are drawn,
        all if only a table is made.
    """
    if newest is not None and newest < 1:
        raise BadSpec(f"--newest must be at least 1, got {newest}.")
    from cutaway.report.records import entry_names
    from cutaway.report.write import write_report
    from cutaway.store.query_tables import intact_records
    from cutaway.store.results import results
    from cutaway.studies.draw.saved import saved_drawings

    all_runs, note = results(runs), ""
    if address:
        named = [all_runs.get(one) for one in address]
        chosen = [record for record in named if method in (None, record.method)]
    else:
        drawn = table is None or html is not None or figures is not None
        chosen, count = all_runs.newest(newest or (MAX_DRAWN if drawn else None), method)
        if count > len(chosen):
            note = f"The newest {len(chosen)} of {count:,} runs."
            print_message(
                f"cutaway: {note} Name others by address, or choose with --method and --newest."
            )
    records = intact_records(chosen, strict=strict)
    models = [name for record in records for name in entry_names(record.model)]
    for line in write_report(
        records, html=html, table=table, figures=figures, out=out, title=title, note=note,
        drawings=saved_drawings(runs, models),
    ):  # fmt: skip
        print_result(line)


def import_logs(
    path: Path, /, *, names: Path | None = None, runs: RunsFlag = "runs", json: JsonFlag = False
) -> None:
    """Import experiment logs of the probing reference implementation as runs.

    Parameters
    ----------
    path
        A log file, or a folder of them.
    names
        TOML file with tables [classifier], [data], [model] and [blocks]: names in the log to names
        in Cutaway, before the known ones.
    """
    from cutaway.studies.import_logs import import_experiments

    made = import_experiments(path, runs, names)
    if made.unmatched:
        print_message(
            f"cutaway: kept as in the log, since the table of names doesn't have them: "
            f"{', '.join(made.unmatched)}. --names FILE adds names."
        )
    if json:
        print_json({"imported": made.addresses, "experiments": made.experiments})
    else:
        count = len(made.addresses)
        print_result(
            f"{made.experiments} experiments imported into {runs}, as "
            f"{'1 run' if count == 1 else f'{count} runs'}: {', '.join(made.addresses)}"
        )
