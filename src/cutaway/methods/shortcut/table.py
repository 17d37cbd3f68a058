"""The tables of shortcut runs: only the summary of their cells."""

from cutaway.report.method_table import MethodTable

TABLE = MethodTable()
