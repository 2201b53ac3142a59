"""Figures, tables and a web page from run folders. This is the only package that imports Matplotlib."""

from fedstein.report.groups import Group, group_runs
from fedstein.report.load import Run, load_run
from fedstein.report.nuts_distance import distance_table
from fedstein.report.summary import Difference, GroupSummary, Spread, Summary, summarise
from fedstein.report.tables import table
from fedstein.report.write import ReportResult, write_report

__all__ = [
    "Difference",
    "Group",
    "GroupSummary",
    "ReportResult",
    "Run",
    "Spread",
    "Summary",
    "distance_table",
    "group_runs",
    "load_run",
    "summarise",
    "table",
    "write_report",
]
