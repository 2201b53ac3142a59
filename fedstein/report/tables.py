"""The rows of a report as tables: with as many digits as the spread allows, and with suitable units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Any, Literal

from rich import box
from rich.markup import escape
from rich.table import Table

from fedstein.report.groups import ABSENT

Row = dict[str, Any]
NAMES = {"accuracy": "Accuracy", "nll": "NLL", "brier": "Brier", "ece": "ECE", "mce": "MCE", "rmse": "RMSE"}


@dataclass(frozen=True)
class Column:
    """A heading and its formatted cells."""

    heading: str
    cells: list[str]
    number: bool = True


def leading_metric(rows: Sequence[Row]) -> str:
    """Return "accuracy", or "rmse" if no row has an accuracy."""
    return "accuracy" if any(row["final_accuracy"] is not None for row in rows) else "rmse"


def extra_metrics(rows: Sequence[Row]) -> list[str]:
    """The metrics beyond the built-in ones, in the order of the rows' columns."""
    finals = [key.removeprefix("final_") for key in (rows[0] if rows else {}) if key.startswith("final_")]
    return [metric for metric in finals if metric not in NAMES]


def _has(row: Row, metric: str) -> bool:
    return row[f"tail_{metric}"] is not None


def result_columns(rows: Sequence[Row]) -> list[Column]:
    """Build the table with one row for each group: the tail, the last round, the cost.

    Args:
        rows: The rows of the report.
    """
    groups = [row for row in rows if row["level"] == "group"]
    metric = leading_metric(groups)
    shown = [m for m in (metric, "nll", "ece", *extra_metrics(groups)) if any(_has(row, m) for row in groups)]
    columns = [
        Column("Group", [row["group"] for row in groups], number=False),
        Column("Seeds", [str(row["seeds"]) for row in groups]),
    ]
    columns += [Column(NAMES.get(m, m), _plus_minus(groups, m)) for m in shown]
    columns.append(Column("sd within run", _each(groups, f"tail_{metric}_sd_within_run", _decimals(groups, metric))))
    columns.append(Column(f"Final {in_text(metric)}", _each(groups, f"final_{metric}", _decimals(groups, metric))))
    return columns + _cost_columns(groups)


def run_columns(rows: Sequence[Row]) -> list[Column]:
    """Build the table with one row for each run.

    Args:
        rows: The rows of the report.
    """
    runs = [row for row in rows if row["level"] == "seed"]
    metric = leading_metric(runs)
    columns = [
        Column("Group", [row["group"] for row in runs], number=False),
        Column("Seed", [str(row["seed"]) for row in runs]),
        Column("Folder", [row["folder"] for row in runs], number=False),
        Column("Status", [row["status"] for row in runs], number=False),
    ]
    for m in (metric, "nll", "ece", *extra_metrics(runs)):
        if any(_has(row, m) for row in runs):
            columns.append(Column(NAMES.get(m, m), _each(runs, f"tail_{m}", _decimals(runs, m))))
    columns.append(Column(f"Final {in_text(metric)}", _each(runs, f"final_{metric}", _decimals(runs, metric))))
    return columns + _cost_columns(runs)


def difference_columns(rows: Sequence[Row]) -> list[Column]:
    """Build the table that compares each group with the first one: the paired difference and its interval.

    Args:
        rows: The rows of the report.
    """
    groups = [row for row in rows if row["level"] == "group"]
    places = _decimals(groups, leading_metric(groups))
    others = [row for row in groups[1:] if row["difference_mean"] is not None]
    return [
        Column("Group", [row["group"] for row in others], number=False),
        Column("Difference", [signed(row["difference_mean"], places) for row in others]),
        Column("95% interval", [interval(row, places) for row in others]),
    ]


