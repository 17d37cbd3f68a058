"""The sections of the HTML page: verdict, key numbers, figures, tables, provenance."""

from collections.abc import Callable, Sequence
from html import escape

import plotly.graph_objects as go
import polars as pl

from cutaway.core.errors import CutawayError, Missing
from cutaway.report import formats, tables, theme
from cutaway.report.drawing.page import html_fragment
from cutaway.report.drawing.values import Drawing
from cutaway.report.figures import try_figures
from cutaway.report.method_table import KeyNumber, table_of
from cutaway.report.metric_labels import metric_label
from cutaway.report.overview import headline_in_summary, local_time
from cutaway.report.provenance import provenance
from cutaway.report.records import RecordLike, is_imported, run_title, verdict_sentences
from cutaway.report.summary import failed_cells

AddFigure = Callable[[go.Figure], str | None]
# Figures that take the full width of the page.
WIDE_FIGURES = frozenset({"layers"})
MAX_TABLE_ROWS = 400
MAX_LINKS = 30
DRAWING_WIDTH = 1270
"""Room for the columns in pixels: they fit on a page that is 1400 pixels wide."""


def run_links(records: Sequence[RecordLike]) -> str:
    """Links to the runs, for the bar at the top."""
    return "".join(
        f'<a href="#run-{i}">{escape(formats.shorten(run_title(record), 40))}</a>'
        for i, record in enumerate(records[:MAX_LINKS])
    )


def drawing_section(drawings: Sequence[Drawing], records: Sequence[RecordLike]) -> str:
    """The drawings; the header of a track leads to the run it was read from."""
    places = {record.address: f"#run-{i}" for i, record in enumerate(records)}
    return "".join(
        html_fragment(
            drawing,
            key=f"drawing-{number}",
            heading="h2",
            links={t.name: places[t.run] for t in drawing.tracks if t.run in places},
            width=DRAWING_WIDTH,
            style=False,
        )
        for number, drawing in enumerate(drawings)
    )


def story_section(text: str) -> str:
    """The findings: each line is a question, lines that start with a dash are its answers."""
    if not text:
        return ""
    lines = (line.strip() for line in text.splitlines() if line.strip())
    paragraphs = "".join(
        f"<p>{escape(line[2:])}</p>" if line.startswith("- ") else f"<h4>{escape(line)}</h4>"
        for line in lines
    )
    return f'<h3>Findings</h3><div class="story">{paragraphs}</div>'


def overview_section(records: Sequence[RecordLike]) -> str:
    """The number of runs, and a line for each when there are several."""
    methods = ", ".join(dict.fromkeys(record.method for record in records))
    word = "run" if len(records) == 1 else "runs"
    intro = f'<p class="soft">{len(records)} {word} of {escape(methods)}</p>'
    if len(records) == 1:
        return intro
    head = "<tr><th>run</th><th>method</th><th>score</th><th>verdict</th></tr>"
    lines = "".join(_overview_line(record, i) for i, record in enumerate(records))
    return f'{intro}<h3>All runs</h3><div class="scroll"><table>{head}{lines}</table></div>'


def _overview_line(record: RecordLike, number: int) -> str:
    top, verdict = headline_in_summary(record), verdict_sentences(record)
    score = formats.interval(top.get("value"), top.get("low"), top.get("high"))
    metric = f"{metric_label(str(top['metric']))} " if top.get("metric") else ""
    return (
        f'<tr><td><a href="#run-{number}">{escape(formats.shorten(run_title(record), 60))}</a></td>'
        f"<td>{escape(record.method)}</td><td>{escape(metric + score)}</td>"
        f'<td class="wrap">{escape(verdict[0] if verdict else formats.DASH)}</td></tr>'
    )


def run_section(record: RecordLike, anchor: str, add_figure: AddFigure) -> str:
    """One run's section; a part that can't be read is replaced by the reason."""
    origin = '<span class="chip">imported</span>' if is_imported(record) else ""
    chips = f'<span class="chip">{escape(record.method)}</span>{origin}'
    chips += f'<span class="chip">{escape(local_time(record.created) or record.address)}</span>'
    head = f"<header><h2>{escape(run_title(record))}</h2>{chips}</header>"
    try:
        rows = record.rows
        body = _key_numbers(record, rows) + _figures(record, rows, add_figure)
        body += _tables(record, rows)
    except CutawayError as error:
        body = _note(str(error))
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in verdict_sentences(record))
    verdict = f'<div class="verdict">{sentences}</div>' if sentences else ""
    return (
        f'<section class="run" id="{anchor}">{head}{verdict}{body}{_provenance(record)}</section>'
    )


