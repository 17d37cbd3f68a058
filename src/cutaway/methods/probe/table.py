"""The table of a probe run: its best cells and its baselines."""

from cutaway.report.tables import ranking_table

RANKING = ranking_table
