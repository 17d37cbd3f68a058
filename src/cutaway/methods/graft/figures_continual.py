"""Figure and table of `graft continual`: every task's score after every task."""

from typing import Any

import plotly.graph_objects as go
import polars as pl

from cutaway.core.errors import Missing
from cutaway.report import formats, theme
from cutaway.report.records import RunOrRuns

STRATEGY_STYLES = {"graft": ("with grafts", "solid"), "sequential": ("sequential training", "dash")}
CONTINUAL_COMMAND = "cutaway graft continual --base --task --task"


def continual_scores(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of the tasks' own metrics; `step` is the number of tasks learned."""
    table = rows.filter(
        pl.col("kind").is_in([*STRATEGY_STYLES, "base"]) & pl.col("step").is_not_null()
    )
    if "sequential" not in table["kind"].to_list():
        return table.clear()
    return table.filter(~pl.col("metric").is_in(["ece", "size"]))


def forgetting_figure(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Test score by number of tasks learned, a line per task and strategy."""
    table = continual_scores(rows)
    if table.is_empty():
        raise Missing(f"This run has no sequence of tasks: {CONTINUAL_COMMAND} measures one.")
    tasks = _task_order(table)
    colours, figure = theme.assign_colours(tasks), go.Figure()
    for task in tasks:
        before = table.filter((pl.col("kind") == "base") & (pl.col("task") == task))
        for way, (words, dash) in STRATEGY_STYLES.items():
            cells = table.filter((pl.col("kind") == way) & (pl.col("task") == task))
            line = pl.concat([before, cells]).sort("step")
            figure.add_trace(
                go.Scatter(
                    x=line["step"], y=line["value"], name=formats.figure_label(f"{task}, {words}"),
                    mode="lines+markers", line={"color": colours[task], "dash": dash},
                    customdata=line.select("low", "high").rows(),
                    hovertemplate="%{y:.3f} (%{customdata[0]:.3f} to %{customdata[1]:.3f})",
                )
            )  # fmt: skip
    names = [
        "base",
        *(f"{i}: {formats.figure_label(task)}" for i, task in enumerate(tasks, start=1)),
    ]
    figure.update_xaxes(title="tasks learned", tickvals=list(range(len(names))), ticktext=names)
    figure.update_yaxes(title=" / ".join(table["metric"].unique(maintain_order=True)))
    return theme.finish_figure(
        figure,
        title="Forgetting",
        caption="Each task's test score after every task. Solid: the weights of earlier skills are "
        "frozen, and only the few weights of the new skill are kept. Dashed: sequential training. "
        "A line that falls after its own task was learned shows forgetting.",
    )


def forgetting_table(rows: pl.DataFrame) -> pl.DataFrame:
    """A line per task and strategy: score before, when learned, at the end, and the loss."""
    table = continual_scores(rows)
    tasks = _task_order(table)
    cells = {(c["kind"], c["task"], c["step"]): c for c in table.iter_rows(named=True)}
    lines = []
    for stage, task in enumerate(tasks, start=1):
        for way, (words, _) in STRATEGY_STYLES.items():
            learned, end = cells.get((way, task, stage), {}), cells.get((way, task, len(tasks)), {})
            lines.append(
                {
                    "task": task,
                    "way": words,
                    "metric": end.get("metric"),
                    "before": cells.get(("base", task, 0), {}).get("value"),
                    "learned": learned.get("value"),
                    "end": end.get("value"),
                    "forgotten": _difference(learned.get("value"), end.get("value")),
                }
            )
    kinds = dict.fromkeys(("before", "learned", "end", "forgotten"), pl.Float64)
    return pl.DataFrame(lines, schema_overrides=kinds) if lines else pl.DataFrame()


def _task_order(table: pl.DataFrame) -> list[str]:
    """The tasks in the order they were learned, which is that of the base's rows."""
    base = table.filter(pl.col("kind") == "base")
    return list(dict.fromkeys(base["task"].to_list()))


def _difference(one: Any, other: Any) -> float | None:
    return None if one is None or other is None else float(one) - float(other)
