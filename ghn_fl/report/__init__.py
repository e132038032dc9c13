"""What people see of a run: tables, pictures, report.html, runs side by side, TensorBoard."""

from ghn_fl.report.compare import compare_runs, comparison_html, write_comparison
from ghn_fl.report.grid import Grid, Missing, read_grid, write_grid
from ghn_fl.report.html import report_html, write_report
from ghn_fl.report.read import Round, Run, parse_round, read_run
from ghn_fl.report.tables import closing_table
from ghn_fl.report.tensorboard import EventWriter, write_events

__all__ = [
    "EventWriter",
    "Grid",
    "Missing",
    "Round",
    "Run",
    "closing_table",
    "compare_runs",
    "comparison_html",
    "parse_round",
    "read_grid",
    "read_run",
    "report_html",
    "write_comparison",
    "write_events",
    "write_grid",
    "write_report",
]
