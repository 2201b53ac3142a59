"""The rows of a report as people read them: no more digits than the spread allows, units that fit."""

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
    """A heading and what stands under it, already formatted."""

    heading: str
    cells: list[str]
    number: bool = True


def leading_metric(rows: Sequence[Row]) -> str:
    """Accuracy, or rmse where nothing has an accuracy."""
    return "accuracy" if any(row["final_accuracy"] is not None for row in rows) else "rmse"


def result_columns(rows: Sequence[Row]) -> list[Column]:
    """One row for each group: the tail, the end, the cost."""
    groups = [row for row in rows if row["level"] == "group"]
    metric = leading_metric(groups)
    shown = [m for m in (metric, "nll", "ece") if any(row[f"tail_{m}"] is not None for row in groups)]
    columns = [
        Column("Group", [row["group"] for row in groups], number=False),
        Column("Seeds", [str(row["seeds"]) for row in groups]),
    ]
    columns += [Column(NAMES[m], _plus_minus(groups, m)) for m in shown]
    columns.append(Column("sd within run", _each(groups, f"tail_{metric}_sd_within_run", _decimals(groups, metric))))
    columns.append(Column(f"Final {in_text(metric)}", _each(groups, f"final_{metric}", _decimals(groups, metric))))
    return columns + _cost_columns(groups)


def run_columns(rows: Sequence[Row]) -> list[Column]:
    """One row for each run."""
    runs = [row for row in rows if row["level"] == "seed"]
    metric = leading_metric(runs)
    columns = [
        Column("Group", [row["group"] for row in runs], number=False),
        Column("Seed", [str(row["seed"]) for row in runs]),
        Column("Folder", [row["folder"] for row in runs], number=False),
        Column("Status", [row["status"] for row in runs], number=False),
    ]
    for m in (metric, "nll", "ece"):
        if any(row[f"tail_{m}"] is not None for row in runs):
            columns.append(Column(NAMES[m], _each(runs, f"tail_{m}", _decimals(runs, m))))
    columns.append(Column(f"Final {in_text(metric)}", _each(runs, f"final_{metric}", _decimals(runs, metric))))
    return columns + _cost_columns(runs)


def difference_columns(rows: Sequence[Row]) -> list[Column]:
    """Each group against the first one: the paired difference and its interval."""
    groups = [row for row in rows if row["level"] == "group"]
    places = _decimals(groups, leading_metric(groups))
    others = [row for row in groups[1:] if row["difference_mean"] is not None]
    return [
        Column("Group", [row["group"] for row in others], number=False),
        Column("Difference", [signed(row["difference_mean"], places) for row in others]),
        Column("95% interval", [interval(row, places) for row in others]),
    ]


def table(rows: Sequence[Row]) -> Table:
    """The groups as a table for the terminal, narrow enough for 80 columns."""
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
    """Bytes in decimal units with three digits: 8.96 kB."""
    if number is None:
        return ABSENT
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= unit:
            return f"{_digits(number / unit)} {name}"
    return f"{number:.0f} B"


def duration(seconds: float | None) -> str:
    """Seconds with two digits: 35 ms, 1.2 s."""
    if seconds is None:
        return ABSENT
    return f"{seconds * 1e3:.2g} ms" if seconds < 0.0995 else f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"


def fixed(value: float | None, places: int) -> str:
    return ABSENT if value is None else f"{value:.{places}f}"


def signed(value: float | None, places: int) -> str:
    return ABSENT if value is None else f"{value:+.{places}f}".replace("-", "−")


def interval(row: Row, places: int) -> str:
    if row["difference_low"] is None:
        return "no interval"
    return f"[{signed(row['difference_low'], places)}, {signed(row['difference_high'], places)}]"


def in_text(metric: str) -> str:
    return NAMES[metric] if NAMES[metric].isupper() else NAMES[metric].lower()


def _half_width(row: Row, places: int) -> str:
    """The difference with its interval, which is symmetric, in few characters."""
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
    """The same for a whole column: 3 (rmse: three digits), one more where seeds agree closer than that shows."""
    places = 3
    if metric == "rmse":
        largest = max((abs(row["tail_rmse"]) for row in rows if row["tail_rmse"]), default=1.0)
        places = max(0, 2 - floor(log10(largest)))
    spreads = [row[f"tail_{metric}_sd_between_seeds"] for row in rows]
    fine = any(spread is not None and 0 < spread < 10.0**-places for spread in spreads)
    return places + fine


def _digits(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