def table(rows: Sequence[Row]) -> Table:
    """Build the table of the groups for the terminal, narrow enough for 80 columns.

    Args:
        rows: The rows of the report.

    Returns:
        The table.
    """
    groups = [row for row in rows if row["level"] == "group"]
    metric = leading_metric(groups)
    kept = [column for column in result_columns(rows) if column.heading in ("Group", "Seeds", NAMES[metric])]
    for m in ("nll", "ece"):
        if any(row[f"tail_{m}"] is not None for row in groups):
            kept.append(Column(NAMES[m], _each(groups, f"tail_{m}", 3)))
    kept.append(Column("Bytes a\nround", [size(_total_bytes(row)) for row in groups]))
    kept.append(Column("Time a\nround", [duration(row["seconds_per_round"]) for row in groups]))
    caption = None
    if any(row["difference_mean"] is not None for row in groups):
        heading = "Difference\n(95%)" if any(row["difference_low"] is not None for row in groups) else "Difference"
        kept.append(Column(heading, [_half_width(row, _decimals(groups, metric)) for row in groups]))
        caption = escape(f"Difference: {in_text(metric)} against {groups[0]['group']}, paired by seed")
    result = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    result.caption, result.caption_justify = caption, "left"
    for column in kept:
        justify: Literal["left", "right"] = "right" if column.number else "left"
        result.add_column(escape(column.heading), justify=justify, no_wrap=column.number, overflow="fold")
    for line in zip(*(column.cells for column in kept), strict=True):
        result.add_row(*map(escape, line))
    return result


def size(number: float | None) -> str:
    """Format bytes in decimal units with three digits: 8.96 kB."""
    if number is None:
        return ABSENT
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= unit:
            return f"{_digits(number / unit)} {name}"
    return f"{number:.0f} B"


def duration(seconds: float | None) -> str:
    """Format seconds with two digits: 35 ms, 1.2 s."""
    if seconds is None:
        return ABSENT
    return f"{seconds * 1e3:.2g} ms" if seconds < 0.0995 else f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"


def fixed(value: float | None, places: int) -> str:
    """Format a number with fixed decimals."""
    return ABSENT if value is None else f"{value:.{places}f}"


def signed(value: float | None, places: int) -> str:
    """Format a number with its sign."""
    return ABSENT if value is None else f"{value:+.{places}f}".replace("-", "−")


def interval(row: Row, places: int) -> str:
    """Format the interval of a difference."""
    if row["difference_low"] is None:
        return "no interval"
    return f"[{signed(row['difference_low'], places)}, {signed(row['difference_high'], places)}]"


def in_text(metric: str) -> str:
    """Return the name of a metric as it is written within a sentence."""
    return NAMES[metric] if NAMES[metric].isupper() else NAMES[metric].lower()


def _half_width(row: Row, places: int) -> str:
    """Format a difference and the half-width of its interval, which is symmetric."""
    mean, high = row["difference_mean"], row["difference_high"]
    return signed(mean, places) if high is None else f"{signed(mean, places)} ± {fixed(high - mean, places)}"


def _total_bytes(row: Row) -> float | None:
    down, up = row["bytes_down_per_round"], row["bytes_up_per_round"]
    return None if down is None or up is None else down + up


def _cost_columns(rows: Sequence[Row]) -> list[Column]:
    def column(heading: str, key: str, form: Callable[[float | None], str]) -> Column:
        return Column(heading, [form(row[key]) for row in rows])

    return [
        column("Down/round", "bytes_down_per_round", size),
        column("Up/round", "bytes_up_per_round", size),
        column("Time/round", "seconds_per_round", duration),
    ]


def _each(rows: Sequence[Row], key: str, places: int) -> list[str]:
    return [fixed(row[key], places) for row in rows]


def _plus_minus(rows: Sequence[Row], metric: str) -> list[str]:
    places = _decimals(rows, metric)
    cells = []
    for row in rows:
        spread = row[f"tail_{metric}_sd_between_seeds"]
        mean = fixed(row[f"tail_{metric}"], places)
        cells.append(mean if spread is None else f"{mean} ± {fixed(spread, places)}")
    return cells


def _decimals(rows: Sequence[Row], metric: str) -> int:
    """Choose the decimals of a column: 3 (rmse: three digits), and one more if the spread between seeds is smaller."""
    places = 3
    if metric == "rmse":
        largest = max((abs(row["tail_rmse"]) for row in rows if row["tail_rmse"]), default=1.0)
        places = max(0, 2 - floor(log10(largest)))
    spreads = [row[f"tail_{metric}_sd_between_seeds"] for row in rows]
    fine = any(spread is not None and 0 < spread < 10.0**-places for spread in spreads)
    return places + fine


def _digits(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
