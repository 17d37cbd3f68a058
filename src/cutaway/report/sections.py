"""The sections of the HTML page: verdict, key numbers, figures, tables, provenance."""

from collections.abc import Callable, Sequence
from html import escape

import plotly.graph_objects as go
import polars as pl

from cutaway.core.errors import CutawayError, Missing
from cutaway.report import formats, tables, theme
from cutaway.report.cells import (
    aggregate_cells,
    best_cell,
    failed_cells,
    largest_training_size,
    main_metric,
    metric_label,
)
from cutaway.report.figures import try_figures
from cutaway.report.overview import best_in_summary, local_time
from cutaway.report.panels import flat_baselines
from cutaway.report.provenance import provenance
from cutaway.report.records import RecordLike, is_imported, run_title, verdict_sentences

AddFigure = Callable[[go.Figure], str | None]
# Figures that need the whole width of a console.
WIDE_FIGURES = frozenset({"layers"})
MAX_TABLE_ROWS = 400
MAX_LINKS = 30


def run_links(records: Sequence[RecordLike]) -> str:
    """Links to the runs, for the bar on top."""
    return "".join(
        f'<a href="#run-{i}">{escape(formats.shorten(run_title(record), 40))}</a>'
        for i, record in enumerate(records[:MAX_LINKS])
    )


def story_section(text: str) -> str:
    """What was found: each line a question, lines with a dash its answers; nothing for no text."""
    if not text:
        return ""
    lines = (line.strip() for line in text.splitlines() if line.strip())
    told = "".join(
        f"<p>{escape(line[2:])}</p>" if line.startswith("- ") else f"<h4>{escape(line)}</h4>"
        for line in lines
    )
    return f'<h3>The story</h3><div class="story">{told}</div>'


def overview_section(records: Sequence[RecordLike]) -> str:
    """How many runs there are, and when there are several, one line for each."""
    methods = ", ".join(dict.fromkeys(record.method for record in records))
    word = "run" if len(records) == 1 else "runs"
    intro = f'<p class="soft">{len(records)} {word} of {escape(methods)}</p>'
    if len(records) == 1:
        return intro
    head = "<tr><th>run</th><th>method</th><th>best score</th><th>verdict</th></tr>"
    return intro + f'<h3>All runs</h3><div class="scroll"><table>{head}' + "".join(
        _overview_line(record, i) for i, record in enumerate(records)
    ) + "</table></div>"  # fmt: skip


def _overview_line(record: RecordLike, place: int) -> str:
    top, said = best_in_summary(record), verdict_sentences(record)
    score = formats.interval(top.get("value"), top.get("low"), top.get("high"))
    name = f"{metric_label(str(top['metric']))} " if top.get("metric") else ""
    return (
        f'<tr><td><a href="#run-{place}">{escape(formats.shorten(run_title(record), 60))}</a></td>'
        f"<td>{escape(record.method)}</td><td>{escape(name + score)}</td>"
        f'<td class="wrap">{escape(said[0] if said else formats.DASH)}</td></tr>'
    )


def run_section(record: RecordLike, anchor: str, keep: AddFigure) -> str:
    """One run's section; what can't be read is said in its place, the rest stands."""
    origin = '<span class="chip">imported</span>' if is_imported(record) else ""
    chips = f'<span class="chip">{escape(record.method)}</span>{origin}'
    chips += f'<span class="chip">{escape(local_time(record.created) or record.address)}</span>'
    head = f"<header><h2>{escape(run_title(record))}</h2>{chips}</header>"
    try:
        body = _measured_section(record, record.rows, keep)
    except CutawayError as error:
        body = _note(str(error))
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in verdict_sentences(record))
    told = f'<div class="verdict">{said}</div>' if said else ""
    return f'<section class="run" id="{anchor}">{head}{told}{body}{_provenance(record)}</section>'


def _measured_section(record: RecordLike, rows: pl.DataFrame, keep: AddFigure) -> str:
    """Key numbers, figures and tables."""
    # Key numbers come from a method's ranking; without one the verdict has to do.
    tiles = _tiles(record, rows) if tables.method_table(record.method, "RANKING") else ""
    return tiles + _figures(record, rows, keep) + _tables(record, rows)