def _key_numbers(record: RecordLike, rows: pl.DataFrame) -> str:
    make = table_of(record.method).key_numbers
    if make is None:
        return ""
    numbers = make(rows, record)
    if not numbers:
        return _note("No cell of this run has a score; the failures are listed below.")
    return '<div class="tiles">' + "".join(map(_tile, numbers)) + "</div>"


def _tile(one: KeyNumber) -> str:
    value = f"<b>{escape(one.value)}</b>"
    return (
        f'<div class="tile"><span>{escape(one.label)}</span>{value}'
        f"<span>{escape(one.note)}</span></div>"
    )


def _figures(record: RecordLike, rows: pl.DataFrame, add_figure: AddFigure) -> str:
    drawn, problems, omitted = [], {}, 0
    for name, figure in try_figures(rows, record):
        if isinstance(figure, go.Figure):
            key = add_figure(figure)
            omitted += key is None
            drawn.append(_figure(name, figure, key) if key else "")
        elif not isinstance(figure, Missing):
            problems[str(figure)] = _note(str(figure))
    if omitted:
        problems["full"] = _note(
            f"{omitted} figures omitted: the page has reached its maximum size. The app shows them."
        )
    return f'<div class="figures">{"".join(drawn)}</div>' + "".join(problems.values())


def _figure(name: str, figure: go.Figure, key: str) -> str:
    wide = ' class="wide"' if name in WIDE_FIGURES else ""
    title = escape(str(figure.layout.title.text), quote=True)
    return (
        f'<figure{wide}><div class="plot" role="img" aria-label="{title}" data-picture="{key}" '
        f'style="min-height:{int(figure.layout.height)}px"></div>'
        f"<figcaption>{escape(theme.caption(figure))}</figcaption></figure>"
    )


def _tables(record: RecordLike, rows: pl.DataFrame) -> str:
    table = table_of(record.method)
    title = "Best cells and baselines" if table.ranking else "Measured"
    parts = [f"<h3>{title}</h3>", html_table(table.read_first(rows, record))]
    cells = table.summary(rows)
    more = f" (first {MAX_TABLE_ROWS})" if cells.height > MAX_TABLE_ROWS else ""
    parts.append(
        f"<details><summary>All {cells.height:,} cells and metrics{more}</summary>"
        f"{html_table(cells.head(MAX_TABLE_ROWS))}</details>"
    )
    failed = failed_cells(rows)
    if failed.height:
        parts.append(f"<h3>Failed cells</h3>{html_table(failed.head(MAX_TABLE_ROWS))}")
    return "".join(parts)


def html_table(frame: pl.DataFrame) -> str:
    """A frame as an HTML table, every cell escaped; mean, low and high in one column.

    Of paths the last part is shown, unless two would become one name.
    """
    frame = tables.with_short_names(frame)
    if {"mean", "low", "high"} <= set(frame.columns):
        frame = _join_interval(frame)
    right = [frame.schema[name].is_numeric() or name == "score" for name in frame.columns]
    names = [name.replace("_", " ") for name in frame.columns]
    kinds = frame["kind"].to_list() if "kind" in frame.columns else [""] * frame.height
    lines = "".join(
        f"<tr{' class=baseline' if kind == 'baseline' else ''}>{_cells('td', row, right)}</tr>"
        for kind, row in zip(kinds, tables.formatted_rows(frame), strict=True)
    )
    head = f"<thead><tr>{_cells('th', names, right)}</tr></thead>"
    return f'<div class="scroll"><table>{head}<tbody>{lines}</tbody></table></div>'


def _cells(tag: str, texts: Sequence[str], right: Sequence[bool]) -> str:
    return "".join(
        f"<{tag}{' class=n' if to_right else ''}>{escape(text)}</{tag}>"
        for text, to_right in zip(texts, right, strict=True)
    )


def _join_interval(frame: pl.DataFrame) -> pl.DataFrame:
    score = [formats.interval(c["mean"], c["low"], c["high"]) for c in frame.iter_rows(named=True)]
    column = pl.Series("score", score, dtype=pl.String)
    return frame.insert_column(frame.columns.index("mean"), column).drop("mean", "low", "high")


def _provenance(record: RecordLike) -> str:
    facts = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in provenance(record))
    details = f"<details><summary>Provenance</summary><dl>{facts}</dl></details>"
    if not record.command:
        return details
    copy = '<button type="button" data-copy>Copy</button>'
    return f'<div class="command"><code>{escape(record.command)}</code>{copy}</div>{details}'


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'