def _tiles(record: RecordLike, rows: pl.DataFrame) -> str:
    metric = main_metric(rows, record)
    table = aggregate_cells(rows, metric)
    top = best_cell(table, metric)
    if top is None:
        return _note("No cell of this run has a score; the failures are listed below.")
    where = f"layer {top['layers']}, {top['pool']}, {top['classifier']}"
    spread = f"95 %: {formats.number(top['low'])} to {formats.number(top['high'])}"
    found = [(f"best {metric_label(metric)}", formats.number(top["mean"]), where)]
    if top["low"] is not None:
        found[0] = (found[0][0], found[0][1], f"{where}; {spread}")
    for name, value in flat_baselines(largest_training_size(table), top["data"]).items():
        words = theme.BASELINE_STYLES.get(name, (name,))[0]
        found.append((words, formats.number(value), "baseline without a model"))
    found.append(("cells measured", f"{table.height:,}", f"in {formats.duration(record.seconds)}"))
    return '<div class="tiles">' + "".join(_tile(*one) for one in found[:6]) + "</div>"


def _tile(label: str, value: str, under: str) -> str:
    lines = f"<span>{escape(label)}</span><b>{escape(value)}</b><span>{escape(under)}</span>"
    return f'<div class="tile">{lines}</div>'


def _figures(record: RecordLike, rows: pl.DataFrame, keep: AddFigure) -> str:
    drawn, problems, full = [], {}, 0
    for name, figure in try_figures(rows, record):
        if isinstance(figure, go.Figure):
            kept = keep(figure)
            full += kept is None
            drawn.append(_figure(name, figure, kept) if kept else "")
        elif not isinstance(figure, Missing):
            problems[str(figure)] = _note(str(figure))
    if full:
        problems["full"] = _note(f"{full} figures left out: this page is full. The app has them.")
    return f'<div class="figures">{"".join(drawn)}</div>' + "".join(problems.values())


def _figure(name: str, figure: go.Figure, kept: str) -> str:
    wide = ' class="wide"' if name in WIDE_FIGURES else ""
    title = escape(str(figure.layout.title.text), quote=True)
    return (
        f'<figure{wide}><div class="plot" role="img" aria-label="{title}" data-picture="{kept}" '
        f'style="min-height:{int(figure.layout.height)}px"></div>'
        f"<figcaption>{escape(theme.caption(figure))}</figcaption></figure>"
    )


def _tables(record: RecordLike, rows: pl.DataFrame) -> str:
    title = (
        "Best cells and baselines" if tables.method_table(record.method, "RANKING") else "Measured"
    )
    parts = [f"<h3>{title}</h3>", html_table(tables.highlights(rows, record))]
    every = tables.summarize_cells(rows)
    more = f" (first {MAX_TABLE_ROWS})" if every.height > MAX_TABLE_ROWS else ""
    parts.append(
        f"<details><summary>All {every.height:,} cells and metrics{more}</summary>"
        f"{html_table(every.head(MAX_TABLE_ROWS))}</details>"
    )
    failed = failed_cells(rows)
    if failed.height:
        parts.append(f"<h3>Failed cells</h3>{html_table(failed.head(MAX_TABLE_ROWS))}")
    return "".join(parts)


def html_table(frame: pl.DataFrame) -> str:
    """A frame as an HTML table, every cell escaped; mean, low and high in one column."""
    if {"mean", "low", "high"} <= set(frame.columns):
        frame = _join_interval(frame)
    right = [frame.schema[name].is_numeric() or name == "score" for name in frame.columns]
    head = "".join(
        _cell("th", n.replace("_", " "), r) for n, r in zip(frame.columns, right, strict=True)
    )
    kinds = frame["kind"].to_list() if "kind" in frame.columns else [""] * frame.height
    lines = "".join(
        f"<tr{' class=baseline' if kind == 'baseline' else ''}>"
        + "".join(_cell("td", v, r) for v, r in zip(row, right, strict=True))
        + "</tr>"
        for kind, row in zip(kinds, tables.formatted_rows(frame), strict=True)
    )
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
    return f'<div class="scroll">{whole}</div>'


def _join_interval(frame: pl.DataFrame) -> pl.DataFrame:
    score = [formats.interval(c["mean"], c["low"], c["high"]) for c in frame.iter_rows(named=True)]
    at = frame.columns.index("mean")
    return frame.insert_column(at, pl.Series("score", score, dtype=pl.String)).drop(
        "mean", "low", "high"
    )


def _cell(tag: str, text: str, right: bool) -> str:
    return f"<{tag}{' class=n' if right else ''}>{escape(text)}</{tag}>"


def _provenance(record: RecordLike) -> str:
    facts = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in provenance(record))
    told = f"<details><summary>Provenance</summary><dl>{facts}</dl></details>"
    if not record.command:
        return told
    copy = '<button type="button" data-copy>Copy</button>'
    return f'<div class="command"><code>{escape(record.command)}</code>{copy}</div>{told}'


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'
